package controller

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// oneLease is an API server with the Lease of the election.
type oneLease struct {
	client.Reader // nil: nothing else is read
	client.Writer
	lease coordinationv1.Lease
	err   error // of a read
	reads int
	// conflicts is how many writes another writer overtakes.
	conflicts, writes int
}

func (o *oneLease) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	o.reads++
	o.lease.DeepCopyInto(into.(*coordinationv1.Lease))
	return o.err
}

func (o *oneLease) Update(_ context.Context, from client.Object, _ ...client.UpdateOption) error {
	if o.conflicts > 0 {
		o.conflicts--
		return answer(409)
	}
	o.writes++
	from.(*coordinationv1.Lease).DeepCopyInto(&o.lease)
	return nil
}

// leads begins a leader whose workers are in the namespace.
func (o *oneLease) leads(t *testing.T, namespace string) *Namespaces {
	t.Helper()
	n := &Namespaces{Reader: o, Writer: o, Lease: client.ObjectKey{Namespace: "ns", Name: "lease"}, Namespace: namespace, Seconds: 600}
	if former := n.Former(); former != nil {
		t.Errorf("before it leads: %v", former)
	}
	if err := n.Begin(t.Context(), time.Now); err != nil {
		t.Fatal(err)
	}
	return n
}

// A leader reads from the Lease where the previous leader created workers. It writes the Lease only if that changed.
func TestFormerNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &oneLease{}
		if former := o.leads(t, "first").Former(); len(former) != 0 || o.writes != 1 {
			t.Errorf("the first leader knows of %v, %d writes", former, o.writes)
		}
		if former := o.leads(t, "first").Former(); len(former) != 0 || o.writes != 1 {
			t.Errorf("one of the same namespace knows of %v, %d writes", former, o.writes)
		}
		o.conflicts = 2
		if former := o.leads(t, "second").Former(); len(former) != 1 || former[0].Namespace != "first" || former[0].Seconds != 600 || o.writes != 2 {
			t.Errorf("one of another namespace knows of %v, %d writes", former, o.writes)
		}
		time.Sleep(time.Hour) // no worker of before runs any more
		if former := o.leads(t, "second").Former(); len(former) != 0 {
			t.Errorf("an hour later: %v", former)
		}
		o.lease.Annotations[AnnotationWorkers] = "{]"
		if former := o.leads(t, "second").Former(); len(former) != 0 || o.lease.Annotations[AnnotationWorkers] == "{]" {
			t.Errorf("after garbage: %v, %s", former, o.lease.Annotations[AnnotationWorkers])
		}
	})
}

// A Lease that cannot be read holds no node, because the leader continues after some tries. The end of the process ends
// the tries.
func TestLeaseThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &oneLease{err: errors.New("forbidden")}
		if former := o.leads(t, "first").Former(); former != nil || o.reads != beginTries {
			t.Errorf("it knows of %v after %d reads", former, o.reads)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		n := &Namespaces{Reader: o, Writer: o, Namespace: "first"}
		if err := n.Begin(ctx, time.Now); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the process has ended: %v", err)
		}
	})
	var none *Namespaces
	if err := none.Begin(t.Context(), time.Now); err != nil || none.Former() != nil {
		t.Errorf("without election: %v, %v", err, none.Former())
	}
}
