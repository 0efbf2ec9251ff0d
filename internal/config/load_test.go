package config

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	sigsyaml "sigs.k8s.io/yaml"

	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/daemonsets"
	"github.com/kube-node-ready/kube-node-ready/internal/strictyaml"
	"github.com/kube-node-ready/kube-node-ready/internal/worker"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestDefaults(t *testing.T) {
	for _, data := range []string{"", "worker:\n  checks:\nreconciliation: {}\nnodeManagement:\n  taints:\n  remediation:\n", "admission: {mode: off}\nrules: {enabled: true}\n", "admission: {mode: false}\n", "admission: {webhook: {}}\n"} {
		c, err := Parse([]byte(data), "config.yaml")
		if err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		got, err := sigsyaml.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		golden := filepath.Join("testdata", "defaults.yaml")
		if *update {
			if err := os.WriteFile(golden, got, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("%q: the defaults are not those of %s; if that is intended, run go test -update.\n%s", data, golden, got)
		}
	}
}

// Each form of daemonSets is read as what it means.
func TestDaemonSetForms(t *testing.T) {
	one := []daemonsets.Name{{Namespace: "a", Name: "b"}}
	for form, want := range map[string]daemonsets.Settings{
		"": {}, "null": {}, "[]": {Named: []daemonsets.Entry{}}, "none": {Mode: daemonsets.None}, "auto": {Mode: daemonsets.Auto},
		"[{namespace: a, name: b}]": {Named: []daemonsets.Entry{{Namespace: "a", Name: "b"}}},
		"{mode: auto}":              {Mode: daemonsets.Auto},
		"{mode: auto, exclude: [{namespace: a, name: b}]}": {Mode: daemonsets.Auto, Exclude: one},
	} {
		c, err := Parse([]byte("nodeManagement: {prerequisites: {daemonSets: "+form+"}}"), "config.yaml")
		if err != nil {
			t.Errorf("%q: %v", form, err)
		} else if got := c.NodeManagement.Prerequisites.DaemonSets; !reflect.DeepEqual(got, want) {
			t.Errorf("%q is read as %+v", form, got)
		}
	}
}

func TestLoad(t *testing.T) {
	_, err := Load(filepath.Join(t.TempDir(), "none.yaml"))
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file gave %v", err)
	}
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte("metrics: {port: 0}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Load(path)
	var faults strictyaml.Faults
	if !errors.As(err, &faults) || len(faults) != 1 || faults[0].Path != "metrics.port" || faults[0].Line != 1 {
		t.Errorf("got %v", err)
	}
}

func TestBurst(t *testing.T) {
	for data, want := range map[string]int32{
		"": 0, "kubernetes: {qps: 0.1}": 1, "kubernetes: {qps: 20}": 40, "kubernetes: {qps: 20, burst: 25}": 25,
	} {
		c, err := Parse([]byte(data), "config.yaml")
		if err != nil {
			t.Fatal(err)
		}
		if c.Kubernetes.Burst != want {
			t.Errorf("%q: burst %d, want %d", data, c.Kubernetes.Burst, want)
		}
	}
}

// TestExample loads the example as the controller and as the worker, which reads the same
// file and must know which of its keys are the controller's.
func TestExample(t *testing.T) {
	path := filepath.Join("..", "..", "examples", "controller-config.yaml")
	c, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if c.For(map[string]string{"karpenter.k8s.aws/instance-gpu-manufacturer": "nvidia"}).Profile != "gpu" {
		t.Error("the profile gpu does not select its nodes")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	read, err := worker.Load(data, path)
	if err != nil {
		t.Fatalf("the worker refuses it: %v", err)
	}
	if !reflect.DeepEqual(read, c.Worker.Config) {
		t.Errorf("the worker reads %+v, the controller %+v", read, c.Worker.Config)
	}
}

// TestWorkerKnowsEveryKey: a key that only the controller knows would make a worker refuse
// the controller's file.
func TestWorkerKnowsEveryKey(t *testing.T) {
	file := map[string]any{}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Config]()) {
		if name := jsonName(f); name != "" {
			file[name] = map[string]any{}
		}
	}
	section := map[string]any{}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Worker]()) {
		if name := jsonName(f); name != "" && len(f.Index) == 1 {
			section[name] = "x"
		}
	}
	file["worker"] = section
	data, err := sigsyaml.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := worker.Load(data, "config.yaml"); err != nil {
		t.Error(err)
	}
}

func TestFaults(t *testing.T) {
	const label64 = "a123456789012345678901234567890123456789012345678901234567890123"
	for _, test := range []struct {
		data string
		want []string // the start of each fault after "config.yaml:"
	}{
		// The file as a whole.
		{"worker: [", []string{"1: not YAML"}},
		{"5", []string{"1: must be a mapping"}},
		{"wroker: {}", []string{`1: wroker: unknown key; did you mean "worker"?`}},
		{"\nreverify: {interval: 1h}\n", []string{"2: reverify: unknown key here; move it to nodeManagement.reverify"}},
		{"prerequisites: {}\nremediation: {}\ntaints: []\nchecks: []\n", []string{
			"1: prerequisites: unknown key here; move it to nodeManagement.prerequisites",
			"2: remediation: unknown key here; move it to nodeManagement.remediation",
			"3: taints: unknown key here; move it to nodeManagement.taints",
			"4: checks: unknown key here; move it to worker.checks"}},
		{"worker: {maxRetries: 3}", []string{"1: worker.maxRetries: unknown key here; move it to reconciliation.maxRetries"}},
		{"worker: {selector: {}}", []string{"1: worker.selector: unknown key"}}, // unexported
		{"admission: {mode: true}", []string{"1: admission.mode: must be a string, not the boolean true"}},
		{"admission: {mode: always}", []string{`1: admission.mode: Unsupported value: "always": supported values: "off", "auto", "policy", "webhook"`}},
		{"admission: {mode: webhook, webhook: {port: 8081}}", []string{"1: admission.webhook.port: Invalid value: 8081: equals metrics.port or health.port; choose another port"}},
		{"admission: {mode: webhook, webhook: {port: 0, name: A, failurePolicy: ignore, certificateDir: certs, certificateLifetime: 1s}}", []string{
			"1: admission.webhook.port: Invalid value: 0", "1: admission.webhook.name: Invalid",
			`1: admission.webhook.failurePolicy: Unsupported value: "ignore": supported values: "Ignore", "Fail"`,
			`1: admission.webhook.certificateDir: Invalid value: "certs": must be an absolute path`,
			`1: admission.webhook.certificateLifetime: Invalid value: "1s": must be at least 30s`}},
		{"metrics: {perNode: some, certificateDir: /certs}", []string{
			`1: metrics.perNode: Unsupported value: "some"`, `1: metrics.certificateDir: Invalid value: "/certs": has no effect while secure is false`}},
		{"metrics: {secure: true, certificateDir: certs}", []string{`1: metrics.certificateDir: Invalid value: "certs": must be an absolute path`}},
		{"metrics: {secure: yes please}", []string{"1: metrics.secure: must be true or false"}},
		{"admission: {backfill: true, backfillMaxAge: 0s}", []string{`1: admission.backfillMaxAge: Invalid value: "0s": must be at least 1s`}},
		{"backfill: true", []string{"1: backfill: unknown key here; move it to admission.backfill"}},
		{"rules: {staleAfter: 10ms}", []string{`1: rules.staleAfter: Invalid value: "10ms": must be at least 1s, or 0s for never`}},
		{"rules: {otherControllerNamespaces: [a, a.b, '']}", []string{
			`1: rules.otherControllerNamespaces[1]: Invalid value: "a.b"`, `1: rules.otherControllerNamespaces[2]: Invalid value: ""`}},
		{"rules: {maxClosedPercent: 101}", []string{"1: rules.maxClosedPercent: Invalid value: 101: must be between 0 and 100"}},
		{"rules: {enabled: false, maxClosedPercent: 10}", []string{"1: rules.maxClosedPercent: Invalid value: 10: has no effect while rules.enabled is false"}},
		{"rules: {enabled: false, takeOver: true, staleAfter: 1m}", []string{
			`1: rules.staleAfter: Invalid value: "1m0s": has no effect while rules.enabled is false`,
			"1: rules.takeOver: Invalid value: true: has no effect while rules.enabled is false"}},
		{"webhook: {enabled: true}", []string{"1: webhook: unknown key"}},

		// worker
		{"worker:\n  checks:\n  - {name: a, type: dnss}\n", []string{"3: worker.checks[0].type: Unsupported value"}},
		{"worker:\n  dnsTestDomains: [a..b, c.d, c.d]\n", []string{"2: worker.dnsTestDomains[0]: Invalid", "2: worker.dnsTestDomains[2]: Duplicate"}},
		{"worker: {timeoutSeconds: 0, checkTimeoutSeconds: 0}", []string{"1: worker.checkTimeoutSeconds: Invalid value: 0: must be between 1 and 3600", "1: worker.timeoutSeconds: Invalid"}},
		{"worker: {timeoutSeconds: -1, checkTimeoutSeconds: 99999999999}", []string{"1: worker.checkTimeoutSeconds: must be a whole number", "1: worker.timeoutSeconds: Invalid value: -1"}},
		{"worker: {image: {repository: 'Foo/Bar:1'}}", []string{"1: worker.image.repository: Invalid"}},
		{"worker: {image: {repository: ''}}", []string{"1: worker.image.repository: Required"}},
		{"worker: {image: {repository: 'localhost:5000/a/b_c', tag: v1+2}}", []string{"1: worker.image.tag: Invalid"}},
		{"worker: {image: {digest: 'sha256:abc'}}", []string{"1: worker.image.digest: Invalid"}},
		{"worker: {image: {pullPolicy: Sometimes}}", []string{"1: worker.image.pullPolicy: Unsupported value"}},
		{"worker: {namespace: a.b}", []string{"1: worker.namespace: Invalid"}},
		{"worker: {serviceAccountName: A, priorityClassName: A_}", []string{"1: worker.serviceAccountName: Invalid", "1: worker.priorityClassName: Invalid"}},
		{"worker: {priorityClassName: ''}", []string{"1: worker.priorityClassName: Required"}},
		{"worker: {scheduling: magic}", []string{`1: worker.scheduling: Unsupported value: "magic": supported values: "direct", "scheduler"`}},
		{"worker: {startTimeoutSeconds: 0, keepFailedSeconds: -1}", []string{"1: worker.startTimeoutSeconds: Invalid", "1: worker.keepFailedSeconds: Invalid"}},
		{"worker: {tolerations: [{operator: Equal}]}", []string{"1: worker.tolerations[0].operator: Invalid"}},
		{"worker: {tolerations: [{key: a, operator: Exists, value: b}]}", []string{"1: worker.tolerations[0].value: Invalid"}},
		{"worker: {tolerations: [{key: a b, operator: Gt, effect: Never}]}", []string{
			"1: worker.tolerations[0].key: Invalid", "1: worker.tolerations[0].operator: Unsupported", "1: worker.tolerations[0].effect: Unsupported"}},
		{"worker: {tolerations: [{key: a, tolerationSeconds: 3}]}", []string{"1: worker.tolerations[0].tolerationSeconds: Invalid"}},
		{"worker: {initContainers: [{name: worker, image: x}]}", []string{"1: worker.initContainers[0].name: Invalid value: \"worker\": is the name of the container"}},
		{"worker: {initContainers: [{name: a}, {name: a, image: x}, {image: x}]}", []string{
			"1: worker.initContainers[0].image: Required", "1: worker.initContainers[1].name: Duplicate", "1: worker.initContainers[2].name: Required"}},
		{"worker: {initContainers: [{name: a, image: x, volumeMounts: [{name: v, mountPath: /a}]}]}", []string{"1: worker.initContainers[0].volumeMounts[0].name: Not found"}},
		{"worker: {volumes: [{name: v}, {name: v, emptyDir: {}, hostPath: {path: /}}]}", []string{
			"1: worker.volumes[1].name: Duplicate", "1: worker.volumes[1]: Invalid value: \"hostPath, emptyDir\": must have exactly one source"}},
		{"worker: {volumes: [{name: v}], volumeMounts: [{name: v}, {name: v, mountPath: /a}, {name: v, mountPath: /a}, {mountPath: /b}]}", []string{
			"1: worker.volumeMounts[0].mountPath: Required", "1: worker.volumeMounts[2].mountPath: Duplicate", "1: worker.volumeMounts[3].name: Required"}},
		{"worker: {env: [{name: NODE_NAME, value: a}, {name: A}, {name: A}, {name: '='}, {name: B, value: a, valueFrom: {fieldRef: {fieldPath: a}}}]}", []string{
			"1: worker.env[0].name: Invalid", "1: worker.env[2].name: Duplicate", "1: worker.env[3].name: Invalid", "1: worker.env[4].valueFrom: Invalid"}},
		{"worker:\n  resources:\n    requests:\n      cpu: 2\n      memory: -1\n    limits:\n      cpu: 1\n", []string{
			"4: worker.resources.requests[cpu]: Invalid value: \"2\": must be at most the limit, 1", "5: worker.resources.requests[memory]: Invalid"}},
		{"worker: {resources: {limits: {cpu: -1}}}", []string{"1: worker.resources.limits[cpu]: Invalid"}},
		{"worker: {resourceClaims: [{name: A, resourceClaimName: a}, {name: b}, {name: b, resourceClaimName: a, resourceClaimTemplateName: c}, {name: c, resourceClaimTemplateName: B}]}", []string{
			"1: worker.resourceClaims[0].name: Invalid", "1: worker.resourceClaims[1]: Required", "1: worker.resourceClaims[2].name: Duplicate",
			"1: worker.resourceClaims[2]: Invalid value: \"b\": has resourceClaimName and resourceClaimTemplateName", "1: worker.resourceClaims[3].resourceClaimTemplateName: Invalid"}},
		{"worker: {resourceClaims: [{name: a, resourceClaimName: a}], resources: {claims: [{name: b}, {}, {name: a, request: A}, {name: a, request: A}]}}", []string{
			"1: worker.resources.claims[0].name: Not found", "1: worker.resources.claims[1].name: Required", "1: worker.resources.claims[2].request: Invalid",
			"1: worker.resources.claims[3]: Duplicate", "1: worker.resources.claims[3].request: Invalid"}},
		{"worker: {initContainers: [{name: a, image: x, resources: {claims: [{name: b}]}}], runtimeClassName: A_, initTimeoutSeconds: -1}", []string{
			"1: worker.initContainers[0].resources.claims[0].name: Not found", "1: worker.runtimeClassName: Invalid", "1: worker.initTimeoutSeconds: Invalid"}},
		{"worker: {scheduling: direct, resourceClaims: [{name: a, resourceClaimName: a}]}", []string{
			`1: worker.scheduling: Invalid value: "direct": does not work with the resourceClaims of worker.resourceClaims: only kube-scheduler allocates claims; remove the key`}},
		{"worker: {scheduling: direct}\nprofiles: [{name: gpu, nodeSelector: {matchLabels: {a: b}}, resourceClaims: [{name: a, resourceClaimName: a}]}]", []string{
			`1: worker.scheduling: Invalid value: "direct": does not work with the resourceClaims of profile "gpu": only kube-scheduler allocates claims; remove the key`}},
		{"worker: {imagePullSecrets: [{name: ''}]}", []string{"1: worker.imagePullSecrets[0].name: Required"}},
		{"worker:\n  podLabels:\n    a: " + label64 + "\n    app.kubernetes.io/name: x\n    node-ready/node-uid: x\n", []string{
			"2: worker.podLabels: Invalid", "4: worker.podLabels[app.kubernetes.io/name]: Invalid", "5: worker.podLabels[node-ready/node-uid]: Invalid"}},
		{"worker:\n  podAnnotations:\n    -: a\n    node-ready/node: x\n", []string{
			"2: worker.podAnnotations: Invalid", "4: worker.podAnnotations[node-ready/node]: Invalid"}},

		// a profile's pod, by the worker's rules
		{profileOf("image: {repository: 'A:1'}, startTimeoutSeconds: -1, initTimeoutSeconds: -1, runtimeClassName: A_, podLabels: {node-ready/a: b}, podAnnotations: {node-ready/a: b}"), []string{
			"1: profiles[0].image.repository: Invalid", "1: profiles[0].startTimeoutSeconds: Invalid", "1: profiles[0].initTimeoutSeconds: Invalid", "1: profiles[0].runtimeClassName: Invalid",
			"1: profiles[0].podLabels[node-ready/a]: Invalid", "1: profiles[0].podAnnotations[node-ready/a]: Invalid"}},
		{profileOf("initContainers: [{name: worker}], env: [{name: NODE_NAME}], volumeMounts: [{name: v, mountPath: /v}], imagePullSecrets: [{}], resourceClaims: [{name: a}], resources: {claims: [{name: b}]}"), []string{
			"1: profiles[0].initContainers[0].name: Invalid", "1: profiles[0].initContainers[0].image: Required", "1: profiles[0].env[0].name: Invalid", "1: profiles[0].volumeMounts[0].name: Not found",
			"1: profiles[0].imagePullSecrets[0].name: Required", "1: profiles[0].resourceClaims[0]: Required", "1: profiles[0].resources.claims[0].name: Not found"}},
		{"worker: {volumes: [{name: v}], volumeMounts: [{name: v, mountPath: /v}], initContainers: [{name: a, image: x, volumeMounts: [{name: v, mountPath: /v}]}]}\n" + profileOf("volumes: []"), []string{
			`2: profiles[0].volumes: Invalid value: "(not shown)": has no volume "v", but worker.volumeMounts[0].name, which the profile inherits, refers to it; add it`,
			`2: profiles[0].volumes: Invalid value: "(not shown)": has no volume "v", but worker.initContainers[0].volumeMounts[0].name, which the profile inherits, refers to it`}},
		{"worker: {resourceClaims: [{name: a, resourceClaimName: a}], resources: {claims: [{name: a}]}}\n" + profileOf("resourceClaims: []"), []string{
			`2: profiles[0].resourceClaims: Invalid value: "(not shown)": has no claim "a", but worker.resources.claims[0].name, which the profile inherits, refers to it`}},
		{"worker: {volumeMounts: [{name: v, mountPath: /v}]}\n" + profileOf("podLabels: {}"), []string{"1: worker.volumeMounts[0].name: Not found"}}, // once

		// reconciliation
		{"reconciliation: {maxRetries: 0, retryBackoff: none, initialBackoffSeconds: 0, maxBackoffSeconds: 0, exhaustedRetrySeconds: 0, intervalSeconds: 0, maxConcurrentVerifications: -1, verificationDeadlineSeconds: -1}", []string{
			"1: reconciliation.maxRetries: Invalid", "1: reconciliation.retryBackoff: Unsupported", "1: reconciliation.initialBackoffSeconds: Invalid",
			"1: reconciliation.maxBackoffSeconds: Invalid", "1: reconciliation.exhaustedRetrySeconds: Invalid", "1: reconciliation.intervalSeconds: Invalid",
			"1: reconciliation.verificationDeadlineSeconds: Invalid",
			"1: reconciliation.maxConcurrentVerifications: Invalid"}},
		{"profiles: [{name: p, nodeSelector: {matchLabels: {a: b}}, verificationDeadlineSeconds: 31536001}]", []string{
			"1: profiles[0].verificationDeadlineSeconds: Invalid value: 31536001: must be between 0 and 31536000"}},
		{"reconciliation: {initialBackoffSeconds: 60}", []string{"1: reconciliation.initialBackoffSeconds: Invalid value: 60: must be at most maxBackoffSeconds (30"}},

		// nodeManagement
		{"nodeManagement: {taints: []}", []string{"1: nodeManagement.taints: Required"}},
		{"nodeManagement:\n  taints:\n  - {key: a, effect: NoSchedule}\n  - {key: a, value: x, effect: NoSchedule}\n  - {key: a, effect: NoExecute}\n", []string{
			`4: nodeManagement.taints[1]: Duplicate value: "a:NoSchedule"`}},
		{"nodeManagement: {taints: [{key: a/b/c, value: '-', effect: None}, {}]}", []string{
			"1: nodeManagement.taints[0].key: Invalid", "1: nodeManagement.taints[0].value: Invalid", "1: nodeManagement.taints[0].effect: Unsupported",
			"1: nodeManagement.taints[1].key: Required", "1: nodeManagement.taints[1].effect: Required"}},
		{"nodeManagement: {taints: [{key: node.kubernetes.io/not-ready, effect: NoSchedule}]}", []string{"1: nodeManagement.taints[0].key: Invalid"}},
		{"nodeManagement:\n  taints:\n  - {key: readiness.k8s.io/a, effect: NoSchedule}\n" +
			"  - {key: startup-taint.cluster-autoscaler.kubernetes.io/a, effect: NoSchedule}\n", []string{
			`4: nodeManagement.taints[1].key: Invalid value: "startup-taint.cluster-autoscaler.kubernetes.io/a": Cluster Autoscaler ` +
				`knows this key as a startup taint, but not readiness.k8s.io/a`}},
		{"nodeManagement: {taints: [{key: a, value: true, effect: NoSchedule}]}", []string{"1: nodeManagement.taints[0].value: must be a string, not the boolean true; put it in quotes"}},
		{"nodeManagement: {taints: [{key: 1, effect: NoSchedule}]}", []string{"1: nodeManagement.taints[0].key: must be a string"}},
		{"nodeManagement: {leavingTaints: [a b, '', a/b, a/b, a/b=x, readiness.k8s.io/a]}", []string{
			`1: nodeManagement.leavingTaints[0]: Invalid value: "a b"`, `1: nodeManagement.leavingTaints[1]: Invalid value: "": name part must be non-empty`,
			`1: nodeManagement.leavingTaints[1]: Invalid value: "": name part must consist of`, `1: nodeManagement.leavingTaints[3]: Duplicate value: "a/b"`, `1: nodeManagement.leavingTaints[4]: Invalid value: "a/b=x"`}},
		{"nodeManagement:\n  leavingTaints:\n  - node-ready/unverified\n", []string{
			`3: nodeManagement.leavingTaints[0]: Invalid value: "node-ready/unverified": is the key of a gating taint, so no node would ever be verified; ` +
				`name the taint that another program adds before it removes a node`}},
		{"nodeManagement: {leavingTaints: [gpu/unverified]}\nprofiles: [{name: a, nodeSelector: {matchLabels: {a: b}}, taints: [{key: gpu/unverified, effect: NoExecute}]}]", []string{
			"1: nodeManagement.leavingTaints[0]: Invalid value: \"gpu/unverified\": is the key of a gating taint"}},
		{"nodeManagement: {leavingTaints: [{key: a, effect: NoSchedule}]}", []string{"1: nodeManagement.leavingTaints[0]: must be a string"}},
		{"nodeManagement: {verifiedLabel: {key: '', value: a b}}", []string{"1: nodeManagement.verifiedLabel.key: Required", "1: nodeManagement.verifiedLabel.value: Invalid"}},
		{"nodeManagement: {nodeSelector: {matchExpressions: [{key: a, operator: In}]}}", []string{"1: nodeManagement.nodeSelector.matchExpressions[0].values: Required"}},
		{"nodeManagement: {nodeSelector: {role: worker}}", []string{"1: nodeManagement.nodeSelector.role: unknown key; known here: matchExpressions, matchLabels"}},
		{"nodeManagement: {prerequisites: {conditions: [{type: node-ready/Verified}, {type: A}, {type: A}, {status: Yes}]}}", []string{
			"1: nodeManagement.prerequisites.conditions[0].type: Invalid", "1: nodeManagement.prerequisites.conditions[2].type: Duplicate",
			"1: nodeManagement.prerequisites.conditions[3].type: Required", "1: nodeManagement.prerequisites.conditions[3].status: Unsupported"}},
		{"nodeManagement: {completedAnnotation: a b, minimumHoldSeconds: -1}", []string{
			`1: nodeManagement.completedAnnotation: Invalid value: "a b"`, "1: nodeManagement.minimumHoldSeconds: Invalid value: -1"}},
		{"nodeManagement: {completedAnnotation: node-ready/record}", []string{
			`1: nodeManagement.completedAnnotation: Invalid value: "node-ready/record": annotations of node-ready have another meaning; choose a key of your own`}},
		{"nodeManagement: {completedAnnotation: karpenter.sh/do-not-disrupt}", []string{"1: nodeManagement.completedAnnotation: Invalid"}},
		{"nodeManagement: {minimumHoldSeconds: 60}\nreconciliation: {verificationDeadlineSeconds: 60}\nprofiles: [{name: a, nodeSelector: {matchLabels: {a: b}}, verificationDeadlineSeconds: 59}]", []string{
			"2: reconciliation.verificationDeadlineSeconds: Invalid value: 60: must be more than nodeManagement.minimumHoldSeconds (60)",
			"3: profiles[0].verificationDeadlineSeconds: Invalid value: 59: must be more than"}},
		{"nodeManagement: {prerequisites: {pods: [{selector: {}, readyAnnotation: a b}]}}", []string{
			"1: nodeManagement.prerequisites.pods[0].namespace: Required value: name it: whoever may annotate", "1: nodeManagement.prerequisites.pods[0].selector: Required",
			"1: nodeManagement.prerequisites.pods[0].readyAnnotation: Invalid"}},
		{"nodeManagement: {prerequisites: {pods: [{namespace: a, selector: {matchLabels: {a: b c}}}]}}", []string{"1: nodeManagement.prerequisites.pods[0].selector.matchLabels: Invalid"}},
		{"nodeManagement: {prerequisites: {pods: [{namespace: a, selector: {matchLabels: {a: b}}, readyBy: both}]}}", []string{
			"1: nodeManagement.prerequisites.pods[0].readyBy: Invalid value: \"both\": needs a readyAnnotation"}},
		{"nodeManagement:\n  prerequisites:\n    pods:\n    - {namespace: a, selector: {matchLabels: {a: b}}, readyAnnotation: 'a=', readyBy: either}\n", []string{
			"4: nodeManagement.prerequisites.pods[0].readyAnnotation: Invalid value: \"a=\": must be key=value",
			"4: nodeManagement.prerequisites.pods[0].readyBy: Unsupported value: \"either\": supported values: \"any\", \"annotation\", \"both\""}},
		{"nodeManagement: {prerequisites: {daemonSets: all}}", []string{
			`1: nodeManagement.prerequisites.daemonSets: Unsupported value: "all": supported values: "none", "auto"`}},
		{"nodeManagement: {prerequisites: {daemonSets: true}}", []string{"1: nodeManagement.prerequisites.daemonSets: must be a string, not the boolean true"}},
		{"nodeManagement:\n  prerequisites:\n    daemonSets:\n    - {namespace: a, name: b}\n    - {namespace: a, name: b}\n    - {nam: b}\n", []string{
			`5: nodeManagement.prerequisites.daemonSets[1]: Duplicate value: "a/b"`, `6: nodeManagement.prerequisites.daemonSets[2].nam: unknown key; did you mean "name"?`,
			"6: nodeManagement.prerequisites.daemonSets[2].namespace: Required", "6: nodeManagement.prerequisites.daemonSets[2].name: Required"}},
		{"nodeManagement: {prerequisites: {daemonSets: {auto: {}}}}", []string{"1: nodeManagement.prerequisites.daemonSets.auto: unknown key; known here: exclude, mode, named"}},
		{"nodeManagement: {prerequisites: {daemonSets: {exclude: [{namespace: a, name: b}]}}}", []string{
			"1: nodeManagement.prerequisites.daemonSets.exclude: Forbidden: works only with mode: auto"}},
		{"nodeManagement: {prerequisites: {daemonSets: {mode: auto, exclude: [{namespace: A, name: b_c}]}}}", []string{
			"1: nodeManagement.prerequisites.daemonSets.exclude[0].namespace: Invalid", "1: nodeManagement.prerequisites.daemonSets.exclude[0].name: Invalid"}},
		{"nodeManagement:\n  prerequisites:\n    daemonSets:\n    - {namespace: a, name: b, anyOf: [{namespace: a, name: c}], provides: {}}\n    - {anyOf: [{namespace: a, name: c}, {name: d}, {namespace: a, name: c}]}\n    - {anyOf: []}\n", []string{
			"4: nodeManagement.prerequisites.daemonSets[0].anyOf: Forbidden: cannot be combined with namespace and name", "4: nodeManagement.prerequisites.daemonSets[0].provides: Required value: set csiNodes, allocatable or resourceSlices",
			"5: nodeManagement.prerequisites.daemonSets[1].anyOf[1].namespace: Required", `5: nodeManagement.prerequisites.daemonSets[1].anyOf[2]: Duplicate value: "a/c"`,
			"6: nodeManagement.prerequisites.daemonSets[2].namespace: Required", "6: nodeManagement.prerequisites.daemonSets[2].name: Required"}},
		{"nodeManagement:\n  prerequisites:\n    daemonSets:\n      mode: auto\n      named:\n      - {namespace: a, name: b, provides: {csiNodes: [{driver: a b}], allocatable: {a/b: 0}}}\n      - {namespace: a, name: b}\n", []string{
			"6: nodeManagement.prerequisites.daemonSets.named[0].provides.csiNodes[0].driver: Invalid", "6: nodeManagement.prerequisites.daemonSets.named[0].provides.allocatable[a/b]: Invalid",
			`7: nodeManagement.prerequisites.daemonSets.named[1]: Duplicate value: "a/b"`}},
		{"nodeManagement:\n  presets:\n  - cillium\n  - ebs-csi\n  - ebs-csi\nprofiles:\n- name: a\n  nodeSelector: {matchLabels: {a: b}}\n  presets: [flannel, gpu]\n", []string{
			`3: nodeManagement.presets[0]: Invalid value: "cillium": is not a preset; did you mean "cilium"?`, `5: nodeManagement.presets[2]: Duplicate value: "ebs-csi"`,
			`9: profiles[0].presets[0]: Invalid value: "flannel": is not a preset; known here: cilium, calico, aws-vpc-cni`, `9: profiles[0].presets[1]: Invalid value: "gpu": is not a preset; known here`}},
		{"nodeManagement:\n  prerequisites:\n    daemonSets:\n    - {selector: {}}\n    - {selector: {matchLabels: {a: b c}}}\n" +
			"    - {selector: {matchLabels: {a: b}}, name: c, provides: {allocatable: {a/b: 1}}}\n" +
			"    - {selector: {matchLabels: {a: b}}, namespace: n}\n    - {selector: {matchLabels: {a: b}}, namespace: n}\n", []string{
			"4: nodeManagement.prerequisites.daemonSets[0].selector: Required", "5: nodeManagement.prerequisites.daemonSets[1].selector.matchLabels: Invalid",
			"6: nodeManagement.prerequisites.daemonSets[2].selector: Forbidden", "6: nodeManagement.prerequisites.daemonSets[2].provides: Forbidden",
			`8: nodeManagement.prerequisites.daemonSets[4]: Duplicate value: "a=b in namespace n"`}},
		{"nodeManagement: {prerequisites: {csiNodes: [{}, {driver: a b}, {driver: A.example.com}, {driver: a.example.com}]}}", []string{
			"1: nodeManagement.prerequisites.csiNodes[0].driver: Required", "1: nodeManagement.prerequisites.csiNodes[1].driver: Invalid",
			"1: nodeManagement.prerequisites.csiNodes[3].driver: Duplicate"}},
		{"nodeManagement: {prerequisites: {csiNodes: [{driver: a.example.com, allocatable: 5}]}}", []string{"1: nodeManagement.prerequisites.csiNodes[0].allocatable: must be true or false"}},
		{"nodeManagement: {prerequisites: {csiNodes: [{driver: " + label64 + "}]}}", []string{"1: nodeManagement.prerequisites.csiNodes[0].driver: Invalid value: \"a1"}},
		{"nodeManagement:\n  prerequisites:\n    allocatable:\n      nvidia.com/gpu: 0\n      a b: 1\n      cpu: many\n", []string{
			"4: nodeManagement.prerequisites.allocatable[nvidia.com/gpu]: Invalid value: \"0\": must be greater than 0", "5: nodeManagement.prerequisites.allocatable[a b]: Invalid",
			"6: nodeManagement.prerequisites.allocatable[cpu]: must be a quantity"}},
		{"nodeManagement: {prerequisites: {resourceSlices: [{}, {driver: GPU}, {driver: gpu}, {driver: gpu}]}}", []string{
			"1: nodeManagement.prerequisites.resourceSlices[0].driver: Required", "1: nodeManagement.prerequisites.resourceSlices[1].driver: Invalid",
			"1: nodeManagement.prerequisites.resourceSlices[3].driver: Duplicate"}},
		{"nodeManagement: {prerequisites: {resourceSlices: [{driver: a, minDevices: 0}]}}", []string{
			"1: nodeManagement.prerequisites.resourceSlices[0].minDevices: Invalid value: 0: must be at least 1"}},
		{"nodeManagement: {prerequisites: {resources: [{}]}}", []string{"1: nodeManagement.prerequisites.resources[0].apiVersion: Required",
			"1: nodeManagement.prerequisites.resources[0].kind: Required", "1: nodeManagement.prerequisites.resources[0].condition: Required"}},
		{"nodeManagement: {prerequisites: {resources: [{apiVersion: a/b/c, kind: foo, namespace: A, selector: 'a=={{ node }}', condition: 'a b', status: no}]}}", []string{
			"1: nodeManagement.prerequisites.resources[0].apiVersion: Invalid", "1: nodeManagement.prerequisites.resources[0].kind: Invalid",
			"1: nodeManagement.prerequisites.resources[0].namespace: Invalid", "1: nodeManagement.prerequisites.resources[0].selector: Invalid value: \"a=={{ node }}\": {{node}} is the only placeholder",
			"1: nodeManagement.prerequisites.resources[0].condition: Invalid", "1: nodeManagement.prerequisites.resources[0].status: Unsupported"}},
		{"nodeManagement: {prerequisites: {resources: [{apiVersion: v1, kind: Foo, selector: 'a=,b in', condition: Ready}]}}", []string{"1: nodeManagement.prerequisites.resources[0].selector: Invalid"}},
		{"nodeManagement: {reverify: {interval: -1h}}", []string{"1: nodeManagement.reverify.interval: Invalid"}},
		{"nodeManagement: {reverify: {interval: 3600}}", []string{`1: nodeManagement.reverify.interval: must be a duration such as "30s"`}},
		{"nodeManagement: {remediation: {maxUnhealthy: 101%, window: 0s, maxDeletionsPerHour: -1}}", []string{
			"1: nodeManagement.remediation.maxUnhealthy: Invalid", "1: nodeManagement.remediation.window: Invalid", "1: nodeManagement.remediation.maxDeletionsPerHour: Invalid"}},
		{"nodeManagement: {remediation: {maxUnhealthyPerZone: 101%, maxInFlight: 0}}", []string{
			"1: nodeManagement.remediation.maxUnhealthyPerZone: Invalid", "1: nodeManagement.remediation.maxInFlight: Invalid"}},
		{"nodeManagement: {remediation: {action: reboot, condition: {type: a b, status: Yes}}}", []string{
			"1: nodeManagement.remediation.action: Unsupported", "1: nodeManagement.remediation.condition.type: Invalid", "1: nodeManagement.remediation.condition.status: Unsupported"}},
		{"nodeManagement: {remediation: {action: condition, condition: {type: Ready}}}", []string{"1: nodeManagement.remediation.condition.type: Invalid value: \"Ready\": belongs to Kubernetes"}},
		{"nodeManagement: {remediation: {condition: {type: node-ready/Verified}}}", []string{"1: nodeManagement.remediation.condition.type: Invalid"}},
		{"nodeManagement: {reverify: {onConditions: [{type: node-ready/RemediationRequired}]}}", []string{"1: nodeManagement.reverify.onConditions[0].type: Invalid"}},
		{"nodeManagement: {remediation: {actions: [{delete: {}}]}}", []string{"1: nodeManagement.remediation.actions: unknown key"}},
		{"nodeManagement: {remediation: {maxUnhealthy: -1}}", []string{"1: nodeManagement.remediation.maxUnhealthy: Invalid"}},
		{"nodeManagement: {remediation: {maxUnhealthy: ten}}", []string{"1: nodeManagement.remediation.maxUnhealthy: Invalid"}},

		// The other sections.
		{"leaderElection: {id: A_, namespace: a.b}", []string{"1: leaderElection.id: Invalid", "1: leaderElection.namespace: Invalid"}},
		{"metrics: {port: 65536}\nhealth: {port: 0}", []string{"1: metrics.port: Invalid", "2: health.port: Invalid"}},
		{"metrics: {port: 8081}", []string{"1: health.port: Invalid value: 8081: equals metrics.port; choose another port"}},
		{"metrics: {port: 8081, enabled: false}", nil},
		{"health: {pprofBindAddress: localhost}", []string{"1: health.pprofBindAddress: Invalid"}},
		{"health: {pprofBindAddress: '127.0.0.1:0'}", []string{"1: health.pprofBindAddress: Invalid"}},
		{"health: {pprofBindAddress: '127.0.0.1:8080'}", []string{`1: health.pprofBindAddress: Invalid value: "127.0.0.1:8080": has the port of metrics or health`}},
		{"health: {pprofBindAddress: '127.0.0.1:6060'}", nil},
		{"metrics: {perNode: some}", []string{"1: metrics.perNode: Unsupported"}},
		{"logging: {level: loud, format: xml}", []string{"1: logging.level: Unsupported", "1: logging.format: Unsupported"}},
		{"kubernetes: {qps: -1, burst: -1}", []string{"1: kubernetes.qps: Invalid", "1: kubernetes.burst: Invalid"}},
		{"kubernetes: {qps: 1e9}", []string{"1: kubernetes.qps: Invalid"}},
		{"kubernetes: {burst: 10}", []string{"1: kubernetes.burst: Invalid"}},

		// profiles
		{"profiles: [{}]", []string{"1: profiles[0].name: Required", "1: profiles[0].nodeSelector: Required"}},
		{"profiles:\n- {name: a, nodeSelector: {matchLabels: {a: b}}}\n- {name: a, nodeSelector: {matchLabels: {a b: c}}, taints: [{}], timeoutSeconds: -1}\n", []string{
			"3: profiles[1].name: Duplicate", "3: profiles[1].nodeSelector.matchLabels: Invalid", "3: profiles[1].timeoutSeconds: Invalid",
			"3: profiles[1].taints[0].key: Required", "3: profiles[1].taints[0].effect: Required"}},
		{"profiles: [{name: a, nodeSelector: {matchLabels: {a: b}}, checks: [{name: a}], prerequisites: {pods: [{}]}, tolerations: [{}], resources: {limits: {cpu: -1}}}]", []string{
			"1: profiles[0].checks[0].type: Required", "1: profiles[0].prerequisites.pods[0].namespace: Required", "1: profiles[0].prerequisites.pods[0].selector: Required",
			"1: profiles[0].tolerations[0].operator: Invalid", "1: profiles[0].resources.limits[cpu]: Invalid"}},
		{"worker: {dnsTestDomains: [a.b]}\nprofiles:\n- name: a\n  nodeSelector: {matchLabels: {a: b}}\n  checks: [{name: dns-a.b, type: tcp}]\n", []string{
			"3: profiles[0].dnsTestDomains[0]: Invalid"}},
	} {
		t.Run(test.data, func(t *testing.T) {
			_, err := Parse([]byte(test.data), "config.yaml")
			var faults strictyaml.Faults
			if err != nil && !errors.As(err, &faults) {
				t.Fatal(err)
			}
			slices.SortFunc(faults, func(a, b strictyaml.Fault) int { return strings.Compare(a.Error(), b.Error()) })
			slices.Sort(test.want)
			ok := len(faults) == len(test.want)
			for i := 0; ok && i < len(faults); i++ {
				ok = strings.HasPrefix(faults[i].Error(), "config.yaml:"+test.want[i])
			}
			if !ok {
				t.Errorf("got\n%s\nwant\n%s", faults, strings.Join(test.want, "\n"))
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"worker: {checks: [{name: a, type: dns}], image: {tag: a}}\n",
		"nodeManagement: {taints: [{key: a, effect: NoSchedule}], remediation: {maxUnhealthy: 5%}}\n",
		"profiles: [{name: a, nodeSelector: {matchLabels: {a: b}}, resources: {limits: {cpu: 1}}}]\n",
		"nodeManagement: {prerequisites: {resources: [{apiVersion: v1, kind: Foo, selector: 'a={{node}}', condition: Ready}]}}\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse(data, "config.yaml")
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without a message")
			}
			return
		}
		c.For(map[string]string{"a": "b"})
		c.Selects(nil)
		if len(c.GatingTaints()) == 0 {
			t.Error("no taint gates any node")
		}
	})
}

// profileOf is a file with a profile that has these keys.
func profileOf(keys string) string {
	return "profiles: [{name: p, nodeSelector: {matchLabels: {a: b}}, " + keys + "}]"
}
