package manager

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/controller"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// refusing implements the part of an API server that unreadable uses.
type refusing struct {
	client.Client
	pods    error // the answer to a list of pods
	lease   string
	nodes   []corev1.Node
	patches []string
}

func (s *refusing) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	o.(*coordinationv1.Lease).ResourceVersion = s.lease
	return nil
}

func (s *refusing) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if nodes, ok := list.(*corev1.NodeList); ok {
		nodes.Items = s.nodes
		return nil
	}
	return s.pods
}

func (s *refusing) Status() client.SubResourceWriter { return statuses{s: s} }

type statuses struct {
	client.SubResourceWriter
	s *refusing
}

func (w statuses) Patch(_ context.Context, o client.Object, p client.Patch, _ ...client.SubResourcePatchOption) error {
	data, err := p.Data(o)
	w.s.patches = append(w.s.patches, o.GetName()+" "+string(data))
	return err
}

// While listing worker pods is refused, the condition of the nodes that wait for a worker says so, unless another
// replica leads.
func TestUnreadable(t *testing.T) {
	cfg, err := config.Parse([]byte("worker: {image: {tag: test}}"), "test")
	if err != nil {
		t.Fatal(err)
	}
	builder, err := workerpod.NewBuilder(cfg, "workers", "image")
	if err != nil {
		t.Fatal(err)
	}
	gated, other := corev1.Node{}, corev1.Node{}
	gated.Name, gated.UID, other.Name, other.UID = "gated", "g", "other", "o"
	gated.Spec.Taints = []corev1.Taint{{Key: "node-ready/unverified", Effect: corev1.TaintEffectNoSchedule}}
	forbidden := apierrors.NewForbidden(corev1.Resource("pods"), "", errors.New(`user "controller" cannot list pods`))
	view := &controller.View{Config: cfg, Builder: builder, Tracker: controller.NewTracker(time.Now, false),
		OwnerTerminating: func(*corev1.Node, marks.Facts) string { return "" }}
	for name, test := range map[string]struct {
		pods   error
		leases []string // at each look
		want   int
	}{
		"refused":            {forbidden, []string{"7", "7"}, 1},
		"no Lease yet":       {forbidden, []string{"", ""}, 1},
		"first look":         {forbidden, []string{"7"}, 0},
		"another one leads":  {forbidden, []string{"7", "8", "9"}, 0},
		"allowed":            {nil, []string{"7", "7"}, 0},
		"an outage, for now": {apierrors.NewServiceUnavailable("starting"), []string{"7", "7"}, 0},
	} {
		s := &refusing{pods: test.pods, nodes: []corev1.Node{gated, other}}
		u := &unreadable{view: view, client: s, election: client.ObjectKey{Namespace: "n", Name: "l"}, log: logr.Discard()}
		for _, version := range test.leases {
			s.lease = version
			if err := u.look(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if len(s.patches) != test.want {
			t.Errorf("%s: %q", name, s.patches)
		}
		for _, p := range s.patches {
			if !strings.HasPrefix(p, "gated ") || !strings.Contains(p, "cannot list pods") {
				t.Errorf("%s: %s", name, p)
			}
		}
	}
}
