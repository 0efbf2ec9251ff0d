package kubectlplugin

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// The images of profiles and of init containers are examined as the worker's is.
func TestDoctorExaminesImagesOfProfiles(t *testing.T) {
	profile := func(image string) string {
		return "profiles: [{name: gpu, nodeSelector: {matchLabels: {gpu: a}}, " + image + "}]"
	}
	const ours, digest = "ghcr.io/kube-node-ready/kube-node-ready", "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	const foreign = "run the image example.com/gpu-tools, which is not from the chart's repository"
	for name, test := range map[string]struct {
		config       string
		found, noted []string
	}{
		"none":                     {config: "{}"},
		"another product's":        {config: profile("image: {repository: example.com/gpu-tools}"), found: []string{"workers of profile gpu " + foreign, "leave profiles[0].image empty"}},
		"the worker's":             {config: "worker: {image: {repository: example.com/gpu-tools}}\n" + profile("image: {tag: v1}"), found: []string{"workers " + foreign}},
		"a mirror's":               {config: profile("image: {repository: example.com/kube-node-ready/kube-node-ready-worker}")},
		"of another version":       {config: profile("image: {tag: v2}"), found: []string{"the controller runs " + ours + ":v1, workers of profile gpu " + ours + ":v2"}},
		"the worker of another":    {config: "worker: {image: {repository: " + ours + "-worker, tag: v2}}\n" + profile("image: {pullPolicy: Always}"), found: []string{"its workers " + ours + "-worker:v2", "workers of profile gpu"}},
		"pinned":                   {config: profile("image: {tag: v2, digest: '" + strings.TrimPrefix(digest, "@") + "'}")},
		"init, without a tag":      {config: profile("initContainers: [{name: burn-in, image: 'example.com:5000/dcgm'}]"), noted: []string{"profiles[0].initContainers[0] (burn-in) runs the image example.com:5000/dcgm, whose tag can change"}},
		"init of worker, latest":   {config: "worker: {initContainers: [{name: a, image: 'dcgm:latest'}]}", noted: []string{"worker.initContainers[0] (a) runs the image dcgm:latest"}},
		"init, by version":         {config: profile("initContainers: [{name: burn-in, image: 'example.com:5000/dcgm:4'}]")},
		"init, latest by a digest": {config: profile("initContainers: [{name: burn-in, image: 'dcgm:latest" + digest + "'}]")},
	} {
		v := &invocation{cluster: &cluster{client: fake.NewClientset(), component: componentController, config: configuration(t, test.config)}}
		d := diagnosis{overview: overview{Replicas: &replicasView{Images: []string{ours + ":v1"}},
			pods: []corev1.Pod{{Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: ours + ":v1"}}}}}}}
		if err := examineVersions(t.Context(), v, &d); err != nil {
			t.Fatal(err)
		}
		if err := examineImage(t.Context(), v, &d); err != nil {
			t.Fatal(err)
		}
		has := func(all []finding, want []string, count int) {
			t.Helper()
			var text strings.Builder
			for _, f := range all {
				text.WriteString(f.What + "; " + f.Fix + "\n")
			}
			for _, w := range want {
				if !strings.Contains(text.String(), w) {
					t.Errorf("%s: not %q:\n%s", name, w, text.String())
				}
			}
			if len(want) == 0 && count > 0 {
				t.Errorf("%s: %s", name, text.String())
			}
		}
		has(d.Findings, test.found, len(d.Findings))
		has(d.Notes, test.noted, len(d.Notes))
	}
}
