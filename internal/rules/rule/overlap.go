package rule

import (
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Overruled returns, by UID, the rules that name the taint of an older one whose nodes they may share, with that one: it
// decides on the nodes that both select. The rules are sorted by Sort.
func Overruled(rules []Rule) map[string]*Rule {
	overruled := map[string]*Rule{}
	for i := range rules {
		later := &rules[i]
		if later.Deleting || later.Invalid != "" {
			continue
		}
		for j := range rules[:i] {
			earlier := &rules[j]
			if !earlier.Deleting && !earlier.DryRun && earlier.Invalid == "" && earlier.Taint.ID() == later.Taint.ID() && overlap(earlier.selector, later.selector) {
				overruled[later.UID] = earlier
				break
			}
		}
	}
	return overruled
}

// overlap reports whether a node may have labels that both selectors match. Each label is solved by itself: the selectors
// of Kubernetes (In, NotIn, Exists, DoesNotExist) relate no two.
func overlap(a, b labels.Selector) bool {
	one, _ := a.Requirements()
	other, _ := b.Requirements()
	keys := map[string]*labelDomain{}
	for _, r := range append(append(labels.Requirements{}, one...), other...) {
		d := keys[r.Key()]
		if d == nil {
			d = &labelDomain{refused: sets.New[string]()}
			keys[r.Key()] = d
		}
		d.require(r)
	}
	for _, d := range keys {
		if !d.satisfiable() {
			return false
		}
	}
	return true
}

// labelDomain is what requirements leave to one label.
type labelDomain struct {
	present, absent bool
	allowed         sets.Set[string] // nil: any
	refused         sets.Set[string]
}

func (d *labelDomain) require(r labels.Requirement) {
	switch r.Operator() {
	case selection.In, selection.Equals, selection.DoubleEquals:
		d.present = true
		if values := sets.New(r.ValuesUnsorted()...); d.allowed == nil {
			d.allowed = values
		} else {
			d.allowed = d.allowed.Intersection(values)
		}
	case selection.NotIn, selection.NotEquals: // an absent label is in no set
		d.refused.Insert(r.ValuesUnsorted()...)
	case selection.Exists:
		d.present = true
	case selection.DoesNotExist:
		d.absent = true
	}
}

func (d *labelDomain) satisfiable() bool {
	return !d.present || !d.absent && (d.allowed == nil || d.allowed.Difference(d.refused).Len() > 0)
}
