package chart

import (
	"maps"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"github.com/kube-node-ready/kube-node-ready/internal/rules/rule"
)

const deploymentKey = "Deployment kube-node-ready/kube-node-ready-controller"

func deployment(t *testing.T, found objects) *appsv1.Deployment {
	t.Helper()
	return get[appsv1.Deployment](t, found, deploymentKey)
}

// file is the configuration file in the rendered ConfigMap.
func file(t *testing.T, found objects) string {
	t.Helper()
	return get[corev1.ConfigMap](t, found, configKey(t, found)).Data["config.yaml"]
}

// configKey is the key of the rendered ConfigMap of the configuration, whose name the Deployment's volume has.
func configKey(t *testing.T, found objects) string {
	t.Helper()
	d := deployment(t, found)
	for _, v := range d.Spec.Template.Spec.Volumes {
		if v.Name == "config" {
			return "ConfigMap " + d.Namespace + "/" + v.ConfigMap.Name
		}
	}
	t.Fatal("the Deployment mounts no configuration")
	return ""
}

func decoded(t *testing.T, found objects) map[string]any {
	t.Helper()
	var config map[string]any
	if err := yaml.UnmarshalStrict([]byte(file(t, found)), &config); err != nil {
		t.Fatal(err)
	}
	return config
}

// at reads a nested value: at(config, "worker", "image", "tag").
func at(value any, path ...string) any {
	for _, key := range path {
		value, _ = value.(map[string]any)[key]
	}
	return value
}

func TestDefaults(t *testing.T) {
	found := render(t, "")
	want := []string{
		"ClusterRole kube-node-ready-controller",
		"ClusterRole kube-node-ready-operator",
		"ClusterRole kube-node-ready-rules-editor",
		"ClusterRole kube-node-ready-rules-viewer",
		"ClusterRole kube-node-ready-viewer",
		"ClusterRoleBinding kube-node-ready-controller",
		configKey(t, found),
		"ConfigMap kube-node-ready/kube-node-ready-remediations",
		"CustomResourceDefinition nodereadinessrules.readiness.node.x-k8s.io",
		deploymentKey,
		"Lease kube-node-ready/kube-node-ready-controller",
		"Pod kube-node-ready/kube-node-ready-test",
		"PodDisruptionBudget kube-node-ready/kube-node-ready-controller",
		"Role default/kube-node-ready-controller",
		"Role default/kube-node-ready-worker",
		"Role kube-node-ready/kube-node-ready-controller",
		"Role kube-system/kube-node-ready-worker",
		"RoleBinding default/kube-node-ready-controller",
		"RoleBinding default/kube-node-ready-worker",
		"RoleBinding kube-node-ready/kube-node-ready-controller",
		"RoleBinding kube-system/kube-node-ready-worker",
		"Service kube-node-ready/kube-node-ready-controller",
		"ServiceAccount kube-node-ready/kube-node-ready-controller",
		"ServiceAccount kube-node-ready/kube-node-ready-worker",
		"ValidatingAdmissionPolicy kube-node-ready-kubelets",
		"ValidatingAdmissionPolicy kube-node-ready-nodes",
		"ValidatingAdmissionPolicy kube-node-ready-rule-conflicts",
		"ValidatingAdmissionPolicy kube-node-ready-rule-warnings",
		"ValidatingAdmissionPolicy kube-node-ready-rules",
		"ValidatingAdmissionPolicyBinding kube-node-ready-kubelets",
		"ValidatingAdmissionPolicyBinding kube-node-ready-nodes",
		"ValidatingAdmissionPolicyBinding kube-node-ready-rule-conflicts",
		"ValidatingAdmissionPolicyBinding kube-node-ready-rule-warnings",
		"ValidatingAdmissionPolicyBinding kube-node-ready-rules",
	}
	if got := slices.Sorted(maps.Keys(found)); !slices.Equal(got, want) {
		t.Errorf("rendered\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}

	d := deployment(t, found)
	pod := d.Spec.Template.Spec
	container := pod.Containers[0]
	if *d.Spec.Replicas != 2 || len(pod.TopologySpreadConstraints) != 2 {
		t.Errorf("replicas %d, spread %v", *d.Spec.Replicas, pod.TopologySpreadConstraints)
	}
	if want := []string{"--config", "/etc/kube-node-ready/config.yaml"}; !slices.Equal(container.Args, want) {
		t.Errorf("args %q, want %q", container.Args, want)
	}
	if container.Image != "ghcr.io/kube-node-ready/kube-node-ready:v0.1.0" {
		t.Errorf("image %q", container.Image)
	}
	if !tolerates(pod.Tolerations, "node-ready/unverified", corev1.TaintEffectNoSchedule) {
		t.Errorf("tolerations %v: the controller cannot run while every node is unverified", pod.Tolerations)
	}
	if pod.NodeSelector[corev1.LabelOSStable] != "linux" {
		t.Errorf("node selector %v: the image is for Linux", pod.NodeSelector)
	}
	for _, constraint := range pod.TopologySpreadConstraints {
		if !maps.Equal(constraint.LabelSelector.MatchLabels, d.Spec.Selector.MatchLabels) {
			t.Errorf("spread over %v, but the pods have %v", constraint.LabelSelector.MatchLabels, d.Spec.Selector.MatchLabels)
		}
	}
	config := decoded(t, found)
	if at(config, "worker", "image", "tag") != "v0.1.0" || at(config, "worker", "serviceAccountName") != "kube-node-ready-worker" {
		t.Errorf("worker section %v", at(config, "worker"))
	}
}

func tolerates(tolerations []corev1.Toleration, key string, effect corev1.TaintEffect) bool {
	return slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool {
		return t.Key == key && t.Operator == corev1.TolerationOpExists && t.Effect == effect
	})
}

// No default tolerates every taint, nor one by which a node is drained. A dead node's is tolerated for a short time.
func TestTheControllerToleratesNoDrain(t *testing.T) {
	for _, values := range []string{"", "controller: {config: {rules: {enabled: false}}}", "rules: {toleratedKeys: [readiness.k8s.io/agent]}"} {
		tolerations := deployment(t, render(t, values)).Spec.Template.Spec.Tolerations
		for _, key := range []string{"node.kubernetes.io/unschedulable", "ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"} {
			for _, effect := range []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute} {
				for _, tolerated := range tolerations {
					if tolerated.ToleratesTaint(klog.Background(), &corev1.Taint{Key: key, Effect: effect}, false) {
						t.Errorf("%s: %+v tolerates %s:%s", values, tolerated, key, effect)
					}
				}
			}
		}
		for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
			if !slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool {
				return t.Key == key && t.Effect == corev1.TaintEffectNoExecute && t.TolerationSeconds != nil
			}) {
				t.Errorf("%s: %s is tolerated for ever: %v", values, key, tolerations)
			}
		}
		if strings.Contains(values, "toleratedKeys") != tolerates(tolerations, ruleTaint, "") {
			t.Errorf("%s: %v", values, tolerations)
		}
	}
	for _, key := range []string{"node.kubernetes.io/unschedulable", "karpenter.sh/disrupted", "readiness.k8s.io/", "a"} {
		if _, failure := template(t, "rules: {toleratedKeys: ["+key+"]}"); !strings.Contains(failure, "toleratedKeys") {
			t.Errorf("%s is taken: %s", key, failure)
		}
	}
}

// The policy that adds tolerations to the controller's pods is there where it can be, and is for these pods.
func TestPolicyOfRuleTolerations(t *testing.T) {
	const key = "MutatingAdmissionPolicy kube-node-ready-rule-tolerations"
	found := render(t, "", "--api-versions", policyAPI)
	policy := get[admissionregistrationv1.MutatingAdmissionPolicy](t, found, key).Spec
	if *policy.FailurePolicy != admissionregistrationv1.Ignore || policy.MatchConstraints.NamespaceSelector.MatchLabels[corev1.LabelMetadataName] != namespace {
		t.Errorf("%+v", policy)
	}
	if want := deployment(t, found).Spec.Selector.MatchLabels; !maps.Equal(policy.MatchConstraints.ObjectSelector.MatchLabels, want) {
		t.Errorf("it is for pods with %v, and the controller's have %v", policy.MatchConstraints.ObjectSelector.MatchLabels, want)
	}
	if !rule.AddsTolerations(&corev1.Pod{ObjectMeta: deployment(t, found).Spec.Template.ObjectMeta}) {
		t.Error("the controller's pods do not show it")
	}
	for _, values := range []string{"controller: {config: {rules: {enabled: false}}}", "{deploymentMode: daemonset}", "{enabled: false}"} {
		if _, there := render(t, values, "--api-versions", policyAPI)[key]; there {
			t.Errorf("%s has it", values)
		}
	}
	found = render(t, "")
	if _, there := found[key]; there || rule.AddsTolerations(&corev1.Pod{ObjectMeta: deployment(t, found).Spec.Template.ObjectMeta}) {
		t.Error("an API server without such policies has it, or the controller's pods show it")
	}
}

// Where no policy adds tolerations, who creates a rule whose taint is not tolerated is warned.
func TestWarningOfATaintThatIsNotTolerated(t *testing.T) {
	const key, values = "ValidatingAdmissionPolicy kube-node-ready-rule-warnings", "rules: {toleratedKeys: [readiness.k8s.io/b, readiness.k8s.io/a]}"
	for values, want := range map[string]string{"": "[]", values: `["readiness.k8s.io/a","readiness.k8s.io/b"]`} {
		validations := get[admissionregistrationv1.ValidatingAdmissionPolicy](t, render(t, values), key).Spec.Validations
		if len(validations) != 3 || !strings.HasSuffix(validations[2].Expression, "object.spec.taint.key in "+want) {
			t.Errorf("%q: %+v", values, validations)
		}
	}
	if v := get[admissionregistrationv1.ValidatingAdmissionPolicy](t, render(t, values, "--api-versions", policyAPI), key).Spec.Validations; len(v) != 2 {
		t.Errorf("where a policy adds tolerations: %+v", v)
	}
}

func TestGatingTaintsOfProfilesAreTolerated(t *testing.T) {
	found := render(t, `
controller:
  tolerations: [{key: dedicated, operator: Exists}]
  config:
    nodeManagement: {taints: [{key: a.io/one, effect: NoSchedule}]}
    profiles:
      - name: gpu
        nodeSelector: {matchLabels: {gpu: "true"}}
        taints: [{key: a.io/two, effect: NoExecute}]
      - name: spot
        nodeSelector: {matchLabels: {spot: "true"}}
`)
	tolerations := deployment(t, found).Spec.Template.Spec.Tolerations
	if len(tolerations) != 4 || !tolerates(tolerations, "a.io/two", corev1.TaintEffectNoSchedule) || !tolerates(tolerations, "a.io/one", corev1.TaintEffectNoSchedule) ||
		!tolerates(tolerations, "a.io/two", corev1.TaintEffectNoExecute) || tolerations[3].Key != "dedicated" {
		t.Errorf("tolerations %+v", tolerations)
	}
}

func TestHighAvailability(t *testing.T) {
	found := render(t, "controller: {replicas: 3}\npodDisruptionBudget: {maxUnavailable: 2}")
	if replicas := *deployment(t, found).Spec.Replicas; replicas != 3 {
		t.Errorf("replicas %d", replicas)
	}
	budget := get[policyv1.PodDisruptionBudget](t, found, "PodDisruptionBudget kube-node-ready/kube-node-ready-controller")
	if budget.Spec.MaxUnavailable.IntValue() != 2 || !maps.Equal(budget.Spec.Selector.MatchLabels, deployment(t, found).Spec.Selector.MatchLabels) {
		t.Errorf("budget %+v", budget.Spec)
	}
	found = render(t, "controller: {replicas: 1}")
	if _, ok := found["PodDisruptionBudget kube-node-ready/kube-node-ready-controller"]; ok {
		t.Error("one replica has a budget that does nothing")
	}
}

// The file is what controller.config says, values that are false, zero or empty included.
func TestConfigurationIsWrittenAsItStands(t *testing.T) {
	found := render(t, `
controller:
  replicas: 1
  config:
    worker: {dnsTestDomains: [example.com], image: {tag: mine}, keepFailedSeconds: 0}
    leaderElection: {enabled: false}
    kubernetes: {burst: 100000000, qps: 2.5}
    nodeManagement: {remediation: {controlProbe: false, maxUnhealthy: 20%}}
`)
	config := decoded(t, found)
	for _, want := range []struct {
		path  string
		value any
	}{
		{"worker.dnsTestDomains", []any{"example.com"}},
		{"worker.image.tag", "mine"},
		{"worker.image.repository", "ghcr.io/kube-node-ready/kube-node-ready"},
		{"worker.keepFailedSeconds", float64(0)},
		{"leaderElection.enabled", false},
		{"leaderElection.id", "kube-node-ready-controller"},
		{"kubernetes.qps", 2.5},
		{"nodeManagement.remediation.controlProbe", false},
		{"nodeManagement.remediation.maxUnhealthy", "20%"},
	} {
		got := at(config, strings.Split(want.path, ".")...)
		if gotYAML, wantYAML := mustYAML(t, got), mustYAML(t, want.value); gotYAML != wantYAML {
			t.Errorf("%s is %s, want %s", want.path, gotYAML, wantYAML)
		}
	}
	// An integer that YAML would print as 1e+08 is refused by the controller's decoder.
	if !strings.Contains(file(t, found), "burst: 100000000\n") {
		t.Errorf("burst is not written as an integer:\n%s", file(t, found))
	}
	if strategy := deployment(t, found).Spec.Strategy.Type; strategy != appsv1.RecreateDeploymentStrategyType {
		t.Errorf("strategy %q: without leader election two controllers would act during an upgrade", strategy)
	}
}

func mustYAML(t *testing.T, value any) string {
	t.Helper()
	out, err := yaml.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// A changed configuration is a ConfigMap with another name, and so causes another pod. The controller reads its file
// once. A running pod keeps the configuration that it was created with.
func TestChangedConfigurationRestartsTheController(t *testing.T) {
	first := render(t, "")
	before, same := configKey(t, first), configKey(t, render(t, "controller: {replicas: 5}"))
	after := configKey(t, render(t, "controller: {config: {logging: {level: debug}}}"))
	if before != same || before == after {
		t.Errorf("by default %s, with other replicas %s, with another configuration %s", before, same, after)
	}
	if m := get[corev1.ConfigMap](t, first, before); m.Immutable == nil || !*m.Immutable {
		t.Error("the configuration of running pods can be changed")
	}
}

func TestImages(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0", 64)
	other := "sha256:" + strings.Repeat("1", 64)
	for name, test := range map[string]struct {
		values, controller string
		worker             map[string]any
	}{
		"a digest wins over the tag": {
			"controller: {image: {tag: v2, digest: '" + digest + "'}}",
			"ghcr.io/kube-node-ready/kube-node-ready@" + digest,
			map[string]any{"digest": digest, "tag": "v2"},
		},
		"the worker's own tag drops the controller's digest": {
			"controller: {image: {digest: '" + digest + "'}}\nworker: {image: {tag: v3}}",
			"ghcr.io/kube-node-ready/kube-node-ready@" + digest,
			map[string]any{"digest": nil, "tag": "v3"},
		},
		"the worker's own image": {
			"worker: {image: {repository: r.example/w, digest: '" + other + "', pullPolicy: Always}}",
			"ghcr.io/kube-node-ready/kube-node-ready:v0.1.0",
			map[string]any{"repository": "r.example/w", "digest": other, "pullPolicy": "Always"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			found := render(t, test.values)
			if got := deployment(t, found).Spec.Template.Spec.Containers[0].Image; got != test.controller {
				t.Errorf("controller's image %q, want %q", got, test.controller)
			}
			for key, want := range test.worker {
				if got := at(decoded(t, found), "worker", "image", key); got != want {
					t.Errorf("worker.image.%s is %v, want %v", key, got, want)
				}
			}
		})
	}
}

func TestPullSecretsReachTheWorkers(t *testing.T) {
	found := render(t, "imagePullSecrets: [{name: regcred}]")
	if got := deployment(t, found).Spec.Template.Spec.ImagePullSecrets; len(got) != 1 || got[0].Name != "regcred" {
		t.Errorf("the controller's pull secrets: %v", got)
	}
	if got := mustYAML(t, at(decoded(t, found), "worker", "imagePullSecrets")); got != "- name: regcred" {
		t.Errorf("the workers' pull secrets: %s", got)
	}
}

func TestWorkerNamespaceHoldsWhatWorkersNeed(t *testing.T) {
	found := render(t, "controller: {config: {worker: {namespace: probes}}}\nnetworkPolicy: {enabled: true}\ncriticalPodsQuota: {enabled: true}")
	for _, key := range []string{
		"ServiceAccount probes/kube-node-ready-worker", "Role probes/kube-node-ready-controller",
		"NetworkPolicy probes/kube-node-ready-worker", "Pod probes/kube-node-ready-test",
		"ResourceQuota probes/kube-node-ready-critical-pods", "ResourceQuota kube-node-ready/kube-node-ready-critical-pods",
	} {
		if _, ok := found[key]; !ok {
			t.Errorf("%s is not rendered", key)
		}
	}
}

func TestFlagsAndExtras(t *testing.T) {
	found := render(t, `
global: {anything: goes}
controller: {dryRun: true, extraArgs: [--log-level=debug], extraEnv: [{name: A, value: b}]}
commonLabels: {team: nodes}
extraObjects:
  - {apiVersion: v1, kind: ConfigMap, metadata: {name: "{{ .Release.Name }}-one"}}
  - |
    apiVersion: v1
    kind: ConfigMap
    metadata:
      name: {{ .Release.Name }}-two
`)
	container := deployment(t, found).Spec.Template.Spec.Containers[0]
	if want := []string{"--config", "/etc/kube-node-ready/config.yaml", "--dry-run", "--log-level=debug"}; !slices.Equal(container.Args, want) {
		t.Errorf("args %q, want %q", container.Args, want)
	}
	if len(container.Env) != 3 || container.Env[2].Name != "A" {
		t.Errorf("env %v", container.Env)
	}
	for _, key := range []string{"ConfigMap kube-node-ready-one", "ConfigMap kube-node-ready-two"} {
		if _, ok := found[key]; !ok {
			t.Errorf("%s is not rendered", key)
		}
	}
	if got := found[deploymentKey].GetLabels()["team"]; got != "nodes" {
		t.Errorf("commonLabels are missing: %v", found[deploymentKey].GetLabels())
	}
}

func TestWithoutMetrics(t *testing.T) {
	found := render(t, "controller: {config: {metrics: {enabled: false}}}\nnetworkPolicy: {enabled: true}")
	if _, ok := found["Service kube-node-ready/kube-node-ready-controller"]; ok {
		t.Error("a Service without a port behind it")
	}
	if ports := deployment(t, found).Spec.Template.Spec.Containers[0].Ports; len(ports) != 1 || ports[0].Name != "health" {
		t.Errorf("ports %v", ports)
	}
}

func TestNamesFollowTheRelease(t *testing.T) {
	out, failure := helm(t, "template", "gate", chartDir, "--namespace", namespace, "--kube-version", "1.36.0")
	if failure != "" {
		t.Fatal(failure)
	}
	for _, want := range []string{"name: gate-kube-node-ready-controller", "serviceAccountName: gate-kube-node-ready-worker"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q", want)
		}
	}
}

func TestBadValuesAreRefused(t *testing.T) {
	for name, test := range map[string]struct{ values, message string }{
		"a typo at the top":          {"contoller: {}", "additional properties 'contoller' not allowed"},
		"a typo below":               {"controller: {replica: 1}", "additional properties 'replica' not allowed"},
		"a typo in the file":         {"controller: {config: {reconciliation: {maxRetry: 1}}}", "at '/controller/config/reconciliation': additional properties 'maxRetry' not allowed"},
		"a typo in a check":          {"controller: {config: {worker: {checks: [{name: a, type: dns, dns: {nam: b}}]}}}", "additional properties 'nam' not allowed"},
		"a typo in a pod field":      {"controller: {tolerations: [{keys: a}]}", "additional properties 'keys' not allowed"},
		"a mode that is not there":   {"deploymentMode: sidecar", "value must be one of 'controller', 'daemonset'"},
		"no such admission":          {"controller: {config: {admission: {mode: always}}}", "at '/controller/config/admission/mode'"},
		"a wrong type":               {"controller: {replicas: two}", "at '/controller/replicas': got string, want integer"},
		"a word that is not one":     {"controller: {config: {reconciliation: {retryBackoff: quadratic}}}", "value must be one of 'exponential', 'linear'"},
		"no digest":                  {"controller: {image: {digest: latest}}", "does not match pattern"},
		"an alert that is not there": {"prometheusRule: {disabled: [KubeNodeReadyNodeStuck]}", "value must be one of 'KubeNodeReadyNodeStuckUnverified'"},
		"both monitors":              {"serviceMonitor: {enabled: true}\npodMonitor: {enabled: true}", "enable only one"},
		"replicas without a Lease":   {"controller: {config: {leaderElection: {enabled: false}}}", "set replicas to 1"},
		"half a Service name": {
			"controller: {config: {worker: {checks: [{name: a, type: dns, dns: {resolver: endpoints, service: dns}}]}}}",
			`check "a": dns.service is "dns"; write it as namespace/name`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, failure := template(t, test.values)
			if !strings.Contains(failure, test.message) {
				t.Errorf("helm said %q, want %q in it", failure, test.message)
			}
		})
	}
}

func TestLint(t *testing.T) {
	if out, failure := helm(t, "lint", "--strict", chartDir); failure != "" {
		t.Errorf("%s%s", out, failure)
	}
}

// What Artifact Hub shows as the chart's image is the one that it installs.
func TestArtifactHubNamesTheImage(t *testing.T) {
	var chart struct {
		AppVersion  string            `json:"appVersion"`
		Annotations map[string]string `json:"annotations"`
	}
	if err := yaml.Unmarshal([]byte(readFile(t, chartDir+"/Chart.yaml")), &chart); err != nil {
		t.Fatal(err)
	}
	image := deployment(t, render(t, "")).Spec.Template.Spec.Containers[0].Image
	if !strings.HasSuffix(image, ":"+chart.AppVersion) || !strings.Contains(chart.Annotations["artifacthub.io/images"], "image: "+image+"\n") {
		t.Errorf("installed %s, appVersion %s, shown:\n%s", image, chart.AppVersion, chart.Annotations["artifacthub.io/images"])
	}
}

func TestOldKubernetesIsRefused(t *testing.T) {
	if _, failure := template(t, "", "--kube-version", "1.29.15"); !strings.Contains(failure, ">=1.30") {
		t.Errorf("%q", failure)
	}
	render(t, "", "--kube-version", "1.30.0")
}
