package metrics

import "sync"

// maxPools bounds the label nodepool of a metric, none included: a node's label may say anything.
const maxPools = 100

// other stands for what is beyond a bound.
const other = "other"

// pools are the values that a label nodepool has had.
type pools struct {
	mu   sync.Mutex
	seen map[string]bool
}

// label is the label's value for a NodePool.
func (p *pools) label(pool string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seen == nil {
		p.seen = map[string]bool{"": true}
	}
	if !p.seen[pool] && len(p.seen) >= maxPools {
		pool = other
	}
	p.seen[pool] = true
	return pool
}
