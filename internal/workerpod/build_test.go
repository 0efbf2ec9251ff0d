package workerpod

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/marks"
	"github.com/kube-node-ready/kube-node-ready/internal/worker"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// nodeA is a gated node.
var nodeA = Target{Name: "node-a", UID: "u1", BootID: "b1", Gated: true}

// builder makes pods of the default configuration with these changes.
func builder(t testing.TB, change ...func(*config.Config)) (*Builder, config.Effective) {
	t.Helper()
	c := &config.Config{}
	c.SetDefaults()
	for _, f := range change {
		f(c)
	}
	b, err := NewBuilder(c, "ns", "img:1")
	if err != nil {
		t.Fatal(err)
	}
	return b, c.For(nil)
}

func TestNames(t *testing.T) {
	long := strings.Repeat("a", 63) + "." + strings.Repeat("b", 63) + "." + strings.Repeat("c", 63) + "." + strings.Repeat("d", 61)
	if len(long) != 253 {
		t.Fatal(len(long))
	}
	seen := map[string]bool{}
	once := func(name string) {
		if errs := validation.IsDNS1123Label(name); len(errs) > 0 {
			t.Errorf("%q: %v", name, errs)
		}
		if seen[name] {
			t.Errorf("%q names two attempts", name)
		}
		seen[name] = true
	}
	for _, n := range []string{"n", "ip-10-0-0-1.eu-west-1.compute.internal", "a.b", "a-b", "0.1.2.3", long, long[:252] + "e", strings.Repeat("x", 40) + "." + "y"} {
		for _, uid := range []string{"u1", "u2"} {
			target := Target{Name: n, UID: uid}
			for _, number := range []int32{1, 2, 99999, 1 << 29} {
				once(VerifyName(target, number))
				once(ProbeName(target, uid+"/"+strconv.Itoa(int(number))))
			}
		}
	}
	if VerifyName(Target{Name: "n", UID: "u"}, 1) != VerifyName(Target{Name: "n", UID: "u", BootID: "other", Gated: true}, 1) {
		t.Error("the same attempt has two names")
	}
}

func TestVerifyPod(t *testing.T) {
	b, profile := builder(t, func(c *config.Config) {
		c.Worker.PodLabels = map[string]string{"team": "infra", LabelComponent: "forged", LabelNodeUID: "forged"}
		c.Worker.PodAnnotations = map[string]string{"note": "x", AnnotationNode: "forged", AnnotationChecks: "forged"}
		c.NodeManagement.Taints = append(c.NodeManagement.Taints, marks.Taint{Key: "gpu/unverified", Effect: corev1.TaintEffectNoExecute})
	})
	pod := b.Verify(nodeA, profile, 3, config.SchedulingDirect)
	if pod.Name != VerifyName(nodeA, 3) || pod.Namespace != "ns" || pod.Spec.Containers[0].Image != "img:1" || pod.Spec.RestartPolicy != corev1.RestartPolicyNever {
		t.Errorf("%s/%s %+v", pod.Namespace, pod.Name, pod.Spec)
	}
	if pod.Spec.NodeSelector[corev1.LabelOSStable] != "linux" {
		t.Errorf("node selector %v: the image is for Linux", pod.Spec.NodeSelector)
	}
	if pod.Spec.NodeName != "node-a" || pod.Spec.Affinity != nil {
		t.Errorf("bound to %q, affinity %+v", pod.Spec.NodeName, pod.Spec.Affinity)
	}
	term := b.Verify(nodeA, profile, 3, config.SchedulingScheduler).Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0]
	if term.Key != "metadata.name" || term.Values[0] != "node-a" {
		t.Errorf("pinned by %+v", term)
	}
	if pod.Labels[LabelName] != Name || pod.Labels[LabelComponent] != Component || pod.Labels["team"] != "infra" || pod.Labels[LabelNodeUID] != "u1" || pod.Labels[LabelPurpose] != PurposeVerify {
		t.Errorf("labels %v", pod.Labels)
	}
	for key, want := range map[string]string{AnnotationNode: "node-a", AnnotationAttempt: "3", AnnotationBootID: "b1", AnnotationGated: "true", AnnotationProfile: "",
		AnnotationChecks: b.Checks(""), AnnotationStartTimeout: "300", AnnotationTimeout: "120", "note": "x"} {
		if got, ok := pod.Annotations[key]; !ok || got != want {
			t.Errorf("annotation %s: %q, want %q", key, got, want)
		}
	}
	if o := pod.OwnerReferences[0]; o.APIVersion != "v1" || o.Kind != "Node" || o.Name != "node-a" || o.UID != "u1" || *o.BlockOwnerDeletion || metav1.GetControllerOf(pod) == nil {
		t.Errorf("owner %+v", o)
	}
	if got := *pod.Spec.ActiveDeadlineSeconds; got < 300+120 {
		t.Errorf("the kubelet ends it after %d s", got)
	}
	for _, want := range []corev1.EnvVar{{Name: "NODE_NAME", Value: "node-a"}, {Name: "POD_NAMESPACE", Value: "ns"}} {
		if !slices.Contains(pod.Spec.Containers[0].Env, want) {
			t.Errorf("no %s=%s in %v", want.Name, want.Value, pod.Spec.Containers[0].Env)
		}
	}
	told := 0
	for _, e := range pod.Spec.Containers[0].Env {
		if e.Name == worker.EnvVar {
			told++
			if _, err := worker.Load([]byte(e.Value), e.Name); err != nil {
				t.Errorf("the worker would refuse its configuration: %v", err)
			}
		}
	}
	if told != 1 || !Ours(pod, "ns", nodeA) {
		t.Errorf("told %d times; ours %v", told, Ours(pod, "ns", nodeA))
	}
}

// The API server processes the whole pod with each write to it. This is the pod of the default configuration, for a
// node with a long name.
func TestWorkerPodIsSmall(t *testing.T) {
	cfg := &config.Config{}
	cfg.SetDefaults()
	b, err := NewBuilder(cfg, "kube-node-ready", "ghcr.io/kube-node-ready/kube-node-ready:v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	const uid = "6f1c1f0e-9a51-4a5e-8d37-0c1a7b9f0a11"
	pod := b.Verify(Target{Name: "ip-10-0-0-1.eu-west-1.compute.internal", UID: uid, BootID: uid, Gated: true}, cfg.For(nil), 1, config.SchedulingDirect)
	spec, err := json.Marshal(pod.Spec)
	if err != nil {
		t.Fatal(err)
	}
	if len(spec) > 1075 || pod.Size() > 1295 {
		t.Errorf("the spec has %d bytes in JSON, the pod %d in protobuf", len(spec), pod.Size())
	}
}

// The worker gets the configured log level and format if they differ from its defaults.
func TestLoggingOfTheWorker(t *testing.T) {
	b, profile := builder(t, func(c *config.Config) { c.Logging.Level, c.Logging.Format = "debug", "console" })
	got := map[string]string{}
	for _, e := range b.Verify(nodeA, profile, 1, config.SchedulingDirect).Spec.Containers[0].Env {
		got[e.Name] = e.Value
	}
	if got["LOG_LEVEL"] != "debug" || got["LOG_FORMAT"] != "console" {
		t.Error(got)
	}
}

// A proxy in the worker's own pod would answer the checks in the network's place.
func TestMeshesAreKeptOut(t *testing.T) {
	b, profile := builder(t)
	pod := b.Verify(nodeA, profile, 1, config.SchedulingDirect)
	if pod.Labels["sidecar.istio.io/inject"] != "false" || pod.Labels["istio.io/dataplane-mode"] != "none" || pod.Annotations["linkerd.io/inject"] != "disabled" {
		t.Errorf("labels %v, annotations %v", pod.Labels, pod.Annotations)
	}
	b, profile = builder(t, func(c *config.Config) {
		c.Worker.PodLabels = map[string]string{"sidecar.istio.io/inject": "true", "istio.io/dataplane-mode": "ambient"}
		c.Worker.PodAnnotations = map[string]string{"linkerd.io/inject": "enabled"}
	})
	pod = b.Verify(nodeA, profile, 1, config.SchedulingDirect)
	if pod.Labels["sidecar.istio.io/inject"] != "true" || pod.Labels["istio.io/dataplane-mode"] != "ambient" || pod.Annotations["linkerd.io/inject"] != "enabled" {
		t.Errorf("podLabels and podAnnotations do not win: labels %v, annotations %v", pod.Labels, pod.Annotations)
	}
}

// A platform that assigns a user to pods refuses a pod that names another user (OpenShift's restricted-v2).
func TestTheUserIsThePlatforms(t *testing.T) {
	for _, fixed := range []bool{true, false} {
		b, profile := builder(t, func(c *config.Config) { c.Worker.FixedUser = &fixed })
		s := b.Verify(nodeA, profile, 1, config.SchedulingDirect).Spec.SecurityContext
		if (s.RunAsUser != nil && *s.RunAsUser == 1000) != fixed || (s.RunAsGroup != nil) != fixed || (s.FSGroup != nil) != fixed || !*s.RunAsNonRoot {
			t.Errorf("fixed %v: %+v", fixed, s)
		}
	}
}

// By default, a worker tolerates every taint of a starting node. A configured list limits that to the named taints and
// those that it must tolerate.
func TestTolerations(t *testing.T) {
	gating := func(c *config.Config) {
		c.NodeManagement.Taints = append(c.NodeManagement.Taints, marks.Taint{Key: "gpu/unverified", Effect: corev1.TaintEffectNoExecute})
	}
	must := []corev1.Taint{
		{Key: "node-ready/unverified", Effect: corev1.TaintEffectNoSchedule},
		{Key: "gpu/unverified", Effect: corev1.TaintEffectNoExecute},
		{Key: "gpu/unverified", Effect: corev1.TaintEffectNoSchedule},
		{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute},
	}
	foreign := []corev1.Taint{
		{Key: "node.cilium.io/agent-not-ready", Effect: corev1.TaintEffectNoExecute},
		{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute},
		{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute},
	}
	named := []corev1.Toleration{{Key: "node.cilium.io/agent-not-ready", Operator: corev1.TolerationOpExists}}
	tolerated := func(pod *corev1.Pod, taint corev1.Taint) bool {
		return slices.ContainsFunc(pod.Spec.Tolerations, func(tol corev1.Toleration) bool { return tol.ToleratesTaint(klog.Background(), &taint, false) })
	}
	for name, tc := range map[string]struct {
		given   []corev1.Toleration
		foreign int // how many of them are tolerated
	}{
		"by default":       {nil, 3},
		"a list given":     {named, 1},
		"an empty list":    {[]corev1.Toleration{}, 0},
		"a profile's list": {named, 1},
	} {
		b, e := builder(t, gating, func(c *config.Config) {
			switch {
			case name == "a profile's list":
				c.Profiles = []config.Profile{{Name: "p", Tolerations: tc.given}}
			case tc.given != nil:
				c.Worker.Tolerations = tc.given
			}
		})
		if name == "a profile's list" {
			e.Profile, e.Tolerations = "p", tc.given
		}
		pod := b.Verify(nodeA, e, 1, config.SchedulingDirect)
		for _, taint := range must {
			if !tolerated(pod, taint) {
				t.Errorf("%s: %s:%s is not tolerated", name, taint.Key, taint.Effect)
			}
		}
		got := 0
		for _, taint := range foreign {
			if tolerated(pod, taint) {
				got++
			}
		}
		if got != tc.foreign {
			t.Errorf("%s: %d of others' taints are tolerated, want %d: %v", name, got, tc.foreign, pod.Spec.Tolerations)
		}
	}
}

// A worker may displace other pods only on a node that cannot run workloads yet.
func TestPriorityAndPlacement(t *testing.T) {
	b, profile := builder(t)
	open := Target{Name: "node-a", UID: "u1"}
	for name, tc := range map[string]struct {
		pod      *corev1.Pod
		class    string
		nodeName string
	}{
		"gated, direct":        {b.Verify(nodeA, profile, 1, config.SchedulingDirect), "system-node-critical", "node-a"},
		"gated, scheduler":     {b.Verify(nodeA, profile, 1, config.SchedulingScheduler), "system-node-critical", ""},
		"not gated, scheduler": {b.Verify(open, profile, 1, config.SchedulingScheduler), "", ""},
		"not gated, direct":    {b.Verify(open, profile, 1, config.SchedulingDirect), "", ""},
		"a probe":              {b.Probe(open, profile, "u2/1", "g"), "", ""},
	} {
		s := tc.pod.Spec
		if s.PriorityClassName != tc.class || s.NodeName != tc.nodeName || s.PreemptionPolicy != nil || s.Priority != nil {
			t.Errorf("%s: class %q, preemption %v, node %q", name, s.PriorityClassName, s.PreemptionPolicy, s.NodeName)
		}
	}
	other, profile := builder(t, func(c *config.Config) { c.Worker.PriorityClassName = "mine" })
	if got := other.Verify(nodeA, profile, 1, config.SchedulingDirect).Spec.PriorityClassName; got != "mine" {
		t.Errorf("worker.priorityClassName: %q", got)
	}
}

// If a PriorityClass is the cluster's default, a pod without a class gets its priority, and the scheduler preempts
// other pods for it.
func TestDisplaces(t *testing.T) {
	b, profile := builder(t)
	open := Target{Name: "node-a", UID: "u1"}
	for name, tc := range map[string]struct {
		priority *int32
		want     bool
	}{
		"the API server set none": {nil, false},
		"as of any pod":           {ptr.To[int32](0), false},
		"lower than that":         {ptr.To[int32](-5), false},
		"of a default class":      {ptr.To[int32](1000), true},
	} {
		for _, pod := range []*corev1.Pod{b.Verify(open, profile, 1, config.SchedulingScheduler), b.Probe(open, profile, "u2/1", "g")} {
			if pod.Spec.Priority = tc.priority; MayPreempt(pod) != tc.want {
				t.Errorf("%s: displaces %v", name, !tc.want)
			}
			if refused := Bind(pod, false); refused == "" || pod.Spec.NodeName != "" {
				t.Errorf("%s: bound to %q, which does not list its resource", name, pod.Spec.NodeName)
			}
			if refused := Bind(pod, true); refused != "" {
				t.Errorf("%s: %s", name, refused)
			}
			if pod.Spec.NodeName != "node-a" || MayPreempt(pod) || !Ours(pod, "ns", open) || pod.Spec.PriorityClassName != "" {
				t.Errorf("%s, bound: %+v", name, pod.Spec)
			}
		}
	}
}

// Two profiles with the same configuration of workers have the same checks, and no other two have.
func TestChecksIdentifyWhatAWorkerIsTold(t *testing.T) {
	profiles := func(c *config.Config) {
		c.Profiles = []config.Profile{{Name: "same"}, {Name: "dns", DNSTestDomains: []string{"example.com"}}, {Name: "slow", TimeoutSeconds: 600}}
	}
	b, _ := builder(t, profiles)
	if b.Checks("") == "" || b.Checks("same") != b.Checks("") {
		t.Errorf("%q and %q are told the same", b.Checks(""), b.Checks("same"))
	}
	seen := map[string]string{}
	for _, p := range []string{"", "dns", "slow", "unknown"} {
		if other, ok := seen[b.Checks(p)]; ok {
			t.Errorf("profiles %q and %q have the same", p, other)
		}
		seen[b.Checks(p)] = p
	}
	again, _ := builder(t, profiles)
	changed, _ := builder(t, profiles, func(c *config.Config) { c.Worker.CheckTimeoutSeconds++ })
	if again.Checks("dns") != b.Checks("dns") || changed.Checks("dns") == b.Checks("dns") {
		t.Error("a restart, another timeout of a check")
	}
	_, profile := builder(t, profiles)
	profile.Profile = "dns"
	if pod := b.Verify(nodeA, profile, 1, config.SchedulingDirect); pod.Annotations[AnnotationChecks] != b.Checks("dns") || pod.Annotations[AnnotationProfile] != "dns" {
		t.Errorf("%v", pod.Annotations)
	}
}

// podKeys are the keys of a profile that make its pods differ from those of the worker section, each with what it
// needs.
var podKeys = map[string]string{
	"image":               "image: {tag: burn-in}",
	"tolerations":         "tolerations: [{key: gpu, operator: Exists}]",
	"initContainers":      "initContainers: [{name: dcgm, image: 'dcgm:4'}]",
	"volumes":             "volumes: [{name: own, emptyDir: {}}]",
	"volumeMounts":        "volumeMounts: [{name: results, mountPath: /own}]",
	"env":                 "env: [{name: A, value: b}]",
	"resources":           "resources: {limits: {nvidia.com/gpu: 8}}",
	"resourceClaims":      "resourceClaims: [{name: gpus, resourceClaimTemplateName: all-gpus}]",
	"runtimeClassName":    "runtimeClassName: nvidia",
	"imagePullSecrets":    "imagePullSecrets: [{name: registry}]",
	"podAnnotations":      "podAnnotations: {a: b}",
	"podLabels":           "podLabels: {a: b}",
	"startTimeoutSeconds": "startTimeoutSeconds: 77",
	"initTimeoutSeconds":  "initTimeoutSeconds: 99, initContainers: [{name: slow, image: 'a:1'}]",
}

// podsOf builds the pods of profile p in the file, and returns their hash.
func podsOf(t *testing.T, worker, profile string) (*corev1.Pod, string, config.Effective) {
	t.Helper()
	file := "worker: {" + worker + "}\nprofiles: [{name: p, nodeSelector: {matchLabels: {p: p}}, " + profile + "}]"
	c, err := config.Parse([]byte(file), "file")
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	b, err := NewBuilder(c, "ns", "img:1")
	if err != nil {
		t.Fatal(err)
	}
	e := c.For(map[string]string{"p": "p"})
	return b.Verify(nodeA, e, 1, e.Scheduling), b.Checks("p"), e
}

// A change of any part of the pod makes another pod, and results of the previous one do not count.
func TestEachPartOfAPodIsInItsHash(t *testing.T) {
	const worker = "volumes: [{name: results, emptyDir: {}}]"
	_, base, _ := podsOf(t, worker, "")
	for f := range reflect.TypeFor[config.PodTemplate]().Fields() {
		if key := strings.ToLower(f.Name[:1]) + f.Name[1:]; podKeys[key] == "" {
			t.Errorf("%s is tried nowhere here", key)
		}
	}
	seen := map[string]string{base: "none"}
	for key, profile := range podKeys {
		if key == "volumes" {
			profile = "volumes: [{name: own, emptyDir: {}}, {name: results, emptyDir: {}}]"
		}
		pod, hash, _ := podsOf(t, worker, profile)
		if other, ok := seen[hash]; ok || pod.Annotations[AnnotationChecks] != hash {
			t.Errorf("%s: hash %s, as %s; the pod has %s", key, hash, other, pod.Annotations[AnnotationChecks])
		}
		seen[hash] = key
		if _, again, _ := podsOf(t, worker, profile); again != hash {
			t.Errorf("%s: %s, then %s", key, hash, again)
		}
	}
	// The settings of the worker section count as well.
	_, own, _ := podsOf(t, worker+", runtimeClassName: nvidia", "")
	if seen[own] != "runtimeClassName" {
		t.Error("the same pod by the worker's settings has another hash")
	}
	for _, setting := range []string{"image: {pullPolicy: Always}", "priorityClassName: mine", "serviceAccountName: mine", "fixedUser: false"} {
		if _, hash, _ := podsOf(t, worker+", "+setting, ""); seen[hash] != "" {
			t.Errorf("%s: as %s", setting, seen[hash])
		}
	}
}

// A profile has its own pods. The profile's settings replace those of the worker section, and the others stay.
func TestAProfilesPod(t *testing.T) {
	const worker = `image: {repository: registry.example.com/worker, tag: v1, pullPolicy: Always}, initContainers: [{name: base, image: 'a:1'}],
		volumes: [{name: results, emptyDir: {}}], volumeMounts: [{name: results, mountPath: /results}], env: [{name: BASE, value: a}],
		resources: {requests: {cpu: 1}}, runtimeClassName: base, imagePullSecrets: [{name: base}], podAnnotations: {base: a},
		podLabels: {base: a}, startTimeoutSeconds: 60, initTimeoutSeconds: 600`
	kept, _, _ := podsOf(t, worker, "")
	if c := kept.Spec.Containers[0]; c.Image != "img:1" || c.ImagePullPolicy != corev1.PullAlways || c.Env[len(c.Env)-1].Name != "BASE" ||
		c.VolumeMounts[0].MountPath != "/results" || c.Resources.Requests.Cpu().Value() != 1 {
		t.Errorf("kept: %+v", c)
	}
	if s := kept.Spec; s.InitContainers[0].Name != "base" || *s.RuntimeClassName != "base" || s.ImagePullSecrets[0].Name != "base" ||
		kept.Annotations["base"] != "a" || kept.Labels["base"] != "a" || *s.ActiveDeadlineSeconds != 60+600+120+deadlineSlack || s.NodeName != "node-a" {
		t.Errorf("kept: %+v", kept)
	}
	pod, _, e := podsOf(t, worker, `image: {tag: burn-in}, initContainers: [{name: dcgm, image: 'dcgm:4', resources: {claims: [{name: gpus}]}}], volumes: [{name: out, emptyDir: {}}],
		volumeMounts: [{name: out, mountPath: /out}], env: [], resources: {limits: {cpu: 2}, claims: [{name: gpus, request: all}]},
		resourceClaims: [{name: gpus, resourceClaimTemplateName: all-gpus}], runtimeClassName: nvidia, imagePullSecrets: [{name: own}], podAnnotations: {own: a}, podLabels: {},
		startTimeoutSeconds: 30, initTimeoutSeconds: 900, timeoutSeconds: 40`)
	c := pod.Spec.Containers[0]
	if c.Image != "registry.example.com/worker:burn-in" || c.ImagePullPolicy != corev1.PullAlways || c.VolumeMounts[0].MountPath != "/out" ||
		c.Env[len(c.Env)-1].Name == "BASE" || c.Resources.Limits.Cpu().Value() != 2 || c.Resources.Requests != nil || c.Resources.Claims[0].Request != "all" {
		t.Errorf("container: %+v", c)
	}
	if s := pod.Spec; len(s.InitContainers) != 1 || s.InitContainers[0].Name != "dcgm" || s.Volumes[0].Name != "out" || *s.RuntimeClassName != "nvidia" ||
		s.ImagePullSecrets[0].Name != "own" || *s.ResourceClaims[0].ResourceClaimTemplateName != "all-gpus" || *s.ActiveDeadlineSeconds != 30+900+40+deadlineSlack {
		t.Errorf("spec: %+v", s)
	}
	if pod.Annotations["base"] != "" || pod.Annotations["own"] != "a" || pod.Labels["base"] != "" ||
		pod.Annotations[AnnotationStartTimeout] != "30" || pod.Annotations[AnnotationInitTimeout] != "900" {
		t.Errorf("annotations %v, labels %v", pod.Annotations, pod.Labels)
	}
	if o := Observe(pod); o.StartTimeout != 30*time.Second || o.InitTimeout != 900*time.Second || e.AttemptSeconds() != 30+900+40 {
		t.Errorf("%+v", o)
	}
	own, _, _ := podsOf(t, worker, "image: {repository: registry.example.com/own, digest: 'sha256:"+strings.Repeat("a", 64)+"', pullPolicy: Never}")
	if c := own.Spec.Containers[0]; c.Image != "registry.example.com/own@sha256:"+strings.Repeat("a", 64) || c.ImagePullPolicy != corev1.PullNever {
		t.Errorf("image: %+v", c)
	}
	untimed, _, _ := podsOf(t, "startTimeoutSeconds: 60", "startTimeoutSeconds: 70, initContainers: [{name: a, image: 'a:1'}]")
	if got := untimed.Annotations[AnnotationInitTimeout]; got != "70" {
		t.Errorf("without an init timeout it is the start timeout's 70, not %q", got)
	}
}

// Only kube-scheduler allocates claims, so a pod with claims is not bound directly.
func TestClaimsGoThroughTheScheduler(t *testing.T) {
	file := "profiles: [{name: p, nodeSelector: {matchLabels: {p: p}}, " + podKeys["resourceClaims"] + "}]"
	c, err := config.Parse([]byte(file), "file")
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewBuilder(c, "ns", "img:1")
	if err != nil {
		t.Fatal(err)
	}
	for labels, direct := range map[string]bool{"p": false, "q": true} {
		e := c.For(map[string]string{"p": labels})
		for _, pod := range []*corev1.Pod{b.Verify(nodeA, e, 1, e.Scheduling), b.Check(nodeA, e, "id", config.SchedulingDirect)} {
			if bound := pod.Spec.NodeName != ""; bound != direct || HasClaims(pod) == direct {
				t.Errorf("%s: bound %t, claims %t", pod.Name, bound, HasClaims(pod))
			}
		}
		if probe := b.Probe(nodeA, e, "u2/1", "g"); HasClaims(probe) == direct {
			t.Error("a control probe has no claims of its profile")
		}
	}
}

// Anybody who may create pods in the namespace can create one that passes for ours (docs/design/security.md). This test
// is about accidents, and about pods of another node or attempt.
func TestWhatIsNotOurs(t *testing.T) {
	b, profile := builder(t)
	target := Target{Name: "node-a", UID: "u1"}
	for name, forge := range map[string]func(*corev1.Pod){
		"another name":            func(p *corev1.Pod) { p.Name = "verify-node-a" },
		"another namespace":       func(p *corev1.Pod) { p.Namespace = "default" },
		"no owner":                func(p *corev1.Pod) { p.OwnerReferences = nil },
		"owned by another node":   func(p *corev1.Pod) { p.OwnerReferences[0].UID = "u2" },
		"owned by something else": func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "Job" },
		"for another node":        func(p *corev1.Pod) { p.Annotations[AnnotationNode] = "node-b" },
		"on another node":         func(p *corev1.Pod) { p.Spec.NodeName = "node-b" },
		"another attempt":         func(p *corev1.Pod) { p.Annotations[AnnotationAttempt] = "2" },
		"attempt 0":               func(p *corev1.Pod) { p.Annotations[AnnotationAttempt] = "0"; p.Name = VerifyName(target, 0) },
		"attempt is not a number": func(p *corev1.Pod) { p.Annotations[AnnotationAttempt] = "one" },
		"attempt out of range":    func(p *corev1.Pod) { p.Annotations[AnnotationAttempt] = "4294967297" },
		"a probe's purpose":       func(p *corev1.Pod) { p.Labels[LabelPurpose] = PurposeProbe },
		"no purpose":              func(p *corev1.Pod) { delete(p.Labels, LabelPurpose) },
		"not a worker":            func(p *corev1.Pod) { p.Labels[LabelComponent] = "controller" },
		"a critical priority":     func(p *corev1.Pod) { p.Spec.Priority = ptr.To(criticalPriority) },
	} {
		pod := b.Verify(target, profile, 1, config.SchedulingDirect)
		forge(pod)
		if Ours(pod, "ns", target) {
			t.Errorf("%s: taken for ours", name)
		}
	}
	probe := b.Probe(target, profile, "u2/7", "g")
	if !Ours(probe, "ns", target) || TargetOf(probe) != target {
		t.Errorf("our own probe is not: %+v", TargetOf(probe))
	}
	probe.Annotations[AnnotationSubject] = "u2/8"
	if Ours(probe, "ns", target) {
		t.Error("a probe for another failure is taken for it")
	}
}

func TestAProbeSaysWhatItIsFor(t *testing.T) {
	b, profile := builder(t)
	pod := b.Probe(Target{Name: "node-a", UID: "u1", BootID: "b1"}, profile, "u2/7", "g")
	o := Observe(pod)
	if o.Purpose != PurposeProbe || o.Subject != "u2/7" || o.Group != "g" || o.Node != "node-a" || o.Attempt.Number != 0 || o.Attempt.Basis.Checks != b.Checks("") || o.Attempt.Basis.Gated {
		t.Errorf("%+v", o)
	}
	if g := Group("pool", "gpu"); len(validation.IsValidLabelValue(g)) > 0 || g == Group("pool", "") || g == Group("poolgpu", "") || g != Group("pool", "gpu") {
		t.Errorf("group %q", g)
	}
}
