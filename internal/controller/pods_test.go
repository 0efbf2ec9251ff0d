package controller

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/apierr"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// podWriter accepts writes of pods like an API server.
type podWriter struct {
	client.Writer // nil: no other write is made
	priority      *int32
	dryRunErr     error
	err           error // of every other write

	dryRuns int
	created []*corev1.Pod
	patches []string
	deletes []client.DeleteOptions
}

func (w *podWriter) Create(_ context.Context, o client.Object, opts ...client.CreateOption) error {
	pod := o.(*corev1.Pod)
	if options := (&client.CreateOptions{}).ApplyOptions(opts); len(options.DryRun) > 0 {
		w.dryRuns++
		pod.Spec.Priority = w.priority
		return w.dryRunErr
	}
	w.created = append(w.created, pod)
	return w.err
}

func (w *podWriter) Patch(_ context.Context, o client.Object, p client.Patch, _ ...client.PatchOption) error {
	data, err := p.Data(o)
	w.patches = append(w.patches, o.GetNamespace()+"/"+o.GetName()+" "+string(data))
	return errors.Join(err, w.err)
}

func (w *podWriter) Delete(_ context.Context, _ client.Object, opts ...client.DeleteOption) error {
	w.deletes = append(w.deletes, *(&client.DeleteOptions{}).ApplyOptions(opts))
	return w.err
}

// answer is an API server's answer with the code.
func answer(code int) error {
	return apierrors.NewGenericServerResponse(code, "post", schema.GroupResource{Resource: "pods"}, "p", "said so", 0, true)
}

// A worker for the scheduler must not displace other pods. It is bound directly, unless a dry run shows that it does
// not displace any.
func TestCreatedPodDisplacesNone(t *testing.T) {
	high, zero := int32(1000), int32(0)
	for name, test := range map[string]struct {
		writer podWriter
		change func(*corev1.Pod)
		bound  bool
		asked  int
	}{
		"no priority":               {podWriter{priority: &zero}, nil, false, 1},
		"a default priority":        {podWriter{priority: &high}, nil, true, 1},
		"a dry run that fails":      {podWriter{dryRunErr: answer(http.StatusForbidden)}, nil, true, 1},
		"a class of its own":        {podWriter{priority: &high}, func(p *corev1.Pod) { p.Spec.PriorityClassName = "own" }, false, 0},
		"one bound to its node":     {podWriter{priority: &high}, func(p *corev1.Pod) { workerpod.Bind(p, true) }, true, 0},
		"its node lacks a resource": {podWriter{priority: &zero}, nil, false, 1},
		"a class, and a failure":    {podWriter{err: answer(http.StatusForbidden)}, func(p *corev1.Pod) { p.Spec.PriorityClassName = "own" }, false, 0},
	} {
		v, _, _ := view(t)
		n := node("n")
		pod := v.Builder.Verify(target(n), v.Config.For(nil), 1, config.SchedulingScheduler)
		pod.Spec.PriorityClassName = ""
		if test.change != nil {
			test.change(pod)
		}
		err := Pods{Writer: &test.writer, Namespace: "ns"}.Create(t.Context(), pod, name != "its node lacks a resource")
		if !errors.Is(err, test.writer.err) || len(test.writer.created) != 1 || test.writer.dryRuns != test.asked {
			t.Errorf("%s: %d created, %d dry runs (%v)", name, len(test.writer.created), test.writer.dryRuns, err)
			continue
		}
		if got := test.writer.created[0].Spec.NodeName == "n"; got != test.bound {
			t.Errorf("%s: bound %t", name, got)
		}
	}
}

// A kubelet that does not know an extended resource admits a pod without it. So while the node does not list the
// resource, a pod is not bound directly. Nor is it left to a scheduler that would displace others for it.
func TestPodThatLacksAResourceIsNotBound(t *testing.T) {
	high := int32(1000)
	v, _, _ := view(t)
	n := node("n")
	for name, writer := range map[string]*podWriter{"a default priority": {priority: &high},
		"a dry run that fails": {dryRunErr: answer(http.StatusForbidden)}} {
		pod := v.Builder.Verify(target(n), v.Config.For(nil), 1, config.SchedulingScheduler)
		pod.Spec.PriorityClassName = ""
		err := Pods{Writer: writer, Namespace: "ns"}.Create(t.Context(), pod, false)
		why := apierr.Refusal(err, apierr.Create)
		if why == "" || len(writer.created) > 0 || writer.priority != nil && !strings.Contains(why, "preemptionPolicy Never") {
			t.Errorf("%s: %d created (%v)", name, len(writer.created), err)
		}
	}
}

// A pod is deleted on condition of its UID. It gets its grace period only if one of its containers may run.
func TestDeletedPodHasItsGrace(t *testing.T) {
	v, _, _ := view(t)
	n := node("n")
	for name, test := range map[string]struct {
		pod   *corev1.Pod
		lost  bool
		grace bool
	}{
		"it runs":                                {worker(v, n, 1, running), false, true},
		"it runs, and its kubelet is gone":       {worker(v, n, 1, running), true, true},
		"it is pending":                          {worker(v, n, 1), false, true},
		"it is pending, and its kubelet is gone": {worker(v, n, 1), true, false},
		"it has ended":                           {worker(v, n, 1, exited(1)), false, false},
	} {
		w := &podWriter{}
		in := of("n", "uid-n")
		in.Node.Lost = test.lost
		o := workerpod.Observe(test.pod)
		if err := (Pods{Writer: w, Namespace: "ns"}).Delete(t.Context(), in, o); err != nil {
			t.Fatal(err)
		}
		d := w.deletes[0]
		if d.Preconditions == nil || string(*d.Preconditions.UID) != o.UID || (d.GracePeriodSeconds == nil) != test.grace {
			t.Errorf("%s: %+v", name, d)
		}
	}
	w := &podWriter{}
	if err := (Pods{Writer: w, Namespace: "ns"}).Force(t.Context(), workerpod.Observe(worker(v, n, 1, running))); err != nil {
		t.Fatal(err)
	}
	if d := w.deletes[0]; d.Preconditions == nil || d.GracePeriodSeconds == nil || *d.GracePeriodSeconds != 0 {
		t.Errorf("by force: %+v", d)
	}
}

// A pod is marked on condition of its UID. One that is gone or replaced needs no write; any other error comes back with
// the pod's name.
func TestWritesOfAPodThatIsGone(t *testing.T) {
	v, _, _ := view(t)
	o := workerpod.Observe(worker(v, node("n"), 1, exited(1)))
	for code, want := range map[int]bool{http.StatusNotFound: false, http.StatusConflict: false,
		http.StatusUnprocessableEntity: true, http.StatusForbidden: true, http.StatusInternalServerError: true} {
		w := &podWriter{err: answer(code)}
		pods := Pods{Writer: w, Namespace: "ns"}
		for what, err := range map[string]error{"mark": pods.Keep(t.Context(), o), "delete": pods.Delete(t.Context(), of("n", "uid-n"), o),
			"delete by force": pods.Force(t.Context(), o)} {
			if (err != nil) != want || want && !strings.Contains(err.Error(), o.Name) {
				t.Errorf("%s, answered by %d: %v", what, code, err)
			}
		}
		if want := "ns/" + o.Name + ` {"metadata":{"uid":"` + o.UID + `","annotations":{"` + workerpod.AnnotationRecorded + `":"true"}}}`; w.patches[0] != want {
			t.Errorf("patch %s, want %s", w.patches[0], want)
		}
	}
}
