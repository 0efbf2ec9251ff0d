package chart

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/nodeagent"
)

// limited is an installation with the admission policies and with all that they let through but deletion, which another test
// (deleting) has under the same policies.
const limited = `
admissionPolicy: {enabled: true}
controller:
  replicas: 0 # the controller is a local process
  image: {tag: local}
  config:
    nodeManagement: {completedAnnotation: startup.k8s.io/completedAt}
    admission: {backfill: true}
`

// beyond has workers ask for more than Pod Security "restricted" gives.
const beyond = limited + `
    worker:
      initContainers:
        - {name: plain, image: plain:1, securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}
        - {name: tune, image: tune:1, command: [tune], args: [mtu], securityContext: {privileged: true, runAsUser: 0, runAsNonRoot: false}}
      volumes: [{name: devices, hostPath: {path: /dev}}]
    profiles:
      - name: gpu
        nodeSelector: {matchLabels: {gpu: "yes"}}
        image: {repository: registry.example.com/burn-in}
        initContainers:
          - {name: tune, image: burn-in:1, command: [burn], securityContext: {privileged: true, runAsUser: 0, runAsNonRoot: false}}
        volumes: [{name: out, hostPath: {path: /out}}]
        resourceClaims: [{name: gpus, resourceClaimTemplateName: all-gpus}]
        resources: {claims: [{name: gpus}]}
`

const (
	ourController = "system:serviceaccount:" + namespace + ":" + install.ControllerAccount
	ourWorker     = "system:serviceaccount:" + namespace + ":" + install.WorkerAccount
	somebody      = "somebody"
)

// fortress is a cluster with the policies in force.
type fortress struct {
	*testing.T
	cluster *cluster.Cluster
	admin   client.Client
	scheme  *runtime.Scheme
}

// really is a client of a user with every right that RBAC can give, as one that changes nothing.
func (f fortress) really(user string) client.Client {
	f.Helper()
	c := rest.CopyConfig(f.cluster.Config())
	c.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
	k, err := client.New(c, client.Options{Scheme: f.scheme})
	f.must(err)
	return k
}

func (f fortress) as(user string) client.Client {
	f.Helper()
	return client.NewDryRunClient(f.really(user))
}

// deniedBy reports whether an error is the refusal of one of our policies, and not its failure to decide.
func deniedBy(policy string, err error) bool {
	return err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'kube-node-ready-"+policy+"'") && !strings.Contains(err.Error(), "resulted in error")
}

// denied checks that a policy refuses, allowed that all let through.
func (f fortress) denied(policy, what string, err error) {
	f.Helper()
	if !deniedBy(policy, err) {
		f.Errorf("%s: %v, want a refusal by policy %s", what, err, policy)
	}
}

func (f fortress) allowed(what string, err error) {
	f.Helper()
	if err != nil {
		f.Errorf("%s: %v", what, err)
	}
}

func (f fortress) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// startFortress starts a cluster and installs the chart.
func startFortress(t *testing.T, values string) fortress {
	t.Helper()
	c, _ := startCluster(t, cluster.Options{})
	f := fortress{T: t, cluster: c, scheme: runtime.NewScheme()}
	f.must(clientscheme.AddToScheme(f.scheme))
	f.must(v1alpha1.AddToScheme(f.scheme))
	var err error
	f.admin, err = client.New(c.Config(), client.Options{Scheme: f.scheme})
	f.must(err)
	// It enforces no Pod Security: the policies alone are to refuse.
	f.must(f.admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	installOn(t, c, values)
	return f
}

// Each part upgrades the installation of the one before it, and begins without nodes.
func TestAdmissionPolicies(t *testing.T) {
	t.Parallel()
	whole := startFortress(t, limited)
	for _, part := range []struct {
		name string
		test func(fortress)
	}{
		{"accounts", fortress.testAccounts},
		{"conditions", fortress.testConditions},
		{"kubelets", fortress.testWhatANodeMayWriteOfItself},
	} {
		t.Run(part.name, func(t *testing.T) {
			f := whole
			f.T = t
			part.test(f)
		})
		whole.must(whole.admin.DeleteAllOf(t.Context(), &corev1.Node{}))
	}
}

// The policies let the controller do its work, and whoever has its token nothing else, whatever RBAC says. Nobody else makes a pod
// that it would take for its own.
func (f fortress) testAccounts() {
	t := f.T
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"theirs": "x"}, Annotations: map[string]string{"theirs": "x", "node-ready/skip": "true"}}, // the controller leaves it alone
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "theirs", Effect: corev1.TaintEffectNoSchedule}}}}
	f.must(f.admin.Create(t.Context(), n))
	rule := &v1alpha1.NodeReadinessRule{ObjectMeta: metav1.ObjectMeta{Name: "warm"}, Spec: v1alpha1.NodeReadinessRuleSpec{
		EnforcementMode: v1alpha1.ModeBootstrapOnly, Conditions: []v1alpha1.ConditionRequirement{{Type: "example.com/Warm", RequiredStatus: corev1.ConditionTrue}},
		NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"ruled": "true"}}, Taint: corev1.Taint{Key: "readiness.k8s.io/warm", Effect: corev1.TaintEffectNoSchedule}}}
	pod := f.builder(limited).Verify(target(n), f.configured(limited).For(nil), 1, config.SchedulingDirect)
	// They come into force one after the other.
	stolen := f.as(ourController)
	for policy, try := range map[string]func() error{
		"nodes": func() error {
			return stolen.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "new"}})
		},
		"pods":           func() error { return stolen.Create(t.Context(), elsewhere(pod)) },
		"pods-kept":      func() error { return stolen.Delete(t.Context(), f.foreignPod()) },
		"pods-of-others": func() error { return f.as(somebody).Create(t.Context(), pod.DeepCopy()) },
		"rules":          func() error { return stolen.Create(t.Context(), rule.DeepCopy()) },
	} {
		var err error
		for end := time.Now().Add(patience); !deniedBy(policy, err) && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			err = try()
		}
		f.denied(policy, "before it all", err)
	}
	if t.Failed() {
		return
	}
	f.works(rule)
	f.nodes(n)
	f.pods(n, pod)
	f.othersPods(pod)
	f.rules(rule.Name)
	f.upgrade(beyond)
	f.configuredPods(n)
}

func target(n *corev1.Node) workerpod.Target {
	return workerpod.Target{Name: n.Name, UID: string(n.UID), BootID: "b", Gated: true}
}

// elsewhere is the pod in a namespace that has no service account of ours.
func elsewhere(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Namespace, pod.Spec.ServiceAccountName = metav1.NamespaceDefault, "default"
	return pod
}

func (f fortress) configured(values string) *config.Config { return parsed(f.T, values) }

// builder makes the pods of a controller with this configuration.
func (f fortress) builder(values string) *workerpod.Builder {
	f.Helper()
	cfg := f.configured(values)
	b, err := workerpod.NewBuilder(cfg, namespace, cfg.Worker.Image.Reference(""))
	f.must(err)
	return b
}

// foreignPod is a pod in our namespace that is none of the controller's.
func (f fortress) foreignPod() *corev1.Pod {
	f.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "theirs"},
		Spec: corev1.PodSpec{ServiceAccountName: install.WorkerAccount, Containers: []corev1.Container{{Name: "a", Image: "a"}}}}
	f.must(client.IgnoreAlreadyExists(f.admin.Create(f.Context(), pod)))
	return pod
}

// works runs a controller as its service account, with the chart's rights. It checks that a node is verified, that a
// node which admission missed is tainted and verified, and that a rule is served and cleaned up.
func (f fortress) works(rule *v1alpha1.NodeReadinessRule) {
	f.Helper()
	agent := startAgent(f.T, f.cluster)
	controller, err := install.StartController(f.Context(), f.cluster, "controller", decoded(f.T, render(f.T, limited)))
	f.must(err)
	defer controller.Terminate(10 * time.Second)
	f.Cleanup(func() {
		if f.Failed() {
			f.Logf("the controller's log:\n%s", readFile(f.T, controller.LogFile))
		}
	})
	node := func(name string) *corev1.Node {
		f.Helper()
		n := &corev1.Node{}
		f.must(f.admin.Get(f.Context(), types.NamespacedName{Name: name}, n))
		return n
	}
	tainted := func(name, key string) bool {
		return slices.ContainsFunc(node(name).Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
	}
	verified := func(name string) func() bool {
		return func() bool {
			n := node(name)
			return n.Labels["node-ready/verified"] == "true" && n.Annotations["startup.k8s.io/completedAt"] != "" && !tainted(name, "node-ready/unverified") &&
				slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
					return c.Type == "node-ready/Verified" && c.Status == corev1.ConditionTrue
				})
		}
	}
	add := func(spec nodeagent.NodeSpec) *nodeagent.Node {
		f.Helper()
		n, err := agent.AddNode(f.Context(), spec)
		f.must(err)
		return n
	}
	recovers := add(nodeagent.NodeSpec{Name: "recovers", DNS: nodeagent.DNSRefuses, Taints: []corev1.Taint{{Key: "node-ready/unverified", Value: "true", Effect: corev1.TaintEffectNoSchedule}}})
	eventually(f.T, "an attempt fails", func() bool {
		return strings.Contains(node("recovers").Annotations["node-ready/record"], `"attempts":1`)
	})
	f.must(recovers.SetDNS(nodeagent.DNSWorks))
	eventually(f.T, "a retry passes", verified("recovers"))
	add(nodeagent.NodeSpec{Name: "missed"})
	eventually(f.T, "a node that admission missed is tainted and verified", verified("missed"))

	f.must(f.admin.Create(f.Context(), rule.DeepCopy()))
	ruled := add(nodeagent.NodeSpec{Name: "ruled", Labels: map[string]string{"ruled": "true"}})
	eventually(f.T, "the rule's taint is put on", func() bool { return tainted("ruled", rule.Spec.Taint.Key) })
	f.must(ruled.SetCondition(f.Context(), corev1.NodeCondition{Type: "example.com/Warm", Status: corev1.ConditionTrue}))
	eventually(f.T, "and taken off", func() bool { return !tainted("ruled", rule.Spec.Taint.Key) })
	second := rule.DeepCopy()
	second.Name, second.Spec.Taint.Key, second.Spec.Conditions[0].Type = "never", "readiness.k8s.io/never", "example.com/Never"
	f.must(f.admin.Create(f.Context(), second))
	eventually(f.T, "another rule's is put on", func() bool { return tainted("ruled", second.Spec.Taint.Key) })
	f.must(f.admin.Delete(f.Context(), second))
	eventually(f.T, "the rule releases its node", func() bool {
		return !tainted("ruled", second.Spec.Taint.Key) && f.admin.Get(f.Context(), types.NamespacedName{Name: second.Name}, second) != nil
	})
	eventually(f.T, "the other has a status", func() bool {
		r := &v1alpha1.NodeReadinessRule{}
		return f.admin.Get(f.Context(), types.NamespacedName{Name: rule.Name}, r) == nil && r.Status.ObservedGeneration > 0 && len(r.Finalizers) == 1
	})

	eventually(f.T, "its workers are gone", func() bool {
		var left corev1.PodList
		f.must(f.admin.List(f.Context(), &left, client.InNamespace(namespace), client.MatchingLabels{workerpod.LabelComponent: workerpod.Component}))
		return len(left.Items) == 0
	})
	plugin, err := install.Binary("kubectl-node_ready")
	f.must(err)
	out, err := exec.CommandContext(f.Context(), plugin, "--kubeconfig", f.cluster.Kubeconfig(), "--namespace", namespace, "check", "recovers").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "passed") {
		f.Errorf("a person's check: %v\n%s", err, out)
	}
}

// nodes tries changes of a node.
func (f fortress) nodes(n *corev1.Node) {
	f.Helper()
	for _, user := range []string{ourController, ourWorker} {
		k := f.as(user)
		try := func(patch string, subresource bool) error {
			if subresource {
				return k.Status().Patch(f.Context(), n.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, []byte(patch)))
			}
			return k.Patch(f.Context(), n.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)))
		}
		for what, patch := range map[string]string{
			"our label":      `{"metadata":{"labels":{"node-ready/verified":"true"}}}`,
			"our record":     `{"metadata":{"annotations":{"node-ready/record":"{}"}}}`,
			"completed":      `{"metadata":{"annotations":{"startup.k8s.io/completedAt":"1"}}}`,
			"owned taints":   `{"metadata":{"annotations":{"node-ready/rules":"{}","node-ready/rules-released":"[]","readiness.k8s.io/bootstrap-completed-u":"{}"}}}`,
			"our taint":      `{"spec":{"taints":[{"key":"theirs","effect":"NoSchedule"},{"key":"node-ready/unverified","effect":"NoSchedule"}]}}`,
			"a rule's taint": `{"spec":{"taints":[{"key":"theirs","effect":"NoSchedule"},{"key":"readiness.k8s.io/a","effect":"NoExecute"}]}}`,
		} {
			f.allowed(what, try(patch, false))
		}
		f.allowed("our condition", try(`{"status":{"conditions":[{"type":"node-ready/Verified","status":"True"}]}}`, true))
		for what, patch := range map[string]string{
			"another label":            `{"metadata":{"labels":{"a":"b"}}}`,
			"removal of a label":       `{"metadata":{"labels":{"theirs":null}}}`,
			"another annotation":       `{"metadata":{"annotations":{"node-ready/skip":"false"}}}`,
			"removal of an annotation": `{"metadata":{"annotations":{"theirs":null}}}`,
			"finalizer":                `{"metadata":{"finalizers":["a.io/b"]}}`,
			"owner":                    `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"x","uid":"u"}]}}`,
			"cordon":                   `{"spec":{"unschedulable":true}}`,
			"provider ID":              `{"spec":{"providerID":"a"}}`,
			"foreign taint":            `{"spec":{"taints":[]}}`,
			"another taint":            `{"spec":{"taints":[{"key":"theirs","effect":"NoSchedule"},{"key":"a","effect":"NoExecute"}]}}`,
			"our taint's other effect": `{"spec":{"taints":[{"key":"theirs","effect":"NoSchedule"},{"key":"node-ready/unverified","effect":"NoExecute"}]}}`,
		} {
			f.denied("nodes", what, try(patch, false))
		}
		// Another policy may have added the key to the request, so the refusal names it.
		for key, patch := range map[string]string{
			"mesh/seen": `{"metadata":{"annotations":{"node-ready/record":"{}","mesh/seen":"true"}}}`,
			"theirs":    `{"metadata":{"labels":{"theirs":null}}}`,
		} {
			if err := try(patch, false); err == nil || !strings.Contains(err.Error(), "this request changes "+key+". If a mutating webhook or policy does that, ") {
				f.Errorf("change of %s: %v", key, err)
			}
		}
		for what, patch := range map[string]string{
			"another condition": `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`,
			"allocatable":       `{"status":{"allocatable":{"cpu":"0"}}}`,
			"addresses":         `{"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.1"}]}}`,
			"kubelet's port":    `{"status":{"daemonEndpoints":{"kubeletEndpoint":{"Port":1}}}}`,
		} {
			f.denied("nodes", what, try(patch, true))
		}
		f.denied("nodes", "creation of a node", k.Create(f.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "new"}}))
		f.denied("nodes", "deletion of a node, which is not configured", k.Delete(f.Context(), n.DeepCopy()))
	}
	f.allowed("somebody else's label", f.as(somebody).Patch(f.Context(), n.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`))))
}

// pods tries pods that a thief would make of the controller's token.
func (f fortress) pods(n *corev1.Node, pod *corev1.Pod) {
	f.Helper()
	k := f.as(ourController)
	profile := f.configured(limited).For(nil)
	f.allowed("a worker", k.Create(f.Context(), pod.DeepCopy()))
	f.allowed("a probe", k.Create(f.Context(), f.builder(limited).Probe(target(n), profile, "subject", "group")))
	f.denied("pods", "a person's check", k.Create(f.Context(), f.builder(limited).Check(target(n), profile, "id", config.SchedulingDirect)))
	f.denied("pods", "any pod, by a worker", f.as(ourWorker).Create(f.Context(), elsewhere(pod)))
	host := func(path string) corev1.Volume {
		return corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}}}
	}
	worker := func(change func(*corev1.Container)) func(*corev1.Pod) {
		return func(p *corev1.Pod) { change(&p.Spec.Containers[0]) }
	}
	for what, change := range map[string]func(*corev1.Pod){
		"another namespace": func(p *corev1.Pod) { *p = *elsewhere(p) },
		"another name":      func(p *corev1.Pod) { p.Name = "shell" },
		"no owner":          func(p *corev1.Pod) { p.OwnerReferences = nil },
		"another owner":     func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "Namespace" },
		"another node":      func(p *corev1.Pod) { p.OwnerReferences[0].UID = "u" },
		"pinned elsewhere":  func(p *corev1.Pod) { p.Spec.NodeName = "other" },
		"another component": func(p *corev1.Pod) { p.Labels[workerpod.LabelComponent] = "controller" },
		"another image":     worker(func(c *corev1.Container) { c.Image = "shell" }),
		"another command":   worker(func(c *corev1.Container) { c.Command = []string{"/kube-node-ready-controller"} }),
		"other arguments":   worker(func(c *corev1.Container) { c.Args = []string{"report"} }),
		"a second container": func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "b", Image: "b"})
		},
		"an init container": func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "b", Image: p.Spec.Containers[0].Image}}
		},
		"the controller's": func(p *corev1.Pod) { p.Spec.ServiceAccountName = install.ControllerAccount },
		"host network":     func(p *corev1.Pod) { p.Spec.HostNetwork = true },
		"host PIDs":        func(p *corev1.Pod) { p.Spec.HostPID = true },
		"host path":        func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{host("/")} },
		"sysctl": func(p *corev1.Pod) {
			p.Spec.SecurityContext.Sysctls = []corev1.Sysctl{{Name: "kernel.shm_rmid_forced", Value: "1"}}
		},
		"root": func(p *corev1.Pod) {
			p.Spec.SecurityContext.RunAsNonRoot = ptr.To(false)
			p.Spec.SecurityContext.RunAsUser = ptr.To(int64(0))
		},
		"no seccomp": func(p *corev1.Pod) { p.Spec.SecurityContext.SeccompProfile.Type = corev1.SeccompProfileTypeUnconfined },
		"no AppArmor": func(p *corev1.Pod) {
			p.Spec.SecurityContext.AppArmorProfile = &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
		},
		"privileged":          worker(func(c *corev1.Container) { c.SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)} }),
		"privilege escalates": worker(func(c *corev1.Container) { c.SecurityContext.AllowPrivilegeEscalation = nil }),
		"capabilities":        worker(func(c *corev1.Container) { c.SecurityContext.Capabilities = nil }),
		"a capability":        worker(func(c *corev1.Container) { c.SecurityContext.Capabilities.Add = []corev1.Capability{"SYS_ADMIN"} }),
		"root container":      worker(func(c *corev1.Container) { c.SecurityContext.RunAsNonRoot = ptr.To(false) }),
		"host port":           worker(func(c *corev1.Container) { c.Ports = []corev1.ContainerPort{{ContainerPort: 1, HostPort: 1}} }),
	} {
		thiefs := pod.DeepCopy()
		change(thiefs)
		f.denied("pods", what, k.Create(f.Context(), thiefs))
	}
}

// othersPods tries what others do to worker pods, and the controller to pods that are there.
func (f fortress) othersPods(pod *corev1.Pod) {
	f.Helper()
	k, other := f.as(ourController), f.as(somebody)
	patch := func(as client.Client, p *corev1.Pod, patch string) error {
		return as.Patch(f.Context(), p.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)))
	}
	plain := pod.DeepCopy()
	plain.OwnerReferences = nil
	f.allowed("a pod of the name that no node owns", other.Create(f.Context(), plain.DeepCopy()))
	f.allowed("a worker in another namespace", other.Create(f.Context(), elsewhere(pod)))
	f.denied("pods-of-others", "a worker", other.Create(f.Context(), pod.DeepCopy()))
	f.must(f.admin.Create(f.Context(), plain))
	f.denied("pods-of-others", "a worker made of a pod", patch(other, plain, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"`+string(pod.OwnerReferences[0].UID)+`"}]}}`))
	f.must(f.admin.Delete(f.Context(), plain, client.GracePeriodSeconds(0)))

	worker := pod.DeepCopy()
	f.must(f.really(ourController).Create(f.Context(), worker))
	f.allowed("a worker marked as recorded", patch(k, worker, `{"metadata":{"annotations":{"node-ready/recorded":"true"}}}`))
	f.allowed("its deletion", k.Delete(f.Context(), worker.DeepCopy()))
	f.denied("pods-kept", "another label", patch(k, worker, `{"metadata":{"labels":{"a":"b"}}}`))
	f.denied("pods-kept", "another image", patch(k, worker, `{"spec":{"activeDeadlineSeconds":1}}`))
	f.denied("pods-kept", "its status", k.Status().Patch(f.Context(), worker.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`))))
	f.denied("pods-kept", "deletion of a foreign pod", k.Delete(f.Context(), f.foreignPod()))
	f.denied("pods-kept", "another image for a foreign pod", k.Patch(f.Context(), f.foreignPod(), client.RawPatch(types.StrategicMergePatchType, []byte(`{"spec":{"containers":[{"name":"a","image":"b"}]}}`))))
	f.allowed("somebody's annotation", patch(other, worker, `{"metadata":{"annotations":{"a":"b"}}}`))
	f.allowed("somebody's deletion", other.Delete(f.Context(), worker.DeepCopy()))
	f.denied("pods-of-others", "somebody's image", other.Patch(f.Context(), worker.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, []byte(`{"spec":{"containers":[{"name":"worker","image":"b"}]}}`))))
	f.denied("pods-of-others", "what it says of itself", patch(other, worker, `{"metadata":{"annotations":{"node-ready/checks":"x"}}}`))
}

// rules tries changes of a rule.
func (f fortress) rules(name string) {
	f.Helper()
	k := f.as(ourController)
	r := &v1alpha1.NodeReadinessRule{}
	f.must(f.admin.Get(f.Context(), types.NamespacedName{Name: name}, r))
	patch := func(patch string) error {
		return k.Patch(f.Context(), r.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)))
	}
	f.allowed("its finalizer", patch(`{"metadata":{"finalizers":null}}`))
	f.allowed("its status", k.Status().Patch(f.Context(), r.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"status":{"observedGeneration":7}}`))))
	f.denied("rules", "its spec", patch(`{"spec":{"dryRun":true}}`))
	f.denied("rules", "a label", patch(`{"metadata":{"labels":{"a":"b"}}}`))
	f.denied("rules", "another finalizer", patch(`{"metadata":{"finalizers":["a.io/b"]}}`))
	f.denied("rules", "its deletion", k.Delete(f.Context(), r.DeepCopy()))
}

// configuredPods tries pods under a configuration that asks for more than "restricted".
func (f fortress) configuredPods(n *corev1.Node) {
	f.Helper()
	k := f.as(ourController)
	build := func(change func(*corev1.PodSpec)) *corev1.Pod {
		pod := f.builder(beyond).Verify(target(n), f.configured(beyond).For(nil), 2, config.SchedulingDirect)
		pod.Spec.InitContainers = slices.Clone(pod.Spec.InitContainers)
		for i := range pod.Spec.InitContainers {
			pod.Spec.InitContainers[i] = *pod.Spec.InitContainers[i].DeepCopy()
		}
		pod.Spec.Volumes = slices.Clone(pod.Spec.Volumes)
		change(&pod.Spec)
		return pod
	}
	eventually(f.T, "the configured pods are let through", func() bool { return k.Create(f.Context(), build(func(*corev1.PodSpec) {})) == nil })
	for what, change := range map[string]func(*corev1.PodSpec){
		"another command": func(p *corev1.PodSpec) { p.InitContainers[1].Command = []string{"sh"} },
		"other arguments": func(p *corev1.PodSpec) { p.InitContainers[1].Args = nil },
		"another image":   func(p *corev1.PodSpec) { p.InitContainers[1].Image = "plain:1" },
		"a capability": func(p *corev1.PodSpec) {
			p.InitContainers[1].SecurityContext.Capabilities = &corev1.Capabilities{Add: []corev1.Capability{"NET_RAW"}}
		},
		"the plain one, privileged": func(p *corev1.PodSpec) {
			p.InitContainers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
		},
		"another path": func(p *corev1.PodSpec) {
			p.Volumes[0].HostPath = &corev1.HostPathVolumeSource{Path: "/etc"}
		},
	} {
		f.denied("pods", what, k.Create(f.Context(), build(change)))
	}

	burns := func(change func(*corev1.PodSpec)) *corev1.Pod {
		pod := f.builder(beyond).Verify(target(n), f.configured(beyond).For(map[string]string{"gpu": "yes"}), 2, config.SchedulingDirect).DeepCopy()
		change(&pod.Spec)
		return pod
	}
	f.allowed("the pod of a profile", k.Create(f.Context(), burns(func(*corev1.PodSpec) {})))
	for what, change := range map[string]func(*corev1.PodSpec){
		"another image":               func(p *corev1.PodSpec) { p.Containers[0].Image = "registry.example.com/burn-in:2" },
		"the other profile's image":   func(p *corev1.PodSpec) { p.InitContainers[0].Image = "tune:1" },
		"the other profile's command": func(p *corev1.PodSpec) { p.InitContainers[0].Command = []string{"tune"} },
		"another claim":               func(p *corev1.PodSpec) { p.ResourceClaims[0].ResourceClaimTemplateName = ptr.To("theirs") },
		"a claim in place of its kind": func(p *corev1.PodSpec) {
			p.ResourceClaims[0] = corev1.PodResourceClaim{Name: "gpus", ResourceClaimName: ptr.To("all-gpus")}
		},
		"a path that no profile mounts": func(p *corev1.PodSpec) { p.Volumes[0].HostPath = &corev1.HostPathVolumeSource{Path: "/etc"} },
	} {
		f.denied("pods", what, k.Create(f.Context(), burns(change)))
	}
}
