package rules

import (
	"context"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/api/readiness/v1alpha1"
)

// exported is the shape of a metric: its type, the names of its labels, and the upper bounds of a histogram's buckets.
type exported struct {
	kind    dto.MetricType
	labels  []string
	buckets []float64
}

var (
	latencies = []float64{.01, .05, .1, .5, 1, 2, 5, 10, 30, 60, 120, 300}
	// nrcMetrics are what dashboards and alerts made for NRC ask for.
	nrcMetrics = map[string]exported{
		"node_readiness_rules_total":                                {dto.MetricType_GAUGE, nil, nil},
		"node_readiness_taint_operations_total":                     {dto.MetricType_COUNTER, []string{"operation", "rule"}, nil},
		"node_readiness_evaluation_duration_seconds":                {dto.MetricType_HISTOGRAM, []string{"rule"}, []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}},
		"node_readiness_failures_total":                             {dto.MetricType_COUNTER, []string{"reason", "rule"}, nil},
		"node_readiness_bootstrap_completed_total":                  {dto.MetricType_COUNTER, []string{"rule"}, nil},
		"node_readiness_bootstrap_duration_seconds":                 {dto.MetricType_HISTOGRAM, []string{"rule"}, []float64{1, 5, 10, 30, 60, 120, 300, 600, 1200}},
		"node_readiness_reconciliation_latency_seconds":             {dto.MetricType_HISTOGRAM, []string{"operation", "rule"}, latencies},
		"node_readiness_nodes_by_state":                             {dto.MetricType_GAUGE, []string{"rule", "state"}, nil},
		"node_readiness_condition_failures_total":                   {dto.MetricType_COUNTER, []string{"condition", "rule"}, nil},
		"node_readiness_rule_last_reconciliation_timestamp_seconds": {dto.MetricType_GAUGE, []string{"rule"}, nil},
		"node_readiness_build_info":                                 {dto.MetricType_GAUGE, []string{"version"}, nil},
		"node_readiness_rule_nodes":                                 {dto.MetricType_GAUGE, []string{"rule", "state"}, nil},
		"node_readiness_rules":                                      {dto.MetricType_GAUGE, []string{"dry_run", "enforcement_mode"}, nil},
		"node_readiness_rule_matched_nodes":                         {dto.MetricType_GAUGE, []string{"rule"}, nil},
		"node_readiness_blocked_nodes":                              {dto.MetricType_GAUGE, []string{"condition", "rule"}, nil},
		"node_readiness_enforcement_latency_seconds":                {dto.MetricType_HISTOGRAM, []string{"operation", "rule"}, latencies},
		"node_readiness_bootstrap_hold_duration_seconds":            {dto.MetricType_HISTOGRAM, []string{"rule", "taint_origin"}, []float64{1, 5, 10, 30, 60, 120, 300, 600, 1200}},
		"kube_node_ready_rule_held":                                 {dto.MetricType_GAUGE, []string{"node", "rule"}, nil},   // ours
		"kube_node_ready_rule_left_open_nodes":                      {dto.MetricType_GAUGE, []string{"rule"}, nil},           // ours
		"kube_node_ready_rule_release_seconds":                      {dto.MetricType_HISTOGRAM, []string{"rule"}, latencies}, // ours
	}
)

// scrape reads the controller's metrics.
func (w *world) scrape() map[string]*dto.MetricFamily {
	w.Helper()
	resp, err := http.Get(w.now.MetricsURL)
	w.must(err)
	defer func() { _ = resp.Body.Close() }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	w.must(err)
	return families
}

// series are the values of the metrics whose rule's name begins with prefix, by name{labels' values in order of their names}. A
// histogram's is how many it has observed.
func series(families map[string]*dto.MetricFamily, prefix string) map[string]float64 {
	values := map[string]float64{}
	for name := range nrcMetrics {
		for _, m := range families[name].GetMetric() {
			var of []string
			ours := false
			for _, l := range m.GetLabel() {
				of = append(of, l.GetValue())
				ours = ours || l.GetName() == "rule" && strings.HasPrefix(l.GetValue(), prefix)
			}
			if ours {
				values[name+"{"+strings.Join(of, ",")+"}"] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return values
}

// shape is the fault of how a metric is exported; empty for none.
func shape(f *dto.MetricFamily, want exported) string {
	if f.GetType() != want.kind || len(f.GetMetric()) == 0 {
		return fmt.Sprintf("%d series of type %s, want type %s", len(f.GetMetric()), f.GetType(), want.kind)
	}
	for _, m := range f.GetMetric() {
		var labels []string
		for _, l := range m.GetLabel() {
			labels = append(labels, l.GetName())
		}
		var buckets []float64
		for _, b := range m.GetHistogram().GetBucket() {
			if !math.IsInf(b.GetUpperBound(), 1) {
				buckets = append(buckets, b.GetUpperBound())
			}
		}
		if !slices.Equal(labels, want.labels) || !slices.Equal(buckets, want.buckets) {
			return fmt.Sprintf("labels %v, buckets %v; want %v, %v", labels, buckets, want.labels, want.buckets)
		}
	}
	return ""
}

// NRC's dashboards find their metrics under the names that they use, with the right values. The test covers nodes that
// are held, released, passed, held again, and nodes that the API server does not allow to be changed. A rule in dryRun
// counts nothing of that.
func TestMetrics(t *testing.T) {
	w := beside(t)
	frozen := func(n *corev1.Node) { n.Labels["metered"] = "frozen" }
	w.freezes("metered", "frozen")
	w.node("metered-old")
	time.Sleep(time.Second) // creations are told apart by the second
	begun := time.Now()
	both := func(r *v1alpha1.NodeReadinessRule) {
		r.Spec.Conditions = append(r.Spec.Conditions, v1alpha1.ConditionRequirement{Type: "Ready", RequiredStatus: "True"})
	}
	w.rule("metered-cont", both)
	w.rule("metered-boot", both, bootstrapOnly)
	w.rule("metered-dry", both, func(r *v1alpha1.NodeReadinessRule) { r.Spec.DryRun = true })
	w.node("metered-new")
	nodes := []string{"metered-old", "metered-new"}
	each := func(rule string, want bool) {
		for _, n := range nodes {
			w.tainted(n, rule, want)
		}
	}
	each("metered-cont", true)
	each("metered-boot", true)
	for _, n := range nodes {
		w.condition(n, "True")
	}
	each("metered-cont", false)
	w.condition("metered-old", "False")
	w.tainted("metered-old", "metered-cont", true)
	// Of these, one cannot be tainted, and the other one neither be released nor be noted to have passed.
	w.node("metered-frozen-1", frozen)
	w.node("metered-frozen-2", frozen, isReady, createdWith("readiness.k8s.io/metered-cont"))

	const atLeastOnce = -1 // how often depends on how often it was tried or looked at
	want := map[string]float64{
		"node_readiness_taint_operations_total{add,metered-cont}":                  3,
		"node_readiness_taint_operations_total{remove,metered-cont}":               2,
		"node_readiness_taint_operations_total{add,metered-boot}":                  2,
		"node_readiness_taint_operations_total{remove,metered-boot}":               2,
		"node_readiness_reconciliation_latency_seconds{add_taint,metered-cont}":    3,
		"node_readiness_reconciliation_latency_seconds{remove_taint,metered-cont}": 2,
		"node_readiness_reconciliation_latency_seconds{add_taint,metered-boot}":    2,
		"node_readiness_reconciliation_latency_seconds{remove_taint,metered-boot}": 2,
		"kube_node_ready_rule_release_seconds{metered-cont}":                       2,
		"kube_node_ready_rule_release_seconds{metered-boot}":                       2,
		"node_readiness_bootstrap_completed_total{metered-boot}":                   2,
		"node_readiness_bootstrap_duration_seconds{metered-boot}":                  1, // the other one is older than the rule
		"node_readiness_enforcement_latency_seconds{add,metered-cont}":             1, // metered-old's second; before it had no such condition
		"node_readiness_enforcement_latency_seconds{remove,metered-cont}":          2,
		"node_readiness_enforcement_latency_seconds{remove,metered-boot}":          2,
		"node_readiness_bootstrap_hold_duration_seconds{metered-boot,controller}":  2,
		"node_readiness_rule_matched_nodes{metered-cont}":                          4,
		"node_readiness_rule_matched_nodes{metered-boot}":                          4,
		"node_readiness_rule_matched_nodes{metered-dry}":                           4,
		"node_readiness_blocked_nodes{agent/Ready,metered-cont}":                   2, // metered-old and metered-frozen-1
		"node_readiness_blocked_nodes{Ready,metered-cont}":                         0,
		"node_readiness_blocked_nodes{agent/Ready,metered-boot}":                   1, // metered-frozen-1
		"node_readiness_blocked_nodes{Ready,metered-boot}":                         0,
		"kube_node_ready_rule_held{metered-old,metered-cont}":                      1,
		"kube_node_ready_rule_held{metered-frozen-1,metered-cont}":                 1,
		"kube_node_ready_rule_held{metered-frozen-2,metered-cont}":                 1,
		"kube_node_ready_rule_held{metered-frozen-1,metered-boot}":                 1,
		"kube_node_ready_rule_left_open_nodes{metered-cont}":                       0,
		"kube_node_ready_rule_left_open_nodes{metered-boot}":                       0,
		"node_readiness_rule_nodes{metered-cont,held}":                             3, // metered-old, and both that cannot be changed
		"node_readiness_rule_nodes{metered-cont,released}":                         1,
		"node_readiness_rule_nodes{metered-boot,held}":                             1, // metered-frozen-1
		"node_readiness_rule_nodes{metered-boot,released}":                         3,
		"node_readiness_nodes_by_state{metered-cont,ready}":                        1,
		"node_readiness_nodes_by_state{metered-cont,not_ready}":                    3,
		"node_readiness_nodes_by_state{metered-cont,bootstrapping}":                0,
		"node_readiness_nodes_by_state{metered-boot,ready}":                        3,
		"node_readiness_nodes_by_state{metered-boot,not_ready}":                    0,
		"node_readiness_nodes_by_state{metered-boot,bootstrapping}":                1,
		"node_readiness_failures_total{AddTaintError,metered-cont}":                atLeastOnce,
		"node_readiness_failures_total{RemoveTaintError,metered-cont}":             atLeastOnce,
		"node_readiness_failures_total{AddTaintError,metered-boot}":                atLeastOnce,
		"node_readiness_failures_total{EvaluationError,metered-boot}":              atLeastOnce,
		"node_readiness_condition_failures_total{agent/Ready,metered-cont}":        atLeastOnce,
		"node_readiness_condition_failures_total{agent/Ready,metered-boot}":        atLeastOnce,
	}
	for _, rule := range []string{"cont", "boot", "dry"} {
		want["node_readiness_evaluation_duration_seconds{metered-"+rule+"}"] = atLeastOnce
		want["node_readiness_rule_last_reconciliation_timestamp_seconds{metered-"+rule+"}"] = atLeastOnce
	}
	var families map[string]*dto.MetricFamily
	w.eventually("the metrics say what happened", func() string {
		families = w.scrape()
		have := series(families, "metered-")
		var faults []string
		for s, v := range have {
			if expected, known := want[s]; !known || v != expected && (expected != atLeastOnce || v < 1) {
				faults = append(faults, fmt.Sprintf("%s is %v, want %v (known: %v)", s, v, expected, known))
			}
		}
		for s := range maps.Keys(want) {
			if _, there := have[s]; !there {
				faults = append(faults, s+" is missing")
			}
		}
		slices.Sort(faults)
		return strings.Join(faults, "\n")
	})
	for name, want := range nrcMetrics {
		if fault := shape(families[name], want); fault != "" {
			t.Errorf("%s: %s", name, fault)
		}
	}
	b, same := families["node_readiness_build_info"].GetMetric(), families["kube_node_ready_build_info"].GetMetric()
	if len(b) != 1 || b[0].GetGauge().GetValue() != 1 || !slices.ContainsFunc(same[0].GetLabel(), func(l *dto.LabelPair) bool {
		return l.GetName() == "version" && l.GetValue() == b[0].GetLabel()[0].GetValue()
	}) {
		t.Errorf("build info: %v, %v", b, same)
	}
	for s, at := range series(families, "metered-") {
		if strings.Contains(s, "last_reconciliation") && (at < float64(begun.Unix()) || at > float64(time.Now().Unix()+1)) {
			t.Errorf("%s is %f", s, at)
		}
	}
	for _, n := range []string{"metered-frozen-1", "metered-frozen-2"} {
		w.must(api.Delete(w.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n}}))
	}
	for _, r := range w.rules {
		w.must(api.Delete(w.ctx, w.read(r)))
		w.gone(r)
	}
	w.eventually("the series go with their rules", func() string {
		if left := series(w.scrape(), "metered-"); len(left) > 0 {
			return fmt.Sprint(left)
		}
		return ""
	})
}

// freezes has the API server refuse every change of nodes that have the label, apart from their status.
func (w *world) freezes(label, value string) {
	w.Helper()
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: label + "-" + value}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{
			ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{label: value}},
			ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Update}, Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"nodes"}}}}}},
		Validations: []admissionv1.Validation{{Expression: "false", Message: "frozen"}},
	}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: policy.ObjectMeta,
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: policy.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}}}
	for _, o := range []client.Object{policy, binding} {
		w.must(api.Create(w.ctx, o))
		w.Cleanup(func() { _ = api.Delete(context.Background(), o) })
	}
	probe := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: policy.Name + "-probe", Labels: map[string]string{label: value}}}
	w.must(api.Create(w.ctx, probe))
	w.eventually("the policy is in force", func() string {
		if err := client.NewDryRunClient(api).Patch(w.ctx, probe, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"unschedulable":true}}`))); err == nil {
			return "it is not"
		}
		return ""
	})
	w.must(api.Delete(w.ctx, probe))
}
