package inspect

import (
	"context"
	"fmt"

	"github.com/peeklock/peeklock/fsm"
)

// sessionEntity finds an entity with sessions. Errors wrap an fsm.Code.
func (f *Finder) sessionEntity(ctx context.Context, at Place, session string) (fsm.EntityRef, error) {
	if len(session) > fsm.SessionIDBytesMax {
		return fsm.EntityRef{}, fmt.Errorf("%w: a session id has at most %d bytes", fsm.InvalidArgument, fsm.SessionIDBytesMax)
	}
	ref, err := f.broker.Resolve(ctx, at.Namespace, at.Name)
	if err == nil && !ref.Settings.RequiresSession {
		err = fmt.Errorf("%w: '%s' has no sessions: it was created without requiresSession", fsm.NotAllowed, at.Name)
	}
	return ref, err //nolint:wrapcheck // admin names the entity
}

// SessionState returns the state of a session, nil for none. Errors wrap EntityNotFound, NotAllowed without sessions,
// ServerBusy or Timeout, also those of the next two methods.
func (f *Finder) SessionState(ctx context.Context, at Place, session string) ([]byte, error) {
	ref, err := f.sessionEntity(ctx, at, session)
	if err != nil {
		return nil, err
	}
	return f.broker.StateOfSession(ctx, ref, session) //nolint:wrapcheck // it names the session
}

// SetSessionState sets the state of a session; nil removes it. Errors are also MessageTooLarge and QuotaExceeded.
func (f *Finder) SetSessionState(ctx context.Context, at Place, session string, state []byte) error {
	ref, err := f.sessionEntity(ctx, at, session)
	if err != nil {
		return err
	}
	return f.broker.SetStateOfSession(ctx, ref, session, state) //nolint:wrapcheck // it names the session
}

// ReleaseSession ends the lock of a session, and reports whether there was one.
func (f *Finder) ReleaseSession(ctx context.Context, at Place, session string) (bool, error) {
	ref, err := f.sessionEntity(ctx, at, session)
	if err != nil {
		return false, err
	}
	return f.broker.ReleaseSession(ctx, ref, session) //nolint:wrapcheck // it names the session
}
