package rule

import (
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Overruled returns the rules, by UID, whose taint an older rule has that may select the same nodes, and that rule. It
// decides about the nodes that both select. The rules are sorted by Sort.
func Overruled(rules []Rule) map[string]*Rule {
	overruled := map[string]*Rule{}
	for i := range rules {
		later := &rules[i]
		if later.Deleting || later.Invalid != "" {
			continue
		}
		for j := range rules[:i] {
			earlier := &rules[j]
			decides := !earlier.Deleting && !earlier.DryRun && earlier.Invalid == ""
			if decides && earlier.Taint.ID() == later.Taint.ID() && overlap(earlier.selector, later.selector) {
				overruled[later.UID] = earlier
				break
			}
		}
	}
	return overruled
}

// overlap reports whether a node may have labels that both selectors match. Each label is checked separately, because
// no operator of a selector (In, NotIn, Exists, DoesNotExist) relates two labels.
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

// labelDomain is the set of values that the requirements allow for one label.
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
