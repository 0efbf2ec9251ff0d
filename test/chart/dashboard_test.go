package chart

import (
	"encoding/json"
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
			if target.Datasource.UID != "${datasource}" || !strings.Contains(target.Expr, `job=~"$job"`) {
				t.Errorf("panel %q: query %q of data source %q", p.Title, target.Expr, target.Datasource.UID)
			}
		}
	}
}

// "All" stands for the jobs that have our metrics, not for every job there is, and what is called a deletion is one.
func TestDashboardCountsOurOwn(t *testing.T) {
	d := renderedDashboard(t)
	for _, v := range d.Templating.List {
		if v.AllValue != "" {
			t.Errorf("variable %s: all is %q, and the panels on process_* and workqueue_* show everybody's", v.Name, v.AllValue)
		}
	}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			if strings.Contains(target.Expr, "remediations_total") && !strings.Contains(target.Expr, `result="deleted"`) {
				t.Errorf("panel %q counts what was held or went wrong: %s", p.Title, target.Expr)
			}
		}
	}
}
