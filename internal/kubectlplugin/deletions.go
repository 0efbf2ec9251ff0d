package kubectlplugin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/ledger"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// deletionsView is what deletions -o json prints.
type deletionsView struct {
	// Begun is since when the ledger knows of every deletion; nil where it was not begun yet.
	Begun *time.Time `json:"begun,omitempty"`
	// Paused is why nothing is deleted.
	Paused string `json:"paused,omitempty"`
	// LastHour is how many of Deletions are younger than an hour, Limit the most that there may be.
	LastHour int   `json:"lastHour"`
	Limit    int32 `json:"limit"`
	// Deletions are the last ones, the newest first.
	Deletions []ledger.Entry `json:"deletions"`
}

// line is the view without the list, for people.
func (d deletionsView) line() string {
	text := fmt.Sprintf("%d of at most %d in the last hour", d.LastHour, d.Limit)
	if d.Paused != "" {
		text += "; paused: " + attempt.Text(d.Paused)
	}
	return text
}

// deletionsView reads the ledger.
func (v *invocation) deletionsView(ctx context.Context) (deletionsView, error) {
	out := deletionsView{Limit: *v.cluster.config.NodeManagement.Remediation.MaxDeletionsPerHour, Deletions: []ledger.Entry{}}
	cm, err := v.cluster.ledger(ctx)
	if err != nil {
		return out, err
	}
	c, err := ledger.Parse(cm)
	if err != nil {
		return out, err
	}
	if !c.CompleteSince.IsZero() {
		out.Begun = &c.CompleteSince
	}
	out.Paused, out.LastHour = c.Paused, len(ledger.NewerThan(c.Entries, v.now, time.Hour))
	out.Deletions = append(out.Deletions, c.Entries...)
	slices.Reverse(out.Deletions)
	return out, nil
}

// deletions prints what was deleted, and why.
func deletions(ctx context.Context, v *invocation) error {
	view, err := v.deletionsView(ctx)
	if err != nil {
		return err
	}
	if v.output != "" {
		return v.printObject(view)
	}
	fmt.Fprintf(&v.out, "Deletions: %s\n", view.line())
	if view.Begun != nil {
		fmt.Fprintf(&v.out, "Counted since: %s\n", v.at(view.Begun))
	}
	if len(view.Deletions) == 0 {
		fmt.Fprintln(&v.out, "Nothing was deleted.")
		return nil
	}
	rows := [][]string{{"AGE", "NODE", "DELETED", "POOL", "ZONE", "REASON"}}
	for _, e := range view.Deletions {
		rows = append(rows, []string{age(&e.Time.Time, v.now), plain(e.Node), plain(strings.TrimSuffix(e.Kind+"/"+e.Name, "/")), orDash(e.Pool), orDash(e.Zone), orDash(e.Reason)})
	}
	v.print(rows, nil)
	return nil
}

// pause stops deletions: the controller reads the annotation before each.
func pause(ctx context.Context, v *invocation) error {
	return v.setPaused(ctx, cmp.Or(strings.Join(v.args, " "), "true"), "nothing is deleted until 'kubectl node-ready resume'")
}

// resume lets them go on.
func resume(ctx context.Context, v *invocation) error {
	return v.setPaused(ctx, "", "deletions go on as the configuration says")
}

func (v *invocation) setPaused(ctx context.Context, why, said string) error {
	namespace, err := v.cluster.controllers(ctx)
	if err != nil {
		return err
	}
	var value any // null removes it
	if why != "" {
		value = why
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{ledger.AnnotationPaused: value}}})
	if err != nil {
		return err
	}
	maps := v.cluster.core.ConfigMaps(namespace)
	_, err = maps.Patch(ctx, ledger.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "kubectl-node-ready"})
	if apierrors.IsNotFound(err) && why != "" {
		_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: ledger.Name, Labels: map[string]string{workerpod.LabelName: workerpod.Name},
			Annotations: map[string]string{ledger.AnnotationPaused: why}}}, metav1.CreateOptions{FieldManager: "kubectl-node-ready"})
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(&v.out, "configmap/%s in %s: %s\n", ledger.Name, namespace, said)
	return nil
}

// ledger reads the ledger of deletions; nil where there is none.
func (c *cluster) ledger(ctx context.Context) (*corev1.ConfigMap, error) {
	namespace, err := c.controllers(ctx)
	if err != nil {
		return nil, err
	}
	cm, err := c.core.ConfigMaps(namespace).Get(ctx, ledger.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return cm, err
}

// controllers is the namespace of the controller: that of its configuration, else the one that was given, else that of the only ledger.
func (c *cluster) controllers(ctx context.Context) (string, error) {
	if c.controllerNamespace != "" {
		return c.controllerNamespace, nil
	}
	list, err := c.core.ConfigMaps(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", ledger.Name).String()})
	if err != nil {
		return "", err
	}
	if len(list.Items) != 1 {
		return "", errors.New("the controller's namespace is not known: give it with --namespace")
	}
	c.controllerNamespace = list.Items[0].Namespace
	return c.controllerNamespace, nil
}
