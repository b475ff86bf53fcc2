package amqp

import (
	"context"
	"crypto/subtle"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/peeklock/peeklock/fsm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// house is a Broker over one fsm.Queues: the real rules of queues and locks, without
// raft and disk. Done functions are called before the methods return, which is the
// harder case for the gateway, unless later is set.
type house struct {
	mu       sync.Mutex
	queues   *fsm.Queues
	bodiesOf *bodies
	names    map[string]fsm.Entity
	settings fsm.EntitySettings // of new queues
	entities fsm.EntityID
	index    uint64
	shift    time.Duration // the clock of the machine runs ahead by this
	waiters  []*lane
	accepts  []*heldLane   // who wait for a session
	sendCode fsm.Code      // answers sends instead of storing them
	lockCode fsm.Code      // answers locks
	settle   fsm.Code      // answers settlements
	busy     bool          // Resolve says ServerBusy
	hold     chan struct{} // when set, answers of sends wait until it is closed
	closed   int           // receivers closed
	ruleErr  error         // answers operations on rules
	cancels  int
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

func newHouse(names ...string) *house {
	return newHouseOf(fsm.EntitySettings{LockDuration: 30_000, MaxDeliveryCount: 10, MaxMessageBytes: 256 << 10}, names...)
}

func newHouseOf(settings fsm.EntitySettings, names ...string) *house {
	h := &house{names: make(map[string]fsm.Entity), settings: settings}
	store := &bodies{kept: make(map[fsm.Ref][]byte)}
	h.queues = fsm.NewQueues(store)
	h.bodiesOf = store
	for _, name := range names {
		h.add(name)
	}
	return h
}

// secondNamespace is chosen by hosts whose first label is "second".
const secondNamespace = fsm.DefaultNamespace + 1

// add makes a queue.
func (h *house) add(name string) { h.make(fsm.Entity{Name: name}) }

// addSecond makes a queue in the second namespace, and returns the house.
func (h *house) addSecond(name string) *house {
	h.make(fsm.Entity{Name: name, Namespace: secondNamespace})
	return h
}

// inNamespace is the name of an entity among those of all namespaces.
func inNamespace(id fsm.NamespaceID, name string) string {
	if id == secondNamespace {
		return "second:" + strings.ToLower(name)
	}
	return strings.ToLower(name)
}

// make makes an entity of any kind.
func (h *house) make(e fsm.Entity) fsm.EntityID {
	h.mu.Lock()
	h.entities++
	e.ID, e.Partition, e.Version, e.Settings = h.entities, 1, 1, h.settings
	h.names[inNamespace(e.Namespace, e.Name)] = e
	h.mu.Unlock()
	h.do(fsm.PutEntity{Entity: e.ID, Version: 1, Settings: e.Settings, Kind: e.Kind, Topic: e.Topic})
	return e.ID
}

// apply performs one command at the machine's time, after what is due. mu is held.
func (h *house) apply(command fsm.Command) fsm.Result {
	now := fsm.Instant(time.Now().Add(h.shift).UnixMilli())
	for at, ok := h.queues.NextDeadline(); ok && at <= now; at, ok = h.queues.NextDeadline() {
		h.index++
		h.queues.Apply(fsm.Env{Index: h.index, Now: now}, fsm.AppendCommand(nil, fsm.Header{}, fsm.Pulse{}))
	}
	h.index++
	once := fsm.Header{Origin: 1, Serial: h.index, Low: h.index}
	r := h.queues.Apply(fsm.Env{Index: h.index, Now: now}, fsm.AppendCommand(nil, once, command))
	h.fill(r.Deliveries)
	return r
}

func (h *house) fill(deliveries []fsm.Delivery) {
	for i := range deliveries {
		d := &deliveries[i]
		d.Payload = h.bodiesOf.Read(d.Body)
		if d.Patch != (fsm.Ref{}) {
			d.Patches = h.bodiesOf.Read(d.Patch)
		}
	}
}

// do performs a command and then serves the receivers that wait.
func (h *house) do(command fsm.Command) fsm.Result {
	h.mu.Lock()
	r := h.apply(command)
	calls := h.serveWaiters()
	h.mu.Unlock()
	for _, call := range calls {
		call()
	}
	return r
}

// serveWaiters gives what is ready to those who wait, in their order, as the leader of a
// partition does: what there is divided by those who wait, rounded up, is what each may
// have at most. mu is held.
func (h *house) serveWaiters() (calls []func()) {
	shares := make(map[fsm.Address]int)
	for _, l := range h.waiters {
		shares[l.at.Address()]++
	}
	for at, n := range shares {
		shares[at] = (int(h.queues.Ready(at)) + n - 1) / n
	}
	var still []*lane
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
	var waiting []*heldLane
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

// pass lets time go by in the machine.
func (h *house) pass(d time.Duration) {
	h.mu.Lock()
	h.shift += d
	h.mu.Unlock()
	h.do(fsm.Pulse{})
}

// ahead is how far the machine's clock runs ahead.
func (h *house) ahead() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.shift
}

// change edits the settings of a queue, as an operator does.
func (h *house) change(name string, edit func(*fsm.EntitySettings)) {
	h.mu.Lock()
	e := h.names[strings.ToLower(name)]
	e.Version++
	edit(&e.Settings)
	h.names[strings.ToLower(name)] = e
	h.mu.Unlock()
	h.do(fsm.PutEntity{Entity: e.ID, Version: e.Version, Settings: e.Settings, Kind: e.Kind, Topic: e.Topic})
}

// remove deletes a queue.
func (h *house) remove(name string) {
	h.mu.Lock()
	e := h.names[strings.ToLower(name)]
	delete(h.names, strings.ToLower(name))
	h.mu.Unlock()
	h.do(fsm.DropEntity{Entity: e.ID})
}

func (h *house) counts(name string) fsm.Counts {
	h.mu.Lock()
	defer h.mu.Unlock()
	counts, _ := h.queues.Counts(h.names[strings.ToLower(name)].ID)
	return counts
}

func (*house) Namespace(host string) fsm.NamespaceID {
	host, _, _ = strings.Cut(host, ":")
	if label, _, _ := strings.Cut(host, "."); strings.EqualFold(label, "second") {
		return secondNamespace
	}
	return fsm.DefaultNamespace
}

func (h *house) Resolve(_ context.Context, in fsm.NamespaceID, path string) (fsm.Place, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.busy {
		return fsm.Place{}, fsm.ServerBusy
	}
	name, sub := strings.ToLower(path), fsm.MainQueue
	if entity, ok := strings.CutSuffix(name, "/$transfer/$deadletterqueue"); ok {
		name, sub = entity, fsm.TransferDeadLetterQueue
	} else if entity, ok := strings.CutSuffix(name, "/$deadletterqueue"); ok {
		name, sub = entity, fsm.DeadLetterQueue
	}
	e, ok := h.names[inNamespace(in, name)]
	if !ok {
		return fsm.Place{}, fsm.EntityNotFound
	}
	return fsm.Place{Entity: e, Sub: sub}, nil
}

func (h *house) Send(at fsm.Place, messages []fsm.Message, done func(fsm.Code)) {
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

func (h *house) Schedule(at fsm.Place, messages []fsm.Message, done func(fsm.Code, []fsm.SequenceNumber)) {
	r := h.do(fsm.SendMessages{Entity: at.ID, Messages: messages})
	numbers := r.Sequences
	if numbers == nil && r.Code == fsm.OK {
		for i := range messages {
			numbers = append(numbers, r.Sequence+fsm.SequenceNumber(i))
		}
	}
	done(r.Code, numbers)
}

func (h *house) CancelScheduled(at fsm.Place, sequences []fsm.SequenceNumber, done func(fsm.Code)) {
	done(h.do(fsm.CancelScheduled{Entity: at.ID, Sequences: sequences}).Code)
}

func (h *house) Purge(at fsm.Place, before fsm.Instant, most int, done func(fsm.Code, int)) {
	r := h.do(fsm.PurgeMessages{Address: at.Address(), Before: before, Max: uint32(most)})
	done(r.Code, int(r.Count))
}

func (h *house) Settle(at fsm.Place, settlements []fsm.Settlement, done func([]fsm.Code)) {
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

func (h *house) Renew(at fsm.Place, locks []fsm.LockID, done func([]fsm.Code, []fsm.Instant)) {
	r := h.do(fsm.RenewLocks{Address: at.Address(), Locks: locks})
	done(codesOf(r, len(locks)), r.Untils)
}

// codesOf is one code for each of n items, also when all were refused together.
func codesOf(r fsm.Result, n int) []fsm.Code {
	if r.Code == fsm.OK {
		return r.Codes
	}
	return slices.Repeat([]fsm.Code{r.Code}, n)
}

func (h *house) Fetch(at fsm.Place, sequences []fsm.SequenceNumber, takes bool, done func(fsm.Code, []fsm.Delivery)) {
	r := h.do(fsm.FetchDeferred{Address: at.Address(), Sequences: sequences, Delete: takes})
	done(r.Code, r.Deliveries)
}

func (h *house) Peek(_ context.Context, at fsm.Place, from fsm.SequenceNumber, most, mostBytes int) ([]fsm.Delivery, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	found := h.queues.Peek(at.Address(), from, most)
	h.fill(found)
	bytes := 0
	for i := range found {
		if bytes += len(found[i].Payload); bytes > mostBytes && i > 0 {
			return found[:i], nil
		}
	}
	return found, nil
}

func (h *house) Seal(at fsm.Place, id fsm.LockID) (token fsm.LockToken) {
	binary.BigEndian.PutUint64(token[:], uint64(id.Sequence))
	binary.BigEndian.PutUint32(token[8:], id.Epoch)
	binary.BigEndian.PutUint32(token[12:], uint32(at.ID)<<8|uint32(at.Sub)|1<<31)
	return token
}

func (h *house) Unseal(at fsm.Place, token fsm.LockToken) (fsm.LockID, bool) {
	id := fsm.LockID{Sequence: fsm.SequenceNumber(binary.BigEndian.Uint64(token[:])), Epoch: binary.BigEndian.Uint32(token[8:])}
	return id, h.Seal(at, id) == token
}

func (h *house) Receiver(at fsm.Place, takes bool) Receiver {
	return &lane{house: h, at: at, takes: takes}
}

// lane is a Receiver of the house.
type lane struct {
	session         fsm.SessionLock // of a heldLane
	house           *house
	at              fsm.Place
	takes           bool
	most, mostBytes int
	done            func(fsm.Code, []fsm.Delivery)
	timer           *time.Timer
	closed          bool
}

func (l *lane) command(most, mostBytes int) fsm.LockMessages {
	return fsm.LockMessages{Address: l.at.Address(), Max: uint32(most), MaxBytes: uint32(mostBytes), Delete: l.takes, Session: l.session}
}

func (l *lane) Lock(most, mostBytes int, wait time.Duration, done func(fsm.Code, []fsm.Delivery)) {
	h := l.house
	h.mu.Lock()
	if l.done != nil {
		panic("two locks outstanding on one lane")
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

// finish takes the done function out of the lane. house.mu is held.
func (l *lane) finish(code fsm.Code, deliveries []fsm.Delivery) func() {
	done := l.done
	l.done = nil
	if l.timer != nil {
		l.timer.Stop()
	}
	return func() { done(code, deliveries) }
}

// give ends the waiting with nothing.
func (l *lane) give(code fsm.Code) {
	h := l.house
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

func (l *lane) Cancel() {
	l.house.mu.Lock()
	l.house.cancels++
	l.house.mu.Unlock()
	l.give(fsm.Timeout)
}

func (l *lane) Close() {
	l.house.mu.Lock()
	l.closed = true
	l.house.closed++
	l.house.mu.Unlock()
	l.give(fsm.Timeout)
}

// keys is an Authorizer that knows one rule.
type keys struct {
	grant Grant
}

const (
	ruleName = "RootManageSharedAccessKey"
	ruleKey  = "SAS_KEY_VALUE"
)

func (k keys) Token(_ context.Context, from Client, kind, token, audience string) (Grant, error) {
	if kind != "servicebus.windows.net:sastoken" || !strings.Contains(token, "skn="+ruleName) {
		return Grant{}, errors.New("the token has an invalid signature")
	}
	return authorized(k.grant, from, audience), nil
}

// authorized is a grant for what an audience names. How audiences are read is tested in admin/auth.
func authorized(grant Grant, from Client, audience string) Grant {
	_, path, _ := strings.Cut(audience, "://")
	_, path, _ = strings.Cut(path, "/")
	grant.Namespace, grant.Path = from.Namespace, fsm.PathKey(path)
	return grant
}

func (k keys) Password(_ context.Context, _ Client, user, password string) (Grant, error) {
	if user != ruleName || subtle.ConstantTimeCompare([]byte(password), []byte(ruleKey)) != 1 {
		return Grant{}, errors.New("no such rule and key")
	}
	return k.grant, nil
}

func (k keys) Certificate(context.Context, Client, *x509.Certificate) (Grant, error) {
	return Grant{}, fsm.Unauthorized
}

// holdsNothing checks the invariant of every test with a gateway: when all connections have
// ended, on whatever way, and the broker has answered, nothing is counted for them any more.
func holdsNothing(t testing.TB, s *Server) {
	t.Helper()
	if _, silent := s.config.Broker.(interface{ neverAnswers() }); silent {
		return // what it was asked counts until it answers
	}
	comes(t, s, "all connections have ended, and the budget counts nothing", func(f Stats) bool {
		return f.Memory.Used == 0 && f.Memory.Accounts == 0 && f.Memory.Restricted == 0
	})
}

// gateway starts a Server over a loopback listener and returns its address.
func gateway(t testing.TB, b Broker, change ...func(*Config)) (*Server, string) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	config := DefaultConfig()
	config.Listener, config.Broker, config.Authorizer = listener, b, keys{Grant{Rights: fsm.Manage}}
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
		holdsNothing(t, s)
	})
	return s, listener.Addr().String()
}
