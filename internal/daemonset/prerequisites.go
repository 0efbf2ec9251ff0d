package daemonset

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/kind"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/net/apiserver"
)

// unmet lists the prerequisites that are unmet, in the order of the configuration. It reads only the node's own
// objects.
func (p *Process) unmet(ctx context.Context, n *corev1.Node, pre config.Prerequisites, s *schedule) []decide.Unmet {
	unmet, c := []decide.Unmet{}, &cluster{ctx: ctx, process: p, schedule: s, read: map[string]func() ([]any, error){}}
	p.evidence.Look(n, marks.Observe(n, marks.Vocabulary{}).Record.BootID, time.Now())
	for _, each := range pre.All() {
		if u := each.Unmet(n, c); u.Why != "" {
			unmet = append(unmet, decide.Unmet{Kind: each.Kind, Name: each.Name, Objects: u.Of, Message: u.Why,
				Remedy: u.Remedy, Hint: u.Hint})
		}
	}
	return unmet
}

// cluster is what prerequisites read in one pass.
type cluster struct {
	ctx      context.Context
	process  *Process
	schedule *schedule
	read     map[string]func() ([]any, error) // by the key of the source
}

// Find implements kind.Cluster.
func (c *cluster) Find(s *kind.Source, index, value string) (objects []any, why string) {
	if c.read[s.Key()] == nil {
		c.read[s.Key()] = sync.OnceValues(func() ([]any, error) { return c.process.objects(c.ctx, s, c.schedule) })
	}
	objects, err := c.read[s.Key()]()
	switch {
	case err != nil:
		return nil, readProblem(err)
	case index == kind.All:
		return objects, ""
	}
	other := func(o any) bool { return !slices.Contains(s.Indexes[index](o), value) }
	return slices.DeleteFunc(slices.Clone(objects), other), ""
}

// Shared implements kind.Cluster.
func (c *cluster) Shared(s *kind.Source, _ string, of func([]any) string) (result, why string) {
	objects, why := c.Find(s, kind.All, "")
	if why != "" {
		return "", why
	}
	return of(objects), ""
}

// Stale implements kind.Cluster.
func (c *cluster) Stale(n *corev1.Node, o kind.Object) string {
	why, _ := c.process.evidence.Stale(n, o, time.Now())
	return why
}

// Gating implements kind.Cluster.
func (c *cluster) Gating() []marks.Taint { return c.process.Config.GatingTaints() }

// objects lists the objects of a source that concern the node.
func (p *Process) objects(ctx context.Context, s *kind.Source, next *schedule) (objects []any, err error) {
	query, fields := url.Values{}, s.Fields
	if s.NodeField != "" {
		fields = strings.TrimPrefix(fields+","+s.NodeField+"="+p.Node, ",")
	}
	for key, selector := range map[string]string{"labelSelector": s.Labels, "fieldSelector": fields} {
		if selector != "" {
			query.Set(key, selector)
		}
	}
	resource := s.Resource()
	path := "/apis/" + resource.Group + "/" + resource.Version
	if resource.Group == "" {
		path = "/api/" + resource.Version
	}
	if s.Namespace != "" {
		path += "/namespaces/" + url.PathEscape(s.Namespace)
	}
	found, err := p.list(ctx, path+"/"+resource.Resource, query, next)
	for _, item := range found {
		o := reflect.New(reflect.TypeOf(s.Object).Elem()).Interface()
		if err := json.Unmarshal(item, o); err != nil {
			return nil, &apiserver.BodyError{Cause: fmt.Errorf("%s: %w", resource.Resource, err)}
		}
		objects = append(objects, s.Slim(o))
	}
	return objects, err
}
