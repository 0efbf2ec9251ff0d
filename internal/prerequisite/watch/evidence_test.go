package watch

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/conditions"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/csinodes"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/daemonsets"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/kind"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/pods"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/resources"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/resourceslices"
)

// A Node is created again under its name, or reboots so fast that nothing was seen to end (kubernetes#132182). What its
// pods, a custom resource and a condition report may be about the earlier machine or boot. It counts once they report
// again, or once the node has been Ready for a minute.
func TestEvidenceOfAnEarlierNode(t *testing.T) {
	annotated := agents()
	annotated.ReadyAnnotation, annotated.ReadyBy = "warm/done", pods.ReadyByAnnotation
	only := func(change func(*config.Prerequisites)) config.Prerequisites {
		p := config.Prerequisites{}
		change(&p)
		return p
	}
	kinds := map[string]config.Prerequisites{
		"pod":        only(func(p *config.Prerequisites) { p.Pods = pods.Settings{agents()} }),
		"annotation": only(func(p *config.Prerequisites) { p.Pods = pods.Settings{annotated} }),
		"daemonSets": only(func(p *config.Prerequisites) {
			p.DaemonSets = daemonsets.Settings{Named: []daemonsets.Entry{{Namespace: "x", Name: "d"}}}
		}),
		"auto":      only(func(p *config.Prerequisites) { p.DaemonSets = daemonsets.Settings{Mode: daemonsets.Auto} }),
		"resources": only(func(p *config.Prerequisites) { p.Resources = resources.Settings{storages("node={{node}}")} }),
		"resources of all nodes, one owned by the node": only(func(p *config.Prerequisites) {
			p.Resources = resources.Settings{storages("node=node-a")}
		}),
		"resources of all nodes, one of the node's name": only(func(p *config.Prerequisites) {
			p.Resources = resources.Settings{storages("node=named")}
		}),
		"resources of all nodes, none of this one": only(func(p *config.Prerequisites) {
			p.Resources = resources.Settings{storages("node=other")}
		}),
		"csiNodes": only(func(p *config.Prerequisites) { p.CSINodes = csinodes.Settings{{Driver: "disk.example.com"}} }),
		"resourceSlices": only(func(p *config.Prerequisites) {
			p.ResourceSlices = resourceslices.Settings{{Driver: "gpu.example.com"}}
		}),
		"condition": only(func(p *config.Prerequisites) {
			p.Conditions = conditions.Settings{{Type: "Storage", Status: corev1.ConditionTrue}}
		}),
		"none of all": {},
	}
	for name, p := range kinds {
		for history, tc := range map[string]struct {
			older    bool // the objects are older than the node
			verdict  string
			reboots  bool
			reports  bool // again, after ten seconds
			notReady bool // the node, for ten seconds
			counts   time.Duration
		}{
			"new node":                          {},
			"recreated":                         {older: true, counts: time.Minute},
			"recreated, reports again":          {older: true, reports: true, counts: 10 * time.Second},
			"recreated, Ready later":            {older: true, notReady: true, counts: 70 * time.Second},
			"rebooted":                          {verdict: "boot-1", reboots: true, counts: time.Minute},
			"rebooted, reports again":           {verdict: "boot-1", reboots: true, reports: true, counts: 10 * time.Second},
			"rebooted before its first attempt": {reboots: true, counts: time.Minute},
			"rebooted, then a new process":      {verdict: "boot-1", counts: time.Minute},
			"verified in this boot":             {verdict: "boot-2"},
		} {
			if name == "none of all" || name == "condition" && tc.older || // conditions end with their Node
				name == "resources of all nodes, none of this one" {
				tc.counts = 0
			}
			t.Run(name+"/"+history, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					time.Sleep(time.Hour)
					created := metav1.Now()
					n := node("node-a")
					n.CreationTimestamp, n.Status.NodeInfo.BootID = created, "boot-2"
					n.Annotations = map[string]string{"node-ready/record": `{"nodeUID":"node-a","bootID":"` + tc.verdict + `"}`}
					n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}, {Type: "Storage", Status: corev1.ConditionTrue}}
					at := metav1.NewTime(created.Add(time.Second))
					if tc.older {
						at = metav1.NewTime(created.Add(-time.Minute))
					}
					owned, named := aged(storage("s", "node-a", "True"), at), aged(storage("node-a", "named", "True"), at)
					owned.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "node-a", UID: "node-a"}})
					named.SetUID("named")
					f := prepare(t, p, mapper(true), dynamicClient(owned, named, aged(storage("o", "other", "True"), at)))
					disk, gpu := csiNode("node-a", "node-a", storagev1.CSINodeDriver{Name: "disk.example.com"}), slice(1, "node-a", "p", 1, 1)
					disk.CreationTimestamp, gpu.CreationTimestamp = at, at
					f.must(f.kubernetes.Tracker().Add(disk))
					f.must(f.kubernetes.Tracker().Add(gpu))
					agent, own := pod("agent", "node-a", ready, warm), podOf("d", "node-a", ready)
					agent.UID, own.UID, agent.CreationTimestamp, own.CreationTimestamp = "agent", "own", at, at
					f.must(f.kubernetes.Tracker().Add(daemonSet("d")))
					f.must(f.kubernetes.Tracker().Add(own))
					f.pods.Add(agent)
					f.start()
					if tc.reboots {
						earlier := n.DeepCopy()
						earlier.Status.NodeInfo.BootID = "boot-1"
						f.Unmet(earlier, p)
					}
					if tc.notReady {
						n.Status.Conditions[0].Status = corev1.ConditionFalse
					}
					for began, reported := time.Now(), false; ; time.Sleep(time.Second) {
						since := time.Since(began)
						if since >= 10*time.Second {
							n.Status.Conditions[0].Status = corev1.ConditionTrue
							if tc.reports && !reported {
								reported = true
								later := metav1.Now()
								agent, own := agent.DeepCopy(), own.DeepCopy()
								agent.Status.Conditions[0].LastTransitionTime, own.Status.Conditions[0].LastTransitionTime = later, later
								f.pods.Modify(agent)
								_, err := f.kubernetes.CoreV1().Pods("x").Update(f.ctx, own, metav1.UpdateOptions{})
								f.must(err)
								for _, u := range []*unstructured.Unstructured{owned, named} {
									u.SetResourceVersion("4711")
									_, err = f.dynamic.Resource(storageResource).Update(f.ctx, u, metav1.UpdateOptions{})
									f.must(err)
								}
								disk, gpu := disk.DeepCopy(), gpu.DeepCopy()
								disk.Spec.Drivers[0].Allocatable = &storagev1.VolumeNodeResources{Count: ptr.To[int32](25)}
								_, err = f.kubernetes.StorageV1().CSINodes().Update(f.ctx, disk, metav1.UpdateOptions{})
								f.must(err)
								gpu.ResourceVersion = "4711"
								_, err = f.kubernetes.ResourceV1().ResourceSlices().Update(f.ctx, gpu, metav1.UpdateOptions{})
								f.must(err)
								n.Status.Conditions[1].LastTransitionTime = later
								synctest.Wait()
							}
						}
						unmet := f.Unmet(n, p)
						switch {
						case len(unmet) == 0 && since < tc.counts, len(unmet) > 0 && since >= tc.counts:
							t.Fatalf("after %s %+v, and it counts after %s", since, unmet, tc.counts)
						case len(unmet) == 0:
							return
						case !strings.Contains(unmet[0].Message, "Ready for "+kind.ReportsWithin.String()):
							t.Fatalf("after %s %+v", since, unmet)
						case !tc.notReady && !unmet[0].Until.Equal(began.Add(time.Minute)):
							t.Fatalf("looks again at %s, began %s", unmet[0].Until, began)
						}
					}
				})
			})
		}
	}
}

// TestObjectsOfAnEarlierNode checks that a custom resource that an earlier Node of the name owns does not count, and
// that one of another node does not matter.
func TestObjectsOfAnEarlierNode(t *testing.T) {
	owner := func(kind, name string, uid types.UID) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: "v1", Kind: kind, Name: name, UID: uid}}
	}
	for selector, what := range map[string]string{"node={{node}}": "Storage (node=node-a)", "": "Storage"} {
		for name, c := range map[string]struct {
			owners []metav1.OwnerReference
			counts bool
		}{
			"this node":                      {owner("Node", "node-a", "node-a"), true},
			"an earlier node":                {owner("Node", "node-a", "before"), false},
			"another node":                   {owner("Node", "node-b", "before"), true},
			"something else of the name":     {owner("Machine", "node-a", "before"), true},
			"nobody":                         {nil, true},
			"something else and the earlier": {append(owner("Machine", "m", "m"), owner("Node", "node-a", "before")...), false},
		} {
			t.Run(selector+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := storage("s", "node-a", "True")
					s.SetOwnerReferences(c.owners)
					p := config.Prerequisites{Resources: resources.Settings{storages(selector)}}
					f := prepare(t, p, mapper(true), dynamicClient(s)).start()
					why := ""
					if !c.counts {
						why = what + " Attached to be True (s belongs to an earlier node of this name)"
					}
					f.waits("node-a", why)
				})
			})
		}
	}
}

func aged(u *unstructured.Unstructured, at metav1.Time) *unstructured.Unstructured {
	u.SetCreationTimestamp(at)
	u.SetUID("s")
	u.SetResourceVersion("1")
	return u
}
