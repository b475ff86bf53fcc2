package admin

import (
	"fmt"
	"net/http"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// Limits of a list of sessions. An id has at most 512 bytes, so that a page fits into one reply between members.
const (
	pageSessionsMax    = 1000
	pageSessionsNormal = 100
)

// Session is the JSON form of a session of a queue or subscription.
type Session struct {
	ID       string     `json:"id"` // "" is a valid id
	Messages uint64     `json:"messages"`
	Ready    uint64     `json:"ready"`                    // of those
	Until    *time.Time `json:"lockedUntil,omitempty"`    // nil: not locked
	Bytes    uint64     `json:"stateBytes"`               // 0 also for an empty state
	Updated  *time.Time `json:"stateUpdatedAt,omitempty"` // nil: no state
}

// SessionPage is one page of the list of sessions, in a stable order. Next is the "skip" of the next page, 0 at the end.
// Sessions that begin or end meanwhile may be missing or appear twice.
type SessionPage struct {
	Sessions []Session `json:"sessions"`
	Next     int       `json:"next,omitempty"`
}

// getSessions is GET /v1/sessions/{queue or subscription}?skip=&max=: the sessions that have
// messages or a state.
func (s *Server) getSessions(w http.ResponseWriter, r *http.Request) error {
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
	page := SessionPage{Sessions: make([]Session, len(sessions))}
	for i := range sessions {
		page.Sessions[i] = describeSession(&sessions[i])
	}
	if len(sessions) == limit {
		page.Next = skip + limit
	}
	s.writeJSON(w, r, http.StatusOK, page)
	return nil
}

func describeSession(f *fsm.Session) Session {
	s := Session{ID: f.ID, Messages: f.Messages, Ready: f.Ready, Bytes: f.Bytes}
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
