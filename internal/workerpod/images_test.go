package workerpod

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestWhatAPodNeedsToStartWithoutARegistry(t *testing.T) {
	pod := func(change ...func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "n",
			InitContainers: []corev1.Container{{Image: "init:1", ImagePullPolicy: corev1.PullNever}},
			Containers:     []corev1.Container{{Image: "worker:1", ImagePullPolicy: corev1.PullIfNotPresent}}}}
		for _, f := range change {
			f(p)
		}
		return p
	}
	state := func(s corev1.ContainerState) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.InitContainerStatuses = []corev1.ContainerStatus{{State: s}} }
	}
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want []string
	}{
		"all of them":          {pod(), []string{"init:1", "worker:1"}},
		"while it waits":       {pod(state(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}})), []string{"init:1", "worker:1"}},
		"not bound":            {pod(func(p *corev1.Pod) { p.Spec.NodeName = "" }), nil},
		"always pulled":        {pod(func(p *corev1.Pod) { p.Spec.InitContainers[0].ImagePullPolicy = corev1.PullAlways }), nil},
		"of an unknown policy": {pod(func(p *corev1.Pod) { p.Spec.Containers[0].ImagePullPolicy = "" }), nil},
		"one runs":             {pod(state(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})), nil},
		"one ended":            {pod(state(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}})), nil},
		"one ran before": {pod(func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}
		}), nil},
	} {
		if got := Observe(tc.pod).Images; !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

func TestPresent(t *testing.T) {
	const digest = "sha256:0123456789012345678901234567890123456789012345678901234567890123"
	on := []corev1.ContainerImage{{Names: []string{"registry.example.com/worker@" + digest, "registry.example.com/worker:1"}}, {Names: []string{"docker.io/library/init:1"}}, {Names: []string{"<none>@<none>"}}}
	for image, want := range map[string]bool{
		"registry.example.com/worker:1":           true,
		"registry.example.com/worker@" + digest:   true,
		"registry.example.com/worker:9@" + digest: true, // the digest alone counts
		"init:1":                                    true,
		"registry.example.com/worker:2":             false,
		"mirror.example.com/worker:1":               false,
		"registry.example.com/worker":               false, // latest
		"registry.example.com/worker@" + digest[:9]: false,
		"":              false,
		"<none>@<none>": false,
	} {
		if ImagesPresent([]string{image}, on) != want {
			t.Errorf("%q: want %v", image, want)
		}
	}
	if ImagesPresent(nil, on) || !ImagesPresent([]string{"init:1", "registry.example.com/worker:1"}, on) || ImagesPresent([]string{"init:1", "other:1"}, on) {
		t.Error("all of them, and at least one")
	}
}
