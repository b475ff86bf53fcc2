package admin

import (
	"fmt"
	"net/http"
	"time"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/admin/input"
	"github.com/peeklock/peeklock/admin/inspect"
	"github.com/peeklock/peeklock/fsm"
)

// Limits of a list of sessions. An id has at most 512 bytes, so that a page fits into one reply between members.
const (
	pageSessionsMax    = 1000
	pageSessionsNormal = 100
)

// getSessions is GET /v1/sessions/{queue or subscription}?skip=&max=: the sessions that have
// messages or a state.
func (s *controlAPI) getSessions(w http.ResponseWriter, r *http.Request) error {
	path, err := input.MessageEntityName(r)
	if err != nil {
		return err
	}
	limit, err := input.Number(r, "max", pageSessionsNormal, 1, pageSessionsMax)
	if err != nil {
		return err
	}
	skip, err := input.Number(r, "skip", 0, 0, 1<<31-1)
	if err != nil {
		return err
	}
	sessions, err := s.namespace(r).Sessions(r.Context(), path, skip, limit)
	switch {
	case codeOf(err) == fsm.NotAllowed:
		return fmt.Errorf("%w: '%s' has no sessions: it was created without requiresSession", fsm.NotAllowed, path)
	case err != nil:
		return withEntityName(path, err)
	}
	page := api.SessionPage{Sessions: make([]api.Session, len(sessions))}
	for i := range sessions {
		page.Sessions[i] = describeSession(&sessions[i])
	}
	if len(sessions) == limit {
		page.Next = skip + limit
	}
	s.writeJSON(w, r, http.StatusOK, page)
	return nil
}

func describeSession(f *fsm.Session) api.Session {
	s := api.Session{ID: f.ID, Messages: f.Messages, Ready: f.Ready, Bytes: f.Bytes}
	for _, t := range []struct {
		to   **time.Time
		from fsm.Instant
	}{{&s.Until, f.Until}, {&s.Updated, f.Updated}} {
		if t.from != 0 {
			at := time.UnixMilli(int64(t.from)).UTC()
			*t.to = &at
		}
	}
	return s
}

// sessionParameter returns the session that a request names; "" is a valid name.
func sessionParameter(r *http.Request) (string, error) {
	if !r.URL.Query().Has("session") {
		return "", fmt.Errorf("%w: name the session with ?session=", fsm.InvalidArgument)
	}
	return r.URL.Query().Get("session"), nil
}

// onSession serves a request about one session.
func (s *controlAPI) onSession(serve func(w http.ResponseWriter, r *http.Request, finder *inspect.Finder, at inspect.Place, session string) error) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		session, err := sessionParameter(r)
		if err != nil {
			return err
		}
		finder, at, err := s.finderAt(r)
		if err != nil {
			return err
		}
		return withEntityName(at.Name, serve(w, r, finder, at, session))
	}
}

// getSessionState is GET /v1/session-state/{queue or subscription}?session=.
func (s *controlAPI) getSessionState(w http.ResponseWriter, r *http.Request, finder *inspect.Finder, at inspect.Place, session string) error {
	state, err := finder.SessionState(r.Context(), at, session)
	if err != nil {
		return err
	}
	s.writeJSON(w, r, http.StatusOK, api.SessionState{ID: session, Set: state != nil, State: state})
	return nil
}

// putSessionState is PUT of the same, also while a receiver holds the session.
func (s *controlAPI) putSessionState(w http.ResponseWriter, r *http.Request, finder *inspect.Finder, at inspect.Place, session string) error {
	var asked api.SessionStateRequest
	if err := input.Decode(r, &asked, "state"); err != nil {
		return err
	}
	if asked.State == nil {
		asked.State = []byte{} // an empty state is one; DELETE removes it
	}
	if err := finder.SetSessionState(r.Context(), at, session, asked.State); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// deleteSessionState is DELETE of the same.
func (s *controlAPI) deleteSessionState(w http.ResponseWriter, r *http.Request, finder *inspect.Finder, at inspect.Place, session string) error {
	if err := finder.SetSessionState(r.Context(), at, session, nil); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// releaseSession is POST /v1/release/{queue or subscription}?session=: it ends the lock of the receiver that holds the session.
func (s *controlAPI) releaseSession(w http.ResponseWriter, r *http.Request, finder *inspect.Finder, at inspect.Place, session string) error {
	released, err := finder.ReleaseSession(r.Context(), at, session)
	if err != nil {
		return err
	}
	s.writeJSON(w, r, http.StatusOK, api.SessionReleased{Released: released})
	return nil
}
