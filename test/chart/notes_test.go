package chart

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// notes are what Helm prints after an installation with the values.
func notes(t *testing.T, values string, more ...string) string {
	t.Helper()
	found := render(t, values+`
extraObjects:
  - |
    apiVersion: v1
    kind: ConfigMap
    metadata: {name: notes, namespace: {{ include "kube-node-ready.namespace" . }}}
    data: {notes: {{ include "kube-node-ready/templates/NOTES.txt" . | toJson }}}
`, more...)
	for key, o := range found {
		if o.GetKind() == "ConfigMap" && o.GetName() == "notes" {
			return get[corev1.ConfigMap](t, found, key).Data["notes"]
		}
	}
	t.Fatal("the notes are not rendered")
	return ""
}

// Helm does not see which other pods a namespace has, so the notes have no command that closes it for them. Pod Security
// is no advice where it rejects our own pods.
func TestNotesCloseNoNamespace(t *testing.T) {
	const own, policy = "a namespace of its own", "Set admissionPolicy.pods to true"
	for name, test := range map[string]struct {
		values string
		want   map[string]bool
	}{
		"the defaults":          {"", map[string]bool{own: true, policy: true}},
		"in kube-system":        {"namespaceOverride: kube-system", map[string]bool{own: true, policy: true}},
		"workers in another":    {"controller: {config: {worker: {namespace: monitoring}}}", map[string]bool{own: true, "in namespace monitoring": true}},
		"the host's network":    {"controller: {hostNetwork: true}", map[string]bool{own: false, policy: true}},
		"a path of the host":    {"controller: {extraVolumes: [{name: a, hostPath: {path: /a}}]}", map[string]bool{own: false, policy: true}},
		"one of the workers":    {"controller: {config: {worker: {volumes: [{name: a, hostPath: {path: /a}}]}}}", map[string]bool{own: false, policy: true}},
		"one of a profile":      {"controller: {config: {profiles: [{name: p, nodeSelector: {matchLabels: {a: b}}, volumes: [{name: a, hostPath: {path: /a}}]}]}}", map[string]bool{own: false, policy: true}},
		"a privileged burn-in":  {"controller: {config: {worker: {initContainers: [{name: a, image: a, securityContext: {privileged: true}}]}}}", map[string]bool{own: false, policy: true}},
		"a policy for the pods": {"admissionPolicy: {pods: true}", map[string]bool{own: false, policy: false, "stolen": false}},
	} {
		got := notes(t, test.values)
		if strings.Contains(got, "kubectl label") {
			t.Errorf("%s: the notes have a command that labels a namespace:\n%s", name, got)
		}
		for part, want := range test.want {
			if strings.Contains(got, part) != want {
				t.Errorf("%s: %q in the notes: %v, want %v\n%s", name, part, !want, want, got)
			}
		}
	}
}

// A dry run leaves the conditions that ask a repairer to act, so the notes say how to remove them first.
func TestNotesOfADryRun(t *testing.T) {
	for action, want := range map[string]bool{"delete": false, "condition": true} {
		got := notes(t, "controller: {dryRun: true, config: {nodeManagement: {remediation: {action: "+action+"}}}}")
		if !strings.Contains(got, "controller.dryRun is set") || strings.Contains(got, "kubectl node-ready pause") != want {
			t.Errorf("action %s: the notes are\n%s", action, got)
		}
	}
}

// Another project's worker exits with 0 whatever our configuration asks for.
func TestNotesWarnOfAnotherWorker(t *testing.T) {
	const profile = "controller: {config: {profiles: [{name: gpu, nodeSelector: {matchLabels: {a: b}}, image: {%s}}]}}"
	for values, want := range map[string]string{
		"": "",
		"worker: {image: {repository: ghcr.io/imunhatep/kube-node-ready, tag: v1}}":                "the image ghcr.io/imunhatep/kube-node-ready is not",
		"controller: {config: {worker: {image: {repository: example.com/tools}}}}":                 "the image example.com/tools is not",
		strings.Replace(profile, "%s", "repository: example.com/gpu", 1):                           "the image example.com/gpu of profile gpu is not",
		strings.Replace(profile, "%s", "tag: v2", 1):                                               "",
		"worker: {image: {repository: ghcr.io/kube-node-ready/kube-node-ready-worker}}":            "",
		"worker: {image: {repository: mirror.example.com/ghcr/kube-node-ready/kube-node-ready}}":   "",
		"controller: {image: {repository: example.com/ready}}":                                     "",
		"controller: {image: {repository: a.io/r}}\nworker: {image: {repository: a.io/r-worker}}":  "",
		"global: {imageRegistry: mirror.example.com}\ncontroller: {image: {repository: a.io/own}}": "",
	} {
		got := notes(t, values)
		if strings.Contains(got, "Warning: ") != (want != "") || !strings.Contains(got, want) {
			t.Errorf("%s: want %q in\n%s", values, want, got)
		}
	}
}
