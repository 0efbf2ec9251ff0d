package world

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// LiveLists are the lists that a leader asked the API server for since the last call, each with its resource: those of
// the latest state, and those for which any state that the API server has in memory is enough (resourceVersion 0).
func (l *Leader) LiveLists() (latest, inMemory []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, list := range l.Lists {
		switch by, resource, _ := strings.Cut(list, " "); by {
		case "live":
			latest = append(latest, resource)
		case "any":
			inMemory = append(inMemory, resource)
		}
	}
	l.Lists = nil
	return latest, inMemory
}

// ErrDead is what a leader gets once its process is dead.
var ErrDead = errors.New("the process is dead")

// Fault disturbs one write of a leader.
type Fault struct {
	// At is the number of the write, from 1.
	At int
	// Code is the HTTP status of the answer, err the answer. 0: the process dies after the write.
	Code int
	Err  error
	// After: the write is carried out, and its answer is lost.
	After bool
	// hit is the write that was disturbed.
	hit string
}

// prerequisites are as the world says.
type prerequisites struct{ w *World }

func (p prerequisites) Forget(string) {}

func (p prerequisites) Unmet(n *corev1.Node, _ config.Prerequisites) []decide.Unmet {
	if p.w.Unmet == nil || !p.w.Unmet(n.Name) {
		return nil
	}
	return []decide.Unmet{{Kind: "pods", Name: "kube-system/k8s-app=agent", Message: "a pod of kube-system/k8s-app=agent"}}
}

// cache is live with the indexes of a View, whose values are those of labels.
func (l *Leader) cache() client.WithWatch {
	return interceptor.NewClient(l.Live(), interceptor.Funcs{
		Get: func(ctx context.Context, _ client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if l.isDead() {
				return ErrDead
			}
			if old := l.StaleNodes[key.Name]; old != nil {
				old.DeepCopyInto(o.(*corev1.Node))
				return nil
			}
			err := l.W.API.Get(ctx, key, o, opts...)
			if n, ok := o.(*corev1.Node); ok {
				n.ManagedFields = nil // as the cache of nodes does
			}
			return err
		},
		List: func(ctx context.Context, _ client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if l.isDead() {
				return ErrDead
			}
			l.listed("cached", list)
			if pods, ok := list.(*corev1.PodList); ok && l.StalePods != nil {
				l.StalePods.DeepCopyInto(pods)
				return nil
			}
			o := client.ListOptions{}
			o.ApplyOptions(opts)
			if o.FieldSelector == nil {
				return l.list(ctx, l.W.API, list, opts...)
			}
			if _, ok := o.FieldSelector.RequiresExactMatch("worker/node-uid"); ok {
				defer l.hasRead()
			}
			labels := client.MatchingLabels{}
			for index, label := range map[string]string{"worker/node-uid": workerpod.LabelNodeUID, "worker/probe-group": workerpod.LabelProbeGroup} {
				if v, ok := o.FieldSelector.RequiresExactMatch(index); ok {
					labels[label] = v
				}
			}
			if host, ok := o.FieldSelector.RequiresExactMatch("worker/altered-probe"); ok {
				pods := list.(*corev1.PodList)
				err := l.W.API.List(ctx, pods, client.InNamespace(o.Namespace), client.HasLabels{workerpod.LabelPurpose})
				pods.Items = slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool {
					on, _ := workerpod.AlteredProbe(&p, p.Namespace)
					return on != host
				})
				return err
			}
			if _, ok := o.FieldSelector.RequiresExactMatch("worker/occupies"); ok {
				pods := list.(*corev1.PodList)
				err := l.W.API.List(ctx, pods, client.InNamespace(o.Namespace))
				pods.Items = slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return !workerpod.Observe(&p).Occupies })
				return err
			}
			if len(labels) != 1 {
				return fmt.Errorf("no index for %s", o.FieldSelector)
			}
			return l.W.API.List(ctx, list, client.InNamespace(o.Namespace), labels)
		},
	})
}

func (l *Leader) list(ctx context.Context, c client.Reader, list client.ObjectList, opts ...client.ListOption) error {
	switch list.(type) {
	case *corev1.NodeList:
		opts = append(opts, client.MatchingLabels{WorldLabel: l.W.Namespace})
	case *karpv1.NodeClaimList:
		opts = append(opts, client.MatchingLabels{WorldLabel: l.W.Namespace})
		if l.Hang != nil {
			<-l.Hang
		}
	}
	return c.List(ctx, list, opts...)
}

func (l *Leader) hasRead() {
	if l.AfterRead != nil {
		l.AfterRead()
	}
}

func (l *Leader) listed(by string, list client.ObjectList) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Lists = append(l.Lists, by+" "+kind(list))
}

func kind(o any) string {
	if m, ok := o.(*metav1.PartialObjectMetadata); ok {
		return m.Kind
	}
	t := fmt.Sprintf("%T", o)
	return t[strings.LastIndex(t, ".")+1:]
}

func (l *Leader) write(what string, do func() error) error {
	l.mu.Lock()
	if l.dead {
		l.mu.Unlock()
		return ErrDead
	}
	l.Writes = append(l.Writes, what)
	disturbed := len(l.Writes) == l.Fault.At
	if disturbed {
		l.Fault.hit = what
		if l.Fault.Code != 0 {
			l.Fault.Err = Refusal(l.Fault.Code, what)
		}
	}
	l.mu.Unlock()
	if l.Before != nil {
		l.Before(what)
	}
	switch {
	case l.Forbid != nil && l.Forbid(what):
		if l.Denied {
			return denied(what)
		}
		return forbidden(what)
	case !disturbed:
		return do()
	case l.Fault.Err == nil:
		_ = do()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.dead = true
		return ErrDead
	case l.Fault.After:
		if err := do(); err != nil {
			return err
		}
	}
	return l.Fault.Err
}

// forbidden is the API server's answer to a request that its caller may not make.
func forbidden(what string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "", fmt.Errorf("user \"controller\" may not %s", what))
}

// denied is the API server's answer to a request that a ValidatingAdmissionPolicy without a reason denies: that of an
// object that is not valid (Validation.reason in k8s.io/api/admissionregistration/v1), without a field.
func denied(what string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity,
		Reason: metav1.StatusReasonInvalid, Details: &metav1.StatusDetails{Kind: "things"},
		Message: fmt.Sprintf("things is forbidden: a policy denied the request: %s", what)}}
}

// Refusal is the answer of an API server with the HTTP status to a write.
func Refusal(code int, write string) error {
	verb, _, _ := strings.Cut(write, " ")
	if verb == "create" {
		verb = "post" // whose conflict is that the name is taken
	}
	return apierrors.NewGenericServerResponse(code, verb, schema.GroupResource{Resource: "things"}, "name", "injected", 0, true)
}
