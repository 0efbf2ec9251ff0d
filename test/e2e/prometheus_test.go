//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/kube-node-ready/kube-node-ready/test/cluster/process"
)

// prometheus is a Prometheus server that scrapes the controllers as the chart's ServiceMonitor
// says, with the chart's alerts.
type prometheus struct {
	url, targets, rules string
	program             process.Spec
	process             *process.Process

	mu sync.Mutex
	// fired are the alerts that fired at least once, firing those that do so now: by name, and by name and namespace (of).
	fired, firing map[string]bool
}

// alertDelays replaces the alerts' minutes: the run is shorter than they are. It is the chart's
// own way to change them (prometheusRule.overrides).
var alertDelays = []string{
	"KubeNodeReadyNodeStuckUnverified", "KubeNodeReadyVerificationFailing", "KubeNodeReadyRemediationHeld",
	"KubeNodeReadyRetriesExhausted", "KubeNodeReadyWorkersInconclusive", "KubeNodeReadyControllerAbsent", "KubeNodeReadyNoLeader",
	"KubeNodeReadyUnknownStartupTaint",
}

// startPrometheus starts it and sees the targets up and a metric of the leader's.
func (s *suite) startPrometheus(ctx context.Context, t *testing.T) {
	dir := filepath.Join(s.cluster.Dir(), "prometheus")
	must(t, os.MkdirAll(dir, 0o755))
	p := &prometheus{
		targets: filepath.Join(dir, "targets.json"), rules: filepath.Join(dir, "rules.yaml"),
		fired: map[string]bool{}, firing: map[string]bool{},
	}
	must(t, os.WriteFile(p.rules, s.alertRules(ctx, t), 0o600))
	const config = `
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [rules.yaml]
scrape_configs:
- job_name: kube-node-ready
  file_sd_configs:
  - {files: [targets.json]}
`
	must(t, os.WriteFile(filepath.Join(dir, "prometheus.yaml"), []byte(config), 0o600))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	address := listener.Addr().String()
	must(t, listener.Close())
	p.program = process.Spec{
		Path: filepath.Join(s.cluster.ControlPlane.Bin(), "prometheus"), Dir: dir,
		Args: []string{"--config.file=prometheus.yaml", "--storage.tsdb.path=data", "--web.listen-address=" + address},
	}
	p.url = "http://" + address
	s.prometheus = p
	s.runPrometheus(t)
	go p.follow(s.client)
	eventually(ctx, t, 30*time.Second, "both controllers are scraped, one leads, and all nodes are verified", func() error {
		for query, want := range map[string]string{
			"sum(up)": "2", "sum(kube_node_ready_leader)": "1",
			`sum(max by (node) (kube_node_ready_verification_status{status="verified"}))`: "3",
			"count(kube_node_ready_build_info)":                                           "2",
			`sum(kube_node_ready_first_verdicts_total{verdict="verified"})`:               "3",
		} {
			got, err := p.value(ctx, query)
			if err != nil {
				return fmt.Errorf("%s: %w", query, err)
			}
			if got != want {
				return fmt.Errorf("%s is %s, should be %s", query, got, want)
			}
		}
		return nil
	})
}

// runPrometheus starts the server on the samples that its folder has.
func (s *suite) runPrometheus(t *testing.T) {
	t.Helper()
	p := s.prometheus
	log, err := os.OpenFile(filepath.Join(p.program.Dir, "prometheus.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must(t, err)
	defer func() { _ = log.Close() }()
	p.program.Stdout, p.program.Stderr = log, log
	p.process, err = s.cluster.ControlPlane.Processes().Start(p.program)
	must(t, err)
}

// emptyPrometheus starts the server again without a sample of the cases before: an alert looks back as far as an hour.
func (s *suite) emptyPrometheus(t *testing.T) {
	t.Helper()
	s.prometheus.process.Terminate(10 * time.Second)
	must(t, os.RemoveAll(filepath.Join(s.prometheus.program.Dir, "data")))
	s.runPrometheus(t)
}

// alertRules are the chart's alerts as a rules file.
func (s *suite) alertRules(ctx context.Context, t *testing.T) []byte {
	t.Helper()
	args := []string{"template", release, s.chart(), "--kube-version", "1.36", "--values", s.values(), "--show-only", "templates/prometheusrule.yaml", "--set", "prometheusRule.enabled=true"}
	for _, alert := range alertDelays {
		args = append(args, "--set", "prometheusRule.overrides."+alert+".for=1s")
	}
	var rule struct {
		Spec json.RawMessage `json:"spec"`
	}
	must(t, yaml.Unmarshal([]byte(s.helm(ctx, t, args...)), &rule))
	if len(rule.Spec) == 0 {
		t.Fatal("the chart renders no PrometheusRule")
	}
	return rule.Spec // JSON is YAML
}

// useRules has Prometheus follow other rules than those it was started with, as its operator does when a PrometheusRule changes.
func (p *prometheus) useRules(rules []byte) error {
	if err := os.WriteFile(p.rules, rules, 0o600); err != nil {
		return err
	}
	p.process.Signal(syscall.SIGHUP)
	return nil
}

// alerts are the names of the alerts that Prometheus evaluates.
func (p *prometheus) alerts(ctx context.Context) ([]string, error) {
	var answer struct {
		Data struct {
			Groups []struct {
				Rules []struct {
					Name string `json:"name"`
				} `json:"rules"`
			} `json:"groups"`
		} `json:"data"`
	}
	err := p.get(ctx, "/api/v1/rules?type=alert", &answer)
	var names []string
	for _, group := range answer.Data.Groups {
		for _, rule := range group.Rules {
			names = append(names, rule.Name)
		}
	}
	return names, err
}

// follow keeps the targets what the chart's ServiceMonitor selects (this build of Prometheus
// discovers nothing but files), and notes which alerts fire, until the cluster is gone.
func (p *prometheus) follow(client kubernetes.Interface) {
	for failures := 0; failures < 20; time.Sleep(500 * time.Millisecond) { // one failure is a busy machine
		if err := p.discover(client); err != nil {
			failures++
			continue
		}
		failures = 0
		var answer struct {
			Data struct {
				Alerts []struct {
					Labels map[string]string `json:"labels"`
					State  string            `json:"state"`
				} `json:"alerts"`
			} `json:"data"`
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		err := p.get(ctx, "/api/v1/alerts", &answer)
		cancel()
		if err != nil {
			continue // it is starting
		}
		p.mu.Lock()
		p.firing = map[string]bool{}
		for _, alert := range answer.Data.Alerts {
			if alert.State != "firing" {
				continue
			}
			for _, key := range []string{alert.Labels["alertname"], of(alert.Labels["alertname"], alert.Labels["namespace"])} {
				p.fired[key], p.firing[key] = true, true
			}
		}
		p.mu.Unlock()
	}
}

// of is an alert about the installation in a namespace.
func of(alert, namespace string) string { return alert + " in " + namespace }

// discover writes the addresses of the port "metrics" of the controllers' Services, with the labels that they have by a
// ServiceMonitor.
func (p *prometheus) discover(client kubernetes.Interface) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	list, err := client.DiscoveryV1().EndpointSlices("").List(ctx, metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/name=kube-node-ready,app.kubernetes.io/component=controller"})
	if err != nil {
		return err
	}
	type group struct {
		Targets []string          `json:"targets"`
		Labels  map[string]string `json:"labels"`
	}
	groups := []group{}
	for _, slice := range list.Items {
		for _, port := range slice.Ports {
			if port.Name == nil || *port.Name != "metrics" || port.Port == nil {
				continue
			}
			for _, endpoint := range slice.Endpoints {
				groups = append(groups, group{
					Targets: []string{fmt.Sprintf("%s:%d", endpoint.Addresses[0], *port.Port)},
					Labels:  map[string]string{"cluster": "e2e", "namespace": slice.Namespace, "pod": endpoint.TargetRef.Name},
				})
			}
		}
	}
	text, err := json.Marshal(groups)
	if err != nil {
		return err
	}
	if have, err := os.ReadFile(p.targets); err == nil && string(have) == string(text) {
		return nil
	}
	// Prometheus watches the file: it must never see half of it.
	if err := os.WriteFile(p.targets+".part", text, 0o600); err != nil {
		return err
	}
	return os.Rename(p.targets+".part", p.targets)
}

func (p *prometheus) get(ctx context.Context, path string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, response.Status)
	}
	return json.NewDecoder(response.Body).Decode(into)
}

type queryAnswer struct {
	Data struct {
		Result []struct {
			Metric map[string]string `json:"metric"`
			Value  []any             `json:"value"`
		} `json:"result"`
	} `json:"data"`
}

func (p *prometheus) query(ctx context.Context, query string) (queryAnswer, error) {
	var answer queryAnswer
	err := p.get(ctx, "/api/v1/query?query="+url.QueryEscape(query), &answer)
	return answer, err
}

// value is that of a query with one result.
func (p *prometheus) value(ctx context.Context, query string) (string, error) {
	answer, err := p.query(ctx, query)
	if err == nil && len(answer.Data.Result) != 1 {
		err = fmt.Errorf("%d results", len(answer.Data.Result))
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprint(answer.Data.Result[0].Value[1]), nil
}

// expectNone fails if a query has a result.
func (p *prometheus) expectNone(ctx context.Context, query string) error {
	answer, err := p.query(ctx, query)
	if err == nil && len(answer.Data.Result) > 0 {
		err = fmt.Errorf("%d series, %v the first", len(answer.Data.Result), answer.Data.Result[0].Metric)
	}
	return err
}

func (p *prometheus) state(alert string) (fired, firing bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fired[alert], p.firing[alert]
}

// firingNow are the alerts that fire, by name, and by name and namespace.
func (p *prometheus) firingNow() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return keys(p.firing)
}

// awaitAlert waits until an alert has fired.
func (s *suite) awaitAlert(ctx context.Context, t *testing.T, alert string) {
	t.Helper()
	eventually(ctx, t, 40*time.Second, alert+" fires", func() error {
		if fired, _ := s.prometheus.state(alert); !fired {
			return fmt.Errorf("it did not")
		}
		return nil
	})
}

// Whatever the faults of the cases before made fire is silent now that all is well. Without controllers the one on
// absence fires, until they are back.
func (s *suite) alerts(ctx context.Context, t *testing.T) {
	for _, alert := range []string{"KubeNodeReadyNodeStuckUnverified", "KubeNodeReadyRetriesExhausted", "KubeNodeReadyRemediationHeld", "KubeNodeReadyControllerAbsent", "KubeNodeReadyNoLeader"} {
		eventually(ctx, t, 30*time.Second, alert+" is resolved", func() error {
			if _, firing := s.prometheus.state(alert); firing {
				return fmt.Errorf("it fires")
			}
			return nil
		})
	}
	s.kubectl(ctx, t, "-n", namespace, "scale", "deployment/"+controllerName, "--replicas=0")
	fires := func(want bool) func() error {
		return func() error {
			if _, firing := s.prometheus.state("KubeNodeReadyControllerAbsent"); firing != want {
				return fmt.Errorf("firing is %t", firing)
			}
			return nil
		}
	}
	eventually(ctx, t, 60*time.Second, "KubeNodeReadyControllerAbsent fires", fires(true))
	s.kubectl(ctx, t, "-n", namespace, "scale", "deployment/"+controllerName, "--replicas=2")
	eventually(ctx, t, 60*time.Second, "KubeNodeReadyControllerAbsent is resolved", fires(false))
	t.Logf("fired during the run: %s", strings.Join(keys(s.prometheus.fired), ", "))
}

// second is another release, in a namespace of its own, and its controllers' name.
const (
	second           = "second"
	secondController = "second-kube-node-ready-controller"
)

// Two releases in one Prometheus: each loses what makes it work while the other one has it, and the alert names the one
// that did.
func (s *suite) twoReleases(ctx context.Context, t *testing.T) {
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		s.helm(ctx, t, "uninstall", second, "--namespace", second, "--ignore-not-found", "--wait", "--timeout", "60s")
		s.kubectl(ctx, t, "delete", "namespace", second, "--ignore-not-found", "--timeout=60s")
	})
	s.helm(ctx, t, "install", second, s.chart(), "--namespace", second, "--create-namespace", "--wait", "--timeout", "90s",
		"--set-json", "rules.installCRD=false", "--set-json", "controller.replicas=1",
		"--set-json", "controller.config.rules.enabled=false",
		"--set-json", `controller.config.nodeManagement.nodeSelector={"matchLabels":{"e2e.test/second":"true"}}`)
	eventually(ctx, t, 60*time.Second, "both releases are scraped, and each leads", func() error {
		got, err := s.prometheus.value(ctx, "count(sum by (cluster, namespace) (kube_node_ready_leader) == 1)")
		if err == nil && got != "2" {
			err = fmt.Errorf("%s lead", got)
		}
		return err
	})
	const absent, noLeader = "KubeNodeReadyControllerAbsent", "KubeNodeReadyNoLeader"
	expect := func(alert string, in map[string]bool) {
		t.Helper()
		eventually(ctx, t, 90*time.Second, fmt.Sprintf("%s fires where it should: %v", alert, in), func() error {
			for namespace, want := range in {
				if _, firing := s.prometheus.state(of(alert, namespace)); firing != want {
					return fmt.Errorf("in %s: %t", namespace, firing)
				}
			}
			return nil
		})
	}
	none := map[string]bool{namespace: false, second: false}
	expect(absent, none)
	s.kubectl(ctx, t, "-n", namespace, "scale", "deployment/"+controllerName, "--replicas=0")
	expect(absent, map[string]bool{namespace: true, second: false})
	s.kubectl(ctx, t, "-n", namespace, "scale", "deployment/"+controllerName, "--replicas=2")
	expect(absent, none)
	if fired, _ := s.prometheus.state(of(absent, second)); fired {
		t.Errorf("%s fired for the release whose controller was there", absent)
	}

	// Somebody else holds the Lease of the second one.
	expect(noLeader, none)
	held := fmt.Sprintf(`{"spec":{"holderIdentity":"somebody","leaseDurationSeconds":3600,"renewTime":%q}}`,
		time.Now().UTC().Format(metav1.RFC3339Micro))
	s.kubectl(ctx, t, "-n", second, "patch", "lease", secondController, "--type=merge", "--patch", held)
	expect(noLeader, map[string]bool{namespace: false, second: true})
}
