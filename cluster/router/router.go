package router

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/peeklock/peeklock/cluster/client"
	"github.com/peeklock/peeklock/cluster/entities"
	"github.com/peeklock/peeklock/cluster/query"
	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/cluster/shards"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/catalog"
)

// Router sends the requests of the gateways to the leader of their partition and retries until
// there is an answer, for at most Timing.Retry: then the result is ServerBusy (certainly not applied)
// or Timeout (possibly applied). All methods are safe for concurrent use. done functions are called
// exactly once, possibly before the method returns, and must not block.
type Router struct {
	*entities.Manager

	single  *single
	sharded *sharded
	log     *slog.Logger
	tokens  atomic.Pointer[tokenCipher]
}

// Config configures a Router.
type Config struct {
	client.Config

	ReplicaName func(fsm.PartitionID) string // raft name of this member's open replica; "" when there is none
}

// New makes a router. Run must run while it is used.
func New(c *Config) *Router {
	r := newRouter(entities.New(&c.Config))
	r.log, r.single.transport = c.Logger, c.Transport
	r.single.replicas = query.Replicas{Local: c.Transport.LocalReplica, Name: c.ReplicaName}
	return r
}

func newRouter(manager *entities.Manager) *Router {
	one := &single{Manager: manager}
	return &Router{Manager: manager, single: one, sharded: &sharded{single: one}}
}

// operations are the operations that a partitioned entity performs in its shards.
type operations interface {
	send(at fsm.EntityRef, messages []fsm.Message, done func(fsm.Result))
	settle(at fsm.EntityRef, settlements []fsm.Settlement, done func([]fsm.Code))
	renew(at fsm.EntityRef, locks []fsm.LockID, done func([]fsm.Code, []fsm.Instant))
	check(at fsm.EntityRef, locks []fsm.LockID, done func([]fsm.Code))
	fetch(at fsm.EntityRef, sequences []fsm.SequenceNumber, receiveAndDelete bool, done func(fsm.Code, []fsm.Delivery))
	fetchReady(at fsm.EntityRef, seen []fsm.LockID, receiveAndDelete bool, done func(fsm.Code, []fsm.Delivery))
	cancelScheduled(at fsm.EntityRef, sequences []fsm.SequenceNumber, done func(fsm.Code))
	peek(ctx context.Context, at fsm.EntityRef, session *string, from fsm.SequenceNumber, most, maxBytes int) ([]fsm.Delivery, error)
	sessions(ctx context.Context, at fsm.EntityRef, updatedAfter fsm.Instant, skip, most int) ([]fsm.Session, error)
	receiver(at fsm.EntityRef, receiveAndDelete bool) *Receiver
	accept(at fsm.EntityRef, wants fsm.AcceptSession, receiveAndDelete bool, wait time.Duration, done func(fsm.Code, *SessionReceiver)) (cancel func())
}

// at returns the operations of an entity.
func (r *Router) at(entity *fsm.EntityRef) operations {
	if len(entity.Shards) > 0 {
		return r.sharded
	}
	return r.single
}

// Send stores the messages, all or none, and calls done exactly once, possibly before it returns.
// The caller must not change the messages or the data that they refer to (payloads, properties) after
// the call, not even after done, because a request that has timed out may still be encoded.
func (r *Router) Send(at fsm.EntityRef, messages []fsm.Message, done func(fsm.Code)) {
	r.sendMessages(at, messages, func(result fsm.Result) { done(result.Code) })
}

// sendMessages is Send with the whole result. Only a topic puts messages into its subscriptions.
func (r *Router) sendMessages(at fsm.EntityRef, messages []fsm.Message, done func(fsm.Result)) {
	if at.Sub != fsm.MainQueue || at.Kind == fsm.SubscriptionEntity {
		done(fsm.Result{Code: fsm.NotAllowed})
		return
	}
	r.at(&at).send(at, messages, done)
}

// Schedule stores messages, all or none, of which some or all have an EnqueueAt. done gets one
// sequence number per message, in order, for CancelScheduled; for a duplicate that was dropped 0, or a number that no message has. As
// with Send, the caller must not change the messages afterwards.
func (r *Router) Schedule(at fsm.EntityRef, messages []fsm.Message, done func(fsm.Code, []fsm.SequenceNumber)) {
	n := len(messages)
	r.sendMessages(at, messages, func(result fsm.Result) {
		if result.Code != fsm.OK {
			done(result.Code, nil)
			return
		}
		numbers := result.Sequences
		if len(numbers) != n { // no duplicate: the numbers are consecutive
			numbers = make([]fsm.SequenceNumber, n)
			for i := range numbers {
				numbers[i] = result.Sequence + fsm.SequenceNumber(i)
			}
		}
		done(fsm.OK, numbers)
	})
}

// CancelScheduled removes scheduled messages (1 to 4096), all or none: MessageNotFound when one of
// the numbers is not a scheduled message.
func (r *Router) CancelScheduled(at fsm.EntityRef, sequences []fsm.SequenceNumber, done func(fsm.Code)) {
	if at.Sub != fsm.MainQueue {
		done(fsm.MessageNotFound) // nothing is scheduled there
		return
	}
	r.at(&at).cancelScheduled(at, sequences, done)
}

// Settle ends locks. done gets one Code per settlement, in order.
func (r *Router) Settle(at fsm.EntityRef, settlements []fsm.Settlement, done func([]fsm.Code)) {
	r.at(&at).settle(at, settlements, done)
}

// Renew extends locks. done gets one Code and one lock end per lock, in order.
func (r *Router) Renew(at fsm.EntityRef, locks []fsm.LockID, done func([]fsm.Code, []fsm.Instant)) {
	r.at(&at).renew(at, locks, done)
}

// Check asks whether operations of a transaction at an entity can succeed: settlements under some locks (1000), or,
// without locks, sends. done receives one code per lock, or one: OK, MessageLockLost, SessionLockLost or
// EntityNotFound. They are OK too when no leader, or one of an older release, answers within two seconds: Transact
// decides. Check does not block. It calls done before it returns when this member can answer: it leads the partition
// of the locks, or its catalog has the entity. A refusal is as of a leader that a quorum has confirmed.
func (r *Router) Check(at fsm.EntityRef, locks []fsm.LockID, done func([]fsm.Code)) {
	if len(locks) == 0 {
		r.single.checkEntity(at.ID, done)
		return
	}
	r.at(&at).check(at, locks, done)
}

// Fetch locks deferred messages by number, or deletes them as they are received.
func (r *Router) Fetch(at fsm.EntityRef, sequences []fsm.SequenceNumber, receiveAndDelete bool, done func(fsm.Code, []fsm.Delivery)) {
	r.at(&at).fetch(at, sequences, receiveAndDelete, done)
}

// FetchReady locks ready messages that a peek has shown, or deletes them as they are received. It leaves out those that are
// not ready any more, or were locked since the peek.
func (r *Router) FetchReady(at fsm.EntityRef, seen []fsm.LockID, receiveAndDelete bool, done func(fsm.Code, []fsm.Delivery)) {
	r.at(&at).fetchReady(at, seen, receiveAndDelete, done)
}

// Peek reads up to max messages (at most 1024) from the number on, in order, without
// locking, and stops before the payloads exceed maxBytes (at most 8 MiB); the first is
// always returned. Of a topic only the transfer dead-letter queue can be peeked: NotAllowed
// otherwise. Other errors wrap EntityNotFound, ServerBusy or Timeout.
func (r *Router) Peek(ctx context.Context, at fsm.EntityRef, from fsm.SequenceNumber, max, maxBytes int) ([]fsm.Delivery, error) {
	return r.at(&at).peek(ctx, at, nil, from, max, maxBytes)
}

// Receiver opens a receiver for one receiving link. With receiveAndDelete, messages are deleted as
// they are received and not locked.
func (r *Router) Receiver(at fsm.EntityRef, receiveAndDelete bool) *Receiver {
	return r.at(&at).receiver(at, receiveAndDelete)
}

// AcceptSession locks a session for one receiving link: the one that wants names, or else the unlocked
// session with the oldest message, for which it waits up to wait (10 minutes). The entity of wants is ignored. done is called once:
// with the session, or with Timeout when the time ran out or cancel was called, SessionCannotBeLocked,
// SessionLockLost (nothing to take over), EntityNotFound, EntityDisabled, NotAllowed (no sessions there) or ServerBusy. A session that is
// locked after cancel is released. It does not block.
func (r *Router) AcceptSession(at fsm.EntityRef, wants fsm.AcceptSession, receiveAndDelete bool, wait time.Duration, done func(fsm.Code, *SessionReceiver)) (cancel func()) {
	return r.at(&at).accept(at, wants, receiveAndDelete, wait, done)
}

// PeekSession is Peek restricted to the messages of one session.
func (r *Router) PeekSession(ctx context.Context, at fsm.EntityRef, session string, from fsm.SequenceNumber, max, maxBytes int) ([]fsm.Delivery, error) {
	return r.at(&at).peek(ctx, at, &session, from, max, maxBytes)
}

// Sessions lists up to max sessions (1000) after the first skip: those that have messages
// or a state, or, when updatedAfter is set, those whose state was set after it. Errors wrap
// NotAllowed for an entity without sessions, EntityNotFound, ServerBusy or Timeout.
func (r *Router) Sessions(ctx context.Context, at fsm.EntityRef, updatedAfter fsm.Instant, skip, max int) ([]fsm.Session, error) {
	return r.at(&at).sessions(ctx, at, updatedAfter, skip, max)
}

// PurgeSession is Purge for the messages of one session, also while it is held: it removes at most max (1 to
// 4000; larger values are reduced), oldest first, and returns how many. Locked messages stay.
// Errors wrap InvalidArgument, NotAllowed (no sessions there), EntityNotFound, EntityDisabled,
// ServerBusy or Timeout, and are returned only when no message is known to have been removed.
//
// PurgeSession locks the messages under the lock of the session, that of its holder or its own, and
// completes them, because no command removes ready messages of one session. Messages that are locked and
// not completed when this member fails return with the end of the session lock.
func (r *Router) PurgeSession(ctx context.Context, at fsm.EntityRef, session string, before fsm.Instant, max int) (int, error) {
	if max < 1 {
		return 0, fsm.InvalidArgument
	}
	if at.Sub != fsm.MainQueue {
		return 0, fsm.NotAllowed // only the main queue is divided into sessions
	}
	if len(at.Shards) > 0 {
		at = shards.Ref(at, shards.Hash(&at.Entity, session))
	}
	return r.single.purgeSession(ctx, at, session, before, min(max, entities.PurgeMessagesMax))
}

// LockToken encrypts a lock id into the token that clients see. Before the catalog is loaded
// nothing can be locked, and the token is zero.
func (r *Router) LockToken(at fsm.EntityRef, id fsm.LockID) fsm.LockToken {
	s := r.tokenCipher()
	if s == nil {
		return fsm.LockToken{}
	}
	return s.encrypt(at.Address(), id)
}

// ParseLockToken decrypts a lock token. It returns false when the token was not made for that entity and
// sub-queue.
func (r *Router) ParseLockToken(at fsm.EntityRef, token fsm.LockToken) (fsm.LockID, bool) {
	s := r.tokenCipher()
	if s == nil {
		return fsm.LockID{}, false
	}
	return s.decrypt(at.Address(), token)
}

// tokenCipher is made once from the key in the catalog, which never changes; nil before the catalog is
// loaded.
func (r *Router) tokenCipher() *tokenCipher {
	if s := r.tokens.Load(); s != nil {
		return s
	}
	var key [16]byte
	loaded := false
	r.single.replicas.ViewCatalog(func(c *catalog.Machine) { key, loaded = c.TokenKey(), c.ClusterID() != "" })
	if !loaded {
		return nil
	}
	s, err := newTokenCipher(key)
	if err != nil {
		r.log.Error("failed to use the key of lock tokens", "error", err)
		return nil
	}
	r.tokens.Store(s)
	return s
}

// RegisterQueries registers the handlers of all queries about replicas and their content.
func (r *Router) RegisterQueries(h rpc.Handlers) {
	replicas := r.single.replicas
	replicas.Register(h)
	r.Register(h)
	stateOfSession.Handle(h, r.single.sessionState)
	locksHeld.Handle(h, r.single.answerLocks)
	listSessions.Register(h, replicas)
	purgeable.Register(h, replicas)
	h[rpc.QueryPeek] = r.single.answerPeek
}

// ReplicaStatus returns the status of this member's replica of a partition, leader or not; EntityNotFound
// when none is open.
func (r *Router) ReplicaStatus(id fsm.PartitionID) (raftgroup.Status, error) {
	return r.single.replicas.Status(id)
}
