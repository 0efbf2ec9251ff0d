// Package cases says what becomes of a node's taints at its creation, once for all that must agree on it: the function that
// decides, the policy and the webhook.
package cases

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Group is a configuration and what it makes of nodes.
type Group struct {
	// Name is a DNS label.
	Name string
	// Config is the configuration file, without the section admission.
	Config string
	Cases  []Case
}

// Case is a node at its creation.
type Case struct {
	Name                string
	Labels, Annotations map[string]string
	// Brings are the taints in the node's manifest, and Want all that it comes out with, as key=value:effect and in order.
	Brings, Want []string
}

// Node is the case's node as it is to be created.
func (c Case) Node(name string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: c.Labels, Annotations: c.Annotations}}
	for _, s := range c.Brings {
		n.Spec.Taints = append(n.Spec.Taints, Taint(s))
	}
	return n
}

// Taint reads key=value:effect.
func Taint(s string) corev1.Taint {
	rest, effect, _ := strings.Cut(s, ":")
	key, value, _ := strings.Cut(rest, "=")
	return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}
}

// String writes key=value:effect.
func String(t corev1.Taint) string { return t.Key + "=" + t.Value + ":" + string(t.Effect) }

const (
	gate         = "node-ready/unverified=true:NoSchedule"
	roles        = "node-role.kubernetes.io/"
	controlPlane = roles + "control-plane"
	microK8s     = "node.kubernetes.io/microk8s-"
	aksMode      = "kubernetes.azure.com/mode"
	osLabel      = "kubernetes.io/os"
	computeType  = "eks.amazonaws.com/compute-type"
)

// Groups is the table.
var Groups = []Group{
	{Name: "defaults", Cases: []Case{
		{Name: "plain", Want: []string{gate}},
		{Name: "other taints keep their order", Brings: []string{"b=1:NoSchedule", "a=:NoExecute", "b=1:NoExecute"},
			Want: []string{"b=1:NoSchedule", "a=:NoExecute", "b=1:NoExecute", gate}},
		{Name: "brings it", Brings: []string{"a=:NoExecute", gate, "b=1:NoSchedule"}, Want: []string{"a=:NoExecute", gate, "b=1:NoSchedule"}},
		{Name: "brings it without a value", Brings: []string{"node-ready/unverified=:NoSchedule"}, Want: []string{"node-ready/unverified=:NoSchedule"}},
		{Name: "brings it with another value", Brings: []string{"node-ready/unverified=no:NoSchedule"}, Want: []string{"node-ready/unverified=no:NoSchedule"}},
		{Name: "brings it with another effect", Brings: []string{"node-ready/unverified=true:NoExecute"}, Want: []string{"node-ready/unverified=true:NoExecute", gate}},
		{Name: "brings it with a softer effect", Brings: []string{"node-ready/unverified=true:PreferNoSchedule"},
			Want: []string{"node-ready/unverified=true:PreferNoSchedule", gate}},
		{Name: "labelled verified", Labels: map[string]string{"node-ready/verified": "true"}, Want: []string{gate}},
		{Name: "control plane", Labels: map[string]string{controlPlane: ""}, Brings: []string{controlPlane + "=:NoSchedule"},
			Want: []string{controlPlane + "=:NoSchedule"}},
		{Name: "k3s server", Labels: map[string]string{controlPlane: "true", roles + "master": "true", roles + "etcd": "true"}},
		{Name: "control plane of old", Labels: map[string]string{roles + "master": ""}, Brings: []string{roles + "master=:NoSchedule"},
			Want: []string{roles + "master=:NoSchedule"}},
		{Name: "RKE, control plane", Labels: map[string]string{roles + "controlplane": "true"}, Brings: []string{roles + "controlplane=true:NoSchedule"},
			Want: []string{roles + "controlplane=true:NoSchedule"}},
		{Name: "RKE, etcd", Labels: map[string]string{roles + "etcd": "true"}, Brings: []string{roles + "etcd=true:NoExecute"},
			Want: []string{roles + "etcd=true:NoExecute"}},
		{Name: "RKE, every role", Labels: map[string]string{roles + "controlplane": "true", roles + "etcd": "true", roles + "worker": "true"}},
		{Name: "MicroK8s, control plane", Labels: map[string]string{microK8s + "controlplane": "microk8s-controlplane"}},
		{Name: "MicroK8s, worker", Labels: map[string]string{microK8s + "worker": "microk8s-worker"}, Want: []string{gate}},
		{Name: "another role", Labels: map[string]string{roles + "worker": "", roles + "infra": ""}, Want: []string{gate}},
		{Name: "AKS system pool", Labels: map[string]string{aksMode: "system"}},
		{Name: "AKS user pool", Labels: map[string]string{aksMode: "user"}, Want: []string{gate}},
		{Name: "Linux", Labels: map[string]string{osLabel: "linux"}, Want: []string{gate}},
		{Name: "operating system not named", Labels: map[string]string{osLabel: ""}, Want: []string{gate}},
		{Name: "Windows", Labels: map[string]string{osLabel: "windows"},
			Brings: []string{"os=windows:NoSchedule"}, Want: []string{"os=windows:NoSchedule"}},
		{Name: "virtual kubelet", Labels: map[string]string{osLabel: "linux", "type": "virtual-kubelet"}},
		{Name: "kwok", Labels: map[string]string{osLabel: "linux", "type": "kwok"}, Brings: []string{"kwok.x-k8s.io/node=fake:NoSchedule"},
			Want: []string{"kwok.x-k8s.io/node=fake:NoSchedule"}},
		{Name: "Liqo", Labels: map[string]string{osLabel: "linux", "liqo.io/type": "virtual-node"}},
		{Name: "of Liqo, a machine", Labels: map[string]string{"liqo.io/type": "gateway"}, Want: []string{gate}},
		{Name: "another type", Labels: map[string]string{"type": "spot"}, Want: []string{gate}},
		{Name: "EKS Fargate", Labels: map[string]string{osLabel: "linux", computeType: "fargate"}},
		{Name: "EKS, another compute type", Labels: map[string]string{computeType: "ec2"}, Want: []string{gate}},
		{Name: "opted out", Annotations: map[string]string{"node-ready/skip": "true"}},
		{Name: "not opted out", Annotations: map[string]string{"node-ready/skip": "false", "a": "b"}, Want: []string{gate}},
	}},
	{Name: "profiles", Config: `
nodeManagement:
  taints: [{key: example.com/one, value: wait, effect: NoSchedule}, {key: example.com/two, effect: PreferNoSchedule}]
  nodeSelector:
    matchLabels: {managed: "yes"}
    matchExpressions:
      - {key: tier, operator: NotIn, values: [edge, far]}
      - {key: legacy, operator: DoesNotExist}
profiles:
  - name: gpu
    nodeSelector: {matchExpressions: [{key: example.com/gpu, operator: Exists}]}
    taints: [{key: example.com/gpu-unverified, value: 'true', effect: NoExecute}]
  - name: checks-only
    nodeSelector: {matchLabels: {pool: odd}}
    timeoutSeconds: 60
  - name: spot
    nodeSelector: {matchExpressions: [{key: pool, operator: In, values: [spot, odd]}]}
    taints: [{key: example.com/spot, effect: NoSchedule}]
`, Cases: []Case{
		{Name: "not selected"},
		{Name: "not selected by its value", Labels: map[string]string{"managed": "no"}},
		{Name: "excluded by a value", Labels: map[string]string{"managed": "yes", "tier": "edge"}},
		{Name: "excluded by a key", Labels: map[string]string{"managed": "yes", "legacy": ""}},
		{Name: "no profile", Labels: map[string]string{"managed": "yes", "tier": "core"},
			Want: []string{"example.com/one=wait:NoSchedule", "example.com/two=:PreferNoSchedule"}},
		{Name: "one of two is there", Labels: map[string]string{"managed": "yes"}, Brings: []string{"example.com/two=x:PreferNoSchedule"},
			Want: []string{"example.com/two=x:PreferNoSchedule", "example.com/one=wait:NoSchedule"}},
		{Name: "the profile's taints and not the union", Labels: map[string]string{"managed": "yes", "example.com/gpu": ""},
			Want: []string{"example.com/gpu-unverified=true:NoExecute"}},
		{Name: "the first profile", Labels: map[string]string{"managed": "yes", "example.com/gpu": "", "pool": "spot"},
			Want: []string{"example.com/gpu-unverified=true:NoExecute"}},
		{Name: "its fallback is there", Labels: map[string]string{"managed": "yes", "example.com/gpu": ""},
			Brings: []string{"example.com/gpu-unverified=:NoSchedule"}, Want: []string{"example.com/gpu-unverified=:NoSchedule"}},
		{Name: "a profile without taints of its own", Labels: map[string]string{"managed": "yes", "pool": "odd"},
			Want: []string{"example.com/one=wait:NoSchedule", "example.com/two=:PreferNoSchedule"}},
		{Name: "a later profile", Labels: map[string]string{"managed": "yes", "pool": "spot"}, Want: []string{"example.com/spot=:NoSchedule"}},
		{Name: "another profile's taint is there", Labels: map[string]string{"managed": "yes", "pool": "spot"},
			Brings: []string{"example.com/one=wait:NoSchedule"}, Want: []string{"example.com/one=wait:NoSchedule", "example.com/spot=:NoSchedule"}},
	}},
	{Name: "control-planes", Config: "nodeManagement: {includeControlPlane: true}", Cases: []Case{
		{Name: "control plane", Labels: map[string]string{controlPlane: ""}, Want: []string{gate}},
		{Name: "AKS system pool", Labels: map[string]string{aksMode: "system"}},
		{Name: "Windows", Labels: map[string]string{osLabel: "windows"}},
		{Name: "virtual kubelet", Labels: map[string]string{"type": "virtual-kubelet"}},
		{Name: "kwok", Labels: map[string]string{"type": "kwok"}},
		{Name: "RKE, every role", Labels: map[string]string{roles + "controlplane": "true", roles + "etcd": "true"}, Want: []string{gate}},
		{Name: "MicroK8s, control plane", Labels: map[string]string{microK8s + "controlplane": "microk8s-controlplane"}, Want: []string{gate}},
		{Name: "control plane of old", Labels: map[string]string{roles + "master": ""}, Want: []string{gate}},
	}},
}
