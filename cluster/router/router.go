package router

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/peeklock/peeklock/cluster/notify"
	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/cluster/shards"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// The limits of the router.
const (
	lockMessagesMax    = 4096 // messages of one Lock, as in fsm
	tickEvery          = 100 * time.Millisecond
	recreatingMax      = 1024 // entities being recreated concurrently
	recreateWaitersMax = 4096 // requests that wait for one of them
	askPauseMin        = 5 * time.Millisecond
	askPauseMax        = 200 * time.Millisecond
)

// Router sends the requests of the gateways to the leader of their partition and retries until
// there is an answer, for at most Timing.Retry: then the result is ServerBusy (certainly not applied)
// or Timeout (possibly applied). All methods are safe for concurrent use. done functions are called
// exactly once, possibly before the method returns, and must not block.
type Router struct {
	transport   Transport
	queries     queryHandler
	incarnation uint64
	self        fsm.MemberID
	timing      Timing
	log         *slog.Logger
	slow        slowLogger
	now         func() time.Time                                                          // the clock of messages
	answerLocal func(ctx context.Context, kind rpc.QueryKind, arguments []byte) rpc.Reply // answers this member's own queries
	receiverIDs atomic.Uint64
	shardTurns  atomic.Uint64 // selects the next shard of partitioned entities
	tokens      atomic.Pointer[tokenCipher]

	activity activityLimiter

	mu         sync.Mutex
	clients    map[fsm.PartitionID]*partitionClient
	recreating map[fsm.EntityID][]func(bool)
	closed     bool
}

// Config configures a Router. All fields but Slow are required.
type Config struct {
	Transport   Transport
	Incarnation uint64 // of this member's process; identifies its requests
	Self        fsm.MemberID
	Timing      Timing
	// AnswerLocal answers the queries that the router sends to this member.
	AnswerLocal func(ctx context.Context, kind rpc.QueryKind, arguments []byte) rpc.Reply
	ReplicaName func(fsm.PartitionID) string // raft name of this member's open replica; "" when there is none
	Now         func() time.Time             // the clock of messages
	Slow        *slog.Logger                 // for slow operations; nil: none is logged
	SlowAfter   time.Duration                // 0: none is slow
	Logger      *slog.Logger
}

// Timing holds the time limits of a Router.
type Timing struct {
	Retry   time.Duration // after which a request ends unanswered
	Suspect time.Duration // after which a leader that does not answer is verified
}

// New makes a router. Run must run while it is used.
func New(c *Config) *Router {
	return &Router{
		transport: c.Transport, queries: queryHandler{local: c.Transport.LocalReplica, replicaName: c.ReplicaName},
		incarnation: c.Incarnation, self: c.Self, timing: c.Timing, log: c.Logger, now: c.Now,
		slow: slowLogger{c.Slow, c.SlowAfter}, answerLocal: c.AnswerLocal,
		clients:    make(map[fsm.PartitionID]*partitionClient),
		recreating: make(map[fsm.EntityID][]func(bool)),
	}
}

// client returns the client of a partition. Partitions come from the catalog, so their number is bounded.
func (r *Router) client(id fsm.PartitionID) *partitionClient {
	r.mu.Lock()
	defer r.mu.Unlock()
	client := r.clients[id]
	if client == nil {
		client = newPartitionClient(id, r.incarnation, r.self, r.transport, r.timing, r.log)
		client.closed, client.now, client.slow = r.closed, r.now, r.slow
		r.clients[id] = client
	}
	return client
}

func (r *Router) allClients() []*partitionClient {
	r.mu.Lock()
	defer r.mu.Unlock()
	clients := make([]*partitionClient, 0, len(r.clients))
	for _, client := range r.clients {
		clients = append(clients, client)
	}
	return clients
}

// Run ends overdue requests and reports activity until ctx ends.
func (r *Router) Run(ctx context.Context) {
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			for _, client := range r.allClients() {
				client.tick(now)
				for _, entity := range client.takeTouched() {
					r.reportActivity(entity)
				}
			}
		}
	}
}

// Close ends all requests: with ServerBusy if they were certainly not applied, with Timeout otherwise.
func (r *Router) Close() {
	r.mu.Lock()
	r.closed = true
	recreating := r.recreating
	r.recreating = make(map[fsm.EntityID][]func(bool))
	r.mu.Unlock()
	for _, client := range r.allClients() {
		client.close()
	}
	for _, waiters := range recreating {
		for _, done := range waiters {
			done(false)
		}
	}
}

// LeaderChanged is called when this member has gained or lost the leadership of a partition, or its replica follows
// another leader: the search for a leader restarts immediately, and requests in flight to an old leader are sent again.
func (r *Router) LeaderChanged(id fsm.PartitionID) { r.client(id).leaderChanged() }

// Resolve finds the entity that path names, regardless of case; a subscription is
// topic/Subscriptions/name. A path that ends in /$DeadLetterQueue, or in
// /$Transfer/$DeadLetterQueue, names that sub-queue; a topic has the second only. Errors wrap an
// fsm.Code: EntityNotFound, or ServerBusy while the catalog is not loaded or has no leader.
func (r NamespaceView) Resolve(ctx context.Context, path string) (fsm.EntityRef, error) {
	name, sub := splitPath(path)
	entity, found, loaded := fsm.Entity{}, false, false
	if group := r.transport.LocalReplica(fsm.CatalogPartition); group != nil {
		group.View(func(m partition.Machine) {
			loaded = raftgroup.Catalog(m).ClusterID() != ""
			entity, found = raftgroup.Catalog(m).Lookup(r.id, name)
		})
	}
	if !loaded {
		return fsm.EntityRef{}, fmt.Errorf("the catalog is not loaded: %w", fsm.ServerBusy)
	}
	// The local replica may be behind: an entity that was just created at another member must be found, and
	// one that was just enabled there, or that just stopped forwarding, must not be refused, since
	// clients do not retry then.
	if !found || entity.Settings.Status != fsm.Active || isForwarding(entity.Settings, sub) {
		newest, err := r.lookup(ctx, EntityQuery{Namespace: r.id, Name: name})
		if err != nil {
			return fsm.EntityRef{}, fmt.Errorf("%q: %w", name, err)
		}
		entity = newest
	}
	if entity.Kind == fsm.TopicEntity && sub == fsm.DeadLetterQueue {
		return fsm.EntityRef{}, fmt.Errorf("%q: %w: a topic has no dead-letter queue, its subscriptions have", path, fsm.EntityNotFound)
	}
	return fsm.EntityRef{Entity: entity, Sub: sub}, nil
}

// isForwarding reports whether the messages of a sub-queue are forwarded.
func isForwarding(settings fsm.EntitySettings, sub fsm.SubQueue) bool {
	switch sub { //nolint:exhaustive // the others do not forward
	case fsm.MainQueue:
		return settings.ForwardTo != ""
	case fsm.DeadLetterQueue:
		return settings.ForwardDeadLettersTo != ""
	}
	return false
}

// splitPath separates the sub-queue from a path.
func splitPath(path string) (name string, sub fsm.SubQueue) {
	path = strings.Trim(path, "/")
	for _, known := range [...]struct {
		suffix string
		sub    fsm.SubQueue
	}{ // the longer one first: it ends in the other
		{"/$transfer/$deadletterqueue", fsm.TransferDeadLetterQueue},
		{"/$deadletterqueue", fsm.DeadLetterQueue},
	} {
		if at := len(path) - len(known.suffix); at > 0 && strings.EqualFold(path[at:], known.suffix) {
			return path[:at], known.sub
		}
	}
	return path, fsm.MainQueue
}

// Send stores the messages, all or none, and calls done exactly once, possibly before it returns.
// The caller must not change the messages or the data that they refer to (payloads, properties) after
// the call, not even after done, because a request that has timed out may still be encoded.
func (r *Router) Send(at fsm.EntityRef, messages []fsm.Message, done func(fsm.Code)) {
	r.sendMessages(at, messages, func(result fsm.Result) { done(result.Code) })
}

// sendMessages is Send with the whole result. It completes an interrupted creation of the entity.
// Only a topic puts messages into its subscriptions.
func (r *Router) sendMessages(at fsm.EntityRef, messages []fsm.Message, done func(fsm.Result)) {
	if at.Sub != fsm.MainQueue || at.Kind == fsm.SubscriptionEntity {
		done(fsm.Result{Code: fsm.NotAllowed})
		return
	}
	command := fsm.SendMessages{Entity: at.ID, Messages: messages}
	if len(at.Shards) > 0 {
		r.sendShard(at, messages, done)
		return
	}
	client := r.client(at.Partition)
	client.submit(command, func(result fsm.Result) {
		if result.Code != fsm.EntityNotFound {
			done(result)
			return
		}
		r.recreate(at.Entity, func(recreated bool) {
			if !recreated {
				done(result)
				return
			}
			client.submit(command, done)
		})
	})
}

// Receiver opens a receiver for one receiving link. With receiveAndDelete, messages are deleted as
// they are received and not locked.
func (r *Router) Receiver(at fsm.EntityRef, receiveAndDelete bool) *Receiver {
	if len(at.Shards) > 0 {
		return &Receiver{shards: newShardReceiver(r, at, receiveAndDelete)}
	}
	return r.receiver(at, receiveAndDelete, 0)
}

// receiver is Receiver of an entity that is not partitioned, or of one shard.
func (r *Router) receiver(at fsm.EntityRef, receiveAndDelete bool, shard int) *Receiver {
	return &Receiver{
		router: r, client: r.client(at.Partition), id: r.receiverIDs.Add(1), at: at, receiveAndDelete: receiveAndDelete, shardBits: shards.Bits(shard),
	}
}

// Settle ends locks. done gets one Code per settlement, in order.
func (r *Router) Settle(at fsm.EntityRef, settlements []fsm.Settlement, done func([]fsm.Code)) {
	if len(at.Shards) > 0 {
		r.settleShards(at, settlements, done)
		return
	}
	command := fsm.SettleMessages{Address: at.Address(), Settlements: settlements}
	r.client(at.Partition).submit(command, func(result fsm.Result) {
		codes := CodesOf(result, len(settlements))
		if result.Code != fsm.OK || !r.settleRest(at, settlements, codes, done) {
			done(codes)
		}
	})
}

// settleRest submits the settlements again that the entry could not take, and returns false if there are
// none, or if it took none of them: then others fill the entries, and the client tries again later.
func (r *Router) settleRest(at fsm.EntityRef, settlements []fsm.Settlement, codes []fsm.Code, done func([]fsm.Code)) bool {
	var rest []fsm.Settlement
	for i, code := range codes {
		if code == fsm.ServerBusy {
			rest = append(rest, settlements[i])
		}
	}
	if len(rest) == 0 || len(rest) == len(settlements) {
		return false
	}
	r.Settle(at, rest, func(later []fsm.Code) {
		codes, next := slices.Clone(codes), 0
		for i := range codes {
			if codes[i] == fsm.ServerBusy {
				codes[i] = later[next]
				next++
			}
		}
		done(codes)
	})
	return true
}

// Renew extends locks. done gets one Code and one lock end per lock, in order.
func (r *Router) Renew(at fsm.EntityRef, locks []fsm.LockID, done func([]fsm.Code, []fsm.Instant)) {
	if len(at.Shards) > 0 {
		r.renewShards(at, locks, done)
		return
	}
	n := len(locks)
	command := fsm.RenewLocks{Address: at.Address(), Locks: locks}
	r.client(at.Partition).submit(command, func(result fsm.Result) {
		untils := result.Untils
		if len(untils) != n {
			untils = make([]fsm.Instant, n)
		}
		done(CodesOf(result, n), untils)
	})
}

// CodesOf returns one Code for each of n items: a command that was refused as a whole
// refuses each of them.
func CodesOf(result fsm.Result, n int) []fsm.Code {
	if result.Code == fsm.OK && len(result.Codes) == n {
		return result.Codes
	}
	code := result.Code
	if code == fsm.OK {
		code = fsm.Internal
	}
	codes := make([]fsm.Code, n)
	for i := range codes {
		codes[i] = code
	}
	return codes
}

// Fetch locks deferred messages by number, or deletes them as they are received.
func (r *Router) Fetch(at fsm.EntityRef, sequences []fsm.SequenceNumber, receiveAndDelete bool, done func(fsm.Code, []fsm.Delivery)) {
	if len(at.Shards) > 0 {
		r.fetchShards(at, sequences, receiveAndDelete, done)
		return
	}
	command := fsm.FetchDeferred{Address: at.Address(), Sequences: sequences, Delete: receiveAndDelete}
	r.client(at.Partition).submit(command, func(result fsm.Result) { done(result.Code, result.Deliveries) })
}

// FetchReady locks ready messages that a peek has shown, or deletes them as they are received. It leaves out those that are
// not ready any more, or were locked since the peek.
func (r *Router) FetchReady(at fsm.EntityRef, seen []fsm.LockID, receiveAndDelete bool, done func(fsm.Code, []fsm.Delivery)) {
	if len(at.Shards) > 0 {
		r.fetchReadyShards(at, seen, receiveAndDelete, done)
		return
	}
	command := fsm.FetchReady{Address: at.Address(), Seen: seen, Delete: receiveAndDelete}
	r.client(at.Partition).submit(command, func(result fsm.Result) { done(result.Code, result.Deliveries) })
}

// Peek reads up to max messages (at most 1024) from the number on, in order, without
// locking, and stops before the payloads exceed maxBytes (at most 8 MiB); the first is
// always returned. Of a topic only the transfer dead-letter queue can be peeked: NotAllowed
// otherwise. Other errors wrap EntityNotFound, ServerBusy or Timeout.
func (r *Router) Peek(ctx context.Context, at fsm.EntityRef, from fsm.SequenceNumber, max, maxBytes int) ([]fsm.Delivery, error) {
	if len(at.Shards) > 0 {
		return r.peekShards(ctx, at, from, max, maxBytes)
	}
	return r.peek(ctx, at, peekQuery{Partition: at.Partition, Address: at.Address(), From: from, Max: max, MaxBytes: maxBytes})
}

func (r *Router) peek(ctx context.Context, at fsm.EntityRef, q peekQuery) ([]fsm.Delivery, error) {
	if at.Kind == fsm.TopicEntity && at.Sub != fsm.TransferDeadLetterQueue {
		return nil, fmt.Errorf("peek at topic %q: %w", at.Name, fsm.NotAllowed)
	}
	r.reportActivity(at.Entity)
	arguments, err := json.Marshal(q)
	if err != nil {
		return nil, fmt.Errorf("encode query: %w", err)
	}
	reply, err := r.askLeader(ctx, at.Partition, rpc.QueryPeek, arguments)
	if err != nil {
		return nil, err
	}
	result, err := fsm.DecodeResult(reply.Body)
	if err != nil {
		return nil, fmt.Errorf("peek: %w", err)
	}
	return result.Deliveries, nil
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
	group := r.transport.LocalReplica(fsm.CatalogPartition)
	if group == nil {
		return nil
	}
	var key [16]byte
	loaded := false
	group.View(func(m partition.Machine) {
		key, loaded = raftgroup.Catalog(m).TokenKey(), raftgroup.Catalog(m).ClusterID() != ""
	})
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

// Leader returns an Asker that asks the leader of a partition and, when it has changed, the next one, until
// ctx or Timing.Retry ends. Its errors wrap an fsm.Code.
func (r *Router) Leader(id fsm.PartitionID) rpc.Asker {
	return func(ctx context.Context, kind rpc.QueryKind, arguments []byte) (rpc.Reply, error) {
		return r.askLeader(ctx, id, kind, arguments)
	}
}

func (r *Router) askLeader(ctx context.Context, id fsm.PartitionID, kind rpc.QueryKind, arguments []byte) (reply rpc.Reply, err error) {
	client := r.client(id)
	err = r.AtLeader(ctx, id, func(leader fsm.MemberID) (err error) {
		ctx, cancel := client.untilLeaderChanges(ctx, leader)
		defer cancel()
		if reply, err = r.askMember(ctx, leader, kind, arguments); err == nil {
			err = reply.Decode(nil)
		}
		return err
	})
	if err != nil {
		return rpc.Reply{}, fmt.Errorf("ask partition %d: %w", id, err)
	}
	return reply, nil
}

// AtLeader calls a function with the leader of a partition. Until ctx or Timing.Retry ends, it repeats
// the call while that member does not lead or does not answer. An error of the function that wraps an
// fsm.Code is an answer.
func (r *Router) AtLeader(ctx context.Context, id fsm.PartitionID, call func(leader fsm.MemberID) error) error {
	ctx, cancel := context.WithTimeout(ctx, r.timing.Retry)
	defer cancel()
	client := r.client(id)
	for pause := askPauseMin; ; pause = min(2*pause, askPauseMax) {
		leader, err := client.awaitLeader(ctx)
		if err != nil {
			return fmt.Errorf("the partition has no leader: %w", fsm.ServerBusy)
		}
		err = call(leader)
		var code fsm.Code
		if err == nil || errors.As(err, &code) {
			return err
		}
		r.SuspectLeader(id, leader)
		notify.Pause(ctx, pause)
	}
}

// askMember asks a member, which may be this one. It stops waiting for a member that does not answer, so
// that another one can be asked.
func (r *Router) askMember(ctx context.Context, member fsm.MemberID, kind rpc.QueryKind, arguments []byte) (rpc.Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, max(time.Second, 2*r.timing.Suspect))
	defer cancel()
	if member == r.self {
		return r.answerLocal(ctx, kind, arguments), nil
	}
	conn := r.transport.Conn(member)
	if conn == nil {
		return rpc.Reply{}, rpc.ErrClosed
	}
	return conn.Query(ctx, kind, arguments)
}

// lookup finds an entity at the catalog's leader.
func (r *Router) lookup(ctx context.Context, q EntityQuery) (fsm.Entity, error) {
	return FindEntity.at(ctx, r, q)
}

// AwaitLeader waits until a leader of the partition is known and returns it.
func (r *Router) AwaitLeader(ctx context.Context, id fsm.PartitionID) (fsm.MemberID, error) {
	return r.client(id).awaitLeader(ctx)
}

// SuspectLeader restarts the search for the leader of a partition if the router considers member the leader.
func (r *Router) SuspectLeader(id fsm.PartitionID, member fsm.MemberID) {
	client := r.client(id)
	client.mu.Lock()
	client.suspectLeader(member, "")
	client.mu.Unlock()
}

// Outstanding returns the number of requests to a partition from the oldest unanswered one to the newest.
func (r *Router) Outstanding(id fsm.PartitionID) int {
	client := r.client(id)
	client.mu.Lock()
	defer client.mu.Unlock()
	return int(client.next - client.low)
}

// HasNoLeader reports whether requests to a partition wait because no leader is known.
func (r *Router) HasNoLeader(id fsm.PartitionID) bool { return r.client(id).hasNoLeader() }
