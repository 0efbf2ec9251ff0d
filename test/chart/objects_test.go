package chart

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kube-node-ready/kube-node-ready/internal/kubectlplugin"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
)

// What needs an API server and leaves nothing behind has one together.
func TestOnOneAPIServer(t *testing.T) {
	t.Parallel()
	c, client := startCluster(t, cluster.Options{WithoutScheduler: true})
	createNamespace(t, client, namespace)
	t.Run("GKE", func(t *testing.T) { testOnGKE(t, c) })
	t.Run("roles of the plugin", func(t *testing.T) { testPluginRoles(t, c, client) })
	t.Run("removal", func(t *testing.T) { testRemoval(t, c, client) })
	t.Run("secure metrics", func(t *testing.T) { testSecureMetrics(t, c, client) })
	t.Run("rules", func(t *testing.T) { testRulesOnAnAPIServer(t, c, client) })
	t.Run("all is admitted", func(t *testing.T) { testAPIServerAdmitsTheChart(t, c, client) })
	t.Run("manifest", func(t *testing.T) { testManifestIsApplied(t, c, client) })
}

// GKE refuses pods of the system-* priority classes outside kube-system unless a quota admits them. Helm takes the version
// from the API server, and drops its end where it is given by --kube-version.
func testOnGKE(t *testing.T, c *cluster.Cluster) {
	transport, err := rest.TransportFor(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(c.Config().Host)
	if err != nil {
		t.Fatal(err)
	}
	install := func(version string) string {
		t.Helper()
		proxy := httputil.NewSingleHostReverseProxy(target)
		proxy.Transport = transport
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/version" {
				_, _ = fmt.Fprintf(w, `{"major": "1", "minor": "36", "gitVersion": %q}`, version)
				return
			}
			proxy.ServeHTTP(w, r)
		}))
		defer server.Close()
		args := []string{"--kube-apiserver", server.URL, "--namespace", "default", "install", "kube-node-ready", chartDir,
			"--dry-run=server", "--disable-openapi-validation"}
		out, failure := helm(t, args...)
		if failure != "" {
			t.Fatalf("%s: %s", version, failure)
		}
		return out
	}
	if out := install("v1.36.1-eks-1a2b3c4"); strings.Contains(out, "kind: ResourceQuota") {
		t.Error("there is a quota on EKS")
	}
	// What Helm prints names the deadlock of a cluster in which every node is new.
	out := install("v1.36.1-gke.1046000")
	for _, want := range []string{"kind: ResourceQuota", "let CoreDNS tolerate it"} {
		if !strings.Contains(out, want) {
			t.Errorf("on GKE, Helm does not print %q: %s", want, out)
		}
	}
	if _, failure := template(t, "criticalPodsQuota: {enabled: maybe}"); !strings.Contains(failure, "criticalPodsQuota") {
		t.Errorf("a word that is none: %q", failure)
	}
}

// Labels and annotations meet: read refuses a key that is rendered twice. The chart's own labels win, or its selectors would
// select nothing; then those of the object.
func TestLabelsMeet(t *testing.T) {
	const colliding = "{team: own, app.kubernetes.io/name: other, app.kubernetes.io/component: other, " +
		"app.kubernetes.io/version: other, helm.sh/chart: other}"
	values := strings.ReplaceAll(`
commonLabels: {team: common, shared: common, app.kubernetes.io/name: other, app.kubernetes.io/managed-by: other}
commonAnnotations:
  {team: common, shared: common, kubectl.kubernetes.io/default-container: other, checksum/config: other}
controller:
  podLabels: LABELS
  podAnnotations: {team: own, kubectl.kubernetes.io/default-container: mine}
  serviceAccount: {labels: LABELS}
  config:
    admission: {mode: MODE}
    worker: {podLabels: LABELS, podAnnotations: {team: own, checksum/config: other}}
worker: {serviceAccount: {labels: LABELS}}
service: {labels: LABELS, annotations: {team: own}}
MONITOR: {enabled: true, labels: LABELS, annotations: {team: own}}
webhook: {service: {labels: LABELS, annotations: {team: own}}}
topologySpreadConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: ScheduleAnyway, labelSelector: {}}]
networkPolicy: {enabled: true}
criticalPodsQuota: {enabled: true}
priorityAndFairness: {enabled: true}
admissionPolicy: {enabled: true}
`, "LABELS", colliding)
	ofController := `
prometheusRule: {enabled: true, labels: LABELS, annotations: {team: own}}
grafanaDashboard: {enabled: true, labels: LABELS, annotations: {team: own}}
`
	with := func(mode, monitor string) string {
		return strings.NewReplacer("MODE", mode, "MONITOR", monitor).Replace(values)
	}
	controller := render(t, with("webhook", "serviceMonitor")+strings.ReplaceAll(ofController, "LABELS", colliding))
	daemonSet := render(t, with(`"off"`, "podMonitor")+"deploymentMode: daemonset")
	for _, found := range []objects{controller, daemonSet} {
		for key, object := range found {
			labels := object.GetLabels()
			if labels == nil { // the definition of NodeReadinessRule, and a test's pod
				continue
			}
			if labels["shared"] != "common" || labels["app.kubernetes.io/name"] != "kube-node-ready" ||
				labels["app.kubernetes.io/managed-by"] != "Helm" || labels["app.kubernetes.io/version"] != "v0.1.0" {
				t.Errorf("%s: labels %v", key, labels)
			}
		}
	}
	for key, own := range map[string]bool{
		"Service kube-node-ready/kube-node-ready-controller":        true,
		"ServiceMonitor kube-node-ready/kube-node-ready-controller": true,
		"ServiceAccount kube-node-ready/kube-node-ready-controller": true,
		"ServiceAccount kube-node-ready/kube-node-ready-worker":     true,
		"PrometheusRule kube-node-ready/kube-node-ready-controller": true,
		deploymentKey: false,
	} {
		if team := controller[key].GetLabels()["team"]; (team == "own") != own {
			t.Errorf("%s: team %q", key, team)
		}
	}
	d := deployment(t, controller).Spec
	labels, annotations := d.Template.Labels, d.Template.Annotations
	if labels["team"] != "own" || annotations["kubectl.kubernetes.io/default-container"] != "mine" || annotations["shared"] != "common" {
		t.Errorf("labels %v, annotations %v", labels, annotations)
	}
	ds := get[appsv1.DaemonSet](t, daemonSet, "DaemonSet kube-node-ready/kube-node-ready").Spec
	for name, of := range map[string]struct{ selector, labels map[string]string }{
		"Deployment": {d.Selector.MatchLabels, d.Template.Labels}, "DaemonSet": {ds.Selector.MatchLabels, ds.Template.Labels},
	} {
		for key, value := range of.selector {
			if of.labels[key] != value {
				t.Errorf("%s: %s of the pods is %q, of the selector %q", name, key, of.labels[key], value)
			}
		}
	}
	if checksum := ds.Template.Annotations["checksum/config"]; len(checksum) != 64 {
		t.Errorf("checksum/config is %q", checksum)
	}
}

// A section that is null is one that is not there.
func TestNoConfiguration(t *testing.T) {
	for _, values := range []string{"controller: {config: null}", "config: null", "deploymentMode: daemonset\ncontroller: {config: null}"} {
		render(t, values)
	}
	values := valuesFile(t, "kube-node-ready: {controller: {config: null}}")
	if _, failure := helm(t, append([]string{"template", "a", parent(t), "--kube-version", "1.36.0"}, values...)...); failure != "" {
		t.Errorf("as a dependency: %s", failure)
	}
}

// Two releases whose names are long have names of their own in the cluster, which are valid.
func TestLongReleaseNames(t *testing.T) {
	for name, releases := range map[string][]string{
		"other":   {"platform-nodes-production-eu", "platform-nodes-production-us"},
		"its own": {"kube-node-ready-platform-nodes-production-eu", "kube-node-ready-platform-nodes-production-us"},
	} {
		seen := map[string]string{}
		for _, release := range releases {
			out, failure := helm(t, "template", release, chartDir, "--namespace", release, "--kube-version", "1.36.0")
			if failure != "" {
				t.Fatal(failure)
			}
			for key, object := range read(t, out) {
				if first := seen[key]; first != "" && object.GetNamespace() == "" && object.GetKind() != "CustomResourceDefinition" {
					t.Errorf("%s: %s is in %s and %s", name, key, first, release)
				}
				if key == "Deployment" || len(object.GetName()) > 63 {
					t.Errorf("%s: the name is too long", key)
				}
				seen[key] = release
			}
		}
	}
	if short := render(t, "")[deploymentKey]; short == nil {
		t.Error("a name that fits is cut")
	}
}

func TestServiceAccounts(t *testing.T) {
	for values, want := range map[string]string{
		"controller: {serviceAccount: {create: false}}":                                                      "controller.serviceAccount.create is false, and controller.serviceAccount.name is empty",
		"worker: {serviceAccount: {create: false}}":                                                          "worker.serviceAccount.create is false, and worker.serviceAccount.name is empty",
		"worker: {serviceAccount: {create: false}}\ndeploymentMode: daemonset":                               "worker.serviceAccount.create is false",
		"controller: {serviceAccount: {create: false, name: a}}":                                             "",
		"controller: {serviceAccount: {create: false}}\ndeploymentMode: daemonset":                           "",
		"worker: {serviceAccount: {create: false, name: a}}":                                                 "",
		"worker: {serviceAccount: {create: false}}\ncontroller: {config: {worker: {serviceAccountName: a}}}": "",
	} {
		if _, failure := template(t, values); (failure == "") != (want == "") || !strings.Contains(failure, want) {
			t.Errorf("%s: %q, want %q", values, failure, want)
		}
	}
	found := render(t, `
controller: {serviceAccount: {labels: {azure.workload.identity/use: "true"}, automountServiceAccountToken: false}}
worker: {serviceAccount: {labels: {a: b}, automountServiceAccountToken: false}}`)
	for name, label := range map[string]string{"controller": "azure.workload.identity/use", "worker": "a"} {
		account := get[corev1.ServiceAccount](t, found, "ServiceAccount kube-node-ready/kube-node-ready-"+name)
		if account.Labels[label] == "" || *account.AutomountServiceAccountToken {
			t.Errorf("%s: %+v", name, account)
		}
	}
	if mounts := deployment(t, found).Spec.Template.Spec.AutomountServiceAccountToken; mounts == nil || !*mounts {
		t.Error("the controller has no token")
	}
	worker := get[corev1.ServiceAccount](t, render(t, ""), "ServiceAccount kube-node-ready/kube-node-ready-worker")
	if !*worker.AutomountServiceAccountToken {
		t.Error("by default pods have no token")
	}
}

func TestMinAvailable(t *testing.T) {
	for _, value := range []string{"1", "50%", "0"} {
		found := render(t, "podDisruptionBudget: {minAvailable: "+value+"}")
		spec := get[policyv1.PodDisruptionBudget](t, found, "PodDisruptionBudget kube-node-ready/kube-node-ready-controller").Spec
		if spec.MaxUnavailable != nil || spec.MinAvailable == nil || spec.MinAvailable.String() != value {
			t.Errorf("%s: %+v", value, spec)
		}
	}
}

func TestMonitorsElsewhere(t *testing.T) {
	for kind, key := range map[string]string{"ServiceMonitor": "serviceMonitor", "PodMonitor": "podMonitor"} {
		found := render(t, key+": {enabled: true, namespace: monitoring, jobLabel: app.kubernetes.io/name}")[kind+
			" monitoring/kube-node-ready-controller"]
		if found == nil {
			t.Fatalf("no %s in the namespace", kind)
		}
		selector := mustYAML(t, at(found.Object, "spec", "namespaceSelector"))
		if at(found.Object, "spec", "jobLabel") != "app.kubernetes.io/name" || !strings.Contains(selector, "- kube-node-ready") {
			t.Errorf("%s: %v", kind, found.Object["spec"])
		}
	}
}

// The ClusterRoles for people are enough for the plugin's commands, and no more than that.
func testPluginRoles(t *testing.T, c *cluster.Cluster, client kubernetes.Interface) {
	installOn(t, c, "controller: {replicas: 0}")
	defer helmOn(t, c, "uninstall", "kube-node-ready")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	if _, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.CoreV1().Nodes().Delete(t.Context(), node.Name, metav1.DeleteOptions{}) }()
	held := fmt.Sprintf(`{"spec":{"holderIdentity":"a","leaseDurationSeconds":3600,"renewTime":%q}}`,
		time.Now().UTC().Format(metav1.RFC3339Micro))
	if _, stderr, err := kubectl(t, c, "-n", namespace, "patch", "lease", "kube-node-ready-controller", "--type=merge",
		"--patch", held); err != nil {
		t.Fatal(stderr)
	}
	for who, roles := range map[string][]string{
		"viewer":   {"kube-node-ready-viewer"},
		"operator": {"kube-node-ready-viewer", "kube-node-ready-operator"},
		"seer":     {"view"},
		"admin":    {"admin"},
	} {
		for _, role := range roles {
			binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: who + "-" + role},
				RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
				Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: who}}}
			if _, err := client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	run := func(who string, args ...string) string {
		t.Helper()
		var out bytes.Buffer
		args = append(args, "--kubeconfig", c.Kubeconfig(), "--as", who)
		kubectlplugin.Run(t.Context(), args, &out, &out, false)
		return out.String()
	}
	denied := func(said string) bool {
		return strings.Contains(said, "forbidden") || strings.Contains(said, "cannot be read")
	}
	eventually(t, "the aggregated roles have the rights", func() bool {
		return !denied(run("seer", "status")) && !denied(run("admin", "unskip", "n"))
	})
	for who, operates := range map[string]bool{"viewer": false, "operator": true, "seer": false, "admin": true} {
		for _, command := range [][]string{{"status"}, {"status", "-o", "json"}, {"explain", "n"}, {"deletions"}} {
			if said := run(who, command...); denied(said) {
				t.Errorf("%s may not %s: %s", who, command, said)
			}
		}
		for _, command := range [][]string{{"skip", "n"}, {"unskip", "n"}, {"reverify", "n"}, {"pause", "why"}, {"resume"}} {
			if said := run(who, command...); denied(said) == operates {
				t.Errorf("%s, %s: %s", who, command, said)
			}
		}
		if said := run(who, "doctor"); operates && denied(said) {
			t.Errorf("%s may not make doctor's checks: %s", who, said)
		}
	}
	off := render(t, "pluginRoles: {aggregate: false}")
	for _, role := range []string{"viewer", "operator"} {
		if labels := off["ClusterRole kube-node-ready-"+role].GetLabels(); strings.Contains(mustYAML(t, labels), "aggregate") {
			t.Errorf("%s is aggregated: %v", role, labels)
		}
	}
	if _, ok := render(t, "pluginRoles: {create: false}")["ClusterRole kube-node-ready-viewer"]; ok {
		t.Error("it is made")
	}
}

// What the page about removal says leaves nothing on nodes.
func testRemoval(t *testing.T, c *cluster.Cluster, client kubernetes.Interface) {
	installOn(t, c, "controller: {replicas: 0}")
	node, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"node-ready/verified": "true", "keep": "it"},
			Annotations: map[string]string{"node-ready/record": "{}", "node-ready/rules": "{}", marks.AnnotationVerifyResult: "passed", "keep": "it"}},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{
			{Key: "node-ready/unverified", Value: "true", Effect: "NoSchedule"}, {Key: "keep", Effect: "NoSchedule"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: "True"}, {Type: "node-ready/Verified", Status: "True"},
		{Type: "example.com/Repair", Status: "True", Reason: marks.ReasonVerificationFailed}}
	if _, err := client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	helmOn(t, c, "uninstall", "kube-node-ready")
	_, page, _ := strings.Cut(readFile(t, "../../docs/guides/uninstall.md"), "**Remove what is left.**")
	_, page, _ = strings.Cut(page, "```sh\n")
	script, _, found := strings.Cut(page, "```")
	if !found {
		t.Fatal("the page has no commands")
	}
	plugin, err := install.Binary("kubectl-node_ready")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig(), "PATH="+filepath.Dir(tool("kubectl"))+":"+filepath.Dir(plugin)+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	left, err := client.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	text := mustYAML(t, []any{left.Labels, left.Annotations, left.Spec.Taints, left.Status.Conditions})
	if strings.Contains(text, "node-ready") || strings.Count(text, "keep") != 3 || len(left.Status.Conditions) != 1 {
		t.Errorf("on the node are left:\n%s", text)
	}
}
