package plugin

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/version"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
)

// finds runs doctor and expects exactly these findings: each is a part of one.
func (e *environment) finds(ctx context.Context, t *testing.T, want ...string) {
	t.Helper()
	got := e.run(ctx, "doctor", "-n", install.Namespace, "-o", "json")
	var d struct {
		Findings []struct{ Check, What, Fix string }
	}
	if err := json.Unmarshal([]byte(got.out), &d); err != nil {
		t.Fatalf("%+v, %v", got, err)
	}
	code := 0
	if len(want) > 0 {
		code = 1
	}
	ok := got.code == code && len(d.Findings) == len(want)
	for _, w := range want {
		found := false
		for _, f := range d.Findings {
			found = found || strings.Contains(f.Check+": "+f.What, w) && f.Fix != ""
		}
		ok = ok && found
	}
	if !ok {
		t.Errorf("code %d, found %+v, want %q", got.code, d.Findings, want)
	}
}

// Each thing that doctor looks for is broken on a real API server, and fixed again.
func (e *environment) doctor(ctx context.Context, t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	got := e.run(ctx, "doctor")
	if !strings.Contains(got.out, "not checked: rights: found no pod of the controller that names its service account") {
		t.Errorf("without a pod: %+v", got)
	}
	e.controllerPod(ctx)
	e.finds(ctx, t, "versions: the leading controller has version ")
	lease, err := e.client.CoordinationV1().Leases(install.Namespace).Get(ctx, install.ControllerAccount, metav1.GetOptions{})
	must(err)
	own := version.Version
	version.Version = lease.Labels["node-ready/version"]
	defer func() { version.Version = own }()
	e.finds(ctx, t)
	got = e.run(ctx, "doctor")
	for _, line := range []string{"No problems found.", "\nok: leader: ", "\nok: rights: ",
		"note: token: no admission policy limits this", "create a privileged pod in namespace kube-node-ready,"} {
		if got.code != 0 || !strings.Contains(got.out, line) {
			t.Errorf("all is well: no %q in %+v", line, got)
		}
	}

	// Somebody who may read nothing is not told that all is well.
	if got := e.run(ctx, "doctor", "--as", "nobody"); got.code != 6 || !strings.Contains(got.out, "not checked: rights: ") ||
		!strings.Contains(got.err, "checks could not run") || strings.Contains(got.out, "No problems") {
		t.Errorf("without rights: %+v", got)
	}

	// The namespace enforces Pod Security, and then the admission policies are there.
	e.label(ctx, install.Namespace, "pod-security.kubernetes.io/enforce", "restricted")
	if got := e.run(ctx, "doctor"); got.code != 0 || !strings.Contains(got.out, "privileged pods are refused in namespace kube-node-ready (Pod Security restricted)") {
		t.Errorf("an enforcing namespace: %+v", got)
	}
	for _, name := range []string{"kube-node-ready-nodes", "kube-node-ready-pods"} {
		_, err = e.client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(ctx, &admissionv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app.kubernetes.io/name": "kube-node-ready"}},
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name,
				ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}}}, metav1.CreateOptions{})
		must(err)
	}
	if got := e.run(ctx, "doctor"); got.code != 0 || strings.Contains(got.out, "note: token") {
		t.Errorf("with admission policies: %+v", got)
	}

	// Workers of another product.
	e.configure(ctx, strings.Replace(clusterConfiguration, "ghcr.io/kube-node-ready/", "ghcr.io/imunhatep/", 1))
	e.finds(ctx, t, "image: workers run the image ghcr.io/imunhatep/kube-node-ready, which is not from the chart's repository")
	e.configure(ctx, strings.Replace(clusterConfiguration, "ghcr.io/", "mirror.example.com/ghcr/", 1))
	e.finds(ctx, t)
	e.configure(ctx, clusterConfiguration)
	e.emit(ctx, "good", "kube-node-ready-controller", "ReportMissing")
	e.finds(ctx, t, "image: within the last hour, workers passed without a report, so their checks are unknown, on 1 nodes, good among them")
	must(e.client.EventsV1().Events(metav1.NamespaceDefault).Delete(ctx, "reportmissing", metav1.DeleteOptions{}))
	e.finds(ctx, t)
	e.doctorOfADaemonSet(ctx, t)

	// A right is taken away.
	roles := e.client.RbacV1().ClusterRoles()
	role, err := roles.Get(ctx, install.ControllerAccount, metav1.GetOptions{})
	must(err)
	less := role.DeepCopy()
	for i, r := range less.Rules {
		if slices.Contains(r.Resources, "nodes") {
			less.Rules[i] = rbacv1.PolicyRule{APIGroups: r.APIGroups, Resources: r.Resources, Verbs: []string{"get", "list", "watch"}}
		}
	}
	_, err = roles.Update(ctx, less, metav1.UpdateOptions{})
	must(err)
	e.eventuallyFinds(ctx, t, "rights: service account kube-node-ready/kube-node-ready-controller may not patch nodes in the cluster")
	role.ResourceVersion = ""
	_, err = roles.Update(ctx, role, metav1.UpdateOptions{})
	must(err)
	e.eventuallyFinds(ctx, t)

	// DNS runs nowhere.
	labels := map[string]string{"k8s-app": "dns-of-the-test"}
	_, err = e.client.CoreV1().Services("kube-system").Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "coredns"},
		Spec: corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{{Port: 53}}}}, metav1.CreateOptions{})
	must(err)
	_, err = e.client.CoreV1().Pods("kube-system").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "coredns", Labels: labels},
		Spec: corev1.PodSpec{ServiceAccountName: "coredns", SchedulerName: "nobody", Containers: []corev1.Container{{Name: "coredns", Image: "coredns"}}}}, metav1.CreateOptions{})
	must(err)
	e.finds(ctx, t)
	e.patchNodes(ctx, func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "test/closed", Effect: corev1.TaintEffectNoSchedule})
	})
	e.finds(ctx, t, "dns: every node has a taint that the pods of Service kube-system/coredns do not tolerate")
	e.patchNodes(ctx, func(n *corev1.Node) {
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "test/closed" })
	})

	// The autoscaler does not know the taint.
	k := e.karpenter()
	pool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	pool.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: "karpenter.kwok.sh", Kind: "KWOKNodeClass", Name: "default"}
	pool.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{}
	pool.Spec.Template.Annotations = map[string]string{"karpenter.sh/do-not-disrupt": "true"} // deletion is off
	must(k.Create(ctx, pool))
	e.finds(ctx, t, "autoscaler: no NodePool lists the gating taint node-ready/unverified:NoSchedule in startupTaints")
	gate := []corev1.Taint{{Key: "node-ready/unverified", Value: "true", Effect: corev1.TaintEffectNoSchedule}}
	pool.Spec.Template.Spec.Taints = gate
	must(k.Update(ctx, pool))
	e.finds(ctx, t, "autoscaler: no NodePool lists", "autoscaler: NodePool a has the gating taint node-ready/unverified:NoSchedule under taints")
	pool.Spec.Template.Spec.Taints, pool.Spec.Template.Spec.StartupTaints = nil, gate
	must(k.Update(ctx, pool))
	e.finds(ctx, t)
	scaler := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "scaler", Labels: map[string]string{"app": "cluster-autoscaler"}},
		Spec: corev1.PodSpec{ServiceAccountName: "coredns", SchedulerName: "nobody", Containers: []corev1.Container{{Name: "c", Image: "c", Command: []string{"./cluster-autoscaler", "--v=4"}}}}}
	_, err = e.client.CoreV1().Pods("kube-system").Create(ctx, scaler, metav1.CreateOptions{})
	must(err)
	e.finds(ctx, t, "autoscaler: Cluster Autoscaler does not know the gating taint node-ready/unverified")
	must(e.client.CoreV1().Pods("kube-system").Delete(ctx, "scaler", metav1.DeleteOptions{}))

	// A worker from before worker.namespace was changed.
	orphan := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "verify-n-1", Annotations: map[string]string{"node-ready/node": "n"},
		Labels: map[string]string{"app.kubernetes.io/name": "kube-node-ready", "app.kubernetes.io/component": "worker"}},
		Spec: corev1.PodSpec{ServiceAccountName: "coredns", SchedulerName: "nobody",
			Containers: []corev1.Container{{Name: "worker", Image: "c"}}}}
	_, err = e.client.CoreV1().Pods("kube-system").Create(ctx, orphan, metav1.CreateOptions{})
	must(err)
	e.finds(ctx, t, "workers: worker pod kube-system/verify-n-1 of node n is in a namespace that no controller watches")
	must(e.client.CoreV1().Pods("kube-system").Delete(ctx, orphan.Name, metav1.DeleteOptions{}))

	// Another controller on the same taint.
	e.createConfigMap(ctx, "default", "second", clusterConfiguration)
	e.finds(ctx, t, "controllers: default/second and kube-node-ready/controller both serve NodeReadinessRules",
		"controllers: default/second and kube-node-ready/controller both act on nodes with the taint node-ready/unverified:NoSchedule")
	must(e.client.CoreV1().ConfigMaps("default").Delete(ctx, "second", metav1.DeleteOptions{}))
	e.finds(ctx, t)
}

// In DaemonSet mode nobody leads, and the rights are those of the DaemonSet.
func (e *environment) doctorOfADaemonSet(ctx context.Context, t *testing.T) {
	const namespace = "each-node"
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := e.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	must(err)
	labels := map[string]string{"app.kubernetes.io/name": "kube-node-ready", "app.kubernetes.io/component": "daemonset"}
	_, err = e.client.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "daemonset", Labels: labels},
		Data: map[string]string{"config.yaml": clusterConfiguration + "nodeManagement: {taints: [{key: own/unverified, effect: NoSchedule}]}\n"}}, metav1.CreateOptions{})
	must(err)
	_, err = e.client.AppsV1().DaemonSets(namespace).Create(ctx, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "daemonset", Labels: labels},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{ServiceAccountName: "each-node",
				NodeSelector: map[string]string{"none": "true"}, Containers: []corev1.Container{{Name: "c", Image: install.Image}}}}}}, metav1.CreateOptions{})
	must(err)
	got := e.run(ctx, "doctor", "-n", namespace)
	if got.code != 1 || !strings.Contains(got.out, "rights: service account each-node/each-node may not get, patch, watch nodes in the cluster") ||
		!strings.Contains(got.out, "\nok: leader: ") || strings.Contains(got.out, "leases") {
		t.Errorf("in DaemonSet mode: %+v", got)
	}
	if got := e.run(ctx, "status", "-n", namespace); got.code != 0 || !strings.Contains(got.out, "none: in DaemonSet mode each node verifies itself") {
		t.Errorf("status in DaemonSet mode: %+v", got)
	}
	must(e.client.CoreV1().ConfigMaps(namespace).Delete(ctx, "daemonset", metav1.DeleteOptions{}))
}

// eventuallyFinds waits until the authorizer has seen a change.
func (e *environment) eventuallyFinds(ctx context.Context, t *testing.T, want ...string) {
	t.Helper()
	for range 50 {
		if got := e.run(ctx, "doctor"); (got.code == 1) == (len(want) > 0) {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	e.finds(ctx, t, want...)
}
