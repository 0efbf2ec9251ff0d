package controller

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A patch of a Node, or of its status, in a dry run too, asks for only the metadata, and returns the new version. The
// test plays the API server.
func TestPatchesOfNodesAskForMetadata(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		if first, _, _ := strings.Cut(r.Header.Get("Accept"), ","); !strings.Contains(first, "as=PartialObjectMetadata") {
			t.Errorf("%s rather accepts %s", r.URL.Path, first)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "n", "resourceVersion": "7"}}`)
	}))
	defer server.Close()
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	c, err := client.New(&rest.Config{Host: server.URL}, client.Options{Scheme: scheme.Scheme, Mapper: mapper, HTTPClient: &http.Client{Transport: transport}})
	if err != nil {
		t.Fatal(err)
	}
	dry := client.NewDryRunClient(c)
	for _, patch := range []func(n client.Object, p client.Patch) error{
		func(n client.Object, p client.Patch) error { return c.Patch(t.Context(), n, p) },
		func(n client.Object, p client.Patch) error { return c.Status().Patch(t.Context(), n, p) },
		func(n client.Object, p client.Patch) error { return dry.Patch(t.Context(), n, p) },
		func(n client.Object, p client.Patch) error { return dry.Status().Patch(t.Context(), n, p) },
	} {
		n := PatchTarget("n")
		if err := patch(n, client.RawPatch(types.MergePatchType, []byte("{}"))); err != nil || n.ResourceVersion != "7" {
			t.Errorf("%v, version %q", err, n.ResourceVersion)
		}
	}
	if got := strings.Join(asked, " "); got != strings.Repeat(" /api/v1/nodes/n /api/v1/nodes/n/status", 2)[1:] {
		t.Errorf("asked for %s", got)
	}
}
