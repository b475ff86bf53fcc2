package admin

import (
	"fmt"
	"net/http"
	"time"

	"github.com/peeklock/peeklock/admin/api"
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
	if err := checkParameters(r, "skip", "max"); err != nil {
		return err
	}
	path, err := messageEntityName(r)
	if err != nil {
		return err
	}
	limit, err := numberParameter(r, "max", pageSessionsNormal, 1, pageSessionsMax)
	if err != nil {
		return err
	}
	skip, err := numberParameter(r, "skip", 0, 0, 1<<31-1)
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
