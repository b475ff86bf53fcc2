package router

import (
	"context"
	"errors"
	"fmt"

	"github.com/peeklock/peeklock/cluster/entities"
	"github.com/peeklock/peeklock/cluster/query"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/queue"
)

// The limits of a PurgeSession.
const (
	purgeSessionAttemptsMax = 8       // starts, since the holder of the session may change
	purgeLockMessagesMax    = 256     // messages locked at a time
	purgeLockBytesMax       = 1 << 20 // payloads of those; the first is locked whatever its size
)

// Arguments and reply of the query that precedes each purge of a session.
type (
	purgeableQuery struct {
		query.EntityIn

		Session string      `json:"Session"`
		Before  fsm.Instant `json:"Before"`
		Max     int         `json:"Max"`
	}
	purgeableReply struct {
		Lock  fsm.SessionLock `json:"Lock"`  // of the holder, Epoch 0 when there is none
		Reach int             `json:"Reach"` // ready messages to lock, from the oldest on
	}
)

// purgeable asks for the lock under which a session is held, and how many of its messages a purge has to lock.
var purgeable = query.OfQueues(rpc.QueryPurgeable, func(queues *queue.Machine, q purgeableQuery) (reply purgeableReply, err error) {
	var code fsm.Code
	reply.Lock, reply.Reach, code = queues.PurgeableInSession(q.Entity, q.Session, q.Before, max(0, min(q.Max, entities.PurgeMessagesMax)))
	if code != fsm.OK {
		err = code
	}
	return reply, err
})

// purgeSession is Router.PurgeSession at one shard, or at an entity that is not partitioned.
func (s *single) purgeSession(ctx context.Context, at fsm.EntityRef, session string, before fsm.Instant, most int) (int, error) {
	p := &sessionPurge{single: s, at: at, session: session, before: before, most: most}
	if err := p.run(ctx); err != nil && p.removed == 0 {
		return 0, fmt.Errorf("purge session %q of %q: %w", session, at.Name, err)
	}
	return p.removed, nil
}

// sessionPurge is one running PurgeSession.
type sessionPurge struct {
	single  *single
	at      fsm.EntityRef // a shard of a partitioned entity
	session string
	before  fsm.Instant
	most    int
	removed int
}

// run repeats the purge when the session gets another holder meanwhile.
func (p *sessionPurge) run(ctx context.Context) error {
	var err error
	for range purgeSessionAttemptsMax {
		if err = p.purgeOnce(ctx); !errors.Is(err, fsm.SessionLockLost) && !errors.Is(err, fsm.SessionCannotBeLocked) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", fsm.ServerBusy, err)
}

// purgeOnce removes messages under one lock of the session.
func (p *sessionPurge) purgeOnce(ctx context.Context) error {
	found, err := purgeable.At(ctx, p.single, purgeableQuery{
		EntityIn: query.Entity(p.at), Session: p.session, Before: p.before, Max: p.most - p.removed,
	})
	if err != nil || found.Reach == 0 {
		return err
	}
	lock := found.Lock
	if lock.Epoch == 0 {
		result, err := p.single.Command(ctx, p.at.Partition, fsm.AcceptSession{Entity: p.at.ID, Named: true, ID: p.session})
		if err != nil {
			return err
		}
		lock = result.Session
		defer p.submitAlways(ctx, fsm.ReleaseSession{Entity: p.at.ID, Lock: lock})
	}
	return p.purgeUnderLock(ctx, lock, found.Reach)
}

// purgeUnderLock locks up to reach messages under a lock of the session and removes those that are
// old enough. It releases the others at the end: earlier they would be locked again immediately.
func (p *sessionPurge) purgeUnderLock(ctx context.Context, lock fsm.SessionLock, reach int) error {
	var toRelease []fsm.Settlement
	defer func() {
		if len(toRelease) > 0 {
			p.submitAlways(ctx, fsm.SettleMessages{Address: p.at.Address(), Settlements: toRelease})
		}
	}()
	// Locked messages must be settled, so a client that disconnects ends the purge only between batches.
	uncancelled := context.WithoutCancel(ctx)
	for reach > 0 && p.removed < p.most && ctx.Err() == nil {
		result, err := p.single.Command(uncancelled, p.at.Partition, fsm.LockMessages{
			Address: p.at.Address(), Session: lock, Max: uint32(min(reach, purgeLockMessagesMax)), MaxBytes: purgeLockBytesMax,
		})
		if err != nil || len(result.Deliveries) == 0 {
			return err
		}
		reach -= len(result.Deliveries)
		var toRemove []fsm.Settlement
		for _, d := range result.Deliveries {
			if (p.before == 0 || d.Enqueued < p.before) && p.removed+len(toRemove) < p.most {
				toRemove = append(toRemove, fsm.Settlement{Lock: d.Lock, Verb: fsm.Complete})
			} else {
				toRelease = append(toRelease, fsm.Settlement{Lock: d.Lock, Verb: fsm.Release})
			}
		}
		if err := p.complete(uncancelled, toRemove); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// submitAlways submits a command that releases locks, also when ctx has ended, and waits for it: the
// caller's next request may need them. When it fails, the locks end with that of the session.
func (p *sessionPurge) submitAlways(ctx context.Context, command fsm.Command) {
	_, _ = p.single.Command(context.WithoutCancel(ctx), p.at.Partition, command)
}

// complete removes locked messages and counts them.
func (p *sessionPurge) complete(ctx context.Context, toRemove []fsm.Settlement) error {
	if len(toRemove) == 0 {
		return nil
	}
	result, err := p.single.Command(ctx, p.at.Partition, fsm.SettleMessages{Address: p.at.Address(), Settlements: toRemove})
	if err != nil {
		return err
	}
	for _, code := range result.Codes {
		if code == fsm.OK {
			p.removed++
		}
	}
	return nil
}
