package remediation

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
)

func pod(name string, owners ...metav1.OwnerReference) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, OwnerReferences: owners}}
}

func controlledBy(apiVersion, kind string) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: "x", Controller: ptr.To(true)}
}

func TestOrdinaryPods(t *testing.T) {
	agent := controlledBy("apps/v1", "DaemonSet")
	done, failed, static := pod("done"), pod("failed"), pod("static")
	done.Status.Phase, failed.Status.Phase = corev1.PodSucceeded, corev1.PodFailed
	static.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	notControlling := agent
	notControlling.Controller = nil

	for name, tc := range map[string]struct {
		pods []corev1.Pod
		want decide.Workloads
	}{
		"none":                         {nil, decide.Workloads{}},
		"the node's own":               {[]corev1.Pod{pod("a", agent), pod("b", metav1.OwnerReference{APIVersion: "v1", Kind: "Node"}), static}, decide.Workloads{}},
		"finished":                     {[]corev1.Pod{done, failed}, decide.Workloads{}},
		"ordinary":                     {[]corev1.Pod{pod("a", controlledBy("apps/v1", "ReplicaSet")), pod("b")}, decide.Workloads{Names: []string{"ns/a", "ns/b"}}},
		"a DaemonSet of another group": {[]corev1.Pod{pod("a", controlledBy("apps.kruise.io/v1alpha1", "DaemonSet"))}, decide.Workloads{Names: []string{"ns/a"}}},
		"a Node of another group":      {[]corev1.Pod{pod("a", controlledBy("example.com/v1", "Node"))}, decide.Workloads{Names: []string{"ns/a"}}},
		"a DaemonSet not in control":   {[]corev1.Pod{pod("a", notControlling)}, decide.Workloads{Names: []string{"ns/a"}}},
		"three":                        {[]corev1.Pod{pod("c"), pod("b"), pod("a")}, decide.Workloads{Names: []string{"ns/a", "ns/b", "ns/c"}}},
		"four":                         {[]corev1.Pod{pod("d"), pod("c"), pod("b"), pod("a")}, decide.Workloads{Names: []string{"ns/a", "ns/b", "ns/c"}, More: true}},
	} {
		s := &apiServer{pods: tc.pods}
		got, err := OrdinaryPods(t.Context(), s, "n", true)
		if err != nil || !slices.Equal(got.Names, tc.want.Names) || got.More != tc.want.More {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, tc.want)
		}
		mustBe(t, "selector", s.selectors[0], "spec.nodeName=n")
	}
}

// The mirror of a static pod of an API server or etcd marks a control plane that no label shows.
func TestStaticPodsOfAControlPlane(t *testing.T) {
	static := func(namespace, component string) corev1.Pod {
		p := pod(component + "-n")
		p.Namespace, p.Labels = namespace, map[string]string{"component": component, "tier": "control-plane"}
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		return p
	}
	unmirrored, unlabelled := static("kube-system", "kube-apiserver"), static("kube-system", "kube-apiserver")
	unmirrored.Annotations, unlabelled.Labels = nil, nil
	restarting := static("kube-system", "etcd")
	restarting.Status.Phase = corev1.PodFailed
	var busy []corev1.Pod
	for i := range 250 {
		busy = append(busy, pod(fmt.Sprintf("p%03d", i)))
	}
	for name, tc := range map[string]struct {
		pods []corev1.Pod
		want string
	}{
		"an API server":                     {[]corev1.Pod{static("kube-system", "kube-apiserver")}, "kube-system/kube-apiserver-n"},
		"etcd alone":                        {[]corev1.Pod{static("kube-system", "etcd")}, "kube-system/etcd-n"},
		"etcd that has ended":               {[]corev1.Pod{restarting}, "kube-system/etcd-n"},
		"behind many ordinary pods":         {append(busy, static("kube-system", "kube-apiserver")), "kube-system/kube-apiserver-n"},
		"another static pod":                {[]corev1.Pod{static("kube-system", "kube-proxy")}, ""},
		"a scheduler":                       {[]corev1.Pod{static("kube-system", "kube-scheduler")}, ""},
		"of another namespace":              {[]corev1.Pod{static("shop", "etcd")}, ""},
		"not static, as a hosted cluster's": {[]corev1.Pod{unmirrored}, ""},
		"static, without the label":         {[]corev1.Pod{unlabelled}, ""},
	} {
		got, err := OrdinaryPods(t.Context(), &apiServer{pods: tc.pods}, "n", true)
		if err != nil || got.ControlPlane != tc.want {
			t.Errorf("%s: %q, want %q (%v)", name, got.ControlPlane, tc.want, err)
		}
	}
}

func TestOrdinaryPodsReadsEveryPage(t *testing.T) {
	many := func(ordinaryFrom int) *apiServer {
		s := &apiServer{}
		for i := range 350 {
			p := pod(fmt.Sprintf("p%03d", i), controlledBy("apps/v1", "DaemonSet"))
			if i >= ordinaryFrom {
				p.OwnerReferences = nil
			}
			s.pods = append(s.pods, p)
		}
		return s
	}
	for from, pages := range map[int]int{0: 4, 97: 4, 350: 4} {
		s := many(from)
		got, err := OrdinaryPods(t.Context(), s, "n", true)
		if err != nil || got.More != (from < 350) {
			t.Errorf("ordinary from %d: %+v, %v", from, got, err)
		}
		mustBe(t, fmt.Sprintf("pages when ordinary from %d", from), s.lists, pages)
	}

	s := many(99) // one ordinary pod on the first page, which expires: it is not counted twice
	s.pods = s.pods[:102]
	s.fail = map[int]error{2: apierrors.NewResourceExpired("too old")}
	got, err := OrdinaryPods(t.Context(), s, "n", true)
	if err != nil || len(got.Names) != 3 || got.More {
		t.Errorf("after an expired page: %+v, %v", got, err)
	}

	s = &apiServer{fail: map[int]error{1: apierrors.NewForbidden(configMaps, "", errors.New("no"))}}
	_, err = OrdinaryPods(t.Context(), s, "n", true)
	mustBe(t, "forbidden", apierrors.IsForbidden(err), true)
}
