package strictyaml

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	sigsyaml "sigs.k8s.io/yaml"
)

type inline struct {
	Checks  []item `json:"checks,omitempty"`
	Timeout int32  `json:"timeoutSeconds,omitempty"`
}

type item struct {
	Name    string `json:"name"`
	Timeout int32  `json:"timeoutSeconds,omitempty"`
}

type section struct {
	inline
	Image       any                         `json:"image,omitempty"`
	Tolerations []corev1.Toleration         `json:"tolerations,omitempty"`
	Init        []corev1.Container          `json:"initContainers,omitempty"`
	Volumes     []corev1.Volume             `json:"volumes,omitempty"`
	Resources   corev1.ResourceRequirements `json:"resources,omitempty"`
	Labels      map[string]string           `json:"labels,omitempty"`
	Selector    *metav1.LabelSelector       `json:"selector,omitempty"`
	Hidden      string                      `json:"-"`
}

type file struct {
	Worker   section             `json:"worker"`
	Max      *intstr.IntOrString `json:"max,omitempty"`
	Window   metav1.Duration     `json:"window,omitempty"`
	Small    int8                `json:"small,omitempty"`
	Unsigned uint16              `json:"unsigned,omitempty"`
	QPS      float32             `json:"qps,omitempty"`
	On       *bool               `json:"on,omitempty"`
	Raw      any                 `json:"raw,omitempty"`
	Taints   []taint             `json:"taints,omitempty"`
}

type taint struct {
	Key   string `json:"key"`
	Value string `json:"value,omitempty"`
}

// TestKubernetesTypes decodes a manifest's worth of fields and compares with the decoder that
// Kubernetes' own tools use.
func TestKubernetesTypes(t *testing.T) {
	const data = `
worker:
  checks:
  - name: dns
    timeoutSeconds: 0x1f
  timeoutSeconds: 5
  tolerations: [{key: a, operator: Exists, tolerationSeconds: 30}]
  initContainers:
  - name: warm
    image: busybox
    command: ["sh", "-c", "true"]
    env:
    - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
    resources: {limits: {cpu: 1, memory: 64Mi}, requests: {cpu: 0.5}}
    readinessProbe: {httpGet: {port: http, path: /}, periodSeconds: 3}
    securityContext: {runAsUser: 1000, runAsNonRoot: true}
  volumes:
  - {name: a, emptyDir: {medium: Memory, sizeLimit: 1Gi}}
  - {name: b, configMap: {name: x, defaultMode: 0644}}
  resources:
    requests: {cpu: 100m}
  labels: {"app.kubernetes.io/part-of": x}
  selector: {matchExpressions: [{key: a, operator: In, values: [b]}]}
max: 20%
window: 1h30m
`
	type comparable struct {
		Worker section             `json:"worker"`
		Max    *intstr.IntOrString `json:"max,omitempty"`
		Window metav1.Duration     `json:"window,omitempty"`
	}
	var got, want comparable
	if err := Decode([]byte(data), "f.yaml", &got).Err(nil); err != nil {
		t.Fatal(err)
	}
	if err := sigsyaml.Unmarshal([]byte(data), &want); err != nil {
		t.Fatal(err)
	}
	// A quantity keeps its text once printed; the values are what counts.
	for _, c := range []*comparable{&got, &want} {
		_ = fmt.Sprint(c.Worker.Init[0].Resources.Limits, c.Worker.Init[0].Resources.Requests, c.Worker.Resources.Requests, c.Worker.Volumes[0].EmptyDir.SizeLimit)
	}
	gotText, err := sigsyaml.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	wantText, err := sigsyaml.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if string(gotText) != string(wantText) {
		t.Errorf("got\n%s\nwant\n%s", gotText, wantText)
	}
	if q := got.Worker.Init[0].Resources.Requests[corev1.ResourceCPU]; q.Cmp(resource.MustParse("500m")) != 0 {
		t.Errorf("cpu = %s, want 500m", q.String())
	}
	if got.Worker.Volumes[1].ConfigMap.DefaultMode == nil || *got.Worker.Volumes[1].ConfigMap.DefaultMode != 0o644 {
		t.Error("defaultMode 0644 is not octal")
	}
}

func TestFaults(t *testing.T) {
	for _, test := range []struct {
		name, data string
		want       []string // each the start of one fault, in order
	}{
		{"empty", "", nil},
		{"comment", "# nothing\n", nil},
		{"null document", "---\n~\n", nil},
		{"trailing separator", "small: 1\n---\n", nil},
		{"empty section", "worker:\n", nil},
		{"null list and map and struct", "worker: {checks: , labels: ~, selector: null}\nraw:\n", nil},
		{"null bool", "on:\n", []string{"f.yaml:1: on: must be true or false, not null"}},
		{"null percentage", "max: null\n", []string{"f.yaml:1: max: must be a whole number or a string such as \"20%\", not null"}},
		{"two documents", "small: 1\n---\nsmall: 2\n", []string{"f.yaml:3: a second document"}},
		{"not a mapping", "[1]\n", []string{"f.yaml:1: must be a mapping, not a list"}},
		{"syntax", "worker:\n  a: [\n", []string{"f.yaml:2: not YAML: did not find"}},
		{"unknown with suggestion", "worker:\n  timeoutSecond: 3\n",
			[]string{`f.yaml:2: worker.timeoutSecond: unknown key; did you mean "timeoutSeconds"?`}},
		{"case matters", "Small: 3\n", []string{`f.yaml:1: Small: unknown key; did you mean "small"?`}},
		{"unknown without suggestion", "worker:\n  checks:\n  - name: a\n    colour: 3\n",
			[]string{"f.yaml:4: worker.checks[0].colour: unknown key; known here: name, timeoutSeconds"}},
		{"unknown inside a Kubernetes type", "worker:\n  initContainers:\n  - name: a\n    imagePullpolicy: x\n",
			[]string{`f.yaml:4: worker.initContainers[0].imagePullpolicy: unknown key; did you mean "imagePullPolicy"?`}},
		{"embedded name is no key", "worker:\n  inline: {}\n", []string{"f.yaml:2: worker.inline: unknown key"}},
		{"excluded field is no key", "worker:\n  Hidden: a\n", []string{"f.yaml:2: worker.Hidden: unknown key"}},
		{"duplicate", "small: 1\nsmall: 2\n", []string{"f.yaml:2: small: is set twice, first in line 1"}},
		{"duplicate label", "worker:\n  labels:\n    a/b: x\n    a/b: x\n", []string{"f.yaml:4: worker.labels[a/b]: is set twice"}},
		{"string wanted", "worker:\n  checks:\n  - name: true\n",
			[]string{"f.yaml:3: worker.checks[0].name: must be a string, not the boolean true; put it in quotes"}},
		{"label value unquoted", "worker:\n  labels: {a: 1}\n", []string{"f.yaml:2: worker.labels[a]: must be a string, not the number 1; put it"}},
		{"integer wanted", `small: "3"`, []string{`f.yaml:1: small: must be a whole number, not the string "3"`}},
		{"no fraction", "small: 3.5", []string{"f.yaml:1: small: must be a whole number, not the number 3.5"}},
		{"out of range", "small: 128", []string{"f.yaml:1: small: must be a whole number, not the number 128, which does not fit 8 bits"}},
		{"far out of range", "small: 99999999999999999999999", []string{"f.yaml:1: small: must be a whole number"}},
		{"negative unsigned", "unsigned: -1", []string{"f.yaml:1: unsigned: must be a whole number from 0, not the number -1, which does not fit 16 bits"}},
		{"float", "qps: .nan", []string{"f.yaml:1: qps: must be a finite number"}},
		{"float too large", "qps: 1e300", []string{"f.yaml:1: qps: must be a finite number"}},
		{"bool", "on: yes", []string{`f.yaml:1: on: must be true or false, not the string "yes"`}},
		{"tagged bool", "on: !!bool maybe", []string{`f.yaml:1: on: must be true or false, not the boolean maybe`}},
		{"mapping wanted", "worker: 3", []string{"f.yaml:1: worker: must be a mapping, not the number 3"}},
		{"list wanted", "worker: {checks: {}}", []string{"f.yaml:1: worker.checks: must be a list, not a mapping"}},
		{"null scalar", "small:\n", []string{"f.yaml:1: small: must be a whole number, not null; give a value or remove it"}},
		{"null item", "worker:\n  checks:\n  -\n", []string{"f.yaml:3: worker.checks[0]: must be a mapping, not null"}},
		{"null quantity", "worker: {resources: {limits: {cpu: }}}", []string{"f.yaml:1: worker.resources.limits[cpu]: must be a quantity"}},
		{"quantity", "worker:\n  resources:\n    limits:\n      cpu: 1 core\n",
			[]string{`f.yaml:4: worker.resources.limits[cpu]: must be a quantity such as 100m, 1.5 or "64Mi", not the string "1 core"`}},
		{"int or string", "max: 1.5", []string{`f.yaml:1: max: must be a whole number or a string such as "20%", not the number 1.5`}},
		{"duration number", "window: 30", []string{`f.yaml:1: window: must be a duration such as "30s" or "1h", not the number 30`}},
		{"duration text", "window: 30 s", []string{`f.yaml:1: window: must be a duration`}},
		{"key no string", "worker:\n  labels: {1: a}\n", []string{"f.yaml:2: worker.labels: a key must be a string, not the number 1"}},
		{"tag", "raw: !secret a", []string{"f.yaml:1: raw: must be a finite number or another plain value, not the tag !secret a"}},
		{"tagged string", "worker: {labels: {a: !!binary aGk=}}", []string{"f.yaml:1: worker.labels[a]: must be a string"}},
		{"raw is read too", "raw:\n  a: 1\n  a: 2\n", []string{"f.yaml:3: raw.a: is set twice"}},
		{"all of them, in order", "small: x\nsmal: 1\nworker:\n  timeoutSeconds: a\n  checks: 3\n", []string{
			"f.yaml:1: small: must be", "f.yaml:2: smal: unknown", "f.yaml:4: worker.timeoutSeconds: must", "f.yaml:5: worker.checks: must"}},
		{"merge", "raw: &a {timeoutSeconds: 3}\nworker:\n  <<: *a\n", nil},
		{"merged unknown key", "raw: &a\n  colour: 3\nworker:\n  <<: *a\n", []string{"f.yaml:2: worker.colour: unknown"}},
		{"merge of a scalar", "worker:\n  <<: 3\n", []string{"f.yaml:2: worker: must be a mapping"}},
		{"cycle", "raw: &a [*a]\n", []string{"f.yaml:1: raw[0][0]"}},
		{"merge cycle", "worker: &a\n  <<: *a\n", []string{"f.yaml:1: worker: too large: a file may have at most 50000 values"}},
		{"bomb", bomb(), []string{"f.yaml:2: raw[4]"}},
		{"merge bomb", mergeBomb(), []string{"f.yaml:1: worker.labels["}},
		{"long key", "raw: {a: {? " + strings.Repeat("k", 2000) + " : 1}}", []string{"f.yaml:1: raw.a.kkk"}},
		{"merged twice", "raw: [&a {timeoutSeconds: 3}, &b {timeoutSeconds: x, labels: {a: b}}]\nworker: {<<: [*a, *b]}\n", nil},
		{"twice in what is merged", "raw: &a {labels: {a: b}, labels: {}}\nworker: {<<: *a}\n", []string{"f.yaml:1: raw.labels: is set twice", "f.yaml:1: worker.labels: is set twice"}},
		{"deep", "raw: " + strings.Repeat("[", 2000) + strings.Repeat("]", 2000), []string{"f.yaml:1: raw[0][0]"}},

		{"too long", strings.Repeat("#", MaxBytes+1), []string{"f.yaml:1: is 1048577 bytes long"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var into file
			var faults Faults
			_ = errors.As(Decode([]byte(test.data), "f.yaml", &into).Err(nil), &faults)
			ok := len(faults) == len(test.want)
			for i := 0; ok && i < len(faults); i++ {
				ok = strings.HasPrefix(faults[i].Error(), test.want[i])
			}
			if !ok {
				t.Errorf("got %q\nwant %q", faults, test.want)
			}
		})
	}
}

// bomb is a billion values in ten lines.
func bomb() string {
	var b strings.Builder
	b.WriteString("raw:\n- &a0 [x,x,x,x,x,x,x,x,x,x]\n")
	for i := range 9 {
		fmt.Fprintf(&b, "- &a%d [%s]\n", i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i), 10), ","))
	}
	return b.String()
}

// mergeBomb merges a large mapping many times, which adds no value.
func mergeBomb() string {
	var b strings.Builder
	b.WriteString("raw: &a {")
	for i := range 10_000 {
		fmt.Fprintf(&b, "k%d: x, ", i)
	}
	b.WriteString("}\nworker: {labels: {<<: [" + strings.Repeat("*a, ", 100_000) + "]}}\n")
	return b.String()
}

func TestDefaultsSurvive(t *testing.T) {
	yes := true
	into := file{Small: 5, On: &yes, Taints: []taint{{Key: "a", Value: "of the default"}}, Worker: section{Labels: map[string]string{"a": "b"}, inline: inline{Timeout: 9, Checks: []item{{Name: "x"}}}}}
	if err := Decode([]byte("on: false\nsmall: 0\nworker:\n  checks: []\n  labels:\ntaints: [{key: b}]\n"), "f.yaml", &into).Err(nil); err != nil {
		t.Fatal(err)
	}
	if *into.On || !yes {
		t.Error("on: want false in the result and the default's own variable untouched")
	}
	if into.Small != 0 || into.Worker.Timeout != 9 || into.Worker.Labels["a"] != "b" {
		t.Errorf("got %+v, want an explicit 0 kept and absent keys untouched", into)
	}
	if into.Worker.Checks == nil || len(into.Worker.Checks) != 0 {
		t.Errorf("checks = %#v, want an empty list", into.Worker.Checks)
	}
	if len(into.Taints) != 1 || into.Taints[0] != (taint{Key: "b"}) {
		t.Errorf("taints = %+v: an item of the default shows through", into.Taints)
	}
}

func TestRaw(t *testing.T) {
	var into file
	err := Decode([]byte("raw: {a: [1, 1.5, x, true, ~, 2020-01-01], b: &b {c: 1}, d: {<<: *b, e: 2}}\n"), "f.yaml", &into).Err(nil)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"a": []any{int64(1), 1.5, "x", true, nil, "2020-01-01"},
		"b": map[string]any{"c": int64(1)},
		"d": map[string]any{"c": int64(1), "e": int64(2)},
	}
	if !reflect.DeepEqual(into.Raw, want) {
		t.Errorf("got %#v\nwant %#v", into.Raw, want)
	}
}

func TestErr(t *testing.T) {
	const data = "small: 1\nworker:\n  checks:\n  - name: a\n  -\n    name: b\n  labels:\n    a.b/c: x\nunsigned: x\n"
	worker := field.NewPath("worker")
	err := Decode([]byte(data), "f.yaml", &file{}).Err(field.ErrorList{
		field.Required(worker.Child("labels").Key("x.y/z"), "say it"),
		field.Invalid(worker.Child("labels").Key("a.b/c"), "x", "bad"),
		field.Invalid(worker.Child("checks").Index(1).Child("timeoutSeconds"), 3, "too few"),
		field.Invalid(field.NewPath("nowhere"), 3, "gone"),
		field.Invalid(field.NewPath("unsigned"), 0, "not said, because it could not be read"),
		field.Invalid(field.NewPath("unsigned", "within"), 0, "nor this"),
		field.Invalid(field.NewPath("unsignedToo"), 0, "another"),
	})
	want := []string{
		`f.yaml:1: nowhere: Invalid value: 3: gone`,
		`f.yaml:1: unsignedToo: Invalid value: 0: another`,
		`f.yaml:6: worker.checks[1].timeoutSeconds: Invalid value: 3: too few`,
		`f.yaml:7: worker.labels[x.y/z]: Required value: say it`,
		`f.yaml:8: worker.labels[a.b/c]: Invalid value: "x": bad`,
		`f.yaml:9: unsigned: must be a whole number from 0, not the string "x"`,
	}
	var faults Faults
	if !errors.As(err, &faults) || !reflect.DeepEqual(strings.Split(err.Error(), "\n"), want) {
		t.Errorf("got %q\nwant %q", err, want)
	}
	if err := Decode(nil, "f.yaml", &file{}).Err(nil); err != nil {
		t.Errorf("no faults gave %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte("worker: {checks: [{name: a}], labels: {a: b}}\nmax: 20%\nwindow: 1h\n"))
	f.Add([]byte("raw: &a [1, *a]\nsmall: 1e9\n"))
	f.Add([]byte("worker: &a {<<: [*a, {timeoutSeconds: !!int x}]}\n? [1]\n: 2\n"))
	f.Add([]byte("a: !!binary x\n--- \n..."))
	f.Fuzz(func(_ *testing.T, data []byte) {
		var into file
		for _, fault := range Decode(data, "f.yaml", &into).Faults {
			if fault.Line < 1 || fault.Message == "" {
				panic("a fault without a line or a message")
			}
		}
	})
}

// short is a mapping, a word or a list of numbers.
type short struct {
	Word string  `json:"word"`
	List []int32 `json:"list"`
}

func (*short) Shorthand(list bool) (key string) {
	if list {
		return "list"
	}
	return "word"
}

func TestShorthand(t *testing.T) {
	type file struct {
		A short  `json:"a"`
		P *short `json:"p"`
	}
	for data, want := range map[string]short{
		"a: x": {Word: "x"}, "a: {word: x}": {Word: "x"}, "a: [1, 2]": {List: []int32{1, 2}}, "a:": {}, "b: &b [3]\na: *b": {List: []int32{3}}, "a: {list: [4]}": {List: []int32{4}},
	} {
		var got file
		if d := Decode([]byte(data), "f", &got); len(d.Faults) > 0 && !d.Faults[0].Unknown || !reflect.DeepEqual(got.A, want) {
			t.Errorf("%q is %+v: %v", data, got.A, d.Faults)
		}
	}
	for data, want := range map[string]string{
		"a: 5": "f:1: a: must be a string", "a: [x]": "f:1: a[0]: must be a whole number", "a:\n  wrod: x": `f:2: a.wrod: unknown key; did you mean "word"?`,
		"a: [[1]]": "f:1: a[0]: must be a whole number",
	} {
		if d := Decode([]byte(data), "f", &file{}); len(d.Faults) != 1 || !strings.HasPrefix(d.Faults[0].Error(), want) {
			t.Errorf("%q: %v, want %s", data, d.Faults, want)
		}
	}
	var got file
	if d := Decode([]byte("p: y"), "f", &got); len(d.Faults) > 0 || got.P == nil || got.P.Word != "y" {
		t.Errorf("%+v: %v", got.P, d.Faults)
	}
}
