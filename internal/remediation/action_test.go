package remediation

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// In a dry run the controller has no right to create the object, and reports what it would do.
func TestDryRunAsksNothing(t *testing.T) {
	c := &config.Config{}
	c.NodeManagement.Remediation.DryRun = true
	action := config.Action{Object: &config.ObjectAction{Template: map[string]any{"apiVersion": "batch/v1", "kind": "Job"}}}
	problem, err := Actions{Config: c}.Problem(t.Context(), &corev1.Node{}, action, marks.Record{}) // it has no client to ask
	if problem != "" || err != nil {
		t.Errorf("%q, %v", problem, err)
	}
}

// An object that may have been created and cannot be read holds the action: nobody knows whose it is.
func TestProblemOfAnObjectThatCannotBeRead(t *testing.T) {
	intended := marks.Record{Remediations: []marks.Remediation{{State: marks.RemediationIntended, APIVersion: "batch/v1",
		Kind: "Job", Namespace: "ns", Name: "o"}}}
	started := marks.Record{Remediations: []marks.Remediation{intended.Remediations[0]}}
	started.Remediations[0].State = marks.RemediationStarted
	action := config.Action{Object: &config.ObjectAction{Template: map[string]any{"apiVersion": "batch/v1", "kind": "Job"}}}
	jobs := schema.GroupResource{Group: "batch", Resource: "jobs"}
	for name, tc := range map[string]struct {
		record marks.Record
		answer error
		held   bool
	}{
		"forbidden":                         {intended, apierrors.NewForbidden(jobs, "o", nil), true},
		"not there":                         {intended, apierrors.NewNotFound(jobs, "o"), false},
		"there":                             {intended, nil, false},
		"forbidden, of the entry before it": {started, apierrors.NewForbidden(jobs, "o", nil), false},
		"forbidden, and none was intended":  {marks.Record{}, apierrors.NewForbidden(jobs, "o", nil), false},
	} {
		api := &answering{get: tc.answer}
		problem, err := Actions{Reader: api, Writer: api, Config: &config.Config{}}.Problem(t.Context(), &corev1.Node{}, action, tc.record)
		if err != nil || (problem != "") != tc.held || tc.held && !strings.Contains(problem, "Job cannot be read") {
			t.Errorf("%s: %q, %v", name, problem, err)
		}
	}
}

// answering answers each read alike and takes every creation.
type answering struct {
	client.Client
	get error
}

func (a *answering) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return a.get
}

func (*answering) Create(context.Context, client.Object, ...client.CreateOption) error { return nil }

// A condition is set on condition that the node is as it was read: its type may have become another writer's.
func TestConditionNeedsTheVersionRead(t *testing.T) {
	n := &corev1.Node{}
	n.Name, n.UID, n.ResourceVersion = "worker-1", "uid", "7"
	w := &recorder{}
	action := marks.Remediation{Condition: "example.com/Broken", Status: corev1.ConditionTrue, Reason: "Failed"}
	if err := (Actions{Writer: w}).Start(t.Context(), n, action, marks.Record{}, "dns failed", time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"uid":"uid"`, `"resourceVersion":"7"`, `"type":"example.com/Broken"`} {
		if !strings.Contains(w.patch, want) {
			t.Errorf("the patch lacks %s: %s", want, w.patch)
		}
	}
}

// recorder records the last patch of a status.
type recorder struct {
	client.Client
	patch string
}

func (r *recorder) Status() client.SubResourceWriter { return recorderStatus{r: r} }

type recorderStatus struct {
	client.SubResourceWriter
	r *recorder
}

func (s recorderStatus) Patch(_ context.Context, o client.Object, p client.Patch, _ ...client.SubResourcePatchOption) error {
	b, err := p.Data(o)
	s.r.patch = string(b)
	return err
}

// A template's strings are filled in wherever they are, and the object says which node it is about.
func TestRender(t *testing.T) {
	n := &corev1.Node{}
	n.Name, n.UID, n.Spec.ProviderID = "worker-1", "uid", "aws:///i-1"
	o := render(&config.ObjectAction{Template: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"annotations": map[string]any{"node": "{{node}}"}},
		"data":     map[string]any{"list": []any{"{{providerID}} {{check}}/{{reason}} {{attempt}} {{nodeUID}}", 7}},
	}}, n, marks.Record{LastCheck: "dns", LastReason: "Timeout", Sequence: 3}, "remediate")
	list := o.Object["data"].(map[string]any)["list"].([]any)
	if o.GetName() != "remediate" || o.GetAnnotations()["node"] != "worker-1" || o.GetAnnotations()[AnnotationNodeUID] != "uid" ||
		list[0] != "aws:///i-1 dns/Timeout 3 uid" || list[1] != int64(7) {
		t.Errorf("%+v", o.Object)
	}
}
