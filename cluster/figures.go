package cluster

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/peeklock/peeklock/cluster/query"
	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/catalog"
	"github.com/peeklock/peeklock/fsm/totals"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/topology"
)

// figuresPage is the number of entities that are read under one lock of a state machine.
const figuresPage = 256

// askFigures asks a member for the numbers of messages in the partitions that it leads.
var askFigures = rpc.Query[topology.FiguresQuery, []topology.Figures]{Kind: rpc.QueryFigures} //nolint:gochecknoglobals // never changed

// ledFigures answers askFigures: one Figures of what this member leads.
func (n *Node) ledFigures(q topology.FiguresQuery) []topology.Figures {
	wanted := make(map[string]bool, len(q.Rows))
	for _, name := range q.Rows[:min(len(q.Rows), topology.FiguresRowsMax)] {
		wanted[fsm.PathKey(name)] = true
	}
	var sum topology.Figures
	replicas := query.Replicas{Local: transport{n}.LocalReplica}
	for id, group := range n.replicas.All() {
		if !group.Status().IsLeader {
			continue
		}
		page, counts := make([]fsm.EntityID, 0, figuresPage), make([]fsm.Counts, 0, figuresPage)
		for after, done := fsm.EntityID(0), false; !done; {
			page, counts, done = page[:0], counts[:0], true
			group.View(func(m partition.Machine) {
				queues := raftgroup.Queues(m)
				if queues == nil {
					return
				}
				after, done = queues.EachTotals(after, figuresPage, func(id fsm.EntityID, _ *totals.Totals, _, _ uint64) { page = append(page, id) })
				for _, id := range page {
					c, _ := queues.Counts(id)
					counts = append(counts, c)
				}
			})
			replicas.ViewCatalog(func(c *catalog.Machine) {
				for i, entity := range page {
					if e, known := c.ByID(entity); known && !e.Dropping && e.Namespace == q.Namespace {
						addEntity(&sum, &e, e.ID == entity && e.Partition == id, &counts[i], wanted)
					}
				}
			})
		}
	}
	sum.Deepest = deepest(sum.Deepest, activeOf)
	sum.DeadLettered = deepest(sum.DeadLettered, deadLettersOf)
	return []topology.Figures{sum}
}

// addEntity adds an entity, or one of its shards, of which only the first is counted as an entity.
func addEntity(sum *topology.Figures, e *fsm.Entity, isFirst bool, c *fsm.Counts, wanted map[string]bool) {
	switch {
	case !isFirst:
	case e.Kind == fsm.QueueEntity:
		sum.Queues++
	case e.Kind == fsm.TopicEntity:
		sum.Topics++
	default:
		sum.Subscriptions++
	}
	f := topology.EntityFigures{Name: e.Name, Kind: e.Kind.String(), Depths: topology.Depths{
		Active: c.Active, Locked: c.Locked, Deferred: c.Deferred, Scheduled: c.Scheduled, DeadLetter: c.DeadLetter, Bytes: c.Bytes,
	}}
	addDepths(&sum.Total, &f.Depths)
	// Shards of a partitioned entity that hold little may be left out here.
	sum.Deepest = appendDeep(sum.Deepest, f, activeOf)
	sum.DeadLettered = appendDeep(sum.DeadLettered, f, deadLettersOf)
	if len(wanted) > 0 && wanted[fsm.PathKey(e.Name)] {
		sum.Rows = append(sum.Rows, f)
	}
}

func activeOf(f *topology.EntityFigures) uint64      { return f.Active }
func deadLettersOf(f *topology.EntityFigures) uint64 { return f.DeadLetter }

// appendDeep appends an entity that has some messages, and shortens the list when it is long.
func appendDeep(list []topology.EntityFigures, f topology.EntityFigures, of func(*topology.EntityFigures) uint64) []topology.EntityFigures {
	if of(&f) == 0 {
		return list
	}
	if list = append(list, f); len(list) >= figuresPage {
		list = deepest(list, of)
	}
	return list
}

// deepest merges the shards of entities, and returns the first FiguresDeepestMax.
func deepest(list []topology.EntityFigures, of func(*topology.EntityFigures) uint64) []topology.EntityFigures {
	list = mergeFigures(list)
	slices.SortStableFunc(list, func(a, b topology.EntityFigures) int { return cmp.Compare(of(&b), of(&a)) })
	return slices.Clip(list[:min(len(list), topology.FiguresDeepestMax)])
}

// mergeFigures adds up the shards of entities.
func mergeFigures(list []topology.EntityFigures) []topology.EntityFigures {
	return mergeShards(list, func(f *topology.EntityFigures) (name, kind string) { return f.Name, f.Kind }, func(sum, shard *topology.EntityFigures) {
		addDepths(&sum.Depths, &shard.Depths)
	})
}

// mergeShards sorts what is known of entities by their name and kind, and adds up what is known of the shards of one entity.
func mergeShards[T any](list []T, of func(*T) (name, kind string), add func(sum, shard *T)) []T {
	compare := func(a, b *T) int {
		name, kind := of(a)
		otherName, otherKind := of(b)
		return cmp.Or(strings.Compare(name, otherName), strings.Compare(kind, otherKind))
	}
	slices.SortStableFunc(list, func(a, b T) int { return compare(&a, &b) })
	merged := list[:0]
	for i := range list {
		if last := len(merged) - 1; last >= 0 && compare(&merged[last], &list[i]) == 0 {
			add(&merged[last], &list[i])
			continue
		}
		merged = append(merged, list[i])
	}
	return merged
}

func addDepths(x, y *topology.Depths) {
	x.Active += y.Active
	x.Locked += y.Locked
	x.Deferred += y.Deferred
	x.Scheduled += y.Scheduled
	x.DeadLetter += y.DeadLetter
	x.Bytes += y.Bytes
}

// Figures returns the numbers of messages of a namespace. It asks all living members, each for up to 2 s; what partitions without a
// leader hold is missing.
func (o *Operator) Figures(ctx context.Context, q topology.FiguresQuery) topology.Figures {
	var sum topology.Figures
	for _, part := range askAlive(ctx, o.node, askFigures, q) {
		sum.Queues += part.Queues
		sum.Topics += part.Topics
		sum.Subscriptions += part.Subscriptions
		addDepths(&sum.Total, &part.Total)
		sum.Deepest = append(sum.Deepest, part.Deepest...)
		sum.DeadLettered = append(sum.DeadLettered, part.DeadLettered...)
		sum.Rows = append(sum.Rows, part.Rows...)
	}
	sum.Deepest, sum.DeadLettered = deepest(sum.Deepest, activeOf), deepest(sum.DeadLettered, deadLettersOf)
	sum.Rows = mergeFigures(sum.Rows)
	return sum
}
