package watch

import (
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/resources"
)

func TestResources(t *testing.T) {
	in := func(u *unstructured.Unstructured, labels map[string]string) *unstructured.Unstructured {
		u.SetLabels(labels)
		return u
	}
	silent := storage("s", "node-a", "")
	silent.Object["status"] = "of another form"
	here := map[string]string{"node": "node-a", "tier": "agent"}
	tests := map[string]struct {
		selector string
		objects  []runtime.Object
		why      string
	}{
		"none":             {selector: "node={{node}}", objects: []runtime.Object{storage("s", "node-b", "True")}, why: "Storage (node=node-a) Attached to be True (no such object)"},
		"without labels":   {selector: "node={{node}}", objects: []runtime.Object{in(storage("s", "", "True"), nil)}, why: "Storage (node=node-a) Attached to be True (no such object)"},
		"silent":           {selector: "node={{node}}", objects: []runtime.Object{silent}, why: "Storage (node=node-a) Attached to be True (s says nothing)"},
		"holds":            {selector: "node={{node}}", objects: []runtime.Object{storage("s", "node-a", "True")}},
		"one of two":       {selector: "node={{node}}", objects: []runtime.Object{storage("s", "node-a", "True"), storage("t", "node-a", "False")}, why: "Storage (node=node-a) Attached to be True (t says False)"},
		"filtered":         {selector: "node={{node}},tier=agent", objects: []runtime.Object{storage("s", "node-a", "False"), in(storage("t", "", "True"), here)}},
		"all filtered":     {selector: "node={{node}},tier=agent", objects: []runtime.Object{storage("s", "node-a", "True")}, why: "Storage (node=node-a,tier=agent) Attached to be True (no such object)"},
		"own or shared":    {selector: "node in ({{node}},all)", objects: []runtime.Object{storage("s", "node-a", "True"), storage("t", "all", "False")}, why: "Storage (node in (node-a,all)) Attached to be True (t says False)"},
		"part of a value":  {selector: "node=ip-{{node}}", objects: []runtime.Object{storage("s", "ip-node-a", "True")}},
		"of other nodes":   {selector: "node!={{node}}", objects: []runtime.Object{storage("s", "node-a", "False"), storage("t", "node-b", "True")}},
		"of all, one says": {selector: "", objects: []runtime.Object{storage("s", "node-a", "True"), storage("t", "node-b", "False")}, why: "Storage Attached to be True (t says False)"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := prepare(t, config.Prerequisites{Resources: resources.Settings{storages(test.selector)}}, mapper(true), dynamicClient(test.objects...))
				f.start().waits("node-a", test.why)
			})
		})
	}
}

// A reason that all nodes share follows the objects.
func TestSharedReasonFollowsChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := prepare(t, config.Prerequisites{Resources: resources.Settings{storages("node=all")}}, mapper(true), dynamicClient(storage("other", "none", "False"))).start()
		const what = "Storage (node=all) Attached to be True "
		f.waits("node-a", what+"(no such object)")
		f.put(storage("s", "all", "False"))
		synctest.Wait()
		f.waits("node-a", what+"(s says False)")
		f.waits("node-b", what+"(s says False)")
		f.put(storage("s", "all", "True"))
		synctest.Wait()
		f.waits("node-a", "")
		f.must(f.dynamic.Resource(storageResource).Delete(f.ctx, "s", metav1.DeleteOptions{}))
		synctest.Wait()
		f.waits("node-a", what+"(no such object)")
	})
}
