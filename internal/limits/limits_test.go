package limits

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// A pattern, which the chart's schema has, refuses nothing that the rule takes, and takes little that the rule refuses.
func TestFormats(t *testing.T) {
	label, domain := strings.Repeat("a", 63), strings.Repeat("a.", 126)+"a"
	samples := []string{"a", "A", "1", "-", "a-", "a-b", "a_b", "a.b", "a..b", "A.b", "1a", "a/b", "A/b", "a/B", "/a", "a/", "a/b/c",
		"a.b/c_d.e", "a b", "a\n",
		"=", label, label + "a", domain, domain + "b", label + "/" + label,
		label + "/a" + label, domain + "/" + label, "/", "/a", "a/a", "v1", "Kind"}
	for name, f := range formats {
		for _, s := range samples {
			taken := f.Pattern.MatchString(s) && (f.MaxLength == 0 || len(s) <= f.MaxLength)
			if faults := f.faults(s); (len(faults) == 0) != taken {
				t.Errorf("%s: pattern and length take %q: %t; the rule says %v", name, s, taken, faults)
			}
		}
	}
	for _, s := range []string{"/a//b", "/a/../b", "/a\x00"} {
		if len(formats["clean-path"].faults(s)) == 0 || len(formats["absolute-path"].faults(s)) > 0 {
			t.Errorf("%q is not taken for an absolute path that is no clean one", s)
		}
	}
}

type section struct {
	Number   int32               `json:"number,omitempty" minimum:"1" maximum:"10" or:"-1 for never"`
	Optional *int32              `json:"optional,omitempty" minimum:"1" maximum:"10"`
	Least    float32             `json:"least,omitempty" minimum:"0"`
	Duration metav1.Duration     `json:"duration,omitempty" minimum:"1s" or:"0s for never"`
	Share    *intstr.IntOrString `json:"share,omitempty" minimum:"0" format:"percentage"`
	Word     string              `json:"word,omitempty" enum:"a b"`
	Words    []string            `json:"words,omitempty" enum:"a b"`
	Numbers  []int32             `json:"numbers,omitempty" minimum:"1"`
	Name     string              `json:"name,omitempty" format:"dns-label"`
	Must     string              `json:"must" required:"what to give" format:"dns-label"`
	Mode     string              `json:"mode" required:"" enum:"on off"`
	Entries  []entry             `json:"entries,omitempty"`
	Forms    forms               `json:"forms"`

	Embedded // has no tags of its own
}

// Embedded is exported, as every embedded struct of a configuration.
type Embedded struct {
	Inner *entry `json:"inner,omitempty"`
}

type entry struct {
	Selector metav1.LabelSelector `json:"selector" required:"select something"`
}

// Validate reports on a field with a limit, and on the whole.
func (s *section) Validate(p *field.Path) field.ErrorList {
	if s.Number == 5 || s.Number > 10 {
		return field.ErrorList{field.Invalid(p.Child("number"), s.Number, "is not liked"), field.Invalid(p, "", "nor is the whole")}
	}
	return nil
}

type forms struct {
	Mode string   `json:"mode,omitempty" enum:"x"`
	List []string `json:"list,omitempty" format:"dns-label"`
	More string   `json:"more,omitempty" format:"dns-label"`
}

// Shorthand lets a word stand for the mode.
func (*forms) Shorthand(list bool) string {
	if list {
		return "list"
	}
	return "mode"
}

func TestValidate(t *testing.T) {
	for _, test := range []struct {
		change func(*section)
		want   []string
	}{
		{func(*section) {}, nil},
		{func(s *section) { s.Number = 0 }, []string{"a.number: Invalid value: 0: must be between 1 and 10, or -1 for never"}},
		{func(s *section) { s.Number = -1 }, nil},
		{func(s *section) { s.Number = 5 }, []string{"a.number: Invalid value: 5: is not liked", `a: Invalid value: "": nor is the whole`}},
		{func(s *section) { s.Number = 11 }, []string{"a.number: Invalid value: 11: must be between 1 and 10, or -1 for never", `a: Invalid value: "": nor is the whole`}},
		{func(s *section) { s.Optional = new(int32(0)) }, []string{"a.optional: Invalid value: 0: must be between 1 and 10; remove it to use the default"}},
		{func(s *section) { s.Optional = new(int32(10)) }, nil},
		{func(s *section) { s.Least = -0.5 }, []string{"a.least: Invalid value: -0.5: must be at least 0"}},
		{func(s *section) { s.Duration.Duration = time.Millisecond }, []string{`a.duration: Invalid value: "1ms": must be at least 1s, or 0s for never`}},
		{func(s *section) { s.Duration.Duration = time.Minute }, nil},
		{func(s *section) { s.Share = new(intstr.FromInt32(-1)) }, []string{"a.share: Invalid value: -1: must be at least 0; remove it to use the default"}},
		{func(s *section) { s.Share = new(intstr.FromString("")) }, []string{`a.share: Invalid value: "": must be a number of nodes, or a percentage`}},
		{func(s *section) { s.Share = new(intstr.FromString("20%")) }, nil},
		{func(s *section) { s.Word = "c" }, []string{`a.word: Unsupported value: "c": supported values: "a", "b"`}},
		{func(s *section) { s.Words = []string{"b", "", "b", "b"} }, []string{`a.words[1]: Unsupported value: ""`, `a.words[2]: Duplicate value: "b"`, `a.words[3]: Duplicate`}},
		{func(s *section) { s.Numbers = []int32{1, 1, 0} }, []string{"a.numbers[2]: Invalid value: 0: must be at least 1"}},
		{func(s *section) { s.Name = "A" }, []string{`a.name: Invalid value: "A": a lowercase RFC 1123 label`}},
		{func(s *section) { s.Must, s.Mode = "", "" }, []string{"a.must: Required value: what to give", "a.mode: Required value: one of on, off"}},
		{func(s *section) { s.Must = strings.Repeat("a", 64) }, []string{`a.must: Invalid value: "` + strings.Repeat("a", 64) + `": must be no more than 63 characters`}},
		{func(s *section) {
			s.Entries = []entry{{Selector: metav1.LabelSelector{MatchLabels: map[string]string{}}}}
		}, []string{"a.entries[0].selector: Required value: select something"}},
		{func(s *section) { s.Inner = &entry{} }, []string{"a.inner.selector: Required value"}},
		{func(s *section) { s.Forms.Mode = "y" }, []string{`a.forms: Unsupported value: "y"`}},
		{func(s *section) { s.Forms.List = []string{"A"} }, []string{`a.forms[0]: Invalid value: "A"`}},
		{func(s *section) { s.Forms.More = "A" }, []string{`a.forms.more: Invalid value: "A"`}},
		{func(s *section) { s.Forms.Mode, s.Forms.More = "y", "a" }, []string{`a.forms.mode: Unsupported value: "y"`}},
	} {
		s := section{Number: 1, Must: "a", Mode: "on"}
		test.change(&s)
		var got []string
		for _, fault := range Validate(field.NewPath("a"), &s) {
			got = append(got, fault.Error())
		}
		if !slices.EqualFunc(got, test.want, strings.HasPrefix) {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}

func TestOf(t *testing.T) {
	for field, want := range map[string]string{"Number": "between 1 and 10, or -1 for never", "Least": "at least 0", "Duration": "at least 1s, or 0s for never", "Word": ""} {
		f, _ := reflect.TypeFor[section]().FieldByName(field)
		if got := Of(f).Range(); got != want {
			t.Errorf("%s: got %q, want %q", field, got, want)
		}
	}
	defer func() {
		if r := fmt.Sprint(recover()); !strings.Contains(r, "unknown format dns-labels") {
			t.Errorf("a format that there is not: %s", r)
		}
	}()
	Of(reflect.StructField{Name: "F", Type: reflect.TypeFor[string](), Tag: `format:"dns-labels"`})
}
