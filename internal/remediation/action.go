package remediation

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
)

// AnnotationNodeUID is on an object that an action created: the UID of the node that it is about.
const AnnotationNodeUID = "node-ready/node-uid"

// Actions carries out the entries of remediation.actions other than a deletion, and takes them back.
type Actions struct {
	// Reader must not be a cache.
	Reader client.Reader
	Writer client.Client
	// Config holds the templates of the objects.
	Config *config.Config
}

// Problem says why the API server does not take the object of an action, by a dry run of its creation; empty where it
// does. One that may have been created must also be readable: else nobody knows whose an object of that name is. With
// remediation.dryRun nothing is asked: the controller may not create the object then. The error is one that may pass.
func (a Actions) Problem(ctx context.Context, n *corev1.Node, action config.Action, r marks.Record) (string, error) {
	if action.Object == nil || a.Config.NodeManagement.Remediation.DryRun {
		return "", nil
	}
	if last := len(r.Remediations) - 1; last >= 0 && r.Remediations[last].State == marks.RemediationIntended &&
		r.Remediations[last].Name != "" {
		_, err := a.object(ctx, r.Remediations[last])
		switch {
		case err == nil, apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		case permanent(err):
			return attempt.Text(fmt.Sprintf("%s cannot be read: %v", r.Remediations[last].Kind, err)), nil
		default:
			return "", err
		}
	}
	o := render(action.Object, n, r, "node-ready-dry-run")
	err := a.Writer.Create(ctx, o, client.DryRunAll)
	switch {
	case err == nil, apierrors.IsAlreadyExists(err):
		return "", nil
	case permanent(err):
		return attempt.Text(fmt.Sprintf("%s cannot be created: %v", o.GetKind(), err)), nil
	}
	return "", err
}

// permanent reports whether an error lasts until somebody changes something: the kind is not served, the namespace is
// missing, or the API server refuses the request.
func permanent(err error) bool {
	return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) ||
		apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsMethodNotSupported(err)
}

// Start carries an action out. It may be called again for one that was carried out before. The node and its record must
// have been read from the API server.
func (a Actions) Start(ctx context.Context, n *corev1.Node, action marks.Remediation, r marks.Record, cause string,
	now time.Time) error {
	if action.Condition != "" {
		return a.setCondition(ctx, n, action, cause, now)
	}
	actions := a.Config.NodeManagement.Remediation.Actions
	if int(action.Action) >= len(actions) || actions[action.Action].Object == nil {
		return fmt.Errorf("entry %d of remediation.actions no longer has an object", action.Action)
	}
	o := render(actions[action.Action].Object, n, r, action.Name)
	err := a.Writer.Create(ctx, o)
	if !apierrors.IsAlreadyExists(err) {
		return wrap(err, "create", action)
	}
	switch have, failed := a.object(ctx, action); {
	case apierrors.IsNotFound(failed): // gone again: the answer stands
	case failed != nil:
		err = failed
	case have.GetAnnotations()[AnnotationNodeUID] == string(n.UID):
		return nil
	}
	return wrap(err, "create", action)
}

// Revert undoes an action. Objects of others, and objects that are gone, are ignored. Where the API server refuses
// that, for one because a right is missing, the error is what RevertRefused recognises.
func (a Actions) Revert(ctx context.Context, n *corev1.Node, action marks.Remediation) error {
	if action.Condition != "" {
		ours := func(c corev1.NodeCondition) bool {
			return c.Type == action.Condition && c.Status == action.Status && c.Reason == action.Reason
		}
		if !slices.ContainsFunc(n.Status.Conditions, ours) {
			return nil
		}
		return a.patchStatus(ctx, n, marks.RemoveConditionOf(string(n.UID), action.Condition))
	}
	have, err := a.object(ctx, action)
	if err == nil && have.GetAnnotations()[AnnotationNodeUID] == string(n.UID) {
		err = a.Writer.Delete(ctx, have, client.Preconditions{UID: ptr.To(have.GetUID())},
			client.PropagationPolicy(metav1.DeletePropagationBackground))
	}
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil
	}
	return wrap(err, "delete", action)
}

// RevertRefused is the API server's message if it refuses to delete or to read the object of an action until somebody
// changes something. It is empty for any other error of Revert.
func RevertRefused(action marks.Remediation, err error) string {
	if err == nil || action.Condition != "" || !permanent(err) {
		return ""
	}
	return attempt.Text(err.Error())
}

func wrap(err error, verb string, a marks.Remediation) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s %s: %w", verb, a.TargetKind(), a.FullName(), err)
}

func (a Actions) object(ctx context.Context, action marks.Remediation) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(action.APIVersion)
	o.SetKind(action.Kind)
	return o, a.Reader.Get(ctx, client.ObjectKey{Namespace: action.Namespace, Name: action.Name}, o)
}

func (a Actions) setCondition(ctx context.Context, n *corev1.Node, action marks.Remediation, cause string,
	now time.Time) error {
	for _, c := range n.Status.Conditions {
		if c.Type == action.Condition && c.Status == action.Status && c.Reason == action.Reason {
			return nil // it was set before
		}
	}
	return a.patchStatus(ctx, n, marks.SetCondition(n, corev1.NodeCondition{
		Type: action.Condition, Status: action.Status, Reason: action.Reason, Message: attempt.Text(cause),
		LastTransitionTime: metav1.NewTime(now), LastHeartbeatTime: metav1.NewTime(now),
	}))
}

func (a Actions) patchStatus(ctx context.Context, n *corev1.Node, patch []byte) error {
	target := &corev1.Node{}
	target.Name = n.Name
	err := a.Writer.Status().Patch(ctx, target, client.RawPatch(types.StrategicMergePatchType, patch))
	if err == nil {
		n.ResourceVersion = target.ResourceVersion // what is written next is on condition of it
	}
	return err
}

// render fills the template of an object for a node.
func render(o *config.ObjectAction, n *corev1.Node, r marks.Record, name string) *unstructured.Unstructured {
	values := []string{n.Name, string(n.UID), n.Spec.ProviderID, r.LastReason, r.LastCheck, strconv.Itoa(int(r.Sequence))}
	var pairs []string
	for i, placeholder := range config.Placeholders {
		pairs = append(pairs, placeholder, values[i])
	}
	content, _ := fill(o.Template, strings.NewReplacer(pairs...)).(map[string]any)
	u := &unstructured.Unstructured{Object: content}
	u.SetName(name)
	annotations := u.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[AnnotationNodeUID] = string(n.UID)
	u.SetAnnotations(annotations)
	labels := u.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels["app.kubernetes.io/managed-by"] = "kube-node-ready"
	u.SetLabels(labels)
	return u
}

// fill copies a value with its strings replaced. Numbers become those that unstructured objects hold.
func fill(value any, with *strings.Replacer) any {
	switch v := value.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, inner := range v {
			out[key] = fill(inner, with)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, inner := range v {
			out[i] = fill(inner, with)
		}
		return out
	case string:
		return with.Replace(v)
	case int:
		return int64(v)
	case float64:
		if v == float64(int64(v)) {
			return int64(v)
		}
		return v
	}
	return value
}
