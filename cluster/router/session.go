package router

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/peeklock/peeklock/cluster/query"
	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/cluster/shards"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/queue"
	"github.com/peeklock/peeklock/partition"
)

// sessionsListMax is the maximum number of sessions in one list.
const sessionsListMax = 1000

// SessionReceiver holds the lock of a session and gets its messages for the link that accepted
// it: Lock returns them in order, or SessionLockLost after the session lock has ended. Its methods
// are safe for concurrent use; those without a context do not block.
type SessionReceiver struct {
	*Receiver

	lock  fsm.SessionLock
	until atomic.Int64 // fsm.Instant
}

// accept is Router.AcceptSession.
func (s *single) accept(at fsm.EntityRef, wants fsm.AcceptSession, receiveAndDelete bool, wait time.Duration, done func(fsm.Code, *SessionReceiver)) (cancel func()) {
	return s.acceptAt(at, 0, wants, receiveAndDelete, wait, done)
}

// acceptAt accepts a session at a shard, or at an entity that is not partitioned, as shard 0.
func (s *single) acceptAt(at fsm.EntityRef, shard int, wants fsm.AcceptSession, receiveAndDelete bool, wait time.Duration, done func(fsm.Code, *SessionReceiver)) (cancel func()) {
	wants.Entity = at.ID
	a := &sessionAccept{
		receiver: s.receiverOf(at, receiveAndDelete, shard), done: done, command: wants,
		until: time.Now().Add(min(wait, rpc.LockWaitMax)),
	}
	if at.Sub != fsm.MainQueue {
		done(fsm.NotAllowed, nil) // dead letters have no sessions
		return func() {}
	}
	a.submit()
	return a.cancel
}

// sessionAccept is one outstanding AcceptSession.
type sessionAccept struct {
	receiver  *Receiver
	command   fsm.AcceptSession
	until     time.Time
	done      func(fsm.Code, *SessionReceiver)
	cancelled atomic.Bool
	recreated bool // the entity was put in its partition again; used by handleResult only
}

func (a *sessionAccept) submit() {
	if a.command.Named {
		a.receiver.entities.Client(a.receiver.at.Partition).Submit(a.command, a.handleResult)
		return
	}
	a.receiver.receiver.Accept(&a.command, a.until, a.handleResult)
}

func (a *sessionAccept) cancel() {
	a.cancelled.Store(true)
	a.receiver.Cancel()
}

// handleResult handles the answer.
func (a *sessionAccept) handleResult(result fsm.Result) {
	code := result.Code
	switch {
	case code == fsm.EntityNotFound && !a.recreated:
		a.recreated = true
		// The catalog may know the entity although its creation was interrupted.
		a.receiver.entities.Recreate(a.receiver.at.Entity, func(recreated bool) {
			if !recreated {
				a.refuse(fsm.EntityNotFound)
				return
			}
			a.submit()
		})
		return
	case code == fsm.OK && result.Session.Epoch == 0:
		code = fsm.Timeout
	}
	if code != fsm.OK {
		a.refuse(code)
		return
	}
	s := &SessionReceiver{Receiver: a.receiver, lock: result.Session}
	if len(result.Untils) > 0 {
		s.until.Store(int64(result.Untils[0]))
	}
	s.receiver.LockUnder(result.Session)
	if a.cancelled.Load() {
		s.Close()
		a.done(fsm.Timeout, nil)
		return
	}
	a.done(fsm.OK, s)
}

func (a *sessionAccept) refuse(code fsm.Code) {
	a.receiver.Close()
	a.done(code, nil)
}

// Name returns the id of the session.
func (s *SessionReceiver) Name() string { return s.lock.ID }

// Until returns the end of the session lock as of the last answer.
func (s *SessionReceiver) Until() fsm.Instant { return fsm.Instant(s.until.Load()) }

// Renew extends the lock of the session, and with it the locks of all messages locked under it.
// done gets the new end.
func (s *SessionReceiver) Renew(done func(fsm.Code, fsm.Instant)) {
	s.entities.Client(s.at.Partition).Submit(fsm.RenewSession{Entity: s.at.ID, Lock: s.lock}, func(result fsm.Result) {
		if result.Code != fsm.OK || len(result.Untils) == 0 {
			done(result.Code, 0)
			return
		}
		s.until.Store(int64(result.Untils[0]))
		done(fsm.OK, result.Untils[0])
	})
}

// Held returns the end of the session lock as its leader knows it, 0 if the leader is of a release that
// does not tell. Errors wrap SessionLockLost, EntityNotFound, ServerBusy or Timeout.
func (s *SessionReceiver) Held(ctx context.Context) (fsm.Instant, error) {
	reply, err := stateOfSession.Ask(ctx, s.entities.Leader(s.at.Partition), sessionStateQuery{
		EntityIn: query.Entity(s.at), Lock: s.lock, LockOnly: true,
	})
	if err != nil {
		return 0, fmt.Errorf("lock of session %q: %w", s.lock.ID, err)
	}
	return reply.Until, nil
}

// State returns the state of the session, nil when none is set. Errors wrap SessionLockLost,
// EntityNotFound, ServerBusy or Timeout.
func (s *SessionReceiver) State(ctx context.Context) ([]byte, error) {
	state, err := stateOfSession.Ask(ctx, s.entities.Leader(s.at.Partition), sessionStateQuery{EntityIn: query.Entity(s.at), Lock: s.lock})
	if err != nil {
		return nil, fmt.Errorf("state of session %q: %w", s.lock.ID, err)
	}
	if !state.Set {
		return nil, nil
	}
	return append([]byte{}, state.State...), nil
}

// SetState sets the state of the session; nil removes it, an empty state does not. Errors are
// those of State, MessageTooLarge and QuotaExceeded.
func (s *SessionReceiver) SetState(ctx context.Context, state []byte) error {
	command := fsm.SetSessionState{Entity: s.at.ID, Lock: s.lock, State: state, Clear: state == nil}
	if _, err := s.entities.Command(ctx, s.at.Partition, command); err != nil {
		return fmt.Errorf("set state of session %q: %w", s.lock.ID, err)
	}
	return nil
}

// StateChange returns what a transaction does to set the state of the session as SetState does.
func (s *SessionReceiver) StateChange(state []byte) fsm.StateAt {
	return fsm.StateAt{At: s.at, State: fsm.SetSessionState{Entity: s.at.ID, Lock: s.lock, State: state, Clear: state == nil}}
}

// Fetch locks deferred messages of the session by number, or deletes them as they are received.
func (s *SessionReceiver) Fetch(sequences []fsm.SequenceNumber, receiveAndDelete bool, done func(fsm.Code, []fsm.Delivery)) {
	inside := make([]fsm.SequenceNumber, 0, len(sequences)) // a session is in one shard
	for _, n := range sequences {
		if n&^(1<<fsm.ShardShift-1) == s.shardBits {
			inside = append(inside, n&^s.shardBits)
		}
	}
	if len(inside) == 0 {
		done(fsm.OK, nil)
		return
	}
	command := fsm.FetchDeferred{Address: s.at.Address(), Sequences: inside, Delete: receiveAndDelete, Session: s.lock}
	s.entities.Client(s.at.Partition).Submit(command, func(result fsm.Result) { done(result.Code, shards.ToClient(s.shardBits, result.Deliveries)) })
}

// Close is Release without a callback.
func (s *SessionReceiver) Close() { s.Release(func() {}) }

// Release unlocks the session and the messages locked under it, and frees the receiver id. done is
// called when another receiver can lock the session, or when the request failed: then the
// lock expires.
func (s *SessionReceiver) Release(done func()) {
	if !s.receiver.Close() {
		done()
		return
	}
	s.entities.Client(s.at.Partition).Submit(fsm.ReleaseSession{Entity: s.at.ID, Lock: s.lock}, func(fsm.Result) { done() })
}

// sessions is Router.Sessions.
func (s *single) sessions(ctx context.Context, at fsm.EntityRef, updatedAfter fsm.Instant, skip, max int) ([]fsm.Session, error) {
	sessions, err := listSessions.At(ctx, s, sessionsQuery{
		EntityIn: query.Entity(at), UpdatedAfter: updatedAfter, Skip: skip, Max: max,
	})
	if err != nil {
		return nil, fmt.Errorf("sessions of %q: %w", at.Name, err)
	}
	return sessions, nil
}

// Arguments and replies of queries about sessions.
type (
	sessionStateQuery struct {
		query.EntityIn

		Lock     fsm.SessionLock `json:"Lock"`
		LockOnly bool            `json:"LockOnly"` // leave out the state
	}
	sessionStateReply struct {
		Set   bool        `json:"Set"`
		State []byte      `json:"State"`
		Until fsm.Instant `json:"Until"` // end of the lock
	}

	sessionsQuery struct {
		query.EntityIn

		UpdatedAfter fsm.Instant `json:"UpdatedAfter"`
		Skip         int         `json:"Skip"`
		Max          int         `json:"Max"`
	}
)

// The queries about sessions.
var (
	stateOfSession = rpc.Query[sessionStateQuery, sessionStateReply]{Kind: rpc.QuerySessionState}

	listSessions = query.OfQueues(rpc.QuerySessions, func(queues *queue.Machine, q sessionsQuery) ([]fsm.Session, error) {
		list, found := queues.Sessions(q.Entity, q.UpdatedAfter, q.Skip, max(0, min(q.Max, sessionsListMax)))
		if !found {
			return nil, fsm.NotAllowed
		}
		return list, nil
	})
)

// sessionState reads the state of a session. Its body is read while the state machine is not locked.
func (s *single) sessionState(ctx context.Context, q sessionStateQuery) (reply sessionStateReply, err error) {
	if q.Partition == fsm.CatalogPartition {
		return reply, fsm.InvalidArgument
	}
	var at fsm.Ref
	var code fsm.Code
	err = s.replicas.Read(ctx, q.Partition, func(m partition.Machine) {
		at, reply.Set, code = raftgroup.Queues(m).SessionState(q.Entity, q.Lock)
		reply.Until = raftgroup.Queues(m).SessionLockEnd(q.Entity, q.Lock)
	})
	switch {
	case err != nil:
		return reply, err
	case code != fsm.OK:
		return reply, code
	case !reply.Set || at.Size == 0 || q.LockOnly:
		return reply, nil
	}
	read, err := s.replicas.Local(q.Partition).ReadBodies([]fsm.Delivery{{Body: at}})
	if err != nil {
		return reply, err
	}
	if len(read) == 0 { // another state was set meanwhile
		return reply, fsm.ServerBusy
	}
	reply.State = read[0].Payload
	return reply, nil
}
