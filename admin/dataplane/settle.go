package dataplane

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/fsm"
)

// errLock is the answer for a message or a lock that does not exist.
var errLock = &refusal{http.StatusNotFound, "no message was found with the specified message id or lock token"}

// renew extends a lock.
func (s *Server) renew(r *request) error {
	return s.settle(r, func(ctx context.Context, lock fsm.LockID) (fsm.Code, error) {
		return await(ctx, func(done func(fsm.Code)) {
			s.config.Broker.Renew(r.at, []fsm.LockID{lock}, func(codes []fsm.Code, _ []fsm.Instant) { done(codes[0]) })
		})
	})
}

// unlock ends a lock, and the message is available again.
func (s *Server) unlock(r *request) error {
	return s.settle(r, func(ctx context.Context, lock fsm.LockID) (fsm.Code, error) {
		return s.end(ctx, r.at, lock, fsm.Abandon)
	})
}

// complete ends a lock and deletes the message.
func (s *Server) complete(r *request) error {
	return s.settle(r, func(ctx context.Context, lock fsm.LockID) (fsm.Code, error) {
		return s.end(ctx, r.at, lock, fsm.Complete)
	})
}

// settle does something to the lock that a request names.
func (s *Server) settle(r *request, do func(context.Context, fsm.LockID) (fsm.Code, error)) error {
	ctx := r.http.Context()
	lock, ok := s.config.Broker.ParseLockToken(r.at, r.t.token)
	if !ok {
		return errLock
	}
	if err := s.checkID(ctx, r.at, lock, r.t.id); err != nil {
		return err
	}
	code, err := do(ctx, lock)
	switch {
	case err != nil:
		return err
	case code == fsm.MessageLockLost || code == fsm.MessageNotFound:
		return errLock
	case code != fsm.OK:
		return code
	}
	r.w.WriteHeader(http.StatusOK)
	return nil
}

// end ends a lock.
func (s *Server) end(ctx context.Context, at fsm.EntityRef, lock fsm.LockID, verb fsm.Verb) (fsm.Code, error) {
	return await(ctx, func(done func(fsm.Code)) {
		s.config.Broker.Settle(at, []fsm.Settlement{{Lock: lock, Verb: verb}}, func(codes []fsm.Code) { done(codes[0]) })
	})
}

// checkID checks that the path names the locked message: by its number, or else by its id.
func (s *Server) checkID(ctx context.Context, at fsm.EntityRef, lock fsm.LockID, id string) error {
	if id == strconv.FormatUint(uint64(lock.Sequence), 10) {
		return nil
	}
	found, err := s.config.Broker.Peek(ctx, at, lock.Sequence, 1, 1)
	if err != nil {
		return err
	}
	if len(found) == 0 || found[0].Lock.Sequence != lock.Sequence {
		return errLock
	}
	stored, err := message.Reread(found[0].Payload, found[0].Patches)
	if err != nil {
		return fmt.Errorf("read message %d: %w", lock.Sequence, err)
	}
	if stored.ID != id {
		return errLock
	}
	return nil
}

// await calls ask and waits for its result, or until ctx ends.
func await[T any](ctx context.Context, ask func(done func(T))) (result T, err error) {
	results := make(chan T, 1)
	ask(func(v T) { results <- v })
	select {
	case result = <-results:
		return result, nil
	case <-ctx.Done():
		return result, context.Cause(ctx)
	}
}
