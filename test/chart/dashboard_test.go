package chart

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// panel is what the tests read of a dashboard's panel.
type panel struct {
	ID         int    `json:"id"`
	Type       string `json:"type"`
	Title      string `json:"title"`
	Datasource *struct {
		UID string `json:"uid"`
	} `json:"datasource"`
	GridPos struct{ X, Y, W, H int } `json:"gridPos"`
	Targets []struct {
		Expr       string `json:"expr"`
		Datasource struct {
			UID string `json:"uid"`
		} `json:"datasource"`
	} `json:"targets"`
}

type dashboard struct {
	UID        string  `json:"uid"`
	Title      string  `json:"title"`
	Panels     []panel `json:"panels"`
	Templating struct {
		List []struct {
			Name, Type, AllValue string
		} `json:"list"`
	} `json:"templating"`
}

// renderedDashboard reads the dashboard out of the ConfigMap that Grafana's sidecar imports.
func renderedDashboard(t *testing.T) dashboard {
	t.Helper()
	found := render(t, "grafanaDashboard: {enabled: true, annotations: {grafana_folder: Nodes}}")
	config := get[corev1.ConfigMap](t, found, "ConfigMap kube-node-ready/kube-node-ready-dashboard")
	if config.Labels["grafana_dashboard"] != "1" || config.Annotations["grafana_folder"] != "Nodes" {
		t.Errorf("labels %v, annotations %v", config.Labels, config.Annotations)
	}
	var d dashboard
	if err := json.Unmarshal([]byte(config.Data["kube-node-ready.json"]), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDashboardIsPortable(t *testing.T) {
	d := renderedDashboard(t)
	if d.UID != "kube-node-ready" {
		t.Errorf("uid %q: links to the dashboard would break", d.UID)
	}
	if len(d.Templating.List) == 0 || d.Templating.List[0].Name != "datasource" || d.Templating.List[0].Type != "datasource" {
		t.Errorf("variables %+v, want the data source first", d.Templating.List)
	}
	ids := map[int]bool{}
	var cells [200][24]string
	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" {
			t.Errorf("panel %d %q: its id is not its own, or it has no title", p.ID, p.Title)
		}
		ids[p.ID] = true
		for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				if cells[y][x] != "" {
					t.Fatalf("panel %q lies on panel %q", p.Title, cells[y][x])
				}
				cells[y][x] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if p.Datasource == nil || p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 {
			t.Errorf("panel %q: data source %v, %d queries", p.Title, p.Datasource, len(p.Targets))
		}
		for _, target := range p.Targets {
			if target.Datasource.UID != "${datasource}" || strings.Count(target.Expr, "{job") != strings.Count(target.Expr, "{") ||
				strings.Count(target.Expr, `{job=~"$job",cluster=~"$cluster"`) != strings.Count(target.Expr, "{") {
				t.Errorf("panel %q: query %q of data source %q", p.Title, target.Expr, target.Datasource.UID)
			}
		}
	}
}

// Of several clusters, and of several installations in one, the panels show what all of them have, and not the largest one.
func TestDashboardAddsUpClusters(t *testing.T) {
	want := map[string]int{
		"Verified nodes": 111, "Unverified nodes": 45, "Failed or held nodes": 30, "Nodes by state": 30,
		"Worker pods": 9, "Nodes held, by guard": 6, "What nodes wait for": 12, "Without a leader": 2,
	}
	series, cases := "", ""
	for i, of := range []string{`cluster="c1",namespace="a"`, `cluster="c1",namespace="b"`, `cluster="c2",namespace="a"`} {
		for _, pod := range []string{"a", "b"} { // during a change of leader
			for metric, value := range map[string]int{
				`leader{x=""`:                           []int{0, 1, 0}[i] * map[string]int{"a": 1}[pod],
				`nodes{state="verified"`:                []int{100, 10, 1}[i],
				`nodes{state="pending"`:                 5,
				`nodes{state="failed"`:                  10,
				`worker_pods{status="running"`:          3,
				`remediation_held{guard="maxUnhealthy"`: 2,
				`waiting_nodes{for="slot",nodepool="p"`: 1,
				`waiting_nodes{for="slot",nodepool="q"`: 3,
			} {
				series += fmt.Sprintf("  - {series: 'kube_node_ready_%s,job=\"j\",pod=\"%s\",%s}', values: '%d'}\n", metric, pod, of, value)
			}
		}
	}
	for _, p := range renderedDashboard(t).Panels {
		if value, ok := want[p.Title]; ok && p.Type != "table" {
			query := strings.NewReplacer("$job", ".*", "$cluster", ".*").Replace(p.Targets[0].Expr)
			if p.Title == "Nodes by state" {
				query = "(" + query + `) and on (state) label_replace(vector(1), "state", "failed", "", "")`
			}
			cases += fmt.Sprintf("  - {expr: 'sum(%s)', eval_time: 0, exp_samples: [{labels: '{}', value: %d}]}\n", query, value)
			delete(want, p.Title)
		}
	}
	if len(want) > 0 {
		t.Errorf("no panels %v", want)
	}
	promtool(t, "prometheusRule: {enabled: true}", "rule_files: []\ntests:\n- input_series:\n"+series+"  promql_expr_test:\n"+cases)
}

// "All" stands for the jobs that have our metrics, not for every job there is, and what is called a remediation is one.
func TestDashboardCountsOurOwn(t *testing.T) {
	d := renderedDashboard(t)
	for _, v := range d.Templating.List {
		if v.AllValue != "" && v.Name != "cluster" {
			t.Errorf("variable %s: all is %q, and the panels on process_* and workqueue_* show everybody's", v.Name, v.AllValue)
		}
	}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			result := map[bool]string{true: `result=~"deleted|started"`, false: `result=~"held|error"`}[strings.HasPrefix(p.Title, "Remediations")]
			if strings.Contains(target.Expr, "remediations_total") && !strings.Contains(target.Expr, result) {
				t.Errorf("panel %q does not count %s: %s", p.Title, result, target.Expr)
			}
		}
	}
}
