package nodeagent

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
)

// asContainer, when set, makes the test binary a container that looks around itself and
// writes what it sees to its termination log.
const asContainer = "NODEAGENT_TEST_CONTAINER"

// seen is what such a container reports.
type seen struct {
	Node, PodIP, Namespace, User, ClusterIP, SRVPort, ResolvConf, Lookup string
}

var (
	testCluster *cluster.Cluster
	testClient  kubernetes.Interface
	testDNS     string
)

func TestMain(m *testing.M) {
	if os.Getenv(asContainer) != "" {
		lookAround()
	}
	os.Exit(func() int {
		ctx := context.Background()
		var err error
		if testCluster, err = cluster.Start(ctx, cluster.Options{}); err == nil {
			defer testCluster.Stop()
			testDNS, err = testCluster.StartDNS(ctx, map[string]string{"registry.example.com": "192.0.2.80"})
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		testClient = kubernetes.NewForConfigOrDie(testCluster.Config())
		return m.Run()
	}())
}

func lookAround() {
	s := seen{Node: os.Getenv("NODE_NAME"), PodIP: os.Getenv("POD_IP")}
	read := func(path string) string {
		content, err := os.ReadFile(path)
		if err != nil {
			fmt.Println(err)
			os.Exit(3)
		}
		return string(content)
	}
	dir := os.Getenv(EnvServiceAccountDir)
	s.Namespace = read(dir + "/namespace")
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host:            "https://" + os.Getenv("KUBERNETES_SERVICE_HOST") + ":" + os.Getenv("KUBERNETES_SERVICE_PORT"),
		BearerToken:     read(dir + "/token"),
		TLSClientConfig: rest.TLSClientConfig{CAFile: dir + "/ca.crt", ServerName: "kubernetes.default.svc.cluster.local"},
	})
	if err == nil {
		var review *authenticationv1.SelfSubjectReview
		review, err = client.AuthenticationV1().SelfSubjectReviews().Create(context.Background(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err == nil {
			s.User = review.Status.UserInfo.Username
			s.User += " " + strings.Join(review.Status.UserInfo.Extra["authentication.kubernetes.io/pod-name"], "")
		}
	}
	if err != nil {
		s.User = err.Error()
	}
	s.ResolvConf = read(os.Getenv(EnvResolvConf))
	server := regexp.MustCompile(`nameserver \[(.+)\](:\d+)`).FindStringSubmatch(s.ResolvConf)
	resolver := &dns.Client{Timeout: time.Second}
	ask := func(name string, kind uint16) []dns.RR {
		answer, _, err := resolver.Exchange(new(dns.Msg).SetQuestion(name, kind), server[1]+server[2])
		switch {
		case err != nil:
			s.Lookup = err.Error()
		case answer.Rcode != dns.RcodeSuccess:
			s.Lookup = dns.RcodeToString[answer.Rcode]
		default:
			return answer.Answer
		}
		return nil
	}
	for _, rr := range ask("kubernetes.default.svc.cluster.local.", dns.TypeA) {
		s.ClusterIP = rr.(*dns.A).A.String()
	}
	for _, rr := range ask("_https._tcp.kubernetes.default.svc.cluster.local.", dns.TypeSRV) {
		s.SRVPort = fmt.Sprint(rr.(*dns.SRV).Port)
	}
	if s.Lookup == "" {
		for _, rr := range ask("registry.example.com.", dns.TypeA) {
			s.Lookup = rr.(*dns.A).A.String()
		}
	}
	report, _ := json.Marshal(s)
	if err := os.WriteFile(os.Getenv(EnvTerminationLog), report, 0o600); err != nil {
		os.Exit(10)
	}
	os.Exit(0)
}

// images that the tests' pods name.
func images(t *testing.T) map[string]Image {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return map[string]Image{
		"look": {Entrypoint: []string{"/look"}, Files: map[string]string{"/look": self}},
		"sh":   {Entrypoint: []string{"/bin/sh", "-c"}, Files: map[string]string{"/bin/sh": "/bin/sh"}},
	}
}

// startAgent starts an agent with one node named after the test.
func startAgent(t *testing.T, spec NodeSpec) (*Agent, *Node) {
	t.Helper()
	agent, err := Start(t.Context(), testCluster, Options{Images: images(t), DNS: testDNS, BackOff: 200 * time.Millisecond, Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(agent.Stop)
	spec.Name = strings.ToLower(regexp.MustCompile(`[^A-Za-z0-9]+`).ReplaceAllString(t.Name(), "-"))
	node, err := agent.AddNode(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = testClient.CoreV1().Nodes().Delete(context.Background(), node.Name, metav1.DeleteOptions{})
	})
	return agent, node
}

// shell is a pod that runs a script on the node, once.
func shell(node, script string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: node, Namespace: "default"},
		Spec: corev1.PodSpec{
			NodeName: node, RestartPolicy: corev1.RestartPolicyNever, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{Name: "c", Image: "sh", Args: []string{script}}},
		},
	}
}

func create(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	pod, err := testClient.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = testClient.CoreV1().Pods(pod.Namespace).Delete(context.Background(), pod.Name, *metav1.NewDeleteOptions(0))
	})
	return pod
}

// await returns the pod once the condition holds.
func await(t *testing.T, pod *corev1.Pod, what string, holds func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	for end := time.Now().Add(15 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		now, err := testClient.CoreV1().Pods(pod.Namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if holds(now) {
			return now
		}
		if time.Now().After(end) {
			t.Fatalf("pod is not %s: %+v", what, now.Status)
		}
	}
}

func running(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning }

func failed(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed }

func ended(p *corev1.Pod) bool { return terminalPhase(p.Status.Phase) }
