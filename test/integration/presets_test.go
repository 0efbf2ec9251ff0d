package integration

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/decide"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/nodeagent"
	"github.com/kube-node-ready/kube-node-ready/test/missing"
)

// vendorSet is a DaemonSet as its vendor's manifest has it; where that is from is told by config.Presets.
type vendorSet struct {
	namespace, name string
	labels          map[string]string
	nodeSelector    map[string]string
	tolerations     []corev1.Toleration
}

var (
	everything  = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	onlyGPUs    = []corev1.Toleration{{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}
	linux       = map[string]string{"kubernetes.io/os": "linux"}
	ciliumAgent = vendorSet{"kube-system", "cilium", map[string]string{"k8s-app": "cilium", "app.kubernetes.io/name": "cilium-agent", "app.kubernetes.io/part-of": "cilium"}, linux, everything}
	calicoNode  = vendorSet{"kube-system", "calico-node", map[string]string{"k8s-app": "calico-node"}, linux, []corev1.Toleration{
		{Effect: corev1.TaintEffectNoSchedule, Operator: corev1.TolerationOpExists}, {Key: "CriticalAddonsOnly", Operator: corev1.TolerationOpExists},
		{Effect: corev1.TaintEffectNoExecute, Operator: corev1.TolerationOpExists}}}
	awsNode      = vendorSet{"kube-system", "aws-node", map[string]string{"k8s-app": "aws-node", "app.kubernetes.io/name": "aws-node", "app.kubernetes.io/instance": "aws-vpc-cni"}, nil, everything}
	istioCNI     = vendorSet{"istio-system", "istio-cni-node", map[string]string{"k8s-app": "istio-cni-node", "app.kubernetes.io/name": "istio-cni"}, linux, everything}
	ztunnel      = vendorSet{"istio-system", "ztunnel", map[string]string{"app": "ztunnel", "app.kubernetes.io/name": "ztunnel"}, linux, everything}
	ebsNode      = vendorSet{"kube-system", "ebs-csi-node", map[string]string{"app": "ebs-csi-node", "app.kubernetes.io/name": "aws-ebs-csi-driver"}, linux, everything}
	efsNode      = vendorSet{"kube-system", "efs-csi-node", map[string]string{"app": "efs-csi-node", "app.kubernetes.io/name": "aws-efs-csi-driver", "app.kubernetes.io/instance": "kustomize"}, linux, everything}
	linkerdCNI   = vendorSet{"linkerd-cni", "linkerd-cni", map[string]string{"k8s-app": "linkerd-cni"}, linux, everything}
	secretsStore = vendorSet{"kube-system", "csi-secrets-store", map[string]string{"app": "csi-secrets-store"}, linux, everything}
	neuronPlugin = vendorSet{"kube-system", "neuron-device-plugin-daemonset", map[string]string{"name": "neuron-device-plugin-ds"}, nil, []corev1.Toleration{
		{Key: "CriticalAddonsOnly", Operator: corev1.TolerationOpExists}, {Key: "aws.amazon.com/neuron", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}}
	efaPlugin = vendorSet{"kube-system", "aws-efa-k8s-device-plugin", map[string]string{"name": "aws-efa-k8s-device-plugin"}, nil,
		[]corev1.Toleration{{Key: "CriticalAddonsOnly", Operator: corev1.TolerationOpExists}}}
	gpuDRA       = vendorSet{"dra-driver-nvidia-gpu", "dra-driver-nvidia-gpu-kubelet-plugin", map[string]string{"dra-driver-nvidia-gpu-component": "kubelet-plugin"}, nil, onlyGPUs}
	devicePlugin = vendorSet{"gpu-operator", "nvidia-device-plugin-daemonset", map[string]string{"app": "nvidia-device-plugin-daemonset"},
		map[string]string{"nvidia.com/gpu.deploy.device-plugin": "true"}, onlyGPUs}
	gpuValidator = vendorSet{"gpu-operator", "nvidia-operator-validator", map[string]string{"app": "nvidia-operator-validator", "app.kubernetes.io/part-of": "gpu-operator"},
		map[string]string{"nvidia.com/gpu.deploy.operator-validator": "true"}, onlyGPUs}
)

// presets makes a suite with presets for all nodes.
func presets(t *testing.T, names ...any) *suite {
	s := begin(t, set("nodeManagement", map[string]any{"presets": names}), set("reconciliation", map[string]any{"intervalSeconds": 3600}))
	// What the chart grants for the check pod-network.
	meta := metav1.ObjectMeta{Namespace: "kube-system", Name: "worker-" + s.name}
	s.must(k8s.RbacV1().Roles(meta.Namespace).Create(s.ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"list"}},
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}}}}, metav1.CreateOptions{}))
	s.must(k8s.RbacV1().RoleBindings(meta.Namespace).Create(s.ctx, &rbacv1.RoleBinding{ObjectMeta: meta,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: s.name, Name: "kube-node-ready-worker"}}}, metav1.CreateOptions{}))
	return s
}

// install creates a vendor's DaemonSet for this test's nodes. The image of its pods cannot be pulled before it comesUp.
func (s *suite) install(v vendorSet) {
	s.Helper()
	if _, err := k8s.CoreV1().Namespaces().Create(s.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v.namespace}}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		s.Fatal(err)
	}
	selector := map[string]string{testLabel: s.name}
	for key, value := range v.nodeSelector {
		selector[key] = value
	}
	s.must(k8s.AppsV1().DaemonSets(v.namespace).Create(s.ctx, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: v.name, Labels: v.labels}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: v.labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: v.labels}, Spec: corev1.PodSpec{NodeSelector: selector, Tolerations: v.tolerations,
			Containers: []corev1.Container{{Name: "agent", Image: "agent:late", Command: []string{"/bin/sleep", "3600"}}}}},
	}}, metav1.CreateOptions{}))
}

func (s *suite) patchSet(v vendorSet, patch string) {
	s.Helper()
	s.must(k8s.AppsV1().DaemonSets(v.namespace).Patch(s.ctx, v.name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}))
}

// comesUp lets the DaemonSet's pods become Ready.
func (s *suite) comesUp(v vendorSet) {
	s.Helper()
	s.patchSet(v, `{"spec":{"template":{"spec":{"containers":[{"name":"agent","image":"`+tools+`"}]}}}}`)
}

func (s *suite) uninstall(v vendorSet) {
	s.Helper()
	s.must(nil, k8s.AppsV1().DaemonSets(v.namespace).Delete(s.ctx, v.name, metav1.DeleteOptions{}))
}

// findsNothing checks that the node is held because of a preset, and that condition, event and log say what it looked for and what to do.
func (s *suite) findsNothing(name, preset string, lookedFor ...string) {
	s.Helper()
	all := append([]string{"preset " + preset, "prerequisites.daemonSets"}, lookedFor...)
	missing := func(text string) string {
		for _, want := range all {
			if !strings.Contains(text, want) {
				return fmt.Sprintf("%q lacks %q", text, want)
			}
		}
		return ""
	}
	s.eventually("a Warning event about preset "+preset, func() string {
		events, err := k8s.EventsV1().Events("default").List(s.ctx, metav1.ListOptions{FieldSelector: "reason=" + decide.EventPrerequisiteStuck.Name + ",type=Warning"})
		if err != nil {
			return err.Error()
		}
		last := "there is none"
		for _, e := range events.Items {
			if e.Regarding.Name == name {
				if last = missing(e.Note); last == "" {
					return ""
				}
			}
		}
		return last
	})
	s.waits(name, "preset "+preset)
	if _, f := s.get(name); missing(f.Condition.Message) != "" {
		s.Error("the condition: " + missing(f.Condition.Message))
	}
	log, err := os.ReadFile(s.logs[len(s.logs)-1])
	if s.must(log, err); missing(string(log)) != "" {
		s.Errorf("the log lacks some of %q", all)
	}
}

// byNight leaves out what is the table of presets once more (config.Presets): by day one of each kind of preset stands
// for the others.
func byNight(t *testing.T, night bool) {
	t.Helper()
	if night {
		missing.Request(t, "NIGHTLY", "make test-nightly")
	}
}

// Each preset of a component that is only a DaemonSet.
func TestPresetsOfDaemonSets(t *testing.T) {
	for _, test := range []struct {
		preset string
		sets   []vendorSet
		check  string
		night  bool
	}{
		{"cilium", []vendorSet{ciliumAgent}, "pod-network", false},
		{"aws-vpc-cni", []vendorSet{awsNode}, "pod-network", true},
		{"istio-ambient", []vendorSet{istioCNI, ztunnel}, "", false},
		{"linkerd", []vendorSet{linkerdCNI}, "", true},
	} {
		t.Run(test.preset, func(t *testing.T) {
			byNight(t, test.night)
			s := presets(t, test.preset)
			s.controller()
			n := s.node("a")
			var names []string
			for _, v := range test.sets {
				names = append(names, v.namespace+"/"+v.name)
			}
			s.findsNothing(n.Name, test.preset, names...)
			for i, v := range test.sets {
				s.install(v)
				s.waits(n.Name, names[i]+" (not Ready)")
			}
			for i, v := range test.sets {
				s.waits(n.Name, names[i]+" (not Ready)")
				s.comesUp(v)
			}
			s.becomes(n.Name, "verified", isVerified)
			if test.check != "" {
				s.ranChecks(test.check)
			}
		})
	}
}

// ranChecks checks that a worker ran a preset's check beside the built-in ones. With no pod to connect to in this cluster it warns.
func (s *suite) ranChecks(check string) {
	s.Helper()
	s.eventually("check "+check+" is in the metrics", func() string {
		resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", s.config["metrics"].(map[string]any)["port"]))
		if err != nil {
			return err.Error()
		}
		defer func() { _ = resp.Body.Close() }()
		page, err := io.ReadAll(resp.Body)
		if err != nil {
			return err.Error()
		}
		for _, want := range []string{`kube_node_ready_check_results_total{check="` + check + `",outcome="warning",type="peers"} 1`, `kube_node_ready_check_results_total{check="service-discovery"`} {
			if !strings.Contains(string(page), want) {
				return "they lack " + want
			}
		}
		return ""
	})
}

// Calico is installed in one of two namespaces.
func TestPresetCalico(t *testing.T) {
	s := presets(t, "calico")
	s.controller()
	n := s.node("manifest")
	s.findsNothing(n.Name, "calico", "calico-system/calico-node", "kube-system/calico-node")
	s.install(calicoNode)
	s.waits(n.Name, "not Ready")
	s.comesUp(calicoNode)
	s.becomes(n.Name, "verified", isVerified)

	s.uninstall(calicoNode)
	n = s.node("operator")
	s.waits(n.Name, "preset calico")
	operators := calicoNode
	operators.namespace = "calico-system"
	s.install(operators)
	s.waits(n.Name, "not Ready")
	s.comesUp(operators)
	s.becomes(n.Name, "verified", isVerified)
}

// csiNode registers drivers as the kubelet does.
func (s *suite) csiNode(nodeName string, drivers ...storagev1.CSINodeDriver) {
	s.Helper()
	have, err := k8s.StorageV1().CSINodes().Get(s.ctx, nodeName, metav1.GetOptions{})
	if err == nil { // a registered driver's entry cannot be changed
		have.Spec.Drivers = nil
		have, err = k8s.StorageV1().CSINodes().Update(s.ctx, have, metav1.UpdateOptions{})
		s.must(nil, err)
		have.Spec.Drivers = drivers
		s.must(k8s.StorageV1().CSINodes().Update(s.ctx, have, metav1.UpdateOptions{}))
		return
	}
	node, _ := s.get(nodeName)
	s.must(k8s.StorageV1().CSINodes().Create(s.ctx, &storagev1.CSINode{Spec: storagev1.CSINodeSpec{Drivers: drivers}, ObjectMeta: metav1.ObjectMeta{Name: nodeName,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: nodeName, UID: node.UID}}}}, metav1.CreateOptions{}))
}

// A CSI driver's pod is Ready before the kubelet knows the driver, and that of EBS before its volume limit is known. A node that the
// DaemonSet has no place for waits for neither.
func TestPresetsOfCSIDrivers(t *testing.T) {
	for _, test := range []struct {
		preset, driver string
		set            vendorSet
		limit, night   bool
	}{
		{"ebs-csi", "ebs.csi.aws.com", ebsNode, true, false},
		{"efs-csi", "efs.csi.aws.com", efsNode, false, true},
		{"secrets-store-csi", "secrets-store.csi.k8s.io", secretsStore, false, true},
	} {
		t.Run(test.preset, func(t *testing.T) {
			byNight(t, test.night)
			s := presets(t, test.preset)
			s.controller()
			test.set.nodeSelector = map[string]string{"kubernetes.io/os": "linux", "disks": "yes"}
			n := s.node("a", func(spec *nodeagent.NodeSpec) { spec.Labels["disks"] = "yes" })
			elsewhere := s.node("elsewhere")
			s.findsNothing(n.Name, test.preset, test.set.namespace+"/"+test.set.name)
			s.install(test.set)
			s.waits(n.Name, "not Ready")
			s.becomes(elsewhere.Name, "verified", isVerified)
			s.comesUp(test.set)
			s.waits(n.Name, "Waiting for CSI driver "+test.driver)
			registered := storagev1.CSINodeDriver{Name: test.driver, NodeID: "i-1"}
			s.csiNode(n.Name, registered)
			if test.limit {
				s.waits(n.Name, "without a volume limit")
				registered.Allocatable = &storagev1.VolumeNodeResources{Count: ptr.To[int32](25)}
				s.csiNode(n.Name, registered)
			}
			s.becomes(n.Name, "verified", isVerified)
		})
	}
}

// Device plugins and a DRA driver tolerate no gating taint until they are told to, and their pods are Ready before the node offers
// what they are for.
func TestPresetsOfDevices(t *testing.T) {
	offer := func(resource string) func(*suite, string) {
		return func(s *suite, node string) {
			s.must(k8s.CoreV1().Nodes().Patch(s.ctx, node, types.StrategicMergePatchType, []byte(`{"status":{"allocatable":{"`+resource+`":"1"}}}`), metav1.PatchOptions{}, "status"))
		}
	}
	publish := func(s *suite, node string) {
		s.must(k8s.ResourceV1().ResourceSlices().Create(s.ctx, &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node + "-gpus"}, Spec: resourcev1.ResourceSliceSpec{
			Driver: "gpu.nvidia.com", NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1}, Devices: []resourcev1.Device{{Name: "gpu-0"}}}}, metav1.CreateOptions{}))
	}
	for _, test := range []struct {
		preset string
		set    vendorSet
		waits  string
		offer  func(*suite, string)
		night  bool
	}{
		{"aws-neuron", neuronPlugin, "Waiting for 1 aws.amazon.com/neuron allocatable", offer("aws.amazon.com/neuron"), true},
		{"aws-efa", efaPlugin, "Waiting for 1 vpc.amazonaws.com/efa allocatable", offer("vpc.amazonaws.com/efa"), true},
		{"gpu-nvidia-dra", gpuDRA, "Waiting for ResourceSlices of driver gpu.nvidia.com (there are none for the node)", publish, false},
	} {
		t.Run(test.preset, func(t *testing.T) {
			byNight(t, test.night)
			s := presets(t, test.preset)
			s.controller()
			test.set.nodeSelector = map[string]string{"devices": "yes"}
			n := s.node("a", func(spec *nodeagent.NodeSpec) { spec.Labels["devices"] = "yes" })
			plain := s.node("plain")
			s.findsNothing(n.Name, test.preset, test.set.namespace+"/"+test.set.name)
			s.install(test.set)
			s.waits(n.Name, "does not tolerate "+taintKey)
			s.becomes(plain.Name, "verified", isVerified)
			s.patchSet(test.set, `{"spec":{"template":{"spec":{"tolerations":[{"operator":"Exists"}]}}}}`)
			s.waits(n.Name, test.set.name+" (not Ready)")
			s.comesUp(test.set)
			s.waits(n.Name, test.waits)
			test.offer(s, n.Name)
			s.becomes(n.Name, "verified", isVerified)
		})
	}
}

// The GPU operator's DaemonSets select labels that come after the node, and tolerate no gating taint until they are told to.
func TestPresetGPU(t *testing.T) {
	s := presets(t, "gpu-nvidia")
	s.controller()
	labels := map[string]string{"nvidia.com/gpu.deploy.device-plugin": "true", "nvidia.com/gpu.deploy.operator-validator": "true"}
	n := s.node("gpu", func(spec *nodeagent.NodeSpec) {
		for key, value := range labels {
			spec.Labels[key] = value
		}
	})
	s.findsNothing(n.Name, "gpu-nvidia", "gpu-operator/nvidia-device-plugin-daemonset", "gpu-operator/nvidia-operator-validator")
	both := []vendorSet{devicePlugin, gpuValidator}
	for _, v := range both {
		s.install(v)
	}
	s.waits(n.Name, "does not tolerate "+taintKey)
	plain := s.node("plain")
	s.becomes(plain.Name, "verified", isVerified)
	for _, v := range both {
		s.patchSet(v, `{"spec":{"template":{"spec":{"tolerations":[{"key":"nvidia.com/gpu","operator":"Exists","effect":"NoSchedule"},{"key":"`+taintKey+`","operator":"Exists","effect":"NoSchedule"}]}}}}`)
		s.waits(n.Name, v.name+" (not Ready)")
	}
	for _, v := range both {
		s.comesUp(v)
	}
	s.waits(n.Name, "Waiting for 1 nvidia.com/gpu allocatable")
	s.offerGPU(n.Name)
	s.becomes(n.Name, "verified", isVerified)

	// In a profile it holds from the node's creation on, and for no other node.
	s.controllers[0].Terminate(5 * time.Second)
	set("nodeManagement", map[string]any{"presets": nil})(s.config)
	s.config["profiles"] = []any{map[string]any{"name": "gpu", "presets": []any{"gpu-nvidia"}, "nodeSelector": map[string]any{"matchLabels": map[string]any{"pool": "gpu"}}}}
	s.controller()
	n = s.node("born", func(spec *nodeagent.NodeSpec) { spec.Labels["pool"] = "gpu" })
	s.waits(n.Name, "Waiting for 1 nvidia.com/gpu allocatable")
	s.becomes(s.node("plain-too").Name, "verified", isVerified)
	s.offerGPU(n.Name)
	s.becomes(n.Name, "verified", isVerified)
}

func (s *suite) offerGPU(nodeName string) {
	s.Helper()
	s.must(k8s.CoreV1().Nodes().Patch(s.ctx, nodeName, types.StrategicMergePatchType, []byte(`{"status":{"allocatable":{"nvidia.com/gpu":"1"}}}`), metav1.PatchOptions{}, "status"))
}
