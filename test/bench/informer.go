//go:build bench

package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime/debug"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// inform is the floor of an idle controller, in a process of its own: client-go's informer of nodes, without what the controller's cache drops
// too, and a handler that does nothing. It ends with ctx.
func inform(ctx context.Context, kubeconfig string) error {
	debug.SetGCPercent(50) // as the controller does
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(fast(config))
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(func(o any) (any, error) {
		if n, ok := o.(*corev1.Node); ok {
			n.ManagedFields, n.Status.Images = nil, nil
		}
		return o, nil
	}))
	if _, err := factory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	return nil
}

// informer is that process.
type informer struct{ *exec.Cmd }

// startInformer starts it with an administrator's rights; it ends with ctx.
func (b *bed) startInformer(ctx context.Context) (*informer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	i := &informer{exec.CommandContext(ctx, self, "-informer", b.cluster.Kubeconfig())}
	i.Stderr = os.Stderr
	return i, i.Start()
}

// end ends it.
func (i *informer) end() error {
	if err := i.Process.Signal(os.Interrupt); err != nil {
		return errors.New("the informer ended by itself")
	}
	return i.Wait()
}
