//go:build bench

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// inform is the least that an idle controller can cost, in a process of its own. It runs client-go's informer of nodes,
// without the fields that the controller's cache also drops, and with a handler that does nothing. It ends with ctx.
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
	began := time.Now()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	fmt.Println(time.Since(began).Seconds())
	<-ctx.Done()
	return nil
}

// informer is that process.
type informer struct {
	*exec.Cmd
	synced float64 // how long it took until it held all nodes, in seconds
}

// startInformer starts it with an administrator's rights, and waits until it holds all nodes; it ends with ctx.
func (b *bed) startInformer(ctx context.Context) (*informer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	i := &informer{Cmd: exec.CommandContext(ctx, self, "-informer", b.cluster.Kubeconfig())}
	i.Stderr = os.Stderr
	said, err := i.StdoutPipe()
	if err == nil {
		err = i.Start()
	}
	if err == nil {
		_, err = fmt.Fscanln(said, &i.synced)
	}
	return i, err
}

// end ends it.
func (i *informer) end() error {
	if err := i.Process.Signal(os.Interrupt); err != nil {
		return errors.New("the informer ended by itself")
	}
	return i.Wait()
}
