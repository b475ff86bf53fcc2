package forwarding

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/peeklock/peeklock/cluster/notify"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/queue"
	"github.com/peeklock/peeklock/partition"
)

// The limits of forwarding.
const (
	forwardMessagesMax            = 256       // messages of one batch
	forwardBytesMax               = 512 << 10 // their payloads, unless one alone is larger
	forwardTasksMax               = 128       // running tasks of this member: about 1 MiB each
	forwardTasksPerSourceMax      = 64        // of them, from one partition
	forwardTasksPerDestinationMax = 32        // of them, to one partition, so that a dead one cannot take all slots
	forwardBackoffMin             = 50 * time.Millisecond
	forwardBackoffMax             = 5 * time.Second
	failuresMax                   = 4096 // sub-queues whose last failure is remembered, so that it is logged once
)

// outboxSource is the part of a state machine that the forwarder reads. *queue.Machine implements it.
type outboxSource interface {
	Outboxes() []fsm.Address
	Outbox(at fsm.Address) (batchOut bool, to fsm.Destination, wants string, ok bool)
}

var _ outboxSource = (*queue.Machine)(nil)

// Deps finds and reaches other entities for the forwarder. *Router implements it.
type Deps interface {
	// EntityByName finds an entity of a namespace by name; with newest it asks the catalog's leader immediately.
	EntityByName(ctx context.Context, namespace fsm.NamespaceID, name string, newest bool) (fsm.Entity, error)
	// EntityByID finds an entity or shard by id.
	EntityByID(ctx context.Context, id fsm.EntityID) (fsm.Entity, error)
	// Transfer transfers a batch to its destination. Its errors are temporary.
	Transfer(ctx context.Context, to fsm.PartitionID, command fsm.TransferMessages) (fsm.Result, error)
}

// Transport gives the forwarder access to the replicas of its member.
type Transport interface {
	// LocalReplica returns this member's replica of a partition, or nil when none is open.
	LocalReplica(id fsm.PartitionID) rpc.Group
	// Changes returns a channel that is closed when leaders, members, replicas or the catalog change.
	Changes() <-chan struct{}
	// Go runs a task that the shutdown of the member waits for; it returns false when the member is closing.
	Go(task func(ctx context.Context)) bool
}

// Forwarder forwards the messages of the partitions that this member leads. The state machines
// know which messages to forward and the progress; the forwarder keeps no state that
// the next leader would need.
//
//	EffectForward, Led, tick -> task (queued) -> runs, one step after the other -> done
//	                               ^                |
//	                               |                +-> backs off: destination or catalog not available
//	                               +--- others wait, or the backoff has ended
//
// A task is a sub-queue with something to forward. One goroutine (run) gives tasks their slots, first
// come, first served; after each step a task goes to the end of the queue if others wait.
type Forwarder struct {
	transport Transport
	deps      Deps
	reread    func(payload, patches []byte) (fsm.Message, error)
	scanEvery time.Duration // between two scans of all sub-queues with something to forward
	log       *slog.Logger
	wakeUp    chan struct{} // holds one
	counts    forwardCounts

	mu         sync.Mutex
	led        map[fsm.PartitionID]bool // value: scanned since this member leads it
	tasks      map[fsm.Outbox]*forwardTask
	queue      []*forwardTask // waiting for a slot, in order
	backingOff map[*forwardTask]struct{}
	running    int
	from       map[fsm.PartitionID]int // running tasks, by source
	towards    map[fsm.PartitionID]int // running tasks, by destination where that is known
	failures   map[fsm.Outbox]fsm.Code // last logged code
}

// forwardCounts counts events since the start.
type forwardCounts struct {
	batches  atomic.Uint64 // transferred to their destinations
	messages atomic.Uint64 // that arrived
	refused  atomic.Uint64 // messages that their source dead-lettered
	backoffs atomic.Uint64 // steps that ended with a backoff
}

// Stats counts what this member has forwarded since its start.
type Stats struct {
	Batches  uint64 // transferred to their destinations
	Messages uint64 // that arrived
	Refused  uint64 // messages refused there, which their sources dead-lettered
	Backoffs uint64 // attempts postponed: the destination or the catalog was not available, or dead letters were refused
}

// forwardTask is one sub-queue with something to forward. It is queued, or backs off, or has
// a slot and a goroutine.
type forwardTask struct {
	source fsm.Outbox

	// Guarded by forwarder.mu.
	woken   bool // new messages or changes since the step began
	dropped bool // leadership was lost
	cancel  context.CancelFunc
	to      fsm.PartitionID // last destination; 0: not known
	since   time.Time       // when the backoff began
	until   time.Time       // when it ends

	// Used only by the goroutine that runs it.
	done    uint64        // serial of the batch that the next step ends, 0: none
	codes   []fsm.Code    // of its messages, nil: all were accepted
	backoff time.Duration // the last one, 0 after a successful step
	pass    pass          // of a dead-letter queue
}

// isOfDeadLetters reports whether the task forwards dead letters, which stay where they are when their destination refuses them.
func (t *forwardTask) isOfDeadLetters() bool { return t.source.Address.Sub == fsm.DeadLetterQueue }

// New returns a Forwarder, which does nothing until Run. reread makes a message from a stored payload and its patches;
// every is the time between two scans for work that no event has announced.
func New(transport Transport, deps Deps, reread func(payload, patches []byte) (fsm.Message, error), every time.Duration, log *slog.Logger) *Forwarder {
	return &Forwarder{
		transport: transport, deps: deps, reread: reread, scanEvery: every, log: log, wakeUp: make(chan struct{}, 1),
		led: make(map[fsm.PartitionID]bool), tasks: make(map[fsm.Outbox]*forwardTask), backingOff: make(map[*forwardTask]struct{}),
		from: make(map[fsm.PartitionID]int), towards: make(map[fsm.PartitionID]int), failures: make(map[fsm.Outbox]fsm.Code),
	}
}

// Stats returns the counts since the start.
func (f *Forwarder) Stats() Stats {
	return Stats{
		Batches: f.counts.batches.Load(), Messages: f.counts.messages.Load(),
		Refused: f.counts.refused.Load(), Backoffs: f.counts.backoffs.Load(),
	}
}

// LeaderChanged is called when this member has gained or lost the leadership of a partition. It
// does not block.
func (f *Forwarder) LeaderChanged(id fsm.PartitionID, leads bool) {
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

// drop ends the tasks of a partition; mu is held. Running steps end on their own; the state
// machines ensure that their remaining actions take effect once.
func (f *Forwarder) drop(id fsm.PartitionID) {
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

// Wake is called when messages wait to be forwarded. It does not block.
func (f *Forwarder) Wake(source fsm.Outbox) {
	f.mu.Lock()
	fresh := f.add(source)
	f.mu.Unlock()
	if fresh {
		notify.WakeUp(f.wakeUp)
	}
}

// add adds a task, or marks a running one as woken; mu is held.
func (f *Forwarder) add(source fsm.Outbox) (fresh bool) {
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

// acquireSlot acquires (1) or releases (-1) the slot of a task; mu is held.
func (f *Forwarder) acquireSlot(task *forwardTask, n int) {
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

// setDestination records the destination of a running task. It returns false when too many tasks
// have that destination already.
func (f *Forwarder) setDestination(task *forwardTask, to fsm.PartitionID) bool {
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

// stepResult says how a step of a task ended.
type stepResult uint8

const (
	stepMore     stepResult = iota // a batch was transferred, there may be another
	stepDone                       // nothing is left
	stepYield                      // too many tasks go to the same partition: wait in the queue
	stepBackoff                    // something is not available: try later
	stepLostLead                   // this member no longer leads the source
)

// submit writes a command into the log of the source and returns its result with stepMore, or what
// becomes of the step.
func submit(ctx context.Context, group rpc.Group, command fsm.Command) (fsm.Result, stepResult) {
	answers := make(chan partition.Answer, 1)
	group.Submit(fsm.AppendCommand(nil, fsm.Header{}, command), func(answer partition.Answer) { answers <- answer })
	select {
	case answer := <-answers:
		switch {
		case answer.Outcome == partition.Refused && answer.Result.Code == fsm.OK:
			return answer.Result, stepLostLead // another member leads
		case answer.Outcome != partition.Done:
			return answer.Result, stepBackoff // overloaded, or losing leadership: repeat
		}
		return answer.Result, stepMore
	case <-ctx.Done():
		return fsm.Result{}, stepLostLead
	}
}
