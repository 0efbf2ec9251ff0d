package admission

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
	"github.com/kube-node-ready/kube-node-ready/internal/webhook"
	"github.com/kube-node-ready/kube-node-ready/test/admission/cases"
	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
)

const (
	webhookMode = "controller.config.admission.mode=webhook"
	host        = hookName + "." + install.Namespace + ".svc"
)

func TestWebhook(t *testing.T) {
	for _, group := range cases.Groups {
		t.Run(group.Name, func(t *testing.T) {
			s := serve(t)
			i := setup(t, group.Config, append(s.values(), webhookMode)...)
			s.set(i.replica(t, "hook-"+group.Name).port)
			inForce(t, group)
			holds(t, "webhook", group)
		})
	}
}

// While no replica answers, nodes are created all the same. Once one is back, nodes are tainted at their creation again, and those that
// admission missed are tainted by the backfill within seconds, unless they run workloads.
func TestWebhookDown(t *testing.T) {
	s := serve(t)
	i := setup(t, "admission: {backfill: true}", append(s.values(), webhookMode)...)
	first := i.replica(t, "down-1")
	s.set(first.port)
	inForce(t, cases.Groups[0])
	s.set()
	first.Terminate(time.Minute)
	plain := cases.Groups[0].Cases[0]
	for _, name := range []string{"missed-empty", "missed-busy"} {
		began := time.Now()
		if got, err := create(t.Context(), plain.Node(name), false); err != nil || len(got) != 0 {
			t.Errorf("with the webhook down, %s is created with %q (%v)", name, got, err)
		}
		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("the creation took %s, and the webhook's timeout is 5s", took)
		}
	}
	workload := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "workload", Namespace: metav1.NamespaceDefault},
		Spec:       corev1.PodSpec{NodeName: "missed-busy", Containers: []corev1.Container{{Name: "app", Image: "app"}}},
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: workload.Namespace}}
	if _, err := k8s.CoreV1().ServiceAccounts(account.Namespace).Create(t.Context(), account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	if _, err := k8s.CoreV1().Pods(workload.Namespace).Create(t.Context(), workload, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	second := i.replica(t, "down-2")
	s.set(second.port)
	inForce(t, cases.Groups[0])
	taints := func(node string) (all []string) {
		n, err := k8s.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, taint := range n.Spec.Taints {
			all = append(all, cases.String(taint))
		}
		return all
	}
	eventually(t, "the backfill taints the empty node", func() error {
		if got := taints("missed-empty"); !slices.Equal(got, plain.Want) {
			return fmt.Errorf("it has %q", got)
		}
		return nil
	})
	eventually(t, "the backfill has looked at the busy node", func() error {
		if log, err := os.ReadFile(second.LogFile); err != nil {
			return err
		} else if !bytes.Contains(log, []byte("missed-busy")) {
			return errors.New("it is not in the log")
		}
		return nil
	})
	if got := taints("missed-busy"); len(got) != 0 {
		t.Errorf("the node that runs a workload was tainted with %q", got)
	}
}

// missesNone creates nodes until the channel is closed, and requires that each is tainted.
func missesNone(t *testing.T, prefix string, until <-chan struct{}, look func()) {
	t.Helper()
	plain := cases.Groups[0].Cases[0]
	end := time.After(patience)
	for n := 0; ; n++ {
		select {
		case <-until:
			if n < 20 {
				t.Errorf("only %d nodes were created", n)
			}
			return
		case <-end:
			t.Fatalf("it goes on after %d nodes", n)
		default:
		}
		if got, err := create(t.Context(), plain.Node(fmt.Sprintf("%s-%d", prefix, n)), false); err != nil || !slices.Equal(got, plain.Want) {
			t.Errorf("node %d came out with %q (%v)", n, got, err)
		}
		look()
	}
}

// The certificate and its authority are renewed twice, on two replicas in this process whose clock the test moves. Nodes are created
// all the while.
func TestNoNodeIsMissedDuringRotation(t *testing.T) {
	s := serve(t)
	i := setup(t, "", append(s.values(), webhookMode)...)
	content, err := yaml.Marshal(i.config)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Parse(content, "config")
	if err != nil {
		t.Fatal(err)
	}
	var ahead atomic.Int64 // of the real time, which the API server and the certificates have
	rotations := []*webhook.Rotation{i.rotation(t, &ahead), i.rotation(t, &ahead)}
	// turn reconciles each replica, as a watch event or the time would have it, and returns when the next turn is due.
	turn := func(ctx context.Context) (time.Duration, error) {
		wait := time.Hour
		for _, r := range rotations {
			result, err := r.Reconcile(ctx, reconcile.Request{})
			if err != nil {
				return 0, err
			}
			wait = min(wait, result.RequeueAfter)
		}
		return wait, nil
	}
	if _, err := turn(t.Context()); err != nil {
		t.Fatal(err)
	}
	ports, err := cluster.FreePorts("127.0.0.1", len(rotations))
	if err != nil {
		t.Fatal(err)
	}
	for n, r := range rotations {
		server := webhook.NewServer(&webhook.Tainter{Config: cfg}, ports[n], webhook.Source{Rotation: r})
		go func() { _ = server.Beside(t.Context(), func(ctx context.Context) error { <-ctx.Done(); return nil }) }()
		eventually(t, "the replica is ready", func() error { return server.Ready(httptest.NewRequest(http.MethodGet, "/readyz", nil)) })
	}
	s.set(ports...)
	inForce(t, cases.Groups[0])

	const renewals = 2
	var failure error
	began, rotated := time.Now(), make(chan struct{})
	go func() {
		defer close(rotated)
		before, _ := rotations[0].GetCertificate(nil)
		for renewed := 0; renewed < renewals; {
			var wait time.Duration
			if wait, failure = turn(t.Context()); failure != nil {
				return
			}
			if served, _ := rotations[0].GetCertificate(nil); !served.Leaf.Equal(before.Leaf) {
				before = served
				renewed++
			}
			if wait == webhook.MaxOverlap {
				time.Sleep(2 * time.Second) // the API server learns of the next authority in real time
			}
			ahead.Add(int64(wait))
		}
		time.Sleep(time.Second) // with the last certificate
	}()
	serials, most := map[string]bool{}, 0
	missesNone(t, "rotated", rotated, func() {
		serials[serving(t, ports[1]).SerialNumber.String()] = true
		hook, err := k8s.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(t.Context(), hookName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		authorities, err := cert.ParseCertsPEM(hook.Webhooks[0].ClientConfig.CABundle)
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, len(authorities))
		time.Sleep(20 * time.Millisecond)
	})
	if failure != nil {
		t.Fatal(failure)
	}
	if len(serials) != 1+renewals || most < 2 {
		t.Errorf("%d certificates were served, want %d; at most %d authorities were trusted at once, want 2 at least", len(serials), 1+renewals, most)
	}
	// The first renewal is due when a third of the lifetime is left, and each authority is published for its overlap before.
	if played, least := time.Duration(ahead.Load()), lifetime*2/3+renewals*webhook.MaxOverlap-time.Since(began); played < least-time.Minute {
		t.Errorf("two renewals within %s, want %s at least", played, least)
	}
}

// lifetime is that of a certificate in the rotation of TestNoNodeIsMissedDuringRotation.
const lifetime = 30 * time.Hour

// rotation is a replica's, with the controller's rights.
func (i *installation) rotation(t *testing.T, ahead *atomic.Int64) *webhook.Rotation {
	t.Helper()
	kubeconfig, err := control.KubeconfigFor(t.Context(), install.Namespace, install.ControllerAccount)
	if err != nil {
		t.Fatal(err)
	}
	rc, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	direct, err := client.New(rc, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	return &webhook.Rotation{
		Rules:     webhook.Rules{Host: host, Lifetime: lifetime},
		Namespace: install.Namespace, Name: hookName, Overlap: webhook.MaxOverlap,
		Client: direct, Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
	}
}

// A replica is stopped as Kubernetes stops a pod: its endpoint goes a moment after the signal. Nodes are created all the while.
func TestNoNodeIsMissedWhileAReplicaStops(t *testing.T) {
	s := serve(t)
	i := setup(t, "admission: {webhook: {certificateLifetime: 48h}}", append(s.values(), webhookMode)...)
	one, two := i.replica(t, "stopping-1"), i.replica(t, "stopping-2")
	s.set(one.port, two.port)
	inForce(t, cases.Groups[0])
	if left := time.Until(serving(t, two.port).NotAfter); left < 47*time.Hour || left > 48*time.Hour {
		t.Errorf("the certificate is valid for %s, and certificateLifetime is 48h", left)
	}
	one.Signal(syscall.SIGTERM)
	time.AfterFunc(time.Second, func() { s.set(two.port) })
	missesNone(t, "stopped", one.Done(), func() { time.Sleep(20 * time.Millisecond) })
	if one.ExitCode() != 0 {
		t.Errorf("the stopped replica ended with exit code %d", one.ExitCode())
	}
}

// What somebody takes out of the webhook configuration is put back.
func TestTrustIsPutBack(t *testing.T) {
	s := serve(t)
	i := setup(t, "", append(s.values(), webhookMode)...)
	s.set(i.replica(t, "trusting").port)
	inForce(t, cases.Groups[0])
	hooks := k8s.AdmissionregistrationV1().MutatingWebhookConfigurations()
	wrong, _, err := cert.GenerateSelfSignedCertKey("somebody.else", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	trust(t, wrong)
	eventually(t, "the authority is back", func() error {
		hook, err := hooks.Get(t.Context(), hookName, metav1.GetOptions{})
		if err == nil && bytes.Equal(hook.Webhooks[0].ClientConfig.CABundle, wrong) {
			err = fmt.Errorf("it is still the wrong one")
		}
		return err
	})
	inForce(t, cases.Groups[0])
}

// A certificate that somebody else renews on disk, as the kubelet does with cert-manager's Secret, is picked up.
func TestCertificateOnDisk(t *testing.T) {
	s := serve(t)
	i := setup(t, "", append(s.values(), webhookMode)...)
	dir := t.TempDir()
	// As the kubelet mounts a Secret: the files are links through ..data, which is replaced at once.
	mount := func(version string) []byte {
		crt, key, err := cert.GenerateSelfSignedCertKey(host, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, version, "tls.crt"), crt)
		write(t, filepath.Join(dir, version, "tls.key"), key)
		next := filepath.Join(dir, "..data_tmp")
		if err := os.Symlink(version, next); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
		return crt
	}
	first := mount("v1")
	for _, name := range []string{"tls.crt", "tls.key"} {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	i.config["admission"].(map[string]any)["webhook"].(map[string]any)["certificateDir"] = dir
	r := i.replica(t, "disk")
	s.set(r.port)
	trust(t, first)
	inForce(t, cases.Groups[0])
	before := serving(t, r.port)
	second := mount("v2")
	trust(t, append(first, second...))
	eventually(t, "the new certificate is served", func() error {
		if serving(t, r.port).Equal(before) {
			return fmt.Errorf("it is the old one")
		}
		return nil
	})
	trust(t, second)
	inForce(t, cases.Groups[0])
	holds(t, "disk", cases.Groups[0])
}

func write(t *testing.T, file string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// trust has the API server trust the authorities in a file.
func trust(t *testing.T, bundle []byte) {
	t.Helper()
	patch, err := json.Marshal([]map[string]any{{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": bundle}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = k8s.AdmissionregistrationV1().MutatingWebhookConfigurations().Patch(context.Background(), hookName, types.JSONPatchType, patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// serving is the certificate that is served at the port.
func serving(t *testing.T, port int) *x509.Certificate {
	t.Helper()
	conn, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port), &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // it is only looked at
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	return conn.ConnectionState().PeerCertificates[0]
}
