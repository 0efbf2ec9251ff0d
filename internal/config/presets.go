package config

import (
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/allocatable"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/csinodes"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/daemonsets"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/resourceslices"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks"
	"github.com/kube-node-ready/kube-node-ready/internal/worker/checks/peers"
)

// Preset names prerequisites and checks for a component that often starts late on a new node.
type Preset string

// PresetDefinition is what a preset stands for.
type PresetDefinition struct {
	Name Preset
	// Trouble is what happens without the preset, according to Reports.
	Trouble string
	// Reports are the addresses of public reports of the problem.
	Reports []string
	// Sources are the vendor's files that the names come from, each with its version or commit.
	Sources []string
	// Hint, if set, says why its DaemonSets may not be in the cluster although their vendor's operator is.
	Hint string
	// DaemonSets must exist in the cluster, and nodes wait for them.
	DaemonSets []daemonsets.Entry
	// Checks are added to those of the worker.
	Checks []checks.Spec
}

// Presets lists the presets in the order of the documentation.
func Presets() []PresetDefinition {
	return []PresetDefinition{
		{
			Name: "cilium",
			Trouble: "Cilium removes `node.cilium.io/agent-not-ready` once the agent has written its CNI configuration. " +
				"Pods get a network some seconds later. A pod that starts in between never gets one",
			Reports:    []string{"https://github.com/cilium/cilium/issues/29405"},
			Sources:    []string{"cilium/cilium 7d65d926b98d install/kubernetes/cilium/templates/cilium-agent/daemonset.yaml"},
			DaemonSets: []daemonsets.Entry{daemonSet("kube-system", "cilium")},
			Checks:     podNetwork(),
		},
		{
			Name: "calico",
			Trouble: "The node accepts pods before calico-node has exchanged routes with its peers. Until then, these pods " +
				"reach no Service",
			Reports: []string{"https://github.com/projectcalico/calico/issues/7788"},
			Sources: []string{"projectcalico/calico 8b087380ba17 manifests/calico.yaml",
				"tigera/operator fa15ace6abf4 pkg/render/node.go"},
			DaemonSets: []daemonsets.Entry{{AnyOf: []daemonsets.Name{
				{Namespace: "calico-system", Name: "calico-node"}, // the operator's
				{Namespace: "kube-system", Name: "calico-node"},   // the manifest's
			}}},
			Checks: podNetwork(),
		},
		{
			Name: "aws-vpc-cni",
			Trouble: "The kubelet starts pods before aws-node can assign addresses: `failed to assign an IP address to " +
				"container`",
			Reports:    []string{"https://github.com/aws/amazon-vpc-cni-k8s/issues/330"},
			Sources:    []string{"aws/amazon-vpc-cni-k8s v1.14.0 config/master/aws-k8s-cni.yaml"},
			DaemonSets: []daemonsets.Entry{daemonSet("kube-system", "aws-node")},
			Checks:     podNetwork(),
		},
		{
			Name: "istio-ambient",
			Trouble: "istiod removes `cni.istio.io/not-ready` once istio-cni is ready, even if ztunnel is not. Pods of the " +
				"mesh that start in between have no network",
			Reports: []string{"https://github.com/istio/istio/pull/61490"},
			Sources: []string{"istio/istio 398e1bf2ed48 manifests/charts/istio-cni/templates/daemonset.yaml",
				"istio/istio 8dbacc5236eb manifests/charts/ztunnel/templates/daemonset.yaml"},
			DaemonSets: []daemonsets.Entry{daemonSet("istio-system", "istio-cni-node"), daemonSet("istio-system", "ztunnel")},
		},
		{
			Name: "ebs-csi",
			Trouble: "The driver removes `ebs.csi.aws.com/agent-not-ready` before the CSINode has its volume limit. Until " +
				"then, the scheduler assumes no limit and assigns more volumes than the node can attach",
			Reports: []string{"https://github.com/kubernetes-sigs/aws-ebs-csi-driver/issues/2447",
				"https://github.com/kubernetes-sigs/aws-ebs-csi-driver/issues/1945"},
			Sources: []string{"kubernetes-sigs/aws-ebs-csi-driver v1.46.0 deploy/kubernetes/base/node.yaml"},
			DaemonSets: []daemonsets.Entry{providing(daemonSet("kube-system", "ebs-csi-node"),
				daemonsets.Provided{CSINodes: csinodes.Settings{{Driver: "ebs.csi.aws.com", Allocatable: true}}})},
		},
		{
			Name: "efs-csi",
			Trouble: "The driver removes `efs.csi.aws.com/agent-not-ready` before it is registered with the kubelet: `driver " +
				"name efs.csi.aws.com not found in the list of registered CSI drivers`",
			Reports: []string{"https://github.com/kubernetes-sigs/aws-efs-csi-driver/issues/1936"},
			Sources: []string{"kubernetes-sigs/aws-efs-csi-driver v2.1.12 deploy/kubernetes/base/node-daemonset.yaml"},
			// EFS volumes have no limit, and the driver never names one (aws-efs-csi-driver issue 1966).
			DaemonSets: []daemonsets.Entry{providing(daemonSet("kube-system", "efs-csi-node"),
				daemonsets.Provided{CSINodes: csinodes.Settings{{Driver: "efs.csi.aws.com"}}})},
		},
		{
			Name: "gpu-nvidia",
			Trouble: "The node accepts pods long before the driver, the container toolkit and the device plugin are " +
				"installed. Nothing on the node shows when they are",
			Reports: []string{"https://github.com/NVIDIA/gpu-operator/issues/475"},
			Sources: []string{"NVIDIA/gpu-operator 2410508a9418 assets/state-device-plugin/0500_daemonset.yaml",
				"NVIDIA/gpu-operator 44f53b6f3e98 assets/state-operator-validation/0500_daemonset.yaml"},
			Hint: "the operator creates it with the cluster's first GPU node, so list the preset in a profile for GPU nodes",
			DaemonSets: []daemonsets.Entry{
				providing(daemonSet("gpu-operator", "nvidia-device-plugin-daemonset"),
					daemonsets.Provided{Allocatable: allocatable.Settings{"nvidia.com/gpu": resource.MustParse("1")}}),
				daemonSet("gpu-operator", "nvidia-operator-validator"),
			},
		},
		{
			Name: "gpu-nvidia-dra",
			Trouble: "The DRA driver's pod is Ready before the driver has published a device. A claim finds no device on the " +
				"node, and the autoscaler launches another node. `nvidia.com/gpu` stays 0",
			Reports: []string{"https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu/issues/1008"},
			Sources: []string{
				"NVIDIA/k8s-dra-driver-gpu 12d2af7d5769 deployments/helm/nvidia-dra-driver-gpu/templates/kubeletplugin.yaml",
				"kubernetes-sigs/dra-driver-nvidia-gpu 14046d00e2f6 " +
					"deployments/helm/dra-driver-nvidia-gpu/templates/kubeletplugin.yaml",
			},
			Hint: "the driver has its own chart, which the GPU operator does not install",
			DaemonSets: []daemonsets.Entry{providing(daemonsets.Entry{AnyOf: []daemonsets.Name{
				{Namespace: "nvidia-dra-driver-gpu", Name: "nvidia-dra-driver-gpu-kubelet-plugin"}, // NVIDIA's chart
				{Namespace: "dra-driver-nvidia-gpu", Name: "dra-driver-nvidia-gpu-kubelet-plugin"}, // since it is Kubernetes SIGs'
			}}, daemonsets.Provided{ResourceSlices: resourceslices.Settings{
				{Driver: "gpu.nvidia.com", MinDevices: new(int32(1))},
			}})},
		},
		{
			Name: "aws-neuron",
			Trouble: "The node accepts pods before the device plugin offers the Inferentia or Trainium devices: " +
				"`Insufficient aws.amazon.com/neuron`",
			Reports: []string{"https://github.com/aws-neuron/aws-neuron-sdk/issues/396"},
			Sources: []string{"aws-neuron/aws-neuron-sdk 4c317caa388b src/k8/k8s-neuron-device-plugin.yml"},
			DaemonSets: []daemonsets.Entry{providing(daemonSet("kube-system", "neuron-device-plugin-daemonset"),
				daemonsets.Provided{Allocatable: allocatable.Settings{"aws.amazon.com/neuron": resource.MustParse("1")}})},
		},
		{
			Name: "aws-efa",
			Trouble: "Without the device plugin's pod, or without an interface from it, pods with GPUs still start. NCCL " +
				"then falls back to TCP, at a fraction of the speed",
			Reports: []string{"https://github.com/aws-samples/aws-do-eks/pull/56",
				"https://github.com/aws/eks-charts/issues/1358"},
			Sources: []string{"aws/eks-charts 18e37d7b1640 stable/aws-efa-k8s-device-plugin/templates/daemonset.yaml"},
			DaemonSets: []daemonsets.Entry{providing(daemonSet("kube-system", "aws-efa-k8s-device-plugin"),
				daemonsets.Provided{Allocatable: allocatable.Settings{"vpc.amazonaws.com/efa": resource.MustParse("1")}})},
		},
		{
			Name: "linkerd",
			Trouble: "A pod that starts after the CNI's own configuration and before that of linkerd-cni has no traffic " +
				"redirection. Its `linkerd-network-validator` fails until somebody deletes the pod",
			Reports:    []string{"https://github.com/linkerd/linkerd2/issues/11073"},
			Sources:    []string{"linkerd/linkerd2 031372503b8a charts/linkerd2-cni/templates/cni-plugin.yaml"},
			DaemonSets: []daemonsets.Entry{daemonSet("linkerd-cni", "linkerd-cni")},
		},
		{
			Name: "secrets-store-csi",
			Trouble: "Pods start before the driver is registered with the kubelet, and mounting their volumes times out: " +
				"`driver name secrets-store.csi.k8s.io not found in the list of registered CSI drivers`",
			Reports: []string{"https://github.com/Azure/secrets-store-csi-driver-provider-azure/issues/173"},
			Sources: []string{
				"kubernetes-sigs/secrets-store-csi-driver 0017b463ae5f deploy/secrets-store-csi-driver.yaml",
				"kubernetes-sigs/secrets-store-csi-driver d0faaff74115 " +
					"charts/secrets-store-csi-driver/templates/secrets-store-csi-driver.yaml",
			},
			DaemonSets: []daemonsets.Entry{providing(daemonsets.Entry{AnyOf: []daemonsets.Name{
				{Namespace: "kube-system", Name: "csi-secrets-store"}, // the manifest's
				// The chart's, of the release csi-secrets-store.
				{Namespace: "kube-system", Name: "csi-secrets-store-secrets-store-csi-driver"},
			}}, daemonsets.Provided{CSINodes: csinodes.Settings{{Driver: "secrets-store.csi.k8s.io"}}})},
		},
	}
}

// podNetwork is the check of a preset of a pod network: it connects to a pod on another node by the pod's own address.
// A working DNS cache on the node, or an API server outside of the pod network, does not prove that this works. One
// pod that answers is enough, because the other pods may be silent through a fault of their own nodes.
//
// Service and label are those of Kubernetes' DNS add-on, and EKS keeps them (kubernetes/kubernetes 008b3652959c
// cluster/addons/dns/coredns/coredns.yaml.base and cmd/kubeadm/app/phases/addons/dns/manifests.go). A cluster may name
// the Service differently (docs/reference/checks.md lists names). It then has no Service kube-dns, and the check lists
// the pods by the label.
func podNetwork() []checks.Spec {
	dns := &peers.Settings{Namespace: "kube-system", Service: "kube-dns", Selector: "k8s-app=kube-dns", Port: 53,
		Sample: new(int32(3)), FailPercent: new(int32(100))}
	return []checks.Spec{{Name: "pod-network", Type: "peers", Attempts: new(int32(3)), Table: checks.Table{Peers: dns}}}
}

func daemonSet(namespace, name string) daemonsets.Entry {
	return daemonsets.Entry{Namespace: namespace, Name: name}
}

func providing(d daemonsets.Entry, what daemonsets.Provided) daemonsets.Entry {
	d.Provides = &what
	return d
}
