package router

import (
	"context"
	"errors"
	"fmt"

	"github.com/peeklock/peeklock/cluster/query"
	"github.com/peeklock/peeklock/cluster/shards"
	"github.com/peeklock/peeklock/fsm"
)

// StateOfSession returns the state of a session, nil when none is set, whether or not a receiver holds the session. Errors
// are those of PurgeSession.
func (r *Router) StateOfSession(ctx context.Context, at fsm.EntityRef, session string) (state []byte, err error) {
	err = r.single.underSessionLock(ctx, at, session, func(at fsm.EntityRef, lock fsm.SessionLock) error {
		reply, err := stateOfSession.Ask(ctx, r.single.Leader(at.Partition), sessionStateQuery{EntityIn: query.Entity(at), Lock: lock})
		if err == nil && reply.Set {
			state = append([]byte{}, reply.State...)
		}
		return err
	})
	return state, err
}

// SetStateOfSession sets the state of a session, whether or not a receiver holds the session; nil removes it, an empty state
// does not. Errors are those of PurgeSession, MessageTooLarge and QuotaExceeded.
func (r *Router) SetStateOfSession(ctx context.Context, at fsm.EntityRef, session string, state []byte) error {
	return r.single.underSessionLock(ctx, at, session, func(at fsm.EntityRef, lock fsm.SessionLock) error {
		_, err := r.single.Command(ctx, at.Partition, fsm.SetSessionState{Entity: at.ID, Lock: lock, State: state, Clear: state == nil})
		return err
	})
}

// ReleaseSession ends the lock of a session and reports whether there was one. Messages that are locked under it return to
// their place without a failed delivery, and the receiver learns that it has lost the session. Errors are those of
// PurgeSession.
func (r *Router) ReleaseSession(ctx context.Context, at fsm.EntityRef, session string) (released bool, err error) {
	if at, err = sessionShard(at, session); err != nil {
		return false, err
	}
	found, err := purgeable.At(ctx, r.single, purgeableQuery{EntityIn: query.Entity(at), Session: session})
	if err != nil || found.Lock.Epoch == 0 {
		return false, err
	}
	_, err = r.single.Command(ctx, at.Partition, fsm.ReleaseSession{Entity: at.ID, Lock: found.Lock})
	return err == nil, err
}

// sessionShard returns the entity, or the shard of it, that has a session.
func sessionShard(at fsm.EntityRef, session string) (fsm.EntityRef, error) {
	if at.Kind == fsm.TopicEntity || at.Sub != fsm.MainQueue {
		return at, fmt.Errorf("sessions of %q: %w", at.Name, fsm.NotAllowed)
	}
	if len(at.Shards) > 0 {
		at = shards.Ref(at, shards.Hash(&at.Entity, session))
	}
	return at, nil
}

// underSessionLock calls do with the lock of the receiver that holds a session, or with one of its own that it releases at
// the end. It repeats that when the session gets another holder meanwhile.
func (s *single) underSessionLock(ctx context.Context, at fsm.EntityRef, session string, do func(fsm.EntityRef, fsm.SessionLock) error) error {
	at, err := sessionShard(at, session)
	if err != nil {
		return err
	}
	for range purgeSessionAttemptsMax {
		err = s.underSessionLockOnce(ctx, at, session, do)
		if !errors.Is(err, fsm.SessionLockLost) && !errors.Is(err, fsm.SessionCannotBeLocked) {
			return err
		}
	}
	return fmt.Errorf("session %q of %q: %w: %w", session, at.Name, fsm.ServerBusy, err)
}

func (s *single) underSessionLockOnce(ctx context.Context, at fsm.EntityRef, session string, do func(fsm.EntityRef, fsm.SessionLock) error) error {
	found, err := purgeable.At(ctx, s, purgeableQuery{EntityIn: query.Entity(at), Session: session})
	if err != nil {
		return err
	}
	if found.Lock.Epoch != 0 {
		return do(at, found.Lock)
	}
	result, err := s.Command(ctx, at.Partition, fsm.AcceptSession{Entity: at.ID, Named: true, ID: session})
	if err != nil {
		return err
	}
	err = do(at, result.Session)
	// Also when ctx has ended: otherwise no receiver gets the session until the lock ends.
	_, _ = s.Command(context.WithoutCancel(ctx), at.Partition, fsm.ReleaseSession{Entity: at.ID, Lock: result.Session})
	return err
}
