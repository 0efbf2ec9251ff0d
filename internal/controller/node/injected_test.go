package node_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kube-node-ready/kube-node-ready/test/world"
)

// A container that an admission webhook injected cannot start, and the worker beside it runs and then passes. There is
// one worker, and the node is released.
func TestInjectedContainerBesideAWorkerThatPasses(t *testing.T) {
	for name, proxy := range map[string]string{
		"no image":            `{"waiting":{"reason":"ErrImagePull","message":"not found"}}`,
		"its Secret is gone":  `{"waiting":{"reason":"CreateContainerConfigError","message":"secret \"mesh\" not found"}}`,
		"ended with an error": `{"terminated":{"exitCode":1,"reason":"Error","startedAt":null,"finishedAt":null}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world.Begin(t, "")
			w.Exit = func(*corev1.Pod) int { return world.Stays }
			n := w.Node("n")
			l := w.Lead()
			l.Steps(2)
			status := func(worker string) {
				for _, p := range w.Pods(n.Name) {
					w.Status(&p, fmt.Sprintf(`{"status":{"phase":"Running","containerStatuses":[
						{"name":"proxy","image":"p","imageID":"","ready":false,"restartCount":0,"state":%s},
						{"name":"worker","image":"i","imageID":"i","ready":true,"restartCount":0,"state":%s}]}}`, proxy, worker))
				}
			}
			at := time.Now().UTC().Format(time.RFC3339)
			status(fmt.Sprintf(`{"running":{"startedAt":%q}}`, at))
			l.RunFor(time.Minute)
			if c, created := w.ConditionText(n.Name), w.Created("verify"); created != 1 || !strings.Contains(c, "injected container proxy") {
				t.Fatalf("%d workers, condition %s", created, c)
			}
			status(fmt.Sprintf(`{"terminated":{"exitCode":0,"startedAt":%q,"finishedAt":%q}}`, at, at))
			l.Drive()
			if _, f := w.Get(n.Name); f.Gated || !f.Labelled || w.Created("verify") != 1 || len(l.Errs) > 0 {
				t.Errorf("gated %t, %d workers, record %+v, errors %v", f.Gated, w.Created("verify"), f.Record, l.Errs)
			}
		})
	}
}
