package cluster

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/peeklock/peeklock/cluster/notify"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// The limits of forwarding.
const (
	carryMessagesMax  = 256       // messages of one batch
	carryBytesMax     = 512 << 10 // their payloads, unless one alone is larger
	carriesMax        = 128       // errands of this member that run at a time: about 1 MiB each
	carriesSourceMax  = 64        // of them from one partition
	carriesTowardsMax = 32        // of them towards one partition, so that a dead one does not take all places
	carryRestMin      = 50 * time.Millisecond
	carryRestMax      = 5 * time.Second
	troublesMax       = 4096 // sub-queues whose trouble is remembered, so that it is logged once
)

// outboxMachine is what the carrier looks at in a machine. *fsm.Queues is one.
type outboxMachine interface {
	Outboxes() []fsm.Address
	Outbox(at fsm.Address) (batchOut bool, to fsm.Destination, wants string, ok bool)
}

var _ outboxMachine = (*fsm.Queues)(nil)

// roads is how messages get to other entities. *Router is one.
type roads interface {
	// named finds an entity of a namespace by name; newest asks the catalog's leader at once.
	named(ctx context.Context, namespace fsm.NamespaceID, name string, newest bool) (fsm.Entity, error)
	// known finds an entity by id.
	known(ctx context.Context, id fsm.EntityID) (fsm.Entity, error)
	// transfer brings a batch to its destination. An error is one that may pass.
	transfer(ctx context.Context, to fsm.PartitionID, command fsm.TransferMessages) (fsm.Result, error)
}

// carrier forwards messages: those of the partitions that this member leads. What is to
// be forwarded, and how far that has come, lies in the machines; the carrier remembers
// nothing that the next leader would miss.
//
//	EffectForward, Led, tick -> errand (waits) -> runs, a turn after the other -> over
//	                               ^                |
//	                               |                +-> rests: destination or catalog not there
//	                               +--- others wait, or the rest has ended
//
// An errand is a sub-queue with something to forward. One goroutine (run) gives errands
// their places, first come first served; after each turn an errand goes to the end of the
// row if others wait.
type carrier struct {
	ways   ways
	roads  roads
	reread func(payload, patches []byte) (fsm.Message, error)
	every  time.Duration // between two looks at all that is to be forwarded
	log    *slog.Logger
	wakes  chan struct{} // holds one
	counts forwardCounts

	mu       sync.Mutex
	led      map[fsm.PartitionID]bool // false: not looked through since we lead it
	errands  map[fsm.Outbox]*errand
	row      []*errand // that wait, in order
	resting  map[*errand]struct{}
	running  int
	from     map[fsm.PartitionID]int // running ones, by source
	towards  map[fsm.PartitionID]int // running ones, by destination where that is known
	troubles map[fsm.Outbox]fsm.Code // what was logged last
}

// forwardCounts counts what was done since the start.
type forwardCounts struct {
	batches  atomic.Uint64 // brought to their destinations
	messages atomic.Uint64 // of them, arrived
	refused  atomic.Uint64 // gone to a transfer dead-letter queue
	rests    atomic.Uint64 // turns that ended with a pause
}

// ForwardFigures says what this member has forwarded since its start.
type ForwardFigures struct {
	Batches  uint64 // brought to their destinations
	Messages uint64 // of them, arrived
	Refused  uint64 // not taken, gone to a transfer dead-letter queue
	Rests    uint64 // tries put off because something was not there
}

// errand is one sub-queue with something to forward. It is in the row, or resting, or has
// a place and a goroutine.
type errand struct {
	source fsm.Outbox

	// Guarded by carrier.mu.
	woken   bool // something new came while it ran
	dropped bool // leadership was lost
	cancel  context.CancelFunc
	to      fsm.PartitionID // where it went last; 0: not known
	since   time.Time       // when the rest began
	until   time.Time       // when it ends

	// Of the goroutine that runs it.
	done  uint64        // batch to be ended with the next turn, 0: none
	codes []fsm.Code    // of its messages, nil: all have arrived
	rest  time.Duration // the last one, 0 after a turn that went well
}

func newCarrier(w ways, r roads, reread func(payload, patches []byte) (fsm.Message, error), every time.Duration, log *slog.Logger) *carrier {
	return &carrier{
		ways: w, roads: r, reread: reread, every: every, log: log, wakes: make(chan struct{}, 1),
		led: make(map[fsm.PartitionID]bool), errands: make(map[fsm.Outbox]*errand), resting: make(map[*errand]struct{}),
		from: make(map[fsm.PartitionID]int), towards: make(map[fsm.PartitionID]int), troubles: make(map[fsm.Outbox]fsm.Code),
	}
}

// figures reads the counters.
func (c *carrier) figures() ForwardFigures {
	return ForwardFigures{
		Batches: c.counts.batches.Load(), Messages: c.counts.messages.Load(),
		Refused: c.counts.refused.Load(), Rests: c.counts.rests.Load(),
	}
}

// lead is called when this member has gained or lost a partition. It does not block.
func (c *carrier) lead(id fsm.PartitionID, leads bool) {
	c.mu.Lock()
	if leads {
		c.led[id] = false
	} else {
		delete(c.led, id)
		c.drop(id)
	}
	c.mu.Unlock()
	notify.WakeUp(c.wakes)
}

// drop ends the errands of a partition; mu is held. Turns under way end by themselves, and
// what they may still do is done once: the machines see to that.
func (c *carrier) drop(id fsm.PartitionID) {
	for source, e := range c.errands {
		if source.Partition != id {
			continue
		}
		e.dropped = true
		if e.cancel != nil {
			e.cancel()
		}
		delete(c.errands, source)
		delete(c.resting, e)
	}
	c.row = slices.DeleteFunc(c.row, func(e *errand) bool { return e.dropped })
}

// wake is called when messages wait to be forwarded. It does not block.
func (c *carrier) wake(source fsm.Outbox) {
	c.mu.Lock()
	fresh := c.add(source)
	c.mu.Unlock()
	if fresh {
		notify.WakeUp(c.wakes)
	}
}

// add makes an errand, or tells a running one to look again; mu is held.
func (c *carrier) add(source fsm.Outbox) (fresh bool) {
	if e := c.errands[source]; e != nil {
		e.woken = true
		return false
	}
	if _, led := c.led[source.Partition]; !led {
		return false
	}
	e := &errand{source: source}
	c.errands[source] = e
	c.row = append(c.row, e)
	return true
}

// run gives errands their places until ctx ends.
func (c *carrier) run(ctx context.Context) {
	ticker, timer := time.NewTicker(c.every), time.NewTimer(c.every)
	defer ticker.Stop()
	defer timer.Stop()
	changed := c.ways.changes()
	for {
		all := false
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			all = true
		case <-timer.C:
		case <-c.wakes:
		case <-changed:
			changed = c.ways.changes()
			c.hurry(time.Now())
		}
		c.look(all)
		timer.Reset(c.dispatch(time.Now()))
	}
}

// look makes an errand of everything that there is to forward in a partition that is led,
// for the first time since it is, or again with all: an effect is lost with its leader.
func (c *carrier) look(all bool) {
	c.mu.Lock()
	groups := make(map[fsm.PartitionID]replica)
	for id, looked := range c.led {
		if looked && !all {
			continue
		}
		if group := c.ways.local(id); group != nil { // else it leads before it is known to be open
			groups[id], c.led[id] = group, true
		}
	}
	c.mu.Unlock()
	for id, group := range groups {
		var found []fsm.Address
		group.View(func(m partition.Machine) {
			if machine, ok := m.(outboxMachine); ok {
				found = machine.Outboxes()
			}
		})
		c.mu.Lock()
		for _, address := range found {
			c.add(fsm.Outbox{Partition: id, Address: address})
		}
		c.mu.Unlock()
	}
}

// hurry ends rests early because something has changed, if they lasted at all.
func (c *carrier) hurry(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := range c.resting {
		soon := e.since.Add(carryRestMin)
		if soon.Before(now) {
			soon = now
		}
		if soon.Before(e.until) {
			e.until = soon
		}
	}
}

// dispatch starts what there is a place for, and says how long nothing will have to be
// started unless something happens.
func (c *carrier) dispatch(now time.Time) time.Duration {
	c.mu.Lock()
	sleep := time.Hour
	for e := range c.resting {
		if left := e.until.Sub(now); left > 0 {
			sleep = min(sleep, left)
			continue
		}
		delete(c.resting, e)
		c.row = append(c.row, e)
	}
	var started []*errand
	kept := c.row[:0]
	for _, e := range c.row {
		if c.running < carriesMax && c.from[e.source.Partition] < carriesSourceMax && (e.to == 0 || c.towards[e.to] < carriesTowardsMax) {
			c.occupy(e, 1)
			started = append(started, e)
		} else {
			kept = append(kept, e)
		}
	}
	clear(c.row[len(kept):])
	c.row = kept
	c.mu.Unlock()
	for _, e := range started {
		if !c.ways.work(func(ctx context.Context) { c.carry(ctx, e) }) {
			return sleep // closing
		}
	}
	return sleep
}

// occupy takes (1) or gives back (-1) the place of an errand; mu is held.
func (c *carrier) occupy(e *errand, n int) {
	count := func(places map[fsm.PartitionID]int, id fsm.PartitionID) {
		if places[id] += n; places[id] == 0 {
			delete(places, id)
		}
	}
	c.running += n
	count(c.from, e.source.Partition)
	if e.to != 0 {
		count(c.towards, e.to)
	}
}

// head says where a running errand goes now; false: too many go there already.
func (c *carrier) head(e *errand, to fsm.PartitionID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if to == e.to || to == 0 {
		return true
	}
	full := c.towards[to] >= carriesTowardsMax
	c.occupy(e, -1)
	e.to = to
	c.occupy(e, 1)
	return !full
}

// verdict is how a turn of an errand ended.
type verdict uint8

const (
	turnMore  verdict = iota // a batch was brought: there may be another
	turnOver                 // nothing is left
	turnFull                 // too many go to the same partition: wait in the row
	turnRest                 // something is not there: try later
	turnEnded                // we lead no more
)

// carry runs an errand until it is over, rests, or others wait for its place.
func (c *carrier) carry(ctx context.Context, e *errand) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.mu.Lock()
	e.cancel = cancel
	c.mu.Unlock()
	for {
		c.mu.Lock()
		e.woken = false // what comes from here on may be missed by the turn
		c.mu.Unlock()
		if !c.goesOn(e, c.turn(ctx, e)) {
			notify.WakeUp(c.wakes)
			return
		}
	}
}

// goesOn says whether an errand keeps its place after a turn, and else finds it another.
func (c *carrier) goesOn(e *errand, v verdict) bool {
	if v == turnMore {
		e.rest = 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !e.dropped && (v == turnMore || v == turnOver && e.woken) {
		if len(c.row) == 0 {
			return true
		}
		v = turnFull
	}
	c.occupy(e, -1)
	e.cancel = nil
	switch {
	case e.dropped:
	case v == turnFull:
		c.row = append(c.row, e)
	case v == turnRest:
		c.counts.rests.Add(1)
		e.rest = min(max(2*e.rest, carryRestMin), carryRestMax)
		e.since = time.Now()
		e.until = e.since.Add(e.rest)
		c.resting[e] = struct{}{}
	default:
		delete(c.errands, e.source)
	}
	return false
}
