package kubectlplugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// validate is config validate FILE: what the controller does with its file at start. It needs no cluster.
func validate(_ context.Context, v *invocation) error {
	path := v.args[0]
	var content []byte
	var err error
	if path == "-" {
		content, err = io.ReadAll(os.Stdin)
	} else {
		content, err = os.ReadFile(path)
	}
	if err != nil {
		return err
	}
	cfg, err := config.Parse(content, path)
	if err != nil {
		return err
	}
	if _, err := workerpod.NewBuilder(cfg, "default", "image"); err != nil {
		return refused("%w", err)
	}
	fmt.Fprintf(&v.out, "%s is valid\n", path)
	return nil
}

// skip leaves nodes out of verification.
func skip(ctx context.Context, v *invocation) error { return v.setSkip(ctx, "true") }

// unskip lets them be verified again.
func unskip(ctx context.Context, v *invocation) error { return v.setSkip(ctx, nil) }

func (v *invocation) setSkip(ctx context.Context, value any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{marks.AnnotationSkip: value}}})
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range v.args {
		n, err := v.cluster.core.Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "kubectl-node-ready"})
		if err != nil {
			errs = append(errs, fmt.Errorf("node %s: %w", name, err))
			continue
		}
		text := "verified as any other node"
		if value != nil {
			text = "neither verified nor deleted"
			s := observe(v.cluster.config, n, nil)
			if taints := s.summary(v.now).Taints; len(taints) > 0 {
				text += "; it keeps " + strings.Join(taints, ", ")
			}
		}
		v.changed("node/"+name, text)
	}
	return errors.Join(errs...)
}
