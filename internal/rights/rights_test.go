package rights

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kube-node-ready/kube-node-ready/internal/config"
)

// everything is a configuration that needs every right there is.
const everything = `
admission: {mode: webhook, backfill: true}
metrics: {secure: true}
nodeManagement:
  deleteFailedNodes: true
  taints: [{key: a.io/one, effect: NoExecute}]
  prerequisites:
    pods: [{namespace: a, selector: {matchLabels: {a: b}}, currentRevision: true}]
    daemonSets: auto
    csiNodes: [{driver: a.io}]
    resourceSlices: [{driver: a.io}]
    resources: [{apiVersion: example.com/v1, kind: Policy, condition: Ready}]
worker:
  checks:
    - {name: dns, type: dns, dns: {resolver: endpoints}}
    - {name: service, type: serviceDiscovery}
    - {name: peers, type: peers, peers: {service: web, selector: app=web, port: 80}}
`

// ofNode is what DaemonSet mode takes of it.
const ofNode = `nodeManagement: {prerequisites: {csiNodes: [{driver: a.io}],
  pods: [{namespace: a, selector: {matchLabels: {a: b}}, currentRevision: true}]}}`

func parse(t *testing.T, read func([]byte, string) (*config.Config, error), content string) *config.Config {
	t.Helper()
	cfg, err := read([]byte(content), "config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// granted finds what a cell of docs/design/security.md says that may be done.
var granted = regexp.MustCompile("((?:(?:get|list|watch|create|update|patch|delete)(?:, )?)+) " +
	"(?:`([a-z0-9./-]+)`|the kind's plural)")

// The tables in docs/design/security.md have every right, with what it is for, and no other.
func TestTheDocumentationIsTheTable(t *testing.T) {
	page, err := os.ReadFile("../../docs/design/security.md")
	if err != nil {
		t.Fatal(err)
	}
	cfg := parse(t, config.Parse, everything)
	for section, table := range map[string][]Right{
		"### Controller":     Controller(cfg, "own", false),
		"### Worker":         Worker(cfg, "own", true),
		"### DaemonSet mode": DaemonSet(parse(t, config.ParseDaemonSet, ofNode)),
	} {
		var want, got []string
		for _, r := range table {
			for _, verb := range r.Verbs {
				resource := r.GroupResource.String()
				if r.Group == "example.com" {
					resource = ""
				}
				want = append(want, verb+" "+resource+": "+r.Why)
			}
		}
		_, text, _ := strings.Cut(string(page), "\n"+section+"\n")
		text, _, _ = strings.Cut(text, "\n### ")
		for line := range strings.Lines(text) {
			cells := strings.Split(strings.TrimSpace(line), " | ")
			if len(cells) != 3 {
				continue
			}
			for _, found := range granted.FindAllStringSubmatch(cells[1], -1) {
				for verb := range strings.SplitSeq(found[1], ", ") {
					got = append(got, verb+" "+found[2]+": "+strings.TrimSuffix(cells[2], " |"))
				}
			}
		}
		for _, list := range []*[]string{&got, &want} {
			slices.Sort(*list)
			*list = slices.Compact(*list)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s documents\n%s\nwant\n%s", section, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// No right uses a wildcard, and the one Secret is that of the webhook's own certificates.
func TestNoPermissionIsOpenEnded(t *testing.T) {
	cfg := parse(t, config.Parse, everything)
	for _, r := range slices.Concat(Controller(cfg, "own", false), Worker(cfg, "own", true), DaemonSet(cfg)) {
		secret := r.Resource == "secrets" && (r.Namespace != "own" || r.Name != cfg.Admission.Webhook.Name)
		if secret || strings.Contains(r.String()+strings.Join(r.Verbs, ""), "*") || slices.Contains(r.Verbs, "escalate") {
			t.Errorf("%v %v", r.Verbs, r)
		}
	}
}

// With action condition, a repairer deletes the node, and not the controller.
func TestAConditionNeedsNoDeletion(t *testing.T) {
	cfg := parse(t, config.Parse, "nodeManagement: {deleteFailedNodes: true, remediation: {action: condition}}")
	for _, r := range Controller(cfg, "own", false) {
		if slices.Contains(r.Verbs, "delete") && r.Resource != "pods" {
			t.Errorf("it may %v %v", r.Verbs, r)
		}
	}
}

// A dry run changes no node and no ledger.
func TestADryRunMayChangeNothing(t *testing.T) {
	for _, r := range Controller(parse(t, config.Parse, everything), "own", true) {
		ledger := r.Resource == "configmaps" && !slices.Equal(r.Verbs, []string{"get"})
		if ledger || slices.Contains(r.Verbs, "delete") && r.Resource != "pods" {
			t.Errorf("a dry run may %v %v", r.Verbs, r)
		}
	}
}
