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

// TestBehind tells a node that lacks our own write from one that has it, for as long as the watch may take to show it.
func TestBehind(t *testing.T) {
	now := time.Now()
	versions := NewVersions(func() time.Time { return now })
	node := func(version string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: version}}
	}
	is := func(what, version string, want bool) {
		t.Helper()
		if got := versions.Behind(node(version)); got != want {
			t.Errorf("%s: a node of version %s is behind: %v, want %v", what, version, got, want)
		}
	}
	write := func(version string) {
		_ = versions.Writer(patched{version: version}).Patch(t.Context(), node("10"), client.RawPatch("", nil))
	}
	is("nothing written", "10", false)
	write("12")
	is("written", "10", true)
	is("written", "9", true)
	is("written", "12", false)
	is("written", "13", false)
	now = now.Add(showsWithin)
	is("a watch that takes long", "10", false)
	write("14")
	write("") // nobody knows whether it was done
	is("an answer was lost", "10", false)
	write("16")
	versions.Gone("n")
	is("another node of the name", "10", false)
}

// TestCurrent proves a node of the cache current only where it is no older than what was written to it and read of it.
func TestCurrent(t *testing.T) {
	now := time.Now()
	versions := NewVersions(func() time.Time { return now })
	versions.began = "5"
	node := func(version string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: version}}
	}
	is := func(what, version string, want bool) {
		t.Helper()
		if got := versions.Current(node(version)); got != want {
			t.Errorf("%s: a node of version %s is current: %v, want %v", what, version, got, want)
		}
	}
	write := func(version string) {
		_ = versions.Writer(patched{version: version}).Patch(t.Context(), node("10"), client.RawPatch("", nil))
	}
	is("no watch", "10", false)
	versions.See(node("10"))
	is("nothing written", "10", true)
	is("of before it led", "5", false)
	write("12")
	is("written", "11", false)
	is("written", "12", true)
	versions.Read(node("11"))
	is("an older read", "12", true)
	versions.Read(node("15")) // somebody else wrote it, and a worker may have been started on it
	is("read", "14", false)
	is("read", "15", true)
	write("")
	versions.Read(node("16"))
	is("an answer was lost, and what was read may be of before that write", "16", false)
}
