package docs

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kube-node-ready/kube-node-ready/test/cluster"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/install"
	"github.com/kube-node-ready/kube-node-ready/test/cluster/nodeagent"
	"github.com/kube-node-ready/kube-node-ready/test/docs/commands"
	"github.com/kube-node-ready/kube-node-ready/test/inputs"
	"github.com/kube-node-ready/kube-node-ready/test/missing"
)

// patience bounds each block, and each wait.
const patience = 2 * time.Minute

func blocks(t *testing.T, page string) []commands.Block {
	t.Helper()
	found, err := commands.Of(read(t, page))
	if err != nil {
		t.Errorf("%s: %v", page, err)
	}
	return found
}

// A block that this package does not run is run by a test that names its page, or says why nobody runs it.
func TestCommandsAreRunOrSayWhyNot(t *testing.T) {
	for _, page := range pages(t) {
		for _, b := range blocks(t, page) {
			if b.RunBy == "" {
				continue
			}
			name, err := filepath.Rel(root, page)
			if err != nil {
				t.Fatal(err)
			}
			sources, _ := filepath.Glob(filepath.Join(root, b.RunBy, "*_test.go"))
			named := false
			for _, source := range sources {
				named = named || strings.Contains(read(t, source), `"`+filepath.ToSlash(name)+`"`)
			}
			if !named {
				t.Errorf("%s:%d is to be run by %s, where no test names the page", page, b.Line, b.RunBy)
			}
		}
	}
}

// values are those of the release that the pages' commands are run beside. The controller is a process of this machine, and nothing
// of this machine has the address of its Service.
const values = `
controller:
  replicas: 0
  image: {tag: local}
  config:
    worker: {keepFailedSeconds: 3600}
    reconciliation: {maxRetries: 1, maxBackoffSeconds: 1}
service: {enabled: false}
`

// What the pages' placeholders stand for.
const (
	sound  = "node-sound"
	broken = "node-broken" // its DNS refuses queries
	rule   = "rule-of-none"
)

// reader is a person with a cluster, a release and the pages' commands.
type reader struct {
	cluster *cluster.Cluster
	client  kubernetes.Interface
	folder  string
}

// Every command of every page does what it says without an error, in the order of the pages.
func TestCommands(t *testing.T) {
	missing.Request(t, "NIGHTLY", "make test-nightly")
	r := newReader(t)
	r.inSentences(t)
	for _, page := range pages(t) {
		for _, b := range blocks(t, page) {
			if b.NotRun != "" || b.RunBy != "" {
				continue
			}
			t.Run(fmt.Sprintf("%s:%d", strings.TrimPrefix(page, root+"/"), b.Line), func(t *testing.T) {
				began := time.Now()
				out, err := r.run(t.Context(), r.fill(t, page, b.Script))
				if err != nil {
					t.Fatalf("%v\n%s\n%s", err, b.Script, out)
				}
				t.Logf("%.1f s\n%s", time.Since(began).Seconds(), out)
			})
		}
	}
}

// elsewhere says where commands in sentences are run, or why nowhere.
var elsewhere = map[string]string{
	"kubectl node-ready check NODE":                                                      "test/plugin: on a broken node it fails, as it should",
	"kubectl node-ready config validate FILE":                                            "test/plugin",
	"kubectl node-ready logs NODE":                                                       "test/plugin: the worker's pod may be gone here",
	"kubectl node-ready reverify NODE":                                                   "test/plugin",
	"kubectl node-ready reverify NODE --wait":                                            "test/plugin",
	"kubectl node-ready skip NODE":                                                       "test/plugin",
	"kubectl delete nodeclaim NAME":                                                      "needs Karpenter",
	"kubectl get nodeclaims":                                                             "needs Karpenter",
	"kubectl -n falco get daemonset falco -o yaml":                                       "needs Falco",
	"helm rollback kube-node-ready -n kube-node-ready":                                   "there is no revision here to go back to",
	"kubectl logs -n kube-node-ready kube-node-ready-test":                               "helm test makes the pod",
	"kubectl port-forward -n kube-node-ready deployment/kube-node-ready-controller 6060": "it does not end",
	"kubectl taint node NODE KEY-":                                                       "no such taint is there",
}

// changes are the verbs that leave their mark. In a sentence they are run as a dry run: they belong to no order.
var changes = regexp.MustCompile(`\bkubectl (?:-n \S+ )?(taint|annotate|label|delete|patch) `)

// inSentences runs each command that a page gives in a sentence or a table once.
func (r *reader) inSentences(t *testing.T) {
	unused := maps.Clone(elsewhere)
	done := map[string]bool{}
	for _, page := range pages(t) {
		for _, c := range commands.InlineOf(read(t, page)) {
			if _, ok := elsewhere[c.Command]; ok || done[c.Command] {
				delete(unused, c.Command)
				continue
			}
			done[c.Command] = true
			t.Run(fmt.Sprintf("%s:%d", strings.TrimPrefix(page, root+"/"), c.Line), func(t *testing.T) {
				script := changes.ReplaceAllString(r.fill(t, "", c.Command), "kubectl --dry-run=server $1 ")
				if out, err := r.run(t.Context(), script); err != nil {
					t.Errorf("%v\n%s\n%s", err, script, out)
				}
			})
		}
	}
	for command := range unused {
		t.Errorf("no page has the command %q: remove it from the list", command)
	}
}

func newReader(t *testing.T) *reader {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	inputs.Track(t, root)
	c, err := cluster.Start(t.Context(), cluster.Options{})
	must(err)
	t.Cleanup(c.Stop)
	r := &reader{cluster: c, client: kubernetes.NewForConfigOrDie(c.Config()), folder: t.TempDir()}
	// The pages speak from the repository's root; what their commands write must not land there.
	top, err := os.ReadDir(root)
	must(err)
	absolute, err := filepath.Abs(root)
	must(err)
	for _, entry := range top {
		if entry.Name() != "bin" {
			must(os.Symlink(filepath.Join(absolute, entry.Name()), filepath.Join(r.folder, entry.Name())))
		}
	}
	program, err := install.Binary("kube-node-ready-controller")
	must(err)
	must(os.Symlink(filepath.Dir(program), filepath.Join(r.folder, "bin")))

	must(os.WriteFile(filepath.Join(r.folder, "release.yaml"), []byte(values), 0o600))
	dns, err := c.StartDNS(t.Context(), nil)
	must(err)
	out, err := r.run(t.Context(), `
		helm install kube-node-ready deploy/helm/kube-node-ready --namespace kube-node-ready --create-namespace --values release.yaml >/dev/null
		helm --namespace kube-node-ready get manifest kube-node-ready`)
	must(err)
	configuration, err := install.Configuration([]byte(out))
	must(err)
	images, err := install.Images()
	must(err)
	images["controller"] = nodeagent.Image{"/kube-node-ready-controller": program}
	agent, err := nodeagent.Start(t.Context(), c, nodeagent.Options{Images: images, DNS: dns})
	must(err)
	t.Cleanup(agent.Stop)
	_, err = install.StartController(t.Context(), c, "controller", configuration)
	must(err)
	gate := []corev1.Taint{{Key: "node-ready/unverified", Value: "true", Effect: corev1.TaintEffectNoSchedule}}
	for name, mode := range map[string]nodeagent.DNSMode{sound: nodeagent.DNSWorks, broken: nodeagent.DNSRefuses} {
		_, err := agent.AddNode(t.Context(), nodeagent.NodeSpec{Name: name, DNS: mode, Taints: gate})
		must(err)
	}
	// A pod of the controller's, whose log can be read, and objects of installations that the pages speak of.
	_, err = r.run(t.Context(), `
		kubectl wait --for=condition=node-ready/Verified --timeout=1m node/`+sound+`
		kubectl wait --for=condition=node-ready/Verified=False --timeout=1m node/`+broken+`
		kubectl create namespace node-startup
		kubectl --namespace kube-node-ready create secret generic kube-node-ready-webhook --from-literal=tls.crt=
		kubectl --namespace kube-node-ready run controller --image=controller --restart=Never --labels=app.kubernetes.io/name=kube-node-ready,app.kubernetes.io/component=controller \
			--overrides='{"spec": {"nodeName": "`+sound+`", "serviceAccountName": "kube-node-ready-controller"}}' --command -- /kube-node-ready-controller --version`)
	must(err)
	return r
}

const aRule = `
		kubectl apply -f - <<-MANIFEST
			apiVersion: readiness.node.x-k8s.io/v1alpha1
			kind: NodeReadinessRule
			metadata: {name: ` + rule + `}
			spec:
			  conditions: [{type: example.com/Ready, requiredStatus: "True"}]
			  taint: {key: readiness.k8s.io/example, effect: NoSchedule}
			  nodeSelector: {matchLabels: {example.com/none: "true"}}
			  enforcementMode: continuous
		MANIFEST
`

// fill puts names into the placeholders of a page.
func (r *reader) fill(t *testing.T, page, script string) string {
	t.Helper()
	node := broken
	if strings.HasSuffix(page, "daemonset-mode.md") || strings.HasSuffix(page, "guides/repair.md") {
		node = sound
	}
	pod := "controller"
	if !strings.HasSuffix(page, "KubeNodeReadyControllerUnhealthy.md") {
		workers, err := r.client.CoreV1().Pods(install.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=worker"})
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range workers.Items { // its last one is kept; one on the sound node may be gone at any time
			if w.Spec.NodeName == broken {
				pod = w.Name
			}
		}
	}
	if named := regexp.MustCompile(`\bRULE\b`); named.MatchString(script) { // a page may have removed all rules
		if out, err := r.run(t.Context(), aRule); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		script = named.ReplaceAllString(script, rule)
	}
	script = regexp.MustCompile(`\bNODE\b`).ReplaceAllString(script, node)
	return regexp.MustCompile(`\bPOD\b`).ReplaceAllString(script, pod)
}

// complaint is what kubectl and Helm write of a failure that a pipe hides.
var complaint = regexp.MustCompile(`(?mi)^(error|warning: unrecognized|.*\(NotFound\)|.*\(Forbidden\))`)

// run runs commands in a shell of a person who has the tools and the repository, up to the first that fails, and returns what
// they write. A grep that finds nothing is none that fails.
func (r *reader) run(ctx context.Context, script string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euc", `grep() { command grep "$@" || [[ $? == 1 ]]; }`+"\n"+script)
	cmd.Dir = r.folder
	cmd.Env = []string{"HOME=" + r.folder, "KUBECONFIG=" + r.cluster.Kubeconfig(), "NAMESPACE=node-startup",
		"BIN=" + filepath.Join(r.folder, "bin"), "PATH=" + r.cluster.Bin() + ":" + filepath.Join(r.folder, "bin") + ":" + os.Getenv("PATH")}
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	if line := complaint.FindString(said.String()); err == nil && line != "" {
		err = fmt.Errorf("it says %q", line)
	}
	if err != nil {
		return out.String(), fmt.Errorf("%w\n%s", err, said.String())
	}
	return out.String(), nil
}
