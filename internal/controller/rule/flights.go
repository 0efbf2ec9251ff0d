package rule

import "sync"

// flights count what is decided on and not written yet, by the set of rules that it was decided on. Before a rule that is
// deleted is let go of, everything that was decided on when it was alive has to have landed: a taint that is put on after
// the last look at the nodes would stay for good.
type flights struct {
	generation int
	inAir      map[int]int
}

// depart begins a new set: what is boarded from now on is decided on that.
func (f *flights) depart() { f.generation++ }

// board counts a decision until the returned function is called. mu guards the flights and must be held.
func (f *flights) board(mu *sync.Mutex) (done func()) {
	if f.inAir == nil {
		f.inAir = map[int]int{}
	}
	generation := f.generation
	f.inAir[generation]++
	return func() {
		mu.Lock()
		defer mu.Unlock()
		if f.inAir[generation]--; f.inAir[generation] == 0 {
			delete(f.inAir, generation)
		}
	}
}

// landed reports whether nothing is under way that was decided on an earlier set.
func (f *flights) landed() bool {
	for generation := range f.inAir {
		if generation < f.generation {
			return false
		}
	}
	return true
}
