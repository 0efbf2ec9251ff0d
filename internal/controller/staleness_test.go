package controller

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// patched answers patches with a version, or not at all.
type patched struct {
	client.Client
	version string
}

func (p patched) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
	if p.version == "" {
		return errors.New("no answer")
	}
	o.SetResourceVersion(p.version)
	return nil
}

// stored is a store that is complete up to the version.
type stored string

func (s stored) LastStoreSyncResourceVersion() string { return string(s) }

// written is a Versions with a write of the node "n" that left the version behind; empty where no answer came.
func written(versions *Versions, version string) {
	n := PatchTarget("n")
	_ = versions.Writer(patched{version: version}).Patch(context.Background(), n, client.RawPatch("", nil))
}

// read is a reading of the node "n" from the API server.
func read(versions *Versions, version string) {
	versions.Read(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: version}})
}

// A store that lacks our own write to a node is behind, for as long as the watch may take to show the write.
func TestBehind(t *testing.T) {
	now := time.Now()
	versions := NewVersions(func() time.Time { return now }, nil)
	is := func(what, synced string, want bool) {
		t.Helper()
		if got := versions.Behind("n", synced); got != want {
			t.Errorf("%s: a store at %s is behind: %v, want %v", what, synced, got, want)
		}
	}
	is("nothing written", "10", false)
	written(versions, "12")
	is("written", "10", true)
	is("written", "9", true)
	is("written", "12", false)
	is("written", "13", false)
	is("a store that does not say", "", false)
	now = now.Add(awaitedFor)
	is("a watch that takes long", "10", false)
	written(versions, "14")
	written(versions, "") // nobody knows whether it was done
	is("an answer was lost", "10", false)
	written(versions, "16")
	versions.Gone("n")
	is("another node of the name", "10", false)
}

// A cached node counts as current only if the store is new enough. It must be at least as new as the start of this
// leader's term, the last write to the node, and the last read of the node.
func TestCurrent(t *testing.T) {
	now := time.Now()
	versions := NewVersions(func() time.Time { return now }, stored("10"))
	is := func(what, synced string, want bool) {
		t.Helper()
		if got := versions.Current("n", synced); got != want {
			t.Errorf("%s: a node of a store at %s is current: %v, want %v", what, synced, got, want)
		}
	}
	versions.Observe()
	is("it is not known when this process began to lead, or versions cannot be compared", versions.Synced(), false)
	versions.began = "5"
	is("nothing written", versions.Synced(), true)
	is("as old as the beginning of its time", "5", true)
	is("of before its time", "4", false)
	is("a store that does not say", "", false)
	now = now.Add(liveFor + 1)
	is("a silent watch", "10", false)
	versions.Observe()
	written(versions, "12")
	is("written", "11", false)
	is("written", "12", true)
	read(versions, "11")
	is("an older read", "12", true)
	read(versions, "15") // somebody else wrote it, and a worker may have been started on it
	is("read", "14", false)
	is("read", "15", true)
	written(versions, "")
	read(versions, "16")
	is("an answer was lost, and what was read may be of before that write", "16", false)
}
