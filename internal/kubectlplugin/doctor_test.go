package kubectlplugin

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	kubernetestesting "k8s.io/client-go/testing"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/nodepool"
	"github.com/kube-node-ready/kube-node-ready/internal/version"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// Doctor asks about every right that the configuration needs, in a dry run about none that it would use, and lists the
// controller's pods once.
func TestDoctorAsksForEachRight(t *testing.T) {
	labels := map[string]string{workerpod.LabelName: workerpod.Name, workerpod.LabelComponent: componentController}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "own", Name: "c", Labels: labels},
		Spec: corev1.PodSpec{ServiceAccountName: "account", Containers: []corev1.Container{{Args: []string{"--dry-run"}}}}}
	client := fake.NewClientset(pod)
	client.PrependReactor("create", "subjectaccessreviews", func(kubernetestesting.Action) (bool, runtime.Object, error) {
		return true, &authorizationv1.SubjectAccessReview{}, nil // which allows nothing
	})
	c := &cluster{client: client, component: componentController, controllerNamespace: "own", namespace: "own",
		config: configuration(t, `{nodeManagement: {deleteFailedNodes: true, prerequisites: {
			pods: [{namespace: a, selector: {matchLabels: {a: b}}, currentRevision: true}],
			resources: [{apiVersion: example.com/v1, kind: Ox, condition: Ready}]}}}`),
		dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
			map[schema.GroupVersionResource]string{nodepool.Resource: "NodePoolList",
				v1alpha1.GroupVersion.WithResource(v1alpha1.Resource): "NodeReadinessRuleList"})}
	v := &invocation{cluster: c, connection: genericclioptions.NewConfigFlags(true), configPath: "given"}
	if err := doctor(t.Context(), v); err == nil {
		t.Error("an account without rights is nothing to it")
	}
	lists := 0
	for _, a := range client.Actions() {
		l, ok := a.(kubernetestesting.ListAction)
		if ok && a.GetResource().Resource == "pods" && l.GetListRestrictions().Labels.String() ==
			workerpod.LabelComponent+"="+componentController+","+workerpod.LabelName+"="+workerpod.Name {
			lists++
		}
	}
	if lists != 1 {
		t.Errorf("the controller's pods are listed %d times", lists)
	}
	out := v.out.String()
	if !strings.Contains(out, "service account own/kube-node-ready-worker may not get services kubernetes in default") {
		t.Errorf("not asked for what the workers read:\n%s", out)
	}
	for what, want := range map[string]bool{
		"list, watch leases.coordination.k8s.io ba65f13e.readiness.node.x-k8s.io in the cluster": true,
		"list, watch controllerrevisions.apps in a":                                              true,
		"get configmaps kube-node-ready-remediations in own":                                     true,
		"patch nodes/status in the cluster":                                                      true,
		"delete nodes":                                                                           false,
		"list, watch oxes.example.com":                                                           false,
		"get services coredns in kube-system":                                                    false,
	} {
		if strings.Contains(out, "service account own/account may not "+what) != want {
			t.Errorf("asked for %s, want %v:\n%s", what, want, out)
		}
	}
}

// What a stolen token allows follows from the policies that are there, from the namespace's labels and from whether the
// controller deletes. Never is a namespace labelled in which that would reject pods of others, or our own.
func TestStolenToken(t *testing.T) {
	const (
		taints   = "remove any taint from any node"
		deletes  = "delete nodes and the objects that own them"
		admin    = "create a privileged pod in namespace w, whose labels enforce no Pod Security"
		refused  = "privileged pods are refused in namespace w (Pod Security "
		policy   = "set admissionPolicy.pods to true"
		label    = "kubectl label namespace w pod-security.kubernetes.io/enforce=restricted"
		separate = "a namespace of its own"
		policies = "set admissionPolicy.nodes to true"
	)
	phrases := []string{taints, deletes, admin, refused, policy, label, separate, policies}
	foreign := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "w", Name: "kube-proxy"}}
	worker := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "w", Name: "verify-a",
		Labels: map[string]string{workerpod.LabelName: workerpod.Name}}}
	hostPath := []corev1.Volume{{Name: "a", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/a"}}}}
	const hostPaths = "volumes: [{name: a, hostPath: {path: /a}}]"
	for name, test := range map[string]struct {
		policies   []string
		level      string
		config     string
		others     []*corev1.Pod
		controller corev1.PodSpec
		want       []string
	}{
		"no policy":               {config: "{}", want: []string{taints, policies, admin, policy, label}},
		"the defaults":            {policies: []string{"nodes", "rules"}, config: "{}", want: []string{admin, policy, label}},
		"beside a worker":         {policies: []string{"nodes"}, config: "{}", others: []*corev1.Pod{worker}, want: []string{admin, policy, label}},
		"privileged by its label": {policies: []string{"nodes"}, config: "{}", level: "privileged", want: []string{admin, policy, label}},
		"restricted":              {policies: []string{"nodes"}, config: "{}", level: "restricted"},
		"baseline, no policy":     {config: "{}", level: "baseline", want: []string{taints, policies, refused}},
		"deletes":                 {config: "nodeManagement: {deleteFailedNodes: true}", level: "restricted", want: []string{taints, deletes, policies, refused}},
		"deletes, the defaults":   {policies: []string{"nodes"}, config: "nodeManagement: {deleteFailedNodes: true}", level: "restricted"},
		"all policies":            {policies: []string{"nodes", "pods"}, config: "{}"},
		"only pods":               {policies: []string{"pods"}, config: "{}", want: []string{taints, policies}},
		"beside pods of others":   {policies: []string{"nodes"}, config: "{}", others: []*corev1.Pod{foreign, worker}, want: []string{admin, policy, separate}},
		"the host's network":      {policies: []string{"nodes"}, config: "{}", controller: corev1.PodSpec{HostNetwork: true}, want: []string{admin, policy}},
		"a path of the host":      {policies: []string{"nodes"}, config: "{}", controller: corev1.PodSpec{Volumes: hostPath}, want: []string{admin, policy}},
		"one of the workers":      {policies: []string{"nodes"}, config: "worker: {" + hostPaths + "}", want: []string{admin, policy}},
		"one of a profile":        {policies: []string{"nodes"}, config: "profiles: [{name: p, nodeSelector: {matchLabels: {a: b}}, " + hostPaths + "}]", want: []string{admin, policy}},
		"a privileged burn-in": {policies: []string{"nodes"},
			config: "worker: {initContainers: [{name: a, image: a, securityContext: {privileged: true}}]}", want: []string{admin, policy}},
	} {
		client := fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "w", Labels: map[string]string{labelEnforce: test.level}}})
		for _, p := range test.others {
			if err := client.Tracker().Add(p); err != nil {
				t.Fatal(err)
			}
		}
		for _, p := range test.policies {
			if err := client.Tracker().Add(&admissionv1.ValidatingAdmissionPolicyBinding{
				ObjectMeta: metav1.ObjectMeta{Name: p, Labels: map[string]string{workerpod.LabelName: workerpod.Name}},
				Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "kube-node-ready-" + p,
					ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}}}); err != nil {
				t.Fatal(err)
			}
		}
		v := &invocation{cluster: &cluster{client: client, component: componentController, namespace: "w", config: configuration(t, test.config)}}
		d := diagnosis{overview: overview{pods: []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "w"}, Spec: test.controller}}}}
		if err := examineToken(t.Context(), v, &d); err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, n := range d.Notes {
			got += n.What + "; " + n.Fix
		}
		for _, phrase := range phrases {
			if strings.Contains(got, phrase) != slices.Contains(test.want, phrase) {
				t.Errorf("%s: %q in the note: %v\n%s", name, phrase, strings.Contains(got, phrase), got)
			}
		}
		if len(test.want) == 0 && got != "" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// A configuration that is refused is of another version only where the chart's label has another one.
func TestConfigurationThatIsRefused(t *testing.T) {
	for chart, want := range map[string]string{
		version.Version: "the controller's configuration is invalid, so its defaults are used",
		"":              "the controller's configuration is invalid, so its defaults are used",
		"v9.9.9": "the controller's configuration is of version v9.9.9, and this plugin of version " + version.Version +
			" rejects it, so its defaults are used",
	} {
		client := fake.NewClientset(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "own", Name: "c", Labels: map[string]string{
			workerpod.LabelName: workerpod.Name, workerpod.LabelComponent: componentController, labelVersion: chart}},
			Data: map[string]string{configKey: "worker: {timeoutSecond: 3}"}})
		var warnings strings.Builder
		v := &invocation{cluster: &cluster{client: client}, warnings: &warnings}
		cfg, err := v.chartConfig(t.Context())
		if err != nil || cfg.Worker.TimeoutSeconds != 120 || v.cluster.controllerNamespace != "own" {
			t.Errorf("%q: %v, %+v, namespace %q", chart, err, cfg.Worker, v.cluster.controllerNamespace)
		}
		got := warnings.String()
		if !strings.Contains(got, want) || !strings.Contains(got, "timeoutSecond") || !strings.Contains(got, "configmap own/c") {
			t.Errorf("%q: %s", chart, got)
		}
	}
}

// Without Helm, the ConfigMaps of earlier configurations stay. The one that counts is mounted, or else the newest;
// another release is another controller.
func TestConfigurationsThatNobodyRemoved(t *testing.T) {
	objectMeta := func(name, release string, minutes time.Duration) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "own", Name: name, CreationTimestamp: metav1.NewTime(now.Add(minutes * time.Minute)),
			Labels: map[string]string{workerpod.LabelName: workerpod.Name, workerpod.LabelComponent: componentController, labelInstance: release}}
	}
	configMap := func(name, release string, minutes time.Duration) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: objectMeta(name, release, minutes), Data: map[string]string{configKey: "worker: {namespace: " + name + "}"}}
	}
	mounts := func(name, release string) *appsv1.Deployment {
		d := &appsv1.Deployment{ObjectMeta: objectMeta("c-"+release, release, 0)}
		d.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "other"}, {Name: "config", VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}}}}
		return d
	}
	first, second, third := configMap("first", "a", 0), configMap("second", "a", 1), configMap("third", "a", 2)
	for name, test := range map[string]struct {
		objects   []runtime.Object
		forbidden bool
		want      string // the workers' namespace, or the error
	}{
		"the mounted one":             {[]runtime.Object{first, second, third, mounts("second", "a")}, false, "second"},
		"rolled back":                 {[]runtime.Object{first, second, mounts("first", "a")}, false, "first"},
		"no Deployment":               {[]runtime.Object{second, third, first}, false, "third"},
		"mounts one that is gone":     {[]runtime.Object{second, third, first, mounts("fourth", "a")}, false, "third"},
		"Deployments may not be read": {[]runtime.Object{second, third, first, mounts("first", "a")}, true, "third"},
		"two releases": {[]runtime.Object{first, second, configMap("other", "b", 0), mounts("second", "a"), mounts("other", "b")}, false,
			"there is more than one controller (own/second, own/other): choose one with --namespace"},
	} {
		client := fake.NewClientset(test.objects...)
		client.PrependReactor("list", "deployments", func(kubernetestesting.Action) (bool, runtime.Object, error) {
			return test.forbidden, nil, apierrors.NewForbidden(appsv1.Resource("deployments"), "", nil)
		})
		v := &invocation{cluster: &cluster{client: client}, warnings: &strings.Builder{}}
		cfg, err := v.chartConfig(t.Context())
		if got := fmt.Sprint(err); err != nil && got != test.want || err == nil && cfg.Worker.Namespace != test.want {
			t.Errorf("%s: %+v, %v, want %s", name, cfg, err, test.want)
		}
		var d diagnosis
		if err := examineControllers(t.Context(), v, &d); err != nil || (len(d.Findings) > 0) != (name == "two releases") {
			t.Errorf("%s: %v, %+v", name, err, d.Findings)
		}
	}
}

// Doctor lists the DaemonSets that registered themselves, and says where none did.
func TestDoctorListsRegisteredDaemonSets(t *testing.T) {
	client := fake.NewClientset(
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "agent", Labels: map[string]string{"a": "b"}}},
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "driver", Labels: map[string]string{"a": "b"}}},
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "other"}})
	v := &invocation{cluster: &cluster{client: client, config: configuration(t, `{nodeManagement: {prerequisites: {daemonSets: [
		{namespace: b, name: other}, {selector: {matchLabels: {a: b}}}, {selector: {matchLabels: {a: c}}}]}}}`)}}
	var d diagnosis
	if err := examineAgents(t.Context(), v, &d); err != nil {
		t.Fatal(err)
	}
	var notes []string
	for _, n := range d.Notes {
		notes = append(notes, n.What)
	}
	if got := strings.Join(notes, "\n"); len(d.Findings) > 0 || got != "new nodes wait for DaemonSets a=b: b/driver, x/agent\n"+
		"new nodes wait for DaemonSets a=c: none has registered itself" {
		t.Errorf("%v %s", d.Findings, got)
	}
}
