package cluster

import (
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

func TestStartServesAndStopLeavesNothing(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	began := time.Now()
	c, err := Start(ctx, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Stop()
	client := kubernetes.NewForConfigOrDie(c.Config())

	t.Run("a service account has only its own rights", func(t *testing.T) {
		path, err := c.KubeconfigFor(ctx, "default", "default")
		if err != nil {
			t.Fatal(err)
		}
		config, err := clientcmd.BuildConfigFromFlags("", path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = kubernetes.NewForConfigOrDie(config).CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if !apierrors.IsForbidden(err) {
			t.Fatalf("list nodes as service account default: %v, want forbidden", err)
		}
	})

	t.Run("the scheduler binds", func(t *testing.T) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")},
		}}
		if _, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{
			Containers:  []corev1.Container{{Name: "c", Image: "none"}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		}}
		if _, err := client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
			pod, err := client.CoreV1().Pods("default").Get(ctx, "p", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if pod.Spec.NodeName == "n" {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("pod is not bound: %+v", pod.Status)
			}
		}
	})

	t.Run("the service kubernetes is the API server", func(t *testing.T) {
		// The API server reconciles this Service every 10 s; the port must survive that.
		time.Sleep(time.Until(began.Add(12 * time.Second)))
		service, err := client.CoreV1().Services("default").Get(ctx, "kubernetes", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if service.Spec.ClusterIP != "127.0.0.1" || service.Spec.Ports[0].Port != int32(c.Port()) {
			t.Fatalf("kubernetes is %s:%d, want 127.0.0.1:%d", service.Spec.ClusterIP, service.Spec.Ports[0].Port, c.Port())
		}
	})

	pids := c.group.Pids()
	if len(pids) != 4 {
		t.Errorf("%d processes, want etcd, API server, controller manager and scheduler", len(pids))
	}
	dir := c.Dir()
	c.Stop()
	c.Stop()
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is left behind: %v", dir, err)
	}
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d still runs", pid)
		}
	}
}

func TestFreePorts(t *testing.T) {
	ports, err := FreePorts("127.0.0.1", 20)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, port := range ports {
		if seen[port] || port < firstPort || port >= lastPort {
			t.Errorf("port %d is twice in %v or out of range", port, ports)
		}
		seen[port] = true
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = listener.Close() }()
		if bindable("127.0.0.1", port) == nil {
			t.Errorf("port %d counts as free while something listens", port)
		}
	}
	if _, err := FreePorts("192.0.2.1", 1); err == nil {
		t.Error("an address of another machine has free ports")
	}
}

// TestPortsAreChosenOnce although nothing listens on them yet: not by another process, whose block is another, and not again by this one.
func TestPortsAreChosenOnce(t *testing.T) {
	seen := map[int]bool{}
	for range 2 {
		b, err := claimBlock()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = b.claim.Close() }()
		for range 10 {
			ports, err := b.free("127.0.0.1", 10)
			if err != nil {
				t.Fatal(err)
			}
			for _, port := range ports {
				if seen[port] {
					t.Errorf("port %d is chosen twice", port)
				}
				seen[port] = true
			}
		}
		if _, err := b.free("127.0.0.1", blockSize); err == nil {
			t.Errorf("a block of %d ports has as many that are free", blockSize)
		}
	}
}
