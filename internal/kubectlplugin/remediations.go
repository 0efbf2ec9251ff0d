package kubectlplugin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-node-ready/kube-node-ready/internal/attempt"
	"github.com/kube-node-ready/kube-node-ready/internal/ledger"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// deletionsView is what deletions -o json prints.
type deletionsView struct {
	// Begun is since when the ledger has every deletion; nil where it was not begun yet.
	Begun *time.Time `json:"begun,omitempty"`
	// Paused is why nothing is deleted.
	Paused string `json:"paused,omitempty"`
	// LastHour is how many of Deletions are younger than an hour, Limit the most that there may be.
	LastHour int   `json:"lastHour"`
	Limit    int32 `json:"limit"`
	// Deletions are the last ones, the newest first.
	Deletions []ledger.Entry `json:"deletions"`
}

// line is the view without the list, as text.
func (d deletionsView) line() string {
	text := fmt.Sprintf("%d of at most %d in the last hour", d.LastHour, d.Limit)
	if d.Paused != "" {
		text += "; paused: " + attempt.Text(d.Paused)
	}
	return text
}

// deletionsView reads the ledger.
func (v *invocation) deletionsView(ctx context.Context) (deletionsView, error) {
	limit := *v.cluster.config.NodeManagement.Remediation.MaxDeletionsPerHour
	out := deletionsView{Limit: limit, Deletions: []ledger.Entry{}}
	namespace, err := v.cluster.controllers(ctx)
	if err != nil {
		return out, err
	}
	cm, err := v.cluster.client.CoreV1().ConfigMaps(namespace).Get(ctx, ledger.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		cm = nil
	} else if err != nil {
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
	switch {
	case err != nil:
		return err
	case v.structured():
		return v.printObject(view)
	case v.output == "name":
		for _, e := range view.Deletions {
			fmt.Fprintln(&v.out, singleLine(strings.ToLower(e.Kind)+"/"+e.Name))
		}
		return nil
	}
	fmt.Fprintf(&v.out, "Deletions: %s\n", view.line())
	if view.Begun != nil {
		fmt.Fprintf(&v.out, "Counted since: %s\n", v.timestamp(view.Begun))
	}
	if len(view.Deletions) == 0 {
		fmt.Fprintln(&v.out, "Nothing was deleted.")
		return nil
	}
	rows := [][]string{{"AGE", "NODE", "DELETED", "POOL", "ZONE", "REASON"}}
	if v.output == "wide" {
		rows[0] = slices.Insert(rows[0], 2, "NODE-UID")
	}
	for _, e := range view.Deletions {
		row := []string{age(&e.Time.Time, v.now), singleLine(e.Node),
			singleLine(strings.TrimSuffix(e.Kind+"/"+e.Name, "/")), orDash(e.Pool), orDash(e.Zone), orDash(e.Reason)}
		if v.output == "wide" {
			row = slices.Insert(row, 2, orDash(e.UID))
		}
		rows = append(rows, row)
	}
	v.print(rows, nil)
	return nil
}

// pause stops deletions: the controller reads the annotation before each.
func pause(ctx context.Context, v *invocation) error {
	why := cmp.Or(strings.Join(v.args, " "), "true")
	namespace, err := v.patchLedger(ctx, why)
	if apierrors.IsNotFound(err) {
		_, err = v.cluster.client.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: ledger.Name, Labels: map[string]string{workerpod.LabelName: workerpod.Name},
				Annotations: map[string]string{ledger.AnnotationPaused: why}}}, metav1.CreateOptions{FieldManager: fieldManager})
	}
	if err == nil {
		v.reportLedger(namespace, "nothing is deleted until 'kubectl node-ready resume'")
	}
	return err
}

// resume lets deletions go on.
func resume(ctx context.Context, v *invocation) error {
	namespace, err := v.patchLedger(ctx, nil)
	if err == nil {
		v.reportLedger(namespace, "deletions go on as the configuration says")
	}
	return err
}

// patchLedger sets the annotation that pauses deletions, or removes it where why is nil.
func (v *invocation) patchLedger(ctx context.Context, why any) (namespace string, err error) {
	if namespace, err = v.cluster.controllers(ctx); err != nil {
		return "", err
	}
	patch, err := annotationPatch(ledger.AnnotationPaused, why)
	if err != nil {
		return "", err
	}
	_, err = v.cluster.client.CoreV1().ConfigMaps(namespace).Patch(ctx, ledger.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: fieldManager})
	return namespace, err
}

func (v *invocation) reportLedger(namespace, result string) {
	name := "configmap/" + ledger.Name
	if v.text() {
		name += " in " + namespace
	}
	v.report(name, result)
}
