package kubectlplugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/internal/leader"
	"github.com/kube-node-ready/kube-node-ready/internal/version"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// The doctor's checks of the controller itself.

func examineLeader(_ context.Context, v *invocation, d *diagnosis) error {
	if l := d.head.Leader; l.Dead {
		d.found("leader", l.line(v.now), "bring the controller back: kubectl get pods -A -l app.kubernetes.io/name=kube-node-ready,app.kubernetes.io/component=controller, and their logs; docs/runbooks/KubeNodeReadyNoLeader.md")
	} else if l.Name == "" && *v.cluster.config.LeaderElection.Enabled && v.cluster.component == componentController {
		return fmt.Errorf("%s", l.Problem)
	}
	return nil
}

func examineVersions(_ context.Context, v *invocation, d *diagnosis) error {
	h := d.head
	if own := leader.VersionLabel(version.Version); h.Leader.Version != "" && h.Leader.Version != own {
		d.found("versions", fmt.Sprintf("the controller that leads is of version %s, this plugin of %s", h.Leader.Version, own), "use the plugin of the controller's version: what it says of the other's marks may be wrong")
	}
	if h.unlisted != nil {
		return h.unlisted
	}
	images := h.Replicas.Images
	if len(images) > 1 {
		d.found("versions", "the controller's replicas run different images: "+strings.Join(images, ", "), "finish or undo the rollout: kubectl rollout status deployment of the controller")
	}
	worker := v.cluster.config.Worker.Image
	if len(images) == 1 && worker.Tag != "" && worker.Digest == "" {
		if repository, tag, ok := strings.Cut(images[0], ":"); ok && repository == worker.Repository && tag != worker.Tag {
			d.found("versions", fmt.Sprintf("the controller runs %s, its workers %s:%s", images[0], worker.Repository, worker.Tag), "leave worker.image empty, so that it follows controller.image, or set both to one tag")
		}
	}
	return nil
}

// examineControllers looks for two controllers that both act on a taint.
func examineControllers(ctx context.Context, v *invocation, d *diagnosis) error {
	maps, err := v.cluster.configMaps(ctx, metav1.NamespaceAll)
	if err != nil {
		return err
	}
	type installation struct {
		name string
		cfg  *config.Config
	}
	var others []installation
	for _, m := range maps {
		name := m.Namespace + "/" + m.Name
		cfg, err := parse(m, "")
		if err != nil {
			d.found("controllers", "the configuration in ConfigMap "+name+" is refused: "+err.Error(), "correct it (kubectl node-ready config validate FILE)")
			continue
		}
		for _, o := range others {
			for _, t := range cfg.Vocabulary().Gating {
				shared := decide.HasTaint(o.cfg.Vocabulary().Gating, t)
				if shared && overlap(cfg.NodeManagement.NodeSelector, o.cfg.NodeManagement.NodeSelector) {
					d.found("controllers", fmt.Sprintf("%s and %s both act on nodes with the taint %s:%s", o.name, name, t.Key, t.Effect),
						"give each its own nodeManagement.taints, or nodeManagement.nodeSelectors that leave out each other's nodes")
				}
			}
		}
		others = append(others, installation{name, cfg})
	}
	return nil
}

// examineWorkers looks for worker pods in namespaces in which no controller creates any: they are from before
// worker.namespace was changed, and no controller sees them.
func examineWorkers(ctx context.Context, v *invocation, d *diagnosis) error {
	maps, err := v.cluster.configMaps(ctx, metav1.NamespaceAll)
	if err != nil {
		return err
	}
	namespaces := []string{v.cluster.namespace}
	for _, m := range maps {
		cfg, err := parse(m, "")
		if err != nil {
			return fmt.Errorf("where the workers of ConfigMap %s/%s are is not known: %w", m.Namespace, m.Name, err)
		}
		namespaces = append(namespaces, cmp.Or(cfg.Worker.Namespace, m.Namespace))
	}
	if v.cluster.namespace == "" && len(maps) == 0 {
		return errors.New("no configuration of a controller says in which namespace workers are created")
	}
	of := labels.Set{workerpod.LabelName: workerpod.Name, workerpod.LabelComponent: workerpod.Component}.String()
	return pages(ctx, v.cluster.core.Pods(metav1.NamespaceAll).List, of, func(page *corev1.PodList) {
		for _, p := range page.Items {
			if !slices.Contains(namespaces, p.Namespace) {
				d.found("workers", fmt.Sprintf("worker pod %s/%s of node %s is where no controller creates workers: "+
					"worker.namespace was changed, and no controller sees the pod", p.Namespace, p.Name, p.Annotations[workerpod.AnnotationNode]),
					fmt.Sprintf("it ends by its own deadline and goes with its node; to remove it now: "+
						"kubectl -n %s delete pod %s", p.Namespace, p.Name))
			}
		}
	})
}

// overlap reports whether two selectors are known to select a node both: one selects every node, or they are the same. Of others
// that is not said.
func overlap(a, b *metav1.LabelSelector) bool {
	none := func(s *metav1.LabelSelector) bool {
		return s == nil || len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 0
	}
	return none(a) || none(b) || metav1.FormatLabelSelector(a) == metav1.FormatLabelSelector(b)
}
