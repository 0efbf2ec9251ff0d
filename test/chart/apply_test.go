package chart

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	karpenterapis "sigs.k8s.io/karpenter/pkg/apis"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/ledger"
	"github.com/kube-node-ready/kube-node-ready/internal/rights"
	"github.com/kube-node-ready/kube-node-ready/test/cluster"
)

// The Prometheus operator's CRDs, with all their validation, come with its Go module.
const (
	operatorModule = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
	operatorSum    = "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s="
)

// operatorCRDs are the files of those CRDs of the Prometheus operator that the chart has objects of. Its others are
// many times as large, and an API server reads each again for every one that comes.
func operatorCRDs(t *testing.T) (files []string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", operatorModule)
	cmd.Dir = t.TempDir()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("download %s: %v\n%s", operatorModule, err, out)
	}
	var module struct{ Dir, Sum string }
	if err := json.Unmarshal(out, &module); err != nil {
		t.Fatal(err)
	}
	if module.Sum != operatorSum {
		t.Fatalf("%s has the checksum %s, want %s", operatorModule, module.Sum, operatorSum)
	}
	folder := filepath.Join(module.Dir, "example", "prometheus-operator-crd")
	for _, kind := range []string{"podmonitors", "prometheusrules", "servicemonitors"} {
		files = append(files, filepath.Join(folder, "monitoring.coreos.com_"+kind+".yaml"))
	}
	return files
}

// everything switches on all that the chart has.
const everything = `
serviceMonitor: {enabled: true, interval: 30s, scrapeTimeout: 10s, relabelings: [{action: labeldrop, regex: pod}]}
prometheusRule: {enabled: true, additionalRules: [{record: a:b, expr: vector(1)}]}
grafanaDashboard: {enabled: true}
networkPolicy:
  enabled: true
  metricsFrom: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]
criticalPodsQuota: {enabled: true}
priorityAndFairness: {enabled: true}
admissionPolicy: {enabled: true}
imagePullSecrets: [{name: regcred}]
controller:
  replicas: 3
  podLabels: {team: nodes}
  podAnnotations: {a: b}
  extraEnv: [{name: A, value: b}]
  extraVolumes: [{name: scratch, emptyDir: {}}]
  extraVolumeMounts: [{name: scratch, mountPath: /scratch}]
  nodeSelector: {kubernetes.io/os: linux}
  config:
    nodeManagement: {deleteFailedNodes: true}
    worker:
      namespace: probes
      volumes: [{name: v, emptyDir: {}}]
      volumeMounts: [{name: v, mountPath: /v}]
      env: [{name: A, value: b}]
`

// kubectl runs kubectl as administrator.
func kubectl(t *testing.T, c *cluster.Cluster, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), tool("kubectl"), append([]string{"--kubeconfig", c.Kubeconfig()}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// createNamespace makes a namespace in which only pods of Pod Security "restricted" are admitted.
func createNamespace(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	_, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{
			"pod-security.kubernetes.io/enforce": "restricted",
			"pod-security.kubernetes.io/warn":    "restricted",
		},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// A real API server, with the real operator's CRDs, admits every object of the chart, without a
// warning and without an unknown field.
func testAPIServerAdmitsTheChart(t *testing.T, c *cluster.Cluster, client kubernetes.Interface) {
	ctrl.SetLogger(logr.Discard()) // envtest's
	for _, name := range []string{"probes", "gpu-operator"} {
		createNamespace(t, client, name)
	}
	if _, err := envtest.InstallCRDs(c.Config(), envtest.CRDInstallOptions{Paths: operatorCRDs(t)}); err != nil {
		t.Fatalf("install the operator's CRDs: %v", err)
	}

	// A dry run makes nothing, and the test's pod is not admitted without its service account.
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "kube-node-ready-worker"}}
	for _, name := range []string{namespace, "probes"} {
		if _, err := client.CoreV1().ServiceAccounts(name).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	cases := map[string]string{
		"defaults":                "",
		"everything":              everything,
		"pod monitor":             "podMonitor: {enabled: true, interval: 15s}",
		"secure metrics":          "serviceMonitor: {enabled: true}\ncontroller: {config: {metrics: {secure: true}}}",
		"secure metrics, by pods": "podMonitor: {enabled: true, tlsConfig: {insecureSkipVerify: true}, authorization: {credentials: {name: a, key: b}}}\ncontroller: {config: {metrics: {secure: true}}}",
	}
	for _, example := range exampleValues(t) {
		cases[filepath.Base(example)] = readFile(t, example)
	}
	for name, values := range cases {
		t.Run("dry run of "+name, func(t *testing.T) {
			var warnings bytes.Buffer
			server := newAdmitter(c, rest.NewWarningWriter(&warnings, rest.WarningWriterOptions{}))
			for key, object := range render(t, values) {
				if namespaced, err := server.namespaced(object); err == nil && namespaced && object.GetNamespace() == "" {
					object.SetNamespace(metav1.NamespaceDefault) // what kubectl and Helm would add
				}
				if err := server.admit(t.Context(), object); err != nil {
					t.Errorf("%s: %v", key, err)
				}
			}
			if warnings.Len() > 0 {
				t.Error(&warnings)
			}
		})
	}
	for _, name := range []string{namespace, "probes"} {
		if err := client.CoreV1().ServiceAccounts(name).Delete(t.Context(), account.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("dry run of every rendering", func(t *testing.T) { testEveryRendering(t, c) })
	t.Run("the example NodePool, on Karpenter's CRDs", func(t *testing.T) { testNodePool(t, c) })
	t.Run("install, upgrade, uninstall", func(t *testing.T) { testLifecycle(t, c, client) })
}

func testNodePool(t *testing.T, c *cluster.Cluster) {
	definitions := slices.Clone(karpenterapis.CRDs)
	for i, d := range definitions {
		definitions[i] = d.DeepCopy() // the installation writes into them
	}
	if _, err := envtest.InstallCRDs(c.Config(), envtest.CRDInstallOptions{CRDs: definitions}); err != nil {
		t.Fatal(err)
	}
	_, stderr, err := kubectl(t, c, "apply", "--server-side", "--validate=strict", "-f", "../../examples/karpenter-nodepool.yaml")
	if err != nil || stderr != "" {
		t.Fatalf("%v\n%s", err, stderr)
	}
	got, _, err := kubectl(t, c, "get", "nodepool", "default", "-o", "jsonpath={.spec.template.spec.startupTaints[0].key}")
	if err != nil || got != "node-ready/unverified" {
		t.Errorf("the start-up taint is %q (%v)", got, err)
	}
	// For the notes of the installation, which follows.
	if _, stderr, err := kubectl(t, c, "patch", "nodepool", "default", "--type=merge",
		"--patch", `{"spec":{"template":{"metadata":{"annotations":{"karpenter.sh/do-not-disrupt":"true"}}}}}`); err != nil {
		t.Error(stderr)
	}
}

// testLifecycle installs for real. ReplicaSets make the controller's pods, so admission of pods
// (Pod Security, priority classes) has its say.
func testLifecycle(t *testing.T, c *cluster.Cluster, client kubernetes.Interface) {
	// Helm itself validates the first of what follows, as it does for its users (tryHelmOn).
	onCluster := []string{"--kubeconfig", c.Kubeconfig(), "--namespace", namespace}
	notes, failure := helm(t, append(onCluster, "install", "kube-node-ready", chartDir)...)
	if failure != "" {
		t.Fatalf("helm install: %s", failure)
	}
	run := func(args ...string) string {
		t.Helper()
		return helmOn(t, c, args...)
	}
	for _, want := range []string{"node-ready/unverified:NoSchedule", "helm test kube-node-ready -n kube-node-ready"} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes do not say %q:\n%s", want, notes)
		}
	}
	const undeleted = "No action is ever taken on a node of NodePool default"
	if strings.Contains(notes, undeleted) {
		t.Errorf("deletion is off:\n%s", notes)
	}
	awaitPods(t, client, 2)
	t.Run("permissions", func(t *testing.T) { testPermissions(t, client) })
	t.Run("tokens", func(t *testing.T) { testTokens(t, c, client) })

	// What the controller remembers of deletions outlasts an upgrade.
	begun := `{"data":{"deletions.json":"[]","since":"2026-01-01T00:00:00Z"}}`
	if _, err := client.CoreV1().ConfigMaps(namespace).Patch(t.Context(), ledger.Name, types.MergePatchType, []byte(begun), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if notes = run(append([]string{"upgrade", "kube-node-ready", chartDir}, valuesFile(t, everything)...)...); !strings.Contains(notes, undeleted) {
		t.Errorf("the notes do not say %q:\n%s", undeleted, notes)
	}
	awaitPods(t, client, 3)
	testConfigurations(t, client, run)
	kept, err := client.CoreV1().ConfigMaps(namespace).Get(t.Context(), ledger.Name, metav1.GetOptions{})
	if err != nil || kept.Data[ledger.KeyDeletions] != "[]" || kept.Data[ledger.KeySince] == "" {
		t.Errorf("the ledger after an upgrade: %v, %v", kept.Data, err)
	}
	if _, stderr, err := kubectl(t, c, "-n", namespace, "annotate", "configmap", ledger.Name, ledger.AnnotationPaused+"=ticket 7"); err != nil {
		t.Fatal(stderr)
	}
	// --force replaces it by the chart's, and a pause with it. One without a beginning holds every deletion for as long as the limits look back.
	run("upgrade", "kube-node-ready", chartDir, "--reuse-values", "--force")
	forced, err := client.CoreV1().ConfigMaps(namespace).Get(t.Context(), ledger.Name, metav1.GetOptions{})
	if err != nil || len(forced.Data) > 0 {
		t.Errorf("the ledger after a forced upgrade: %v, %v", forced, err)
	}
	if contents, err := ledger.Parse(forced); err != nil || !contents.CompleteSince.IsZero() {
		t.Errorf("it seems to know what was deleted before: %+v, %v", contents, err)
	} else if contents.Paused != "" {
		t.Error("the pause stays: docs/operate/runbooks/README.md says that it goes")
	}

	run("uninstall", "kube-node-ready")
	left, stderr, err := kubectl(t, c, "get", "all,configmaps,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings,networkpolicies,resourcequotas,poddisruptionbudgets,servicemonitors,prometheusrules",
		"--all-namespaces", "--selector", "app.kubernetes.io/instance=kube-node-ready,app.kubernetes.io/managed-by=Helm", "--output", "name")
	if err != nil {
		t.Fatal(err, stderr)
	}
	// Pods and their ReplicaSets go with the Deployment, in the background.
	for line := range strings.Lines(left) {
		if !strings.HasPrefix(line, "pod/") && !strings.HasPrefix(line, "replicaset") {
			t.Errorf("left behind: %s", line)
		}
	}
}

// testConfigurations upgrades to a configuration that the controller refuses, behind the schema's back: what runs keeps its own, also
// when it starts again, through the rollback and after it. A configuration that no ReplicaSet mounts any more goes.
func testConfigurations(t *testing.T, client kubernetes.Interface, run func(args ...string) string) {
	t.Helper()
	maps := func() (names []string) {
		t.Helper()
		list, err := client.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=Helm"})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range list.Items {
			if m.Data["config.yaml"] != "" {
				names = append(names, m.Name+" "+m.Labels["app.kubernetes.io/component"])
			}
		}
		return names
	}
	// mounted are the ConfigMaps of the controller's ReplicaSets: each must be there, or a pod could not start.
	mounted := func() {
		t.Helper()
		sets, err := client.AppsV1().ReplicaSets(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=controller"})
		if err != nil {
			t.Fatal(err)
		}
		have := strings.Join(maps(), "\n")
		for _, set := range sets.Items {
			for _, v := range set.Spec.Template.Spec.Volumes {
				if v.Name == "config" && !strings.Contains(have, v.ConfigMap.Name+" ") {
					t.Errorf("ReplicaSet %s mounts %s, of\n%s", set.Name, v.ConfigMap.Name, have)
				}
			}
		}
	}
	before := maps()
	mounted()
	if len(before) != 2 {
		t.Errorf("after one upgrade there are %q, want the one before it too", before)
	}
	run("upgrade", "kube-node-ready", chartDir, "--reuse-values", "--set", "controller.config.logging.level=verbose", "--skip-schema-validation")
	awaitPods(t, client, 1)
	mounted()
	if got := maps(); len(got) != 3 {
		t.Errorf("during the bad upgrade there are %q", got)
	}
	run("rollback", "kube-node-ready", "2")
	awaitPods(t, client, 1)
	if got := maps(); !slices.Equal(got, before) {
		t.Errorf("after the rollback there are %q, want %q", got, before)
	}
	// As the Deployment's controller does beyond revisionHistoryLimit.
	_, current, _ := strings.Cut(mustGet(t, client).Spec.Template.Spec.Volumes[0].ConfigMap.Name, "kube-node-ready-controller-")
	sets, err := client.AppsV1().ReplicaSets(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range sets.Items {
		if !strings.HasSuffix(set.Spec.Template.Spec.Volumes[0].ConfigMap.Name, current) {
			if err := client.AppsV1().ReplicaSets(namespace).Delete(t.Context(), set.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	run("upgrade", "kube-node-ready", chartDir, "--reuse-values")
	if got := maps(); len(got) != 1 || !strings.Contains(got[0], current+" controller") {
		t.Errorf("after the old ReplicaSets there are %q, want the one of %s", got, current)
	}
}

// mustGet is the controller's Deployment.
func mustGet(t *testing.T, client kubernetes.Interface) *appsv1.Deployment {
	t.Helper()
	d, err := client.AppsV1().Deployments(namespace).Get(t.Context(), "kube-node-ready-controller", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// awaitPods waits until the newest ReplicaSet has its pods.
func awaitPods(t *testing.T, client kubernetes.Interface, want int32) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var status string
	for {
		d, err := client.AppsV1().Deployments(namespace).Get(ctx, "kube-node-ready-controller", metav1.GetOptions{})
		if err == nil && d.Status.ObservedGeneration == d.Generation && d.Status.UpdatedReplicas >= min(want, 1) && d.Status.Replicas >= want {
			return
		}
		if err != nil {
			status = err.Error()
		} else {
			status = fmt.Sprintf("%+v", d.Status)
		}
		select {
		case <-ctx.Done():
			events, _ := client.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "type=Warning"})
			for _, event := range events.Items {
				status += "\n" + event.Message
			}
			t.Fatalf("the Deployment has not %d pods: %s", want, status)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// What the API server's authorizer lets the two service accounts do by default.
func testPermissions(t *testing.T, client kubernetes.Interface) {
	const controller, worker = "kube-node-ready-controller", "kube-node-ready-worker"
	for _, test := range []struct {
		account, verb, group, resource, namespace, name string
		allowed                                         bool
	}{
		{controller, "watch", "", "nodes", "", "", true},
		{controller, "patch", "", "nodes", "", "n", true},
		{controller, "patch", "", "nodes/status", "", "n", true},
		{controller, "create", "", "pods", namespace, "", true},
		{controller, "delete", "", "pods", namespace, "p", true},
		{controller, "create", "events.k8s.io", "events", "default", "", true},
		{controller, "update", "coordination.k8s.io", "leases", namespace, controller, true},
		{controller, "delete", "", "nodes", "", "n", false},
		{controller, "update", "", "nodes", "", "n", false},
		{controller, "create", "", "nodes", "", "", false},
		{controller, "list", "", "pods", "", "", false},
		{controller, "create", "", "pods", "kube-system", "", false},
		{controller, "create", "", "pods/exec", namespace, "p", false},
		{controller, "get", "", "secrets", namespace, "s", false},
		{controller, "get", "", "configmaps", namespace, "c", false},
		{controller, "update", "coordination.k8s.io", "leases", namespace, "other", false},
		{controller, "delete", "karpenter.sh", "nodeclaims", "", "c", false},
		{worker, "get", "", "services", "default", "kubernetes", true},
		{worker, "list", "discovery.k8s.io", "endpointslices", "default", "", true},
		{worker, "get", "", "services", "default", "other", false},
		{worker, "list", "", "services", "default", "", false},
		{worker, "get", "", "nodes", "", "n", false},
		{worker, "patch", "", "nodes", "", "n", false},
		{worker, "list", "", "pods", namespace, "", false},
		{worker, "get", "", "secrets", namespace, "s", false},
	} {
		resource, subresource, _ := strings.Cut(test.resource, "/")
		review, err := client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User:   "system:serviceaccount:" + namespace + ":" + test.account,
				Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Verb: test.verb, Group: test.group, Resource: resource, Subresource: subresource,
					Namespace: test.namespace, Name: test.name,
				},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if review.Status.Allowed != test.allowed {
			t.Errorf("%s may %s %s %s/%s: %v, want %v", test.account, test.verb, test.resource, test.namespace, test.name, review.Status.Allowed, test.allowed)
		}
	}
}

// Who has a token of one of the service accounts may do what internal/rights lists, what every account may, and nothing
// else, wherever he asks.
func testTokens(t *testing.T, c *cluster.Cluster, client kubernetes.Interface) {
	var cfg config.Config
	cfg.SetDefaults()
	ofAnybody := rulesOf(t, c, client, "default", "default", namespace)
	for account, table := range map[string][]rights.Right{
		"kube-node-ready-controller": rights.Controller(&cfg, namespace, false),
		"kube-node-ready-worker":     rights.Worker(&cfg, namespace, false),
	} {
		for _, where := range []string{namespace, "default", "kube-system", "gpu-operator"} {
			got := slices.DeleteFunc(rulesOf(t, c, client, namespace, account, where), func(rule string) bool { return slices.Contains(ofAnybody, rule) })
			var here []rights.Right
			for _, r := range table {
				if r.Namespace == "" || r.Namespace == where {
					r.Namespace = ""
					here = append(here, r)
				}
			}
			if want := listed(here, nil); !slices.Equal(got, want) {
				t.Errorf("%s may in %s:\n%s\nwant:\n%s", account, where, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
	}
}

// rulesOf are the rules by which a token of the account is authorised in a namespace, as the API server tells it.
func rulesOf(t *testing.T, c *cluster.Cluster, client kubernetes.Interface, accountNamespace, account, where string) []string {
	t.Helper()
	token, err := client.CoreV1().ServiceAccounts(accountNamespace).CreateToken(t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(c.Config())
	config.BearerToken = token.Status.Token
	review, err := kubernetes.NewForConfigOrDie(config).AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: where}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var rules []rbacv1.PolicyRule
	for _, r := range review.Status.ResourceRules {
		rules = append(rules, rbacv1.PolicyRule{Verbs: r.Verbs, APIGroups: r.APIGroups, Resources: r.Resources,
			ResourceNames: r.ResourceNames})
	}
	return sorted(lines("", rules))
}

// The alerts that the operator's CRD admits are those of the file, with a runbook each.
func TestPrometheusRule(t *testing.T) {
	rules := renderedAlerts(t, `
prometheusRule:
  enabled: true
  disabled: [KubeNodeReadyReconcileErrors]
  overrides: {KubeNodeReadyNodeStuckUnverified: {for: 30m, severity: critical}}
  alertLabels: {team: nodes}
  runbookBaseURL: https://wiki.example/runbooks/
controller: {config: {nodeManagement: {remediation: {maxDeletionsPerHour: 40}}}}
`)
	names := map[string]alertRule{}
	for _, rule := range rules {
		names[rule.Alert] = rule
		if rule.Labels["team"] != "nodes" || rule.Annotations["runbook_url"] != "https://wiki.example/runbooks/"+rule.Alert+".md" {
			t.Errorf("%s: labels %v, runbook %s", rule.Alert, rule.Labels, rule.Annotations["runbook_url"])
		}
	}
	if _, ok := names["KubeNodeReadyReconcileErrors"]; ok || len(rules) != len(shippedAlerts(t))-1 {
		t.Errorf("%d alerts, of which the disabled one: %v", len(rules), ok)
	}
	if stuck := names["KubeNodeReadyNodeStuckUnverified"]; stuck.For != "30m" || stuck.Labels["severity"] != "critical" {
		t.Errorf("the override is not applied: %+v", stuck)
	}
	if near := names["KubeNodeReadyDeletionsNearLimit"]; !strings.Contains(near.Expr, "0.8 * 40") || !strings.Contains(near.Annotations["description"], "40") {
		t.Errorf("the limit is not the configuration's: %+v", near)
	}
}

// renderedAlerts are the rules of the rendered PrometheusRule.
func renderedAlerts(t *testing.T, values string) []alertRule {
	t.Helper()
	found := render(t, values)
	rule := get[struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			Groups []struct {
				Name  string      `json:"name"`
				Rules []alertRule `json:"rules"`
			} `json:"groups"`
		} `json:"spec"`
	}](t, found, "PrometheusRule kube-node-ready/kube-node-ready-controller")
	if len(rule.Spec.Groups) == 0 || !slices.ContainsFunc(rule.Spec.Groups[0].Rules, func(r alertRule) bool { return r.Alert != "" }) {
		t.Fatalf("no alerts: %+v", rule.Spec)
	}
	return rule.Spec.Groups[0].Rules
}
