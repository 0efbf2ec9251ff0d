package chart

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
)

// parsed is the rendered configuration file as the controller reads it.
func parsed(t *testing.T, values string) *config.Config {
	t.Helper()
	c, err := config.Parse([]byte(file(t, render(t, values))), "config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// What values.yaml spells out is what the controller does without it, but for what the chart derives
// and the workers' resources, which only a chart can choose.
func TestDefaultValuesAreTheControllersDefaults(t *testing.T) {
	got := parsed(t, "")
	want, err := config.Parse(nil, "empty")
	if err != nil {
		t.Fatal(err)
	}
	want.Worker.Image.Tag = "v0.1.0"
	want.Worker.Image.PullPolicy = got.Worker.Image.PullPolicy
	want.Worker.Resources = got.Worker.Resources
	if len(got.Worker.DNSTestDomains) != 0 {
		t.Errorf("dnsTestDomains %v", got.Worker.DNSTestDomains)
	}
	want.Worker.DNSTestDomains = got.Worker.DNSTestDomains // an empty list or none
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the chart's configuration is\n%+v\nthe controller's own is\n%+v", got, want)
	}
}

// The taints that the chart makes the controller tolerate are those that the controller reads.
func TestTolerationsAreTheConfigurationsTaints(t *testing.T) {
	for _, example := range append(exampleValues(t), filepath.Join(chartDir, "values.yaml")) {
		values := readFile(t, example)
		tolerations := deployment(t, render(t, values)).Spec.Template.Spec.Tolerations
		for _, taint := range parsed(t, values).GatingTaints() {
			if !tolerates(tolerations, taint.Key, taint.Effect) {
				t.Errorf("%s: %s:%s is not tolerated by %v", example, taint.Key, taint.Effect, tolerations)
			}
		}
	}
}

func exampleValues(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../examples/values-*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("%v, %v", files, err)
	}
	return files
}

// The example values are read by the controller as they are meant.
func TestExamplesAreRead(t *testing.T) {
	for _, example := range exampleValues(t) {
		t.Run(filepath.Base(example), func(t *testing.T) { parsed(t, readFile(t, example)) })
	}
	ha := parsed(t, readFile(t, "../../examples/values-ha-deleting.yaml"))
	if !ha.NodeManagement.DeleteFailedNodes || !ha.NodeManagement.Remediation.DryRun {
		t.Error("values-ha-deleting.yaml does not begin with a dry run of deletion")
	}
	custom := parsed(t, readFile(t, "../../examples/values-custom-checks.yaml"))
	gpu := custom.For(map[string]string{"example.com/pool": "gpu"})
	if gpu.TimeoutSeconds != 300 || len(gpu.Checks) != 9 || gpu.Taints[0].Effect != corev1.TaintEffectNoSchedule {
		t.Errorf("profile gpu: %+v", gpu)
	}
	if _, err := os.Stat("../../examples/controller-config.yaml"); err != nil {
		t.Fatal(err)
	}
}

// The values on the pages for those who used another controller are taken by chart and controller.
func TestComingFromValues(t *testing.T) {
	pages, err := filepath.Glob("../../docs/guides/coming-from/*.md")
	if err != nil || len(pages) < 4 {
		t.Fatalf("%v, %v", pages, err)
	}
	for _, page := range pages {
		t.Run(filepath.Base(page), func(t *testing.T) {
			blocks := yamlBlock.FindAllStringSubmatch(readFile(t, page), -1)
			if len(blocks) == 0 {
				t.Fatal("no values")
			}
			for _, block := range blocks {
				parsed(t, block[1])
			}
		})
	}
}

var yamlBlock = regexp.MustCompile("(?ms)^ *```yaml$(.*?)^ *```$")
