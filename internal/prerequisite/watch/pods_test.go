package watch

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/pods"
)

// pod is a pod of the DaemonSet with UID ds; each change makes it more of what is waited for.
func pod(name, nodeName string, changes ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "x", Labels: map[string]string{"app": "agent", appsv1.DefaultDaemonSetUniqueLabelKey: "r1"}, Annotations: map[string]string{},
		OwnerReferences: []metav1.OwnerReference{controllerRef("ds")}}, Spec: corev1.PodSpec{NodeName: nodeName}}
	for _, change := range changes {
		change(p)
	}
	return p
}

func controllerRef(uid types.UID) metav1.OwnerReference {
	yes := true
	return metav1.OwnerReference{Kind: "DaemonSet", Name: string(uid), UID: uid, Controller: &yes}
}

func ready(p *corev1.Pod) {
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
}

func warm(p *corev1.Pod) { p.Annotations["warm/done"] = "true" }

func terminating(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }

func revision(uid types.UID, hash string, number int64) *appsv1.ControllerRevision {
	return &appsv1.ControllerRevision{Revision: number, ObjectMeta: metav1.ObjectMeta{Name: string(uid) + hash, Namespace: "x",
		Labels: map[string]string{appsv1.DefaultDaemonSetUniqueLabelKey: hash}, OwnerReferences: []metav1.OwnerReference{controllerRef(uid)}}}
}

func TestPods(t *testing.T) {
	const agent = "a pod app=agent in namespace x "
	wanted := agents()
	wanted.ReadyAnnotation, wanted.ReadyBy, wanted.CurrentRevision = "warm/done", pods.ReadyByBoth, true
	newest := []*appsv1.ControllerRevision{revision("ds", "r1", 99)}
	for i := range 20 {
		newest = append(newest, revision("ds", fmt.Sprint("old", i), int64(i)))
	}
	tests := map[string]struct {
		pods      []*corev1.Pod
		revisions []*appsv1.ControllerRevision
		why       string
	}{
		"none":        {why: agent + "(there is none on the node)"},
		"elsewhere":   {pods: []*corev1.Pod{pod("p", "node-b", ready, warm)}, why: agent + "(there is none on the node)"},
		"not ready":   {pods: []*corev1.Pod{pod("p", "node-a", warm)}, why: agent + "(p is not Ready)"},
		"terminating": {pods: []*corev1.Pod{pod("p", "node-a", ready, warm, terminating)}, why: agent + "(p is terminating)"},
		"not warm":    {pods: []*corev1.Pod{pod("p", "node-a", ready)}, why: agent + "(p does not carry annotation warm/done=true)"},
		"outdated": {pods: []*corev1.Pod{pod("p", "node-a", ready, warm)}, revisions: []*appsv1.ControllerRevision{revision("ds", "r2", 2), revision("ds", "r1", 1)},
			why: agent + "(p is not of its DaemonSet's current revision)"},
		"current": {pods: []*corev1.Pod{pod("p", "node-a", ready, warm)}, revisions: []*appsv1.ControllerRevision{revision("ds", "r1", 1), revision("other", "r2", 2)}},
		"newest":  {pods: []*corev1.Pod{pod("p", "node-a", ready, warm)}, revisions: newest},
		"one of two": {pods: []*corev1.Pod{pod("o", "node-a", terminating), pod("p", "node-a", ready, warm)},
			revisions: []*appsv1.ControllerRevision{revision("ds", "r1", 1)}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := prepare(t, config.Prerequisites{Pods: pods.Settings{wanted}}, nil, nil)
				for _, p := range test.pods {
					f.pods.Add(p)
				}
				for _, r := range test.revisions {
					f.revisions.Add(r)
				}
				f.waits("node-a", agent+"(not read yet)")
				f.start().waits("node-a", test.why)
			})
		})
	}
}

// Only who asks for the current revision depends on the watch of ControllerRevisions.
func TestRevisionsCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		current := agents()
		current.CurrentRevision = true
		plain := config.Prerequisites{Pods: pods.Settings{agents()}}
		f := prepare(t, config.Prerequisites{Pods: pods.Settings{current}}, nil, nil, plain)
		f.pods.Add(pod("p", "node-a", ready))
		f.revisions.ListError = forbidden(1)
		f.start().waits("node-a", "a pod app=agent in namespace x (cannot be read: Forbidden (list and watch controllerrevisions.apps))")
		if waits := f.Unmet(node("node-a"), plain); waits != nil {
			t.Errorf("without currentRevision: %v", waits)
		}
	})
}
