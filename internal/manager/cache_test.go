package manager

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/allocatable"
	"github.com/kube-node-ready/kube-node-ready/internal/prerequisite/daemonsets"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
)

// Of the resources that a node offers, the cache keeps only those that a profile waits for or a worker pod requests.
func TestCacheKeepsWhatIsConfigured(t *testing.T) {
	one := resource.MustParse("1")
	cfg := &config.Config{NodeManagement: config.NodeManagement{Prerequisites: config.Prerequisites{Allocatable: allocatable.Settings{"example.com/nic": one}}},
		Profiles: []config.Profile{{Prerequisites: &config.Prerequisites{DaemonSets: daemonsets.Settings{Named: []daemonsets.Entry{
			{Provides: &daemonsets.Provided{Allocatable: allocatable.Settings{"example.com/gpu": one}}}, {Namespace: "a", Name: "b"}}}}}}}
	if names := awaited(cfg); !maps.Equal(names, map[corev1.ResourceName]bool{"example.com/gpu": true, "example.com/nic": true}) {
		t.Errorf("kept %v", names)
	}
	asks := &config.Config{Profiles: []config.Profile{
		{Resources: &corev1.ResourceRequirements{Limits: corev1.ResourceList{"example.com/gpu": one, corev1.ResourceCPU: one}}},
		{InitContainers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"example.com/nic": one}}}}}}}
	if names := awaited(asks); !maps.Equal(names, map[corev1.ResourceName]bool{"example.com/gpu": true, "example.com/nic": true}) {
		t.Errorf("kept %v", names)
	}
	cfg = &config.Config{}
	cfg.SetDefaults()
	if names := awaited(cfg); len(names) > 0 {
		t.Errorf("kept %v", names)
	}
}

// What the cache keeps of a worker pod is observed as the whole pod is.
func TestCachedPodsAreObservedAsWhole(t *testing.T) {
	start := time.Unix(1000, 0)
	for name, change := range map[string]func(*corev1.Pod){
		"ran past the pod's deadline": func(p *corev1.Pod) {
			p.Status.Phase, p.Status.Reason = corev1.PodFailed, "DeadlineExceeded"
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: workerpod.Container, State: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{StartedAt: metav1.NewTime(start.Add(time.Second)), ExitCode: 137}}}}
		},
		"started late": func(p *corev1.Pod) {
			p.Status.Phase, p.Status.Reason = corev1.PodFailed, "DeadlineExceeded"
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: workerpod.Container, State: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{StartedAt: metav1.NewTime(start.Add(80 * time.Second)), ExitCode: 137}}}}
		},
		"at an init container": func(p *corev1.Pod) {
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{
				{Name: "sidecar", Started: ptr.To(true), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
				{Name: "wait", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		},
		"rejected": func(p *corev1.Pod) {
			p.Status.Phase, p.Status.Reason = corev1.PodFailed, "NodeAffinity"
			p.Spec.NodeSelector = map[string]string{corev1.LabelOSStable: "linux", "team": "a"}
		},
		"unbound": func(p *corev1.Pod) { p.Spec.NodeName = "" },
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "w", Annotations: map[string]string{workerpod.AnnotationTimeout: "60"}},
				Spec: corev1.PodSpec{NodeName: "n", ActiveDeadlineSeconds: ptr.To[int64](100), Priority: ptr.To[int32](1),
					InitContainers: []corev1.Container{
						{Name: "sidecar", Image: "a", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}, {Name: "wait", Image: "a"}},
					Containers: []corev1.Container{{Name: workerpod.Container, Image: "a"}}},
				Status: corev1.PodStatus{Phase: corev1.PodPending, StartTime: ptr.To(metav1.NewTime(start))}}
			change(pod)
			want := workerpod.Observe(pod.DeepCopy())
			if _, err := slimPod(pod); err != nil {
				t.Fatal(err)
			}
			if got := workerpod.Observe(pod); !reflect.DeepEqual(got, want) || len(pod.Spec.Containers) > 0 ||
				pod.Spec.Priority == nil { // by which Ours tells a pod that a policy changed

				t.Errorf("%+v\nwant %+v", got, want)
			}
		})
	}
}

// A refused watch of worker pods is noted with the API server's message, and nothing else is: neither an error that
// passes, nor a watch of other objects.
func TestRefusedWatchOfPodsIsNoted(t *testing.T) {
	refused := func(resource string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no right"))
	}
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"pods":           {refused("pods"), "pods is forbidden: no right"},
		"pods, wrapped":  {fmt.Errorf("watch: %w", refused("pods")), "pods is forbidden: no right"},
		"nodes":          {refused("nodes"), ""},
		"too old":        {apierrors.NewResourceExpired("too old"), ""},
		"a busy server":  {apierrors.NewTooManyRequests("later", 1), ""},
		"a lost network": {io.ErrUnexpectedEOF, ""},
	} {
		got := ""
		cacheOptions(nodeConfig(0), "ns", func(why string) { got = why }).DefaultWatchErrorHandler(t.Context(), &toolscache.Reflector{}, tc.err)
		if got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// The cache has every pod that the controller makes, also one that lost the labels by which it is ours, and no other.
func TestCacheSelectsOurPods(t *testing.T) {
	cfg := nodeConfig(0)
	builder, err := workerpod.NewBuilder(cfg, "ns", "img:1")
	if err != nil {
		t.Fatal(err)
	}
	selects := func(set map[string]string) bool {
		for o, by := range cacheOptions(cfg, "ns", nil).ByObject {
			if _, ok := o.(*corev1.Pod); ok {
				return by.Label.Matches(labels.Set(set))
			}
		}
		return false
	}
	on := workerpod.Target{Name: "n", UID: "u"}
	for name, pod := range map[string]*corev1.Pod{"worker": builder.Verify(on, cfg.For(nil), 1, config.SchedulingScheduler),
		"probe": builder.Probe(on, cfg.For(nil), "x/1", "group")} {
		if !selects(pod.Labels) {
			t.Errorf("it lacks a %s", name)
		}
		for key := range pod.Labels {
			less := maps.Clone(pod.Labels)
			delete(less, key)
			if selects(less) != (key != workerpod.LabelPurpose) {
				t.Errorf("of a %s without label %s it has %t", name, key, selects(less))
			}
		}
	}
	if selects(map[string]string{workerpod.LabelName: workerpod.Name, workerpod.LabelComponent: "controller"}) {
		t.Error("it has the controller's own pod")
	}
}
