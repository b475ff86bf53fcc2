package simnet

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// SetCuts cuts exactly the links of the set and heals all others. What waited for a link that is healed arrives
// within a second.
func (n *Network) SetCuts(cuts map[Link]bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	before := n.cut
	n.cut = maps.Clone(cuts)
	for _, p := range n.openPipes() {
		switch was, is := before[p.link], cuts[p.link]; {
		case is && !was:
			p.hold()
		case was && !is:
			p.release()
		}
	}
}

// openPipes returns the pipes of open streams, oldest first: what is drawn for each must follow from the seed. The mutex is held.
func (n *Network) openPipes() []*pipe {
	return slices.SortedFunc(maps.Keys(n.pipes), func(a, b *pipe) int { return cmp.Compare(n.pipes[a], n.pipes[b]) })
}

// SetDelays adds up to the given times to the latencies of these links, and nothing to those of the others.
func (n *Network) SetDelays(extra map[Link]time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.extra = maps.Clone(extra)
}

// SetPaces makes a mebibyte of each stream of these links take the given times, and no time on the others. What is on
// its way over a link whose pace changes arrives within a second.
func (n *Network) SetPaces(paces map[Link]time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	before := n.pace
	n.pace = maps.Clone(paces)
	for _, p := range n.openPipes() {
		if before[p.link] != paces[p.link] {
			p.hold()
			p.release()
		}
	}
}

// ResetStreams breaks every stream between two hosts: both ends get ECONNRESET.
func (n *Network) ResetStreams(a, b int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.openPipes() {
		if p.link == (Link{a, b}) || p.link == (Link{b, a}) {
			p.reset()
		}
	}
}
