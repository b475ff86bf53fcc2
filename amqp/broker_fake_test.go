package amqp

import (
	"context"
	"encoding/binary"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/peeklock/peeklock/amqp/account"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/queue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// broker is a Broker over one queue.Machine: it applies the real rules of queues and locks, without raft and
// disk. Done functions are called before the methods return, unless later is set, because that is the harder
// case for the gateway.
type fakeBroker struct {
	mu       sync.Mutex
	queues   *queue.Machine
	bodiesOf *bodies
	names    map[string]fsm.Entity
	settings fsm.EntitySettings // of new queues
	entities fsm.EntityID
	index    uint64
	shift    time.Duration // the clock of the state machine is ahead by this
	waiters  []*fakeReceiver
	accepts  []*fakeSession // calls that wait for a session
	sendCode fsm.Code       // answers sends instead of storing them
	lockCode fsm.Code       // answers locks
	settle   fsm.Code       // answers settlements
	busy     bool           // Resolve returns ServerBusy
	hold     chan struct{}  // if set, answers of sends wait until it is closed
	closed   int            // receivers closed
	ruleErr  error          // answers operations on rules
	cancels  int

	changed   chan struct{} // closed when entities change; nil: nobody waits
	checks    int           // calls of Check
	checkHold chan struct{} // if set, answers of Check wait until it is closed
}

// bodies keeps payloads in memory.
type bodies struct{ kept map[fsm.Ref][]byte }

func (b *bodies) Append(_ fsm.Owner, body []byte) fsm.Ref {
	ref := fsm.Ref{Segment: 1, Offset: uint32(len(b.kept)), Size: uint32(len(body))}
	b.kept[ref] = append([]byte(nil), body...)
	return ref
}
func (b *bodies) Read(ref fsm.Ref) []byte { return b.kept[ref] }
func (b *bodies) Release(fsm.Ref)         {}

func newFakeBroker(names ...string) *fakeBroker {
	return newFakeBrokerOf(fsm.EntitySettings{LockDuration: 30_000, MaxDeliveryCount: 10, MaxMessageBytes: 256 << 10}, names...)
}

func newFakeBrokerOf(settings fsm.EntitySettings, names ...string) *fakeBroker {
	h := &fakeBroker{names: make(map[string]fsm.Entity), settings: settings}
	store := &bodies{kept: make(map[fsm.Ref][]byte)}
	h.queues = queue.New(store)
	h.bodiesOf = store
	for _, name := range names {
		h.add(name)
	}
	return h
}

// secondNamespace is chosen by hosts whose first label is "second".
const secondNamespace = fsm.DefaultNamespace + 1

// add creates a queue.
func (h *fakeBroker) add(name string) { h.create(fsm.Entity{Name: name}) }

// addSecond creates a queue in the second namespace, and returns the broker.
func (h *fakeBroker) addSecond(name string) *fakeBroker {
	h.create(fsm.Entity{Name: name, Namespace: secondNamespace})
	return h
}

// inNamespace returns the name of an entity among those of all namespaces.
func inNamespace(id fsm.NamespaceID, name string) string {
	if id == secondNamespace {
		return "second:" + strings.ToLower(name)
	}
	return strings.ToLower(name)
}

// create creates an entity of any kind, with the settings of new queues.
func (h *fakeBroker) create(e fsm.Entity) fsm.EntityID {
	e.Settings = h.settings
	return h.createWith(e)
}

// createWith creates an entity with settings of its own.
func (h *fakeBroker) createWith(e fsm.Entity) fsm.EntityID {
	h.mu.Lock()
	h.entities++
	e.ID, e.Partition, e.Version = h.entities, 1, 1
	h.names[inNamespace(e.Namespace, e.Name)] = e
	h.notify()
	h.mu.Unlock()
	h.do(fsm.PutEntity{Entity: e.ID, Version: 1, Settings: e.Settings, Kind: e.Kind, Topic: e.Topic, Rule: e.Rule})
	return e.ID
}

// apply performs one command at the time of the state machine, after the pulses that are due. mu is held.
func (h *fakeBroker) apply(command fsm.Command) fsm.Result {
	now := fsm.Instant(time.Now().Add(h.shift).UnixMilli())
	at := fsm.Times{Wall: now, Serving: now}
	for rest, ok := at.Until(h.queues.NextDeadline()); ok && rest <= 0; rest, ok = at.Until(h.queues.NextDeadline()) {
		h.index++
		h.queues.Apply(h.env(now), fsm.AppendCommand(nil, fsm.Header{}, fsm.Pulse{}))
	}
	h.index++
	once := fsm.Header{Incarnation: 1, Serial: h.index, Low: h.index}
	r := h.queues.Apply(h.env(now), fsm.AppendCommand(nil, once, command))
	h.loadPayloads(r.Deliveries)
	return r
}

// env returns the times of the next entry. mu is held.
func (h *fakeBroker) env(now fsm.Instant) fsm.Env {
	return fsm.Env{Index: h.index, Now: now, Serving: now}
}

func (h *fakeBroker) loadPayloads(deliveries []fsm.Delivery) {
	for i := range deliveries {
		d := &deliveries[i]
		d.Payload = h.bodiesOf.Read(d.Body)
		if d.Patch != (fsm.Ref{}) {
			d.Patches = h.bodiesOf.Read(d.Patch)
		}
	}
}

// do performs a command and then serves the waiting receivers.
func (h *fakeBroker) do(command fsm.Command) fsm.Result {
	h.mu.Lock()
	r := h.apply(command)
	calls := h.serveWaiters()
	h.mu.Unlock()
	for _, call := range calls {
		call()
	}
	return r
}

// serveWaiters returns the ready messages to the waiting receivers, in their order, as the leader of a
// partition does: each receiver gets at most the number of messages divided by the number of waiting
// receivers, rounded up. mu is held.
func (h *fakeBroker) serveWaiters() (calls []func()) {
	shares := make(map[fsm.Address]int)
	for _, l := range h.waiters {
		shares[l.at.Address()]++
	}
	for at, n := range shares {
		shares[at] = (int(h.queues.Ready(at)) + n - 1) / n
	}
	var still []*fakeReceiver
	for _, l := range h.waiters {
		most := min(l.most, max(1, shares[l.at.Address()]))
		r := h.apply(l.command(most, l.mostBytes))
		if len(r.Deliveries) == 0 && r.Code == fsm.OK {
			still = append(still, l)
			continue
		}
		calls = append(calls, l.finish(r.Code, r.Deliveries))
	}
	h.waiters = still
	var waiting []*fakeSession
	for _, s := range h.accepts {
		call := s.try()
		if call == nil {
			waiting = append(waiting, s)
			continue
		}
		calls = append(calls, call)
	}
	h.accepts = waiting
	return calls
}

// advanceClock advances the clock of the state machine.
func (h *fakeBroker) advanceClock(d time.Duration) {
	h.mu.Lock()
	h.shift += d
	h.mu.Unlock()
	h.do(fsm.Pulse{})
}

// clockOffset returns how far the clock of the state machine is ahead.
func (h *fakeBroker) clockOffset() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.shift
}

// change edits the settings of a queue, as an operator does.
func (h *fakeBroker) change(name string, edit func(*fsm.EntitySettings)) {
	h.mu.Lock()
	e := h.names[strings.ToLower(name)]
	e.Version++
	edit(&e.Settings)
	h.names[strings.ToLower(name)] = e
	h.mu.Unlock()
	h.do(fsm.PutEntity{Entity: e.ID, Version: e.Version, Settings: e.Settings, Kind: e.Kind, Topic: e.Topic})
}

// remove deletes a queue.
func (h *fakeBroker) remove(name string) {
	h.mu.Lock()
	e := h.names[strings.ToLower(name)]
	delete(h.names, strings.ToLower(name))
	h.mu.Unlock()
	h.do(fsm.DropEntity{Entity: e.ID})
}

func (h *fakeBroker) CreateEntity(ctx context.Context, in fsm.NamespaceID, kind fsm.EntityKind, name string, settings fsm.EntitySettings, rule *fsm.Rule) (fsm.EntityRef, error) {
	var topic fsm.EntityID
	if of, _, ok := fsm.SplitSubscriptionPath(name); ok {
		at, err := h.Resolve(ctx, in, of)
		if err != nil || at.Kind != fsm.TopicEntity {
			return fsm.EntityRef{}, fsm.EntityNotFound
		}
		topic = at.ID
	}
	if _, err := h.Resolve(ctx, in, name); err == nil {
		return fsm.EntityRef{}, fsm.EntityExists
	}
	settings.MaxMessageBytes = 1 << 20
	h.createWith(fsm.Entity{Name: name, Namespace: in, Kind: kind, Topic: topic, Settings: settings.WithDefaults(), Rule: rule})
	return h.Resolve(ctx, in, name)
}

func (h *fakeBroker) DeleteEntity(ctx context.Context, in fsm.NamespaceID, kind fsm.EntityKind, name string) error {
	at, err := h.Resolve(ctx, in, name)
	if err != nil {
		return err
	}
	if at.Kind != kind {
		return fsm.EntityNotFound
	}
	h.mu.Lock()
	for key, e := range h.names {
		if e.ID == at.ID || e.Kind == fsm.SubscriptionEntity && e.Topic == at.ID {
			delete(h.names, key)
		}
	}
	h.mu.Unlock()
	h.do(fsm.DropEntity{Entity: at.ID})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.notify()
	return nil
}

// notify reports a change of entities; mu is held.
func (h *fakeBroker) notify() {
	if h.changed != nil {
		close(h.changed)
		h.changed = nil
	}
}

func (h *fakeBroker) Changes() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.changed == nil {
		h.changed = make(chan struct{})
	}
	return h.changed
}

func (h *fakeBroker) Deleted(ids []fsm.EntityID) []fsm.EntityID {
	h.mu.Lock()
	defer h.mu.Unlock()
	known := make(map[fsm.EntityID]bool)
	for _, e := range h.names {
		known[e.ID] = true
	}
	return slices.DeleteFunc(ids, func(id fsm.EntityID) bool { return known[id] })
}

func (h *fakeBroker) FindSubscriptions(_ context.Context, in fsm.NamespaceID, prefix, suffix string) (paths []string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.names {
		if _, own, ok := fsm.SplitSubscriptionPath(e.Name); ok && e.Namespace == in && strings.HasPrefix(own, prefix) && strings.HasSuffix(own, suffix) {
			paths = append(paths, e.Name)
		}
	}
	return paths, nil
}

// counts returns the counts of an entity without the time of its last use.
func (h *fakeBroker) counts(name string) fsm.Counts {
	h.mu.Lock()
	defer h.mu.Unlock()
	counts, _ := h.queues.Counts(h.names[strings.ToLower(name)].ID)
	counts.LastUse = 0
	return counts
}

func (*fakeBroker) Namespace(_ context.Context, host string) (fsm.NamespaceID, error) {
	host, _, _ = strings.Cut(host, ":")
	switch label, _, _ := strings.Cut(host, "."); strings.ToLower(label) {
	case "second":
		return secondNamespace, nil
	case "unconfirmed":
		return 0, fsm.ServerBusy
	}
	return fsm.DefaultNamespace, nil
}

func (h *fakeBroker) Resolve(_ context.Context, in fsm.NamespaceID, path string) (fsm.EntityRef, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.busy {
		return fsm.EntityRef{}, fsm.ServerBusy
	}
	name, sub := strings.ToLower(path), fsm.MainQueue
	if entity, ok := strings.CutSuffix(name, "/$transfer/$deadletterqueue"); ok {
		name, sub = entity, fsm.TransferDeadLetterQueue
	} else if entity, ok := strings.CutSuffix(name, "/$deadletterqueue"); ok {
		name, sub = entity, fsm.DeadLetterQueue
	}
	e, ok := h.names[inNamespace(in, name)]
	if !ok {
		return fsm.EntityRef{}, fsm.EntityNotFound
	}
	return fsm.EntityRef{Entity: e, Sub: sub}, nil
}

func (h *fakeBroker) Send(at fsm.EntityRef, messages []fsm.Message, done func(fsm.Code)) {
	h.mu.Lock()
	code, hold := h.sendCode, h.hold
	h.mu.Unlock()
	if code == fsm.OK {
		code = h.do(fsm.SendMessages{Entity: at.ID, Messages: messages}).Code
	}
	if hold == nil {
		done(code)
		return
	}
	go func() { <-hold; done(code) }()
}

func (h *fakeBroker) Schedule(at fsm.EntityRef, messages []fsm.Message, done func(fsm.Code, []fsm.SequenceNumber)) {
	r := h.do(fsm.SendMessages{Entity: at.ID, Messages: messages})
	numbers := r.Sequences
	if numbers == nil && r.Code == fsm.OK {
		for i := range messages {
			numbers = append(numbers, r.Sequence+fsm.SequenceNumber(i))
		}
	}
	done(r.Code, numbers)
}

func (h *fakeBroker) CancelScheduled(at fsm.EntityRef, sequences []fsm.SequenceNumber, done func(fsm.Code)) {
	done(h.do(fsm.CancelScheduled{Entity: at.ID, Sequences: sequences}).Code)
}

func (h *fakeBroker) Purge(at fsm.EntityRef, before fsm.Instant, most int, done func(fsm.Code, int)) {
	r := h.do(fsm.PurgeMessages{Address: at.Address(), Before: before, Max: uint32(most)})
	done(r.Code, int(r.Count))
}

func (h *fakeBroker) Settle(at fsm.EntityRef, settlements []fsm.Settlement, done func([]fsm.Code)) {
	h.mu.Lock()
	refuse := h.settle
	h.mu.Unlock()
	if refuse != fsm.OK {
		codes := make([]fsm.Code, len(settlements))
		for i := range codes {
			codes[i] = refuse
		}
		done(codes)
		return
	}
	r := h.do(fsm.SettleMessages{Address: at.Address(), Settlements: settlements})
	done(codesOf(r, len(settlements)))
}

func (h *fakeBroker) Renew(at fsm.EntityRef, locks []fsm.LockID, done func([]fsm.Code, []fsm.Instant)) {
	r := h.do(fsm.RenewLocks{Address: at.Address(), Locks: locks})
	done(codesOf(r, len(locks)), r.Untils)
}

// codesOf returns one code for each of n items, also if all were refused together.
func codesOf(r fsm.Result, n int) []fsm.Code {
	if r.Code == fsm.OK {
		return r.Codes
	}
	return slices.Repeat([]fsm.Code{r.Code}, n)
}

func (h *fakeBroker) Fetch(at fsm.EntityRef, sequences []fsm.SequenceNumber, receiveAndDelete bool, done func(fsm.Code, []fsm.Delivery)) {
	r := h.do(fsm.FetchDeferred{Address: at.Address(), Sequences: sequences, Delete: receiveAndDelete})
	done(r.Code, r.Deliveries)
}

func (h *fakeBroker) FetchReady(at fsm.EntityRef, seen []fsm.LockID, receiveAndDelete bool, done func(fsm.Code, []fsm.Delivery)) {
	r := h.do(fsm.FetchReady{Address: at.Address(), Seen: seen, Delete: receiveAndDelete})
	done(r.Code, r.Deliveries)
}

func (h *fakeBroker) Peek(_ context.Context, at fsm.EntityRef, from fsm.SequenceNumber, most, mostBytes int) ([]fsm.Delivery, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	found := h.queues.Peek(at.Address(), from, most)
	h.loadPayloads(found)
	bytes := 0
	for i := range found {
		if bytes += len(found[i].Payload); bytes > mostBytes && i > 0 {
			return found[:i], nil
		}
	}
	return found, nil
}

func (h *fakeBroker) LockToken(at fsm.EntityRef, id fsm.LockID) (token fsm.LockToken) {
	binary.BigEndian.PutUint64(token[:], uint64(id.Sequence))
	binary.BigEndian.PutUint32(token[8:], id.Epoch)
	binary.BigEndian.PutUint32(token[12:], uint32(at.ID)<<8|uint32(at.Sub)|1<<31)
	return token
}

func (h *fakeBroker) ParseLockToken(at fsm.EntityRef, token fsm.LockToken) (fsm.LockID, bool) {
	id := fsm.LockID{Sequence: fsm.SequenceNumber(binary.BigEndian.Uint64(token[:])), Epoch: binary.BigEndian.Uint32(token[8:])}
	return id, h.LockToken(at, id) == token
}

func (h *fakeBroker) Receiver(at fsm.EntityRef, receiveAndDelete bool) Receiver {
	return &fakeReceiver{broker: h, at: at, receiveAndDelete: receiveAndDelete}
}

// receiver is a Receiver of the broker.
type fakeReceiver struct {
	session          fsm.SessionLock // whose messages it locks; zero: none
	broker           *fakeBroker
	at               fsm.EntityRef
	receiveAndDelete bool
	most, mostBytes  int
	done             func(fsm.Code, []fsm.Delivery)
	timer            *time.Timer
	closed           bool
}

func (l *fakeReceiver) command(most, mostBytes int) fsm.LockMessages {
	return fsm.LockMessages{Address: l.at.Address(), Max: uint32(most), MaxBytes: uint32(mostBytes), Delete: l.receiveAndDelete, Session: l.session}
}

func (l *fakeReceiver) Lock(most, mostBytes int, wait time.Duration, done func(fsm.Code, []fsm.Delivery)) {
	h := l.broker
	h.mu.Lock()
	if l.done != nil {
		panic("two locks outstanding on one receiver")
	}
	if h.lockCode != fsm.OK || l.closed {
		code := h.lockCode
		h.mu.Unlock()
		done(code, nil)
		return
	}
	l.most, l.mostBytes, l.done = most, mostBytes, done
	r := h.apply(l.command(most, mostBytes))
	if len(r.Deliveries) > 0 || wait == 0 || r.Code != fsm.OK {
		call := l.finish(r.Code, r.Deliveries)
		h.mu.Unlock()
		call()
		return
	}
	h.waiters = append(h.waiters, l)
	l.timer = time.AfterFunc(wait, func() { l.give(fsm.Timeout) })
	h.mu.Unlock()
}

// finish removes the done function from the receiver. broker.mu is held.
func (l *fakeReceiver) finish(code fsm.Code, deliveries []fsm.Delivery) func() {
	done := l.done
	l.done = nil
	if l.timer != nil {
		l.timer.Stop()
	}
	return func() { done(code, deliveries) }
}

// give ends the wait without messages.
func (l *fakeReceiver) give(code fsm.Code) {
	h := l.broker
	h.mu.Lock()
	for i, w := range h.waiters {
		if w == l {
			h.waiters = append(h.waiters[:i], h.waiters[i+1:]...)
			call := l.finish(code, nil)
			h.mu.Unlock()
			call()
			return
		}
	}
	h.mu.Unlock()
}

func (l *fakeReceiver) Cancel() {
	l.broker.mu.Lock()
	l.broker.cancels++
	l.broker.mu.Unlock()
	l.give(fsm.Timeout)
}

func (l *fakeReceiver) Close() {
	l.broker.mu.Lock()
	l.closed = true
	l.broker.closed++
	l.broker.mu.Unlock()
	l.give(fsm.Timeout)
}

// checkNothingHeld checks the invariant of every test with a gateway: when all connections have ended, for
// whatever reason, and the broker has answered, no memory is counted for them.
func checkNothingHeld(t testing.TB, s *Server) {
	t.Helper()
	if _, silent := s.config.Broker.(interface{ neverAnswers() }); silent {
		return // unanswered requests count until the broker answers
	}
	comes(t, s, "all connections have ended, and the budget counts nothing", func(f Stats) bool {
		return f.Memory.Used == 0 && f.Memory.Accounts == 0 && f.Memory.Restricted == 0
	})
	for r := range account.HTTPBytes + 1 {
		if n := s.Accounts().Used(r); n != 0 {
			t.Errorf("owners hold %d %s at the end", n, r)
		}
	}
}

// gateway starts a Server over a loopback listener and returns its address.
func gateway(t testing.TB, b Broker, change ...func(*Config)) (*Server, string) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	config := DefaultConfig()
	config.Listener, config.Broker, config.Authorizer = listener, b, fakeAuthorizer{Grant{Rights: fsm.Manage}}
	for _, c := range change {
		c(&config)
	}
	s, err := Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
		checkNothingHeld(t, s)
	})
	return s, listener.Addr().String()
}
