package forwarding

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/peeklock/peeklock/cluster/notify"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/fakegroup"
	"github.com/peeklock/peeklock/test/kit"
)

// fakeOutboxes is a leading replica with sub-queues to forward, which behaves like the state machine.
// It is the replica of every partition that the test leads.
type fakeOutboxes struct {
	fakegroup.Group
	partition.Machine // implemented only where the forwarder uses it

	mu       sync.Mutex
	boxes    map[fsm.Address]*fakeBox
	answers  []partition.Answer // the first answers, whatever the request
	commands []fsm.ForwardMessages
	epochs   []fsm.BeginEpoch // begun
}

type fakeBox struct {
	ready  []string // payloads
	out    []string
	to     fsm.Destination
	serial uint64
	epoch  uint64
	wants  string
	codes  []fsm.Code // of all forwarded messages, in order
	patch  []byte     // of every message
	most   int        // messages of a batch; 0: as the forwarder asks
}

func (o *fakeOutboxes) View(look func(partition.Machine)) { look(o) }

func (o *fakeOutboxes) Outboxes() (all []fsm.Address) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for address, box := range o.boxes {
		if len(box.ready)+len(box.out) > 0 {
			all = append(all, address)
		}
	}
	return all
}

func (o *fakeOutboxes) Outbox(at fsm.Address) (bool, fsm.Destination, string, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	box := o.boxes[at]
	if box == nil {
		return false, fsm.Destination{}, "", false
	}
	return len(box.out) > 0, box.to, box.wants, true
}

func (o *fakeOutboxes) Submit(command []byte, done func(partition.Answer)) {
	_, c, err := fsm.DecodeCommand(command)
	if begin, ok := c.(fsm.BeginEpoch); ok {
		o.mu.Lock()
		o.epochs = append(o.epochs, begin)
		if box := o.boxes[begin.Address]; box != nil && box.serial == begin.Serial && box.epoch == begin.Replaces {
			box.epoch = begin.Epoch
		}
		o.mu.Unlock()
		done(partition.Answer{Outcome: partition.Done})
		return
	}
	forward, ok := c.(fsm.ForwardMessages)
	if err != nil || !ok {
		panic(fmt.Sprintf("%v: %v", c, err))
	}
	o.mu.Lock()
	o.commands = append(o.commands, forward)
	var answer partition.Answer
	if len(o.answers) > 0 {
		answer, o.answers = o.answers[0], o.answers[1:]
	} else {
		answer = partition.Answer{Outcome: partition.Done, Result: o.forward(forward)}
	}
	o.mu.Unlock()
	done(answer)
}

func (o *fakeOutboxes) forward(c fsm.ForwardMessages) (result fsm.Result) {
	box := o.boxes[c.Address]
	if box == nil {
		return fsm.Result{Code: fsm.EntityNotFound}
	}
	if c.Done != 0 && c.Done == box.serial && len(box.out) > 0 {
		codes := c.Codes
		if len(codes) == 0 {
			codes = make([]fsm.Code, len(box.out))
		}
		box.codes = append(box.codes, codes...)
		box.out = nil
	}
	if len(box.out) == 0 && len(box.ready) > 0 && box.wants != "" && c.To != (fsm.Destination{}) {
		n := min(len(box.ready), int(c.Max))
		if box.most > 0 {
			n = min(n, box.most)
		}
		box.out, box.ready, box.to = box.ready[:n], box.ready[n:], c.To
		box.serial++
	}
	if len(box.out) == 0 {
		return fsm.Result{}
	}
	result = fsm.Result{Serial: box.serial, Epoch: box.epoch, To: box.to}
	for i, payload := range box.out {
		result.Deliveries = append(result.Deliveries, fsm.Delivery{
			Lock: fsm.LockID{Sequence: fsm.SequenceNumber(len(box.codes) + i + 1)}, Payload: []byte(payload), Patches: box.patch, Hops: 1,
		})
	}
	return result
}

// fakeForwardDeps replaces the rest of the cluster.
type fakeForwardDeps struct {
	mu      sync.Mutex
	names   map[string]fsm.Entity
	gone    map[fsm.EntityID]bool  // not in the catalog
	brought []fsm.TransferMessages // transfers in order
	asked   []bool                 // the argument newest of each call of named
	// answer returns the result of a transfer; nil: all messages are accepted.
	answer func(ctx context.Context, to fsm.PartitionID, command fsm.TransferMessages) (fsm.Result, error)
}

func (r *fakeForwardDeps) EntityByName(_ context.Context, _ fsm.NamespaceID, name string, newest bool) (fsm.Entity, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, newest)
	if entity, ok := r.names[name]; ok {
		return entity, nil
	}
	return fsm.Entity{}, fsm.EntityNotFound
}

func (r *fakeForwardDeps) EntityByID(_ context.Context, id fsm.EntityID) (fsm.Entity, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone[id] {
		return fsm.Entity{}, fsm.EntityNotFound
	}
	return fsm.Entity{ID: id, Name: fmt.Sprintf("entity-%d", id)}, nil
}

func (r *fakeForwardDeps) Transfer(ctx context.Context, to fsm.PartitionID, command fsm.TransferMessages) (fsm.Result, error) {
	r.mu.Lock()
	r.brought = append(r.brought, command)
	answer := r.answer
	r.mu.Unlock()
	if answer != nil {
		return answer(ctx, to, command)
	}
	return fsm.Result{Codes: make([]fsm.Code, len(command.Messages))}, nil
}

func (r *fakeForwardDeps) set(answer func(context.Context, fsm.PartitionID, fsm.TransferMessages) (fsm.Result, error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

// fakeTransport returns the same replica for every partition.
type fakeTransport struct {
	source  *fakeOutboxes
	changed notify.Broadcast
	ctx     context.Context
	tasks   sync.WaitGroup
}

func (w *fakeTransport) LocalReplica(fsm.PartitionID) rpc.Group { return w.source }

func (w *fakeTransport) Changes() <-chan struct{} { return w.changed.Wait() }

func (w *fakeTransport) Go(task func(ctx context.Context)) bool {
	w.tasks.Go(func() { task(w.ctx) })
	return true
}

// rereadWhole uses the beginning of a payload as the message id, or a long one where the payload says so.
func rereadWhole(payload, _ []byte) (fsm.Message, error) {
	if strings.HasPrefix(string(payload), "broken") {
		return fsm.Message{}, errors.New("not a message")
	}
	id := string(payload[:min(len(payload), 100)])
	if id == "long" {
		id = strings.Repeat(id, 1000)
	}
	return fsm.Message{ID: id, Payload: payload}, nil
}

type forwarderTest struct {
	*Forwarder
	source    *fakeOutboxes
	deps      *fakeForwardDeps
	transport *fakeTransport
	log       *bytes.Buffer
}

// newForwarderTest returns a forwarder that leads partition 1, in which entity 1 forwards to
// "there", entity 50 in partition 2.
func newForwarderTest(t *testing.T) *forwarderTest {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	x := &forwarderTest{
		source:    &fakeOutboxes{boxes: map[fsm.Address]*fakeBox{{Entity: 1}: {wants: "there"}}},
		deps:      &fakeForwardDeps{names: map[string]fsm.Entity{"there": {ID: 50, Partition: 2}}},
		transport: &fakeTransport{ctx: ctx}, log: new(bytes.Buffer),
	}
	x.transport.source = x.source
	log := slog.New(slog.NewTextHandler(&lockedWriter{to: x.log}, nil))
	x.Forwarder = New(x.transport, x.deps, rereadWhole, time.Hour, log)
	x.transport.Go(x.Run)
	t.Cleanup(func() {
		cancel()
		x.transport.tasks.Wait()
	})
	return x
}

type lockedWriter struct {
	mu sync.Mutex
	to *bytes.Buffer
}

func (w *lockedWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(b)
}

func texts(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("m%d", i)
	}
	return all
}

// put makes messages ready, and wakes the forwarder as the state machine would.
func (x *forwarderTest) put(entity fsm.EntityID, payloads ...string) {
	x.source.mu.Lock()
	box := x.source.boxes[fsm.Address{Entity: entity}]
	box.ready = append(box.ready, payloads...)
	x.source.mu.Unlock()
	x.Wake(fsm.Outbox{Partition: 1, Address: fsm.Address{Entity: entity}})
}

// ended waits until n messages of a box have ended, and returns their codes.
func (x *forwarderTest) ended(t *testing.T, entity fsm.EntityID, n int) (codes []fsm.Code) {
	t.Helper()
	kit.Eventually(t, fmt.Sprintf("%d messages of %d have gone", n, entity), func() bool {
		x.source.mu.Lock()
		defer x.source.mu.Unlock()
		codes = slices.Clone(x.source.boxes[fsm.Address{Entity: entity}].codes)
		return len(codes) == n
	})
	return codes
}

// idle waits until the forwarder has no task.
func (x *forwarderTest) idle(t *testing.T) {
	t.Helper()
	kit.Eventually(t, "the forwarder is idle", func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		return len(x.tasks)+x.running+len(x.queue)+len(x.backingOff)+len(x.from)+len(x.towards) == 0
	})
}

func (x *forwarderTest) logged(text string) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return strings.Count(x.log.String(), text)
}
