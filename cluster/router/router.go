package router

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"

	"github.com/peeklock/peeklock/cluster/client"
	"github.com/peeklock/peeklock/cluster/entities"
	"github.com/peeklock/peeklock/cluster/query"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/catalog"
)

// Router sends the requests of the gateways to the leader of their partition and retries until
// there is an answer, for at most Timing.Retry: then the result is ServerBusy (certainly not applied)
// or Timeout (possibly applied). All methods are safe for concurrent use. done functions are called
// exactly once, possibly before the method returns, and must not block.
type Router struct {
	*entities.Manager

	transport  client.Transport
	replicas   query.Replicas
	log        *slog.Logger
	shardTurns atomic.Uint64 // selects the next shard of partitioned entities
	tokens     atomic.Pointer[tokenCipher]
}

// Config configures a Router.
type Config struct {
	client.Config

	ReplicaName func(fsm.PartitionID) string // raft name of this member's open replica; "" when there is none
}

// New makes a router. Run must run while it is used.
func New(c *Config) *Router {
	return &Router{
		Manager: entities.New(&c.Config), transport: c.Transport, log: c.Logger,
		replicas: query.Replicas{Local: c.Transport.LocalReplica, Name: c.ReplicaName},
	}
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
	client := r.Client(at.Partition)
	client.Submit(command, func(result fsm.Result) {
		if result.Code != fsm.EntityNotFound {
			done(result)
			return
		}
		r.Recreate(at.Entity, func(recreated bool) {
			if !recreated {
				done(result)
				return
			}
			client.Submit(command, done)
		})
	})
}

// Settle ends locks. done gets one Code per settlement, in order.
func (r *Router) Settle(at fsm.EntityRef, settlements []fsm.Settlement, done func([]fsm.Code)) {
	if len(at.Shards) > 0 {
		r.settleShards(at, settlements, done)
		return
	}
	command := fsm.SettleMessages{Address: at.Address(), Settlements: settlements}
	r.Client(at.Partition).Submit(command, func(result fsm.Result) {
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
	r.Client(at.Partition).Submit(command, func(result fsm.Result) {
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
	r.Client(at.Partition).Submit(command, func(result fsm.Result) { done(result.Code, result.Deliveries) })
}

// FetchReady locks ready messages that a peek has shown, or deletes them as they are received. It leaves out those that are
// not ready any more, or were locked since the peek.
func (r *Router) FetchReady(at fsm.EntityRef, seen []fsm.LockID, receiveAndDelete bool, done func(fsm.Code, []fsm.Delivery)) {
	if len(at.Shards) > 0 {
		r.fetchReadyShards(at, seen, receiveAndDelete, done)
		return
	}
	command := fsm.FetchReady{Address: at.Address(), Seen: seen, Delete: receiveAndDelete}
	r.Client(at.Partition).Submit(command, func(result fsm.Result) { done(result.Code, result.Deliveries) })
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
	r.ReportActivity(at.Entity)
	arguments, err := json.Marshal(q)
	if err != nil {
		return nil, fmt.Errorf("encode query: %w", err)
	}
	reply, err := r.Leader(at.Partition)(ctx, rpc.QueryPeek, arguments)
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
	var key [16]byte
	loaded := false
	r.replicas.ViewCatalog(func(c *catalog.Machine) { key, loaded = c.TokenKey(), c.ClusterID() != "" })
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
