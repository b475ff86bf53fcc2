package amqp

import (
	"context"
	"slices"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// fakeSession is a Session of the broker, and before that a request for one.
type fakeSession struct {
	*fakeReceiver
	wanted   fsm.AcceptSession
	accepted func(fsm.Code, Session)
	waiting  *time.Timer
	until    fsm.Instant
}

func (h *fakeBroker) AcceptSession(at fsm.EntityRef, wants fsm.AcceptSession, receiveAndDelete bool, wait time.Duration, done func(fsm.Code, Session)) func() {
	s := &fakeSession{fakeReceiver: &fakeReceiver{broker: h, at: at, receiveAndDelete: receiveAndDelete}, wanted: wants, accepted: done}
	s.wanted.Entity = at.ID
	h.mu.Lock()
	call := s.try()
	if call == nil {
		h.accepts = append(h.accepts, s)
		s.waiting = time.AfterFunc(wait, s.giveUp)
	}
	h.mu.Unlock()
	if call != nil {
		call()
	}
	return s.giveUp
}

// try asks the state machine once; it returns nil if no session is available. broker.mu is held.
func (s *fakeSession) try() func() {
	r := s.broker.apply(s.wanted)
	switch {
	case r.Code != fsm.OK:
		return func() { s.accepted(r.Code, nil) }
	case r.Session.Epoch == 0:
		return nil
	}
	s.session, s.until = r.Session, r.Untils[0]
	if s.waiting != nil {
		s.waiting.Stop()
	}
	return func() { s.accepted(fsm.OK, s) }
}

func (s *fakeSession) giveUp() {
	h := s.broker
	h.mu.Lock()
	i := slices.Index(h.accepts, s)
	if i >= 0 {
		h.accepts = slices.Delete(h.accepts, i, i+1)
	}
	h.mu.Unlock()
	if i >= 0 {
		s.accepted(fsm.Timeout, nil)
	}
}

// acceptsWaiting returns the number of calls that wait for a session.
func (h *fakeBroker) acceptsWaiting() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.accepts)
}

func (s *fakeSession) Name() string { return s.session.ID }

func (s *fakeSession) Until() fsm.Instant { return s.until }

func (s *fakeSession) Renew(done func(fsm.Code, fsm.Instant)) {
	r := s.broker.do(fsm.RenewSession{Entity: s.at.ID, Lock: s.session})
	if r.Code != fsm.OK {
		done(r.Code, 0)
		return
	}
	done(fsm.OK, r.Untils[0])
}

func (s *fakeSession) Held(context.Context) (fsm.Instant, error) {
	s.broker.mu.Lock()
	defer s.broker.mu.Unlock()
	s.broker.apply(fsm.Pulse{}) // performs the pulses that are due
	_, _, code := s.broker.queues.SessionState(s.at.ID, s.session)
	return s.broker.queues.SessionLockEnd(s.at.ID, s.session), codeError(code)
}

func (s *fakeSession) State(context.Context) ([]byte, error) {
	s.broker.mu.Lock()
	defer s.broker.mu.Unlock()
	ref, set, code := s.broker.queues.SessionState(s.at.ID, s.session)
	if code != fsm.OK || !set {
		return nil, codeError(code)
	}
	return append([]byte{}, s.broker.bodiesOf.Read(ref)...), nil
}

func codeError(code fsm.Code) error {
	if code == fsm.OK {
		return nil
	}
	return code
}

func (s *fakeSession) SetState(_ context.Context, state []byte) error {
	return codeError(s.broker.do(fsm.SetSessionState{Entity: s.at.ID, Lock: s.session, State: state, Clear: state == nil}).Code)
}

func (s *fakeSession) Fetch(sequences []fsm.SequenceNumber, receiveAndDelete bool, done func(fsm.Code, []fsm.Delivery)) {
	r := s.broker.do(fsm.FetchDeferred{Address: s.at.Address(), Sequences: sequences, Delete: receiveAndDelete, Session: s.session})
	done(r.Code, r.Deliveries)
}

func (s *fakeSession) Release(done func()) {
	s.Close()
	done()
}

func (s *fakeSession) Close() {
	s.broker.do(fsm.ReleaseSession{Entity: s.at.ID, Lock: s.session})
	s.fakeReceiver.Close()
}

func (h *fakeBroker) PurgeSession(_ context.Context, at fsm.EntityRef, session string, before fsm.Instant, most int) (int, error) {
	h.mu.Lock()
	lock, reach, code := h.queues.PurgeableInSession(at.ID, session, before, most)
	h.mu.Unlock()
	if code != fsm.OK || reach == 0 {
		return 0, codeError(code)
	}
	if lock.Epoch == 0 {
		lock = h.do(fsm.AcceptSession{Entity: at.ID, Named: true, ID: session}).Session
		defer h.do(fsm.ReleaseSession{Entity: at.ID, Lock: lock})
	}
	locked := h.do(fsm.LockMessages{Address: at.Address(), Session: lock, Max: uint32(reach), MaxBytes: 1 << 30}).Deliveries
	settlements, gone := make([]fsm.Settlement, len(locked)), 0
	for i, d := range locked {
		settlements[i] = fsm.Settlement{Lock: d.Lock, Verb: fsm.Release}
		if before == 0 || d.Enqueued < before {
			settlements[i].Verb = fsm.Complete
			gone++
		}
	}
	return gone, codeError(h.do(fsm.SettleMessages{Address: at.Address(), Settlements: settlements}).Code)
}

func (h *fakeBroker) PeekSession(_ context.Context, at fsm.EntityRef, session string, from fsm.SequenceNumber, most, _ int) ([]fsm.Delivery, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	found := h.queues.PeekSession(at.ID, session, from, most)
	h.loadPayloads(found)
	return found, nil
}

func (h *fakeBroker) Sessions(_ context.Context, at fsm.EntityRef, after fsm.Instant, skip, most int) ([]string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	list, _ := h.queues.Sessions(at.ID, after, skip, most)
	var names []string
	for _, s := range list {
		names = append(names, s.ID)
	}
	return names, nil
}

func (n *noopBroker) AcceptSession(fsm.EntityRef, fsm.AcceptSession, bool, time.Duration, func(fsm.Code, Session)) func() {
	return func() {}
}

func (n *noopBroker) PurgeSession(context.Context, fsm.EntityRef, string, fsm.Instant, int) (int, error) {
	return 0, nil
}

func (n *noopBroker) PeekSession(context.Context, fsm.EntityRef, string, fsm.SequenceNumber, int, int) ([]fsm.Delivery, error) {
	return nil, nil
}

func (n *noopBroker) Sessions(context.Context, fsm.EntityRef, fsm.Instant, int, int) ([]string, error) {
	return nil, nil
}

func (h *fakeBroker) Transact(tx fsm.Transaction, done func(fsm.Code)) {
	var c fsm.Transact
	for _, s := range tx.Settles {
		c.Settles = append(c.Settles, fsm.SettleMessages{Address: s.At.Address(), Settlements: s.Settlements})
	}
	for _, s := range tx.Sends {
		c.Sends = append(c.Sends, fsm.SendMessages{Entity: s.At.ID, Messages: s.Messages})
	}
	for _, s := range tx.Cancels {
		c.Cancels = append(c.Cancels, fsm.CancelScheduled{Entity: s.At.ID, Sequences: s.Sequences})
	}
	for _, s := range tx.States {
		c.States = append(c.States, s.State)
	}
	done(h.do(c).Code)
}

// Check answers at once, or when checkHold is closed.
func (h *fakeBroker) Check(at fsm.EntityRef, locks []fsm.LockID, done func([]fsm.Code)) {
	h.mu.Lock()
	h.checks++
	codes, hold := h.queues.CheckLocks(at.Address(), locks), h.checkHold
	if len(locks) == 0 {
		codes = []fsm.Code{fsm.OK}
		if _, found := h.queues.Settings(at.ID); !found {
			codes[0] = fsm.EntityNotFound
		}
	}
	h.mu.Unlock()
	if hold == nil {
		done(codes)
		return
	}
	go func() { <-hold; done(codes) }()
}

// checked returns how often the broker was asked about operations of transactions.
func (h *fakeBroker) checked() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.checks
}

func (h *fakeBroker) Reserve(at fsm.EntityRef, messages []fsm.Message, done func(fsm.Code, []fsm.SequenceNumber)) {
	r := h.do(fsm.ReserveNumbers{Entity: at.ID, Count: uint32(len(messages))})
	if r.Code != fsm.OK {
		done(r.Code, nil)
		return
	}
	numbers := make([]fsm.SequenceNumber, len(messages))
	for i := range numbers {
		numbers[i] = r.Sequence + fsm.SequenceNumber(i)
	}
	h.mu.Lock()
	hold := h.checkHold
	h.mu.Unlock()
	if hold == nil {
		done(fsm.OK, numbers)
		return
	}
	go func() { <-hold; done(fsm.OK, numbers) }()
}

func (n *noopBroker) Reserve(_ fsm.EntityRef, messages []fsm.Message, done func(fsm.Code, []fsm.SequenceNumber)) {
	done(fsm.OK, make([]fsm.SequenceNumber, len(messages)))
}

func (n *noopBroker) Check(_ fsm.EntityRef, locks []fsm.LockID, done func([]fsm.Code)) {
	done(make([]fsm.Code, max(1, len(locks))))
}

func (n *noopBroker) Transact(_ fsm.Transaction, done func(fsm.Code)) { done(fsm.OK) }

func (s *fakeSession) StateChange(state []byte) fsm.StateAt {
	return fsm.StateAt{At: s.at, State: fsm.SetSessionState{Entity: s.at.ID, Lock: s.session, State: state, Clear: state == nil}}
}
