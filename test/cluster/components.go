package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kube-node-ready/kube-node-ready/test/cluster/process"
)

func (c *Cluster) startComponents(ctx context.Context) error {
	if err := c.startControlPlane(); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(c.admin)
	if err != nil {
		return err
	}
	if err := c.alignServicePort(ctx, client); err != nil {
		return err
	}
	ports, err := FreePorts("127.0.0.1", 2)
	if err != nil {
		return err
	}
	both, ctx := errgroup.WithContext(ctx)
	if !c.options.WithoutControllerManager {
		both.Go(func() error {
			return c.startServing(ctx, "kube-controller-manager", ports[0], c.controllerManagerArgs(), func() error {
				_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
				return err
			})
		})
	}
	if !c.options.WithoutScheduler {
		both.Go(func() error {
			return c.startServing(ctx, "kube-scheduler", ports[1], nil, func() error { return nil })
		})
	}
	return both.Wait()
}

// startServing starts a component that is a client of the API server and serves its health, and waits until it is ready.
func (c *Cluster) startServing(ctx context.Context, name string, port int, args []string, ready func() error) error {
	kubeconfig, err := c.KubeconfigForUser(name, "system:"+name)
	if err != nil {
		return err
	}
	p, err := c.startComponent(name, append([]string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port), "--cert-dir=" + c.path(name), "--leader-elect=false",
	}, args...)...)
	if err != nil {
		return err
	}
	return c.await(ctx, name, p, func() error {
		if err := healthz(port); err != nil {
			return err
		}
		return ready()
	})
}

// unused are controllers of what no test on played nodes has: volumes, certificates, scaling and migrations. A
// controller that starts takes an account, a token and a watch. All of these take a third of what the whole start does.
var unused = []string{
	"certificatesigningrequest-approving-controller", "certificatesigningrequest-cleaner-controller",
	"certificatesigningrequest-signing-controller", "cronjob-controller", "endpoints-controller",
	"endpointslice-mirroring-controller", "ephemeral-volume-controller", "horizontal-pod-autoscaler-controller",
	"legacy-serviceaccount-token-cleaner-controller", "persistentvolume-attach-detach-controller",
	"persistentvolume-binder-controller", "persistentvolume-expander-controller", "persistentvolume-protection-controller",
	"persistentvolumeclaim-protection-controller", "replicationcontroller-controller", "service-cidr-controller",
	"ttl-after-finished-controller", "validatingadmissionpolicy-status-controller", "volumeattributesclass-protection-controller",
}

func (c *Cluster) controllerManagerArgs() []string {
	controllers := "*"
	if !c.options.NodeLifecycle {
		controllers += ",-node-lifecycle-controller,-ttl-controller" // what writes to nodes by itself
	}
	if !c.options.AllControllers {
		controllers += ",-" + strings.Join(unused, ",-")
	}
	return append([]string{
		"--use-service-account-credentials=true", "--controllers=" + controllers,
		"--root-ca-file=" + c.path("pki", "apiserver.crt"), "--service-account-private-key-file=" + c.path("pki", "apiserver.key"),
		"--kube-api-qps=200", "--kube-api-burst=400",
	}, c.options.ControllerManagerArgs...)
}

func healthz(port int) error {
	insecure := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // a health probe of our own child, whose certificate it made itself
	}}
	response, err := insecure.Get("https://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) + "/healthz")
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("/healthz says %s", response.Status)
	}
	return nil
}

// Tool is the path of a third-party program that test/tools has built; an error says how to build it.
func Tool(name string) (string, error) {
	root, err := ModuleRoot()
	if err != nil {
		return "", err
	}
	return tool(filepath.Join(root, toolsFolder), name)
}

func tool(folder, name string) (string, error) {
	path := filepath.Join(folder, name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s is not built: run \"make tools\" (%w)", name, err)
	}
	return path, nil
}

// startComponent starts a program of the tools folder; it logs to log/<name>.log in Dir and
// ends with the cluster. Starting a name again is a restart of one that has ended.
func (c *Cluster) startComponent(name string, args ...string) (*process.Process, error) {
	program, err := tool(c.options.Bin, name)
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(c.LogFile(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	p, err := c.group.Start(process.Spec{Path: program, Args: args, Dir: c.dir, Stdout: log, Stderr: log})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// LogFile is the path of a component's log.
func (c *Cluster) LogFile(component string) string { return c.path("log", component+".log") }

// await polls until the component is ready; it gives up early when the component has ended.
func (c *Cluster) await(ctx context.Context, name string, p *process.Process, ready func() error) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w (last answer: %w); its log ends:\n%s", name, context.Cause(ctx), err, tail(c.LogFile(name)))
		case <-p.Done():
			return fmt.Errorf("%s ended with exit code %d; its log ends:\n%s", name, p.ExitCode(), tail(c.LogFile(name)))
		case <-tick.C:
		}
	}
}

// tail is the end of a log, for an error.
func tail(path string) string {
	const limit = 3000
	file, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = file.Close() }()
	if info, err := file.Stat(); err == nil && info.Size() > limit {
		_, _ = file.Seek(-limit, io.SeekEnd)
	}
	content, err := io.ReadAll(file)
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(content))
}
