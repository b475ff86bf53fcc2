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
	forwardMessagesMax            = 256       // messages of one batch
	forwardBytesMax               = 512 << 10 // their payloads, unless one alone is larger
	forwardTasksMax               = 128       // tasks of this member that run at a time: about 1 MiB each
	forwardTasksPerSourceMax      = 64        // of them from one partition
	forwardTasksPerDestinationMax = 32        // of them towards one partition, so that a dead one does not take all places
	forwardBackoffMin             = 50 * time.Millisecond
	forwardBackoffMax             = 5 * time.Second
	failuresMax                   = 4096 // sub-queues whose trouble is remembered, so that it is logged once
)

// outboxSource is what the forwarder looks at in a machine. *fsm.Queues is one.
type outboxSource interface {
	Outboxes() []fsm.Address
	Outbox(at fsm.Address) (batchOut bool, to fsm.Destination, wants string, ok bool)
}

var _ outboxSource = (*fsm.Queues)(nil)

// forwardDeps is how messages get to other entities. *Router is one.
type forwardDeps interface {
	// named finds an entity of a namespace by name; newest asks the catalog's leader at once.
	entityByName(ctx context.Context, namespace fsm.NamespaceID, name string, newest bool) (fsm.Entity, error)
	// known finds an entity by id.
	entityByID(ctx context.Context, id fsm.EntityID) (fsm.Entity, error)
	// transfer brings a batch to its destination. An error is one that may pass.
	transfer(ctx context.Context, to fsm.PartitionID, command fsm.TransferMessages) (fsm.Result, error)
}

// forwarder forwards messages: those of the partitions that this member leads. What is to
// be forwarded, and how far that has come, lies in the machines; the forwarder remembers
// nothing that the next leader would miss.
//
//	EffectForward, Led, tick -> task (waits) -> runs, a turn after the other -> over
//	                               ^                |
//	                               |                +-> rests: destination or catalog not there
//	                               +--- others wait, or the rest has ended
//
// An task is a sub-queue with something to forward. One goroutine (run) gives tasks
// their places, first come first served; after each turn an task goes to the end of the
// row if others wait.
type forwarder struct {
	transport transport
	deps      forwardDeps
	reread    func(payload, patches []byte) (fsm.Message, error)
	scanEvery time.Duration // between two looks at all that is to be forwarded
	log       *slog.Logger
	wakeUp    chan struct{} // holds one
	counts    forwardCounts

	mu         sync.Mutex
	led        map[fsm.PartitionID]bool // false: not looked through since we lead it
	tasks      map[fsm.Outbox]*forwardTask
	queue      []*forwardTask // that wait, in order
	backingOff map[*forwardTask]struct{}
	running    int
	from       map[fsm.PartitionID]int // running ones, by source
	towards    map[fsm.PartitionID]int // running ones, by destination where that is known
	failures   map[fsm.Outbox]fsm.Code // what was logged last
}

// forwardCounts counts what was done since the start.
type forwardCounts struct {
	batches  atomic.Uint64 // brought to their destinations
	messages atomic.Uint64 // of them, arrived
	refused  atomic.Uint64 // gone to a transfer dead-letter queue
	backoffs atomic.Uint64 // turns that ended with a pause
}

// ForwardStats says what this member has forwarded since its start.
type ForwardStats struct {
	Batches  uint64 // brought to their destinations
	Messages uint64 // of them, arrived
	Refused  uint64 // not taken, gone to a transfer dead-letter queue
	Backoffs uint64 // tries put off because something was not there
}

// task is one sub-queue with something to forward. It is in the row, or resting, or has
// a place and a goroutine.
type forwardTask struct {
	source fsm.Outbox

	// Guarded by forwarder.mu.
	woken   bool // something new came while it ran
	dropped bool // leadership was lost
	cancel  context.CancelFunc
	to      fsm.PartitionID // where it went last; 0: not known
	since   time.Time       // when the rest began
	until   time.Time       // when it ends

	// Of the goroutine that runs it.
	done    uint64        // batch to be ended with the next turn, 0: none
	codes   []fsm.Code    // of its messages, nil: all have arrived
	backoff time.Duration // the last one, 0 after a turn that went well
}

func newForwarder(transport transport, deps forwardDeps, reread func(payload, patches []byte) (fsm.Message, error), every time.Duration, log *slog.Logger) *forwarder {
	return &forwarder{
		transport: transport, deps: deps, reread: reread, scanEvery: every, log: log, wakeUp: make(chan struct{}, 1),
		led: make(map[fsm.PartitionID]bool), tasks: make(map[fsm.Outbox]*forwardTask), backingOff: make(map[*forwardTask]struct{}),
		from: make(map[fsm.PartitionID]int), towards: make(map[fsm.PartitionID]int), failures: make(map[fsm.Outbox]fsm.Code),
	}
}

// stats reads the counters.
func (f *forwarder) stats() ForwardStats {
	return ForwardStats{
		Batches: f.counts.batches.Load(), Messages: f.counts.messages.Load(),
		Refused: f.counts.refused.Load(), Backoffs: f.counts.backoffs.Load(),
	}
}

// leaderChanged is called when this member has gained or lost a partition. It does not block.
func (f *forwarder) leaderChanged(id fsm.PartitionID, leads bool) {
	f.mu.Lock()
	if leads {
		f.led[id] = false
	} else {
		delete(f.led, id)
		f.drop(id)
	}
	f.mu.Unlock()
	notify.WakeUp(f.wakeUp)
}

// drop ends the tasks of a partition; mu is held. Turns under way end by themselves, and
// what they may still do is done once: the machines see to that.
func (f *forwarder) drop(id fsm.PartitionID) {
	for source, task := range f.tasks {
		if source.Partition != id {
			continue
		}
		task.dropped = true
		if task.cancel != nil {
			task.cancel()
		}
		delete(f.tasks, source)
		delete(f.backingOff, task)
	}
	f.queue = slices.DeleteFunc(f.queue, func(task *forwardTask) bool { return task.dropped })
}

// wake is called when messages wait to be forwarded. It does not block.
func (f *forwarder) wake(source fsm.Outbox) {
	f.mu.Lock()
	fresh := f.add(source)
	f.mu.Unlock()
	if fresh {
		notify.WakeUp(f.wakeUp)
	}
}

// add makes an task, or tells a running one to look again; mu is held.
func (f *forwarder) add(source fsm.Outbox) (fresh bool) {
	if task := f.tasks[source]; task != nil {
		task.woken = true
		return false
	}
	if _, led := f.led[source.Partition]; !led {
		return false
	}
	task := &forwardTask{source: source}
	f.tasks[source] = task
	f.queue = append(f.queue, task)
	return true
}

// run gives tasks their places until ctx ends.
func (f *forwarder) run(ctx context.Context) {
	ticker, timer := time.NewTicker(f.scanEvery), time.NewTimer(f.scanEvery)
	defer ticker.Stop()
	defer timer.Stop()
	changed := f.transport.changes()
	for {
		all := false
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			all = true
		case <-timer.C:
		case <-f.wakeUp:
		case <-changed:
			changed = f.transport.changes()
			f.shortenBackoffs(time.Now())
		}
		f.scan(all)
		timer.Reset(f.dispatch(time.Now()))
	}
}

// scan makes an task of everything that there is to forward in a partition that is led,
// for the first time since it is, or again with all: an effect is lost with its leader.
func (f *forwarder) scan(all bool) {
	f.mu.Lock()
	groups := make(map[fsm.PartitionID]localGroup)
	for id, looked := range f.led {
		if looked && !all {
			continue
		}
		if group := f.transport.localReplica(id); group != nil { // else it leads before it is known to be open
			groups[id], f.led[id] = group, true
		}
	}
	f.mu.Unlock()
	for id, group := range groups {
		var found []fsm.Address
		group.View(func(m partition.Machine) {
			if machine, ok := m.(outboxSource); ok {
				found = machine.Outboxes()
			}
		})
		f.mu.Lock()
		for _, address := range found {
			f.add(fsm.Outbox{Partition: id, Address: address})
		}
		f.mu.Unlock()
	}
}

// shortenBackoffs ends rests early because something has changed, if they lasted at all.
func (f *forwarder) shortenBackoffs(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for task := range f.backingOff {
		soon := task.since.Add(forwardBackoffMin)
		if soon.Before(now) {
			soon = now
		}
		if soon.Before(task.until) {
			task.until = soon
		}
	}
}

// dispatch starts what there is a place for, and says how long nothing will have to be
// started unless something happens.
func (f *forwarder) dispatch(now time.Time) time.Duration {
	f.mu.Lock()
	sleep := time.Hour
	for task := range f.backingOff {
		if left := task.until.Sub(now); left > 0 {
			sleep = min(sleep, left)
			continue
		}
		delete(f.backingOff, task)
		f.queue = append(f.queue, task)
	}
	var started []*forwardTask
	kept := f.queue[:0]
	for _, task := range f.queue {
		if f.running < forwardTasksMax && f.from[task.source.Partition] < forwardTasksPerSourceMax && (task.to == 0 || f.towards[task.to] < forwardTasksPerDestinationMax) {
			f.acquireSlot(task, 1)
			started = append(started, task)
		} else {
			kept = append(kept, task)
		}
	}
	clear(f.queue[len(kept):])
	f.queue = kept
	f.mu.Unlock()
	for _, task := range started {
		if !f.transport.goTask(func(ctx context.Context) { f.runTask(ctx, task) }) {
			return sleep // closing
		}
	}
	return sleep
}

// acquireSlot takes (1) or gives back (-1) the place of an task; mu is held.
func (f *forwarder) acquireSlot(task *forwardTask, n int) {
	count := func(slots map[fsm.PartitionID]int, id fsm.PartitionID) {
		if slots[id] += n; slots[id] == 0 {
			delete(slots, id)
		}
	}
	f.running += n
	count(f.from, task.source.Partition)
	if task.to != 0 {
		count(f.towards, task.to)
	}
}

// setDestination says where a running task goes now; false: too many go there already.
func (f *forwarder) setDestination(task *forwardTask, to fsm.PartitionID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if to == task.to || to == 0 {
		return true
	}
	full := f.towards[to] >= forwardTasksPerDestinationMax
	f.acquireSlot(task, -1)
	task.to = to
	f.acquireSlot(task, 1)
	return !full
}

// stepResult is how a turn of an task ended.
type stepResult uint8

const (
	stepMore     stepResult = iota // a batch was brought: there may be another
	stepDone                       // nothing is left
	stepYield                      // too many go to the same partition: wait in the row
	stepBackoff                    // something is not there: try later
	stepLostLead                   // we lead no more
)

// runTask runs an task until it is over, rests, or others wait for its place.
func (f *forwarder) runTask(ctx context.Context, task *forwardTask) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.mu.Lock()
	task.cancel = cancel
	f.mu.Unlock()
	for {
		f.mu.Lock()
		task.woken = false // what comes from here on may be missed by the turn
		f.mu.Unlock()
		if !f.keepsSlot(task, f.step(ctx, task)) {
			notify.WakeUp(f.wakeUp)
			return
		}
	}
}

// keepsSlot says whether an task keeps its place after a turn, and else finds it another.
func (f *forwarder) keepsSlot(task *forwardTask, result stepResult) bool {
	if result == stepMore {
		task.backoff = 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !task.dropped && (result == stepMore || result == stepDone && task.woken) {
		if len(f.queue) == 0 {
			return true
		}
		result = stepYield
	}
	f.acquireSlot(task, -1)
	task.cancel = nil
	switch {
	case task.dropped:
	case result == stepYield:
		f.queue = append(f.queue, task)
	case result == stepBackoff:
		f.counts.backoffs.Add(1)
		task.backoff = min(max(2*task.backoff, forwardBackoffMin), forwardBackoffMax)
		task.since = time.Now()
		task.until = task.since.Add(task.backoff)
		f.backingOff[task] = struct{}{}
	default:
		delete(f.tasks, task.source)
	}
	return false
}
