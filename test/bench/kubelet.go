//go:build bench

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
	"github.com/kube-node-ready/kube-node-ready/test/world/termination"
)

// kubelets play every node's: a pod that is bound runs for a while and ends, and one that is being deleted goes. Nothing is
// executed, so that what is measured is the controller and the API server.
type kubelets struct {
	ctx    context.Context // of the turn
	client kubernetes.Interface
	run    time.Duration
	// code is a worker's exit code, by its node and by how many ran there before.
	code func(node string, before int) int32

	mu    sync.Mutex
	known map[types.UID]bool // pods that run or ran; true once their deletion is confirmed
	ran   map[string]int     // by node
	pods  int
}

func newKubelets(ctx context.Context, client kubernetes.Interface, run time.Duration, code func(string, int) int32) *kubelets {
	return &kubelets{ctx: ctx, client: client, run: run, code: code, known: map[types.UID]bool{}, ran: map[string]int{}}
}

// pass is the code of workers that all pass.
func pass(string, int) int32 { return 0 }

// see is what the watch shows of a pod.
func (k *kubelets) see(pod *corev1.Pod) {
	if pod.Spec.NodeName == "" {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	confirmed, known := k.known[pod.UID]
	switch {
	case pod.DeletionTimestamp != nil && !confirmed:
		k.known[pod.UID] = true
		go k.confirm(pod)
	case pod.DeletionTimestamp == nil && !known:
		k.known[pod.UID] = false
		code := k.code(pod.Spec.NodeName, k.ran[pod.Spec.NodeName])
		k.ran[pod.Spec.NodeName]++
		k.pods++
		go k.execute(pod, code)
	}
}

func (k *kubelets) confirm(pod *corev1.Pod) {
	k.complain(k.client.CoreV1().Pods(pod.Namespace).Delete(k.ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
}

func (k *kubelets) execute(pod *corev1.Pod, code int32) {
	began := metav1.Now()
	if k.run > 0 {
		k.report(pod, began, corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: began}})
		select {
		case <-time.After(k.run):
		case <-k.ctx.Done():
			return
		}
	}
	end := &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Completed", StartedAt: began, FinishedAt: metav1.Now()}
	phase := corev1.PodSucceeded
	if code != 0 {
		end.Reason, phase = "Error", corev1.PodFailed
	}
	end.Message = termination.Message(pod.Annotations[workerpod.AnnotationNode], int(code))
	k.report(pod, began, phase, corev1.ContainerState{Terminated: end})
}

func (k *kubelets) report(pod *corev1.Pod, began metav1.Time, phase corev1.PodPhase, state corev1.ContainerState) {
	status := map[string]any{"phase": phase, "startTime": began, "containerStatuses": []any{corev1.ContainerStatus{Name: pod.Spec.Containers[0].Name, Image: pod.Spec.Containers[0].Image, State: state}}}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err == nil {
		_, err = k.client.CoreV1().Pods(pod.Namespace).Patch(k.ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	k.complain(err)
}

// complain says what a kubelet could not write. A pod that is gone it need not write.
func (k *kubelets) complain(err error) {
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && k.ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "kubelet:", err)
	}
}

func (k *kubelets) workers() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.pods
}
