package docs

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

// patchOfPool finds the patches of NodePools that a page gives, and their types.
var patchOfPool = regexp.MustCompile(`(?s)kubectl patch nodepool POOL --type (\S+) --patch(?: \\\n)?\s+'([^']+)'`)

// Whatever startupTaints a NodePool has, one of the first hour's commands adds ours, and none removes one of others.
func TestFirstHourKeepsStartupTaints(t *testing.T) {
	found := patchOfPool.FindAllStringSubmatch(read(t, filepath.Join(root, "docs/first-hour.md")), -1)
	for name, test := range map[string]struct {
		spec string
		want []string
	}{
		"none":    {`{}`, []string{"node-ready/unverified"}},
		"empty":   {`{"startupTaints": []}`, []string{"node-ready/unverified"}},
		"Cilium":  {`{"startupTaints": [{"key": "cilium"}]}`, []string{"cilium", "node-ready/unverified"}},
		"several": {`{"startupTaints": [{"key": "cilium"}, {"key": "ebs"}]}`, []string{"cilium", "ebs", "node-ready/unverified"}},
	} {
		applied := 0
		for _, command := range found {
			if command[1] != "json" {
				t.Errorf("a patch of type %s replaces the list:\n%s", command[1], command[2])
				continue
			}
			patch, err := jsonpatch.DecodePatch([]byte(command[2]))
			if err != nil {
				t.Fatalf("%v in\n%s", err, command[2])
			}
			out, err := patch.Apply([]byte(`{"spec": {"template": {"spec": ` + test.spec + `}}}`))
			if err != nil {
				continue // and the API server changes nothing
			}
			applied++
			var pool struct {
				Spec struct {
					Template struct {
						Spec struct {
							StartupTaints []struct{ Key string }
						}
					}
				}
			}
			if err := json.Unmarshal(out, &pool); err != nil {
				t.Fatal(err)
			}
			got := pool.Spec.Template.Spec.StartupTaints
			same := len(got) == len(test.want)
			for i := range got {
				same = same && got[i].Key == test.want[i]
			}
			if !same {
				t.Errorf("%s: startupTaints %v, want %v, after\n%s", name, got, test.want, command[2])
			}
		}
		if applied != 1 {
			t.Errorf("%s: %d of the page's %d patches apply, want one", name, applied, len(found))
		}
	}
}
