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

// settle ends a lock or extends it.
func (s *Server) settle(ctx context.Context, w http.ResponseWriter, t target, at fsm.EntityRef) error {
	lock, ok := s.config.Broker.ParseLockToken(at, t.token)
	if !ok {
		return errLock
	}
	if err := s.checkID(ctx, at, lock, t.id); err != nil {
		return err
	}
	code, err := fsm.OK, error(nil)
	switch t.do { //nolint:exhaustive // the others settle nothing
	case renew:
		code, err = await(ctx, func(done func(fsm.Code)) {
			s.config.Broker.Renew(at, []fsm.LockID{lock}, func(codes []fsm.Code, _ []fsm.Instant) { done(codes[0]) })
		})
	case unlock:
		code, err = s.end(ctx, at, lock, fsm.Abandon)
	case complete:
		code, err = s.end(ctx, at, lock, fsm.Complete)
	}
	switch {
	case err != nil:
		return err
	case code == fsm.MessageLockLost || code == fsm.MessageNotFound:
		return errLock
	case code != fsm.OK:
		return code
	}
	w.WriteHeader(http.StatusOK)
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
