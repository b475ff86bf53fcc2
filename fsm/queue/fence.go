package queue

import (
	"slices"

	"github.com/peeklock/peeklock/fsm"
)

// fences refuses commands for shards that may be deleted.
type fences struct {
	*core

	fenced []fsm.EntityID // shards that are fenced; sorted, derived
}

// setFence sets the fence of a shard, or removes it: then receivers that wait look for messages again.
func (q *fences) setFence(x *entityState, round uint64) {
	i, found := slices.BinarySearch(q.fenced, x.id)
	switch {
	case round != 0 && !found:
		q.fenced = slices.Insert(q.fenced, i, x.id)
	case round == 0 && found:
		q.fenced = slices.Delete(q.fenced, i, i+1)
		for sub := range x.subs {
			q.notifyReady(&x.subs[sub])
		}
	}
	x.fence = round
}

// FencedShards returns the shards that are fenced, by id. The leader lifts a fence that nobody uses any more.
func (q *fences) FencedShards() []fsm.FencedShard {
	list := make([]fsm.FencedShard, len(q.fenced))
	for i, id := range q.fenced {
		list[i] = fsm.FencedShard{Entity: id, Round: q.byID[id].fence}
	}
	return list
}
