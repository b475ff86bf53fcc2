package linear

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// SessionKind is the kind of a request.
type SessionKind string

// The kinds.
const (
	Accept   SessionKind = "accept"    // the client holds the session until Until at least
	TakeOver SessionKind = "take over" // the same, whoever holds it with the token
	Renew    SessionKind = "renew"     // the same, for its holder
	Use      SessionKind = "use"       // something that only the holder may do
	Read     SessionKind = "read"      // of the state
	Write    SessionKind = "write"     // of the state
	Release  SessionKind = "release"   // it may have no effect
)

// SessionRequest is a request of a client for a session. Of those without an answer only Write and Release are recorded.
type SessionRequest struct {
	Kind            SessionKind
	Session, Client string
	Begun           time.Time
	Ended           time.Time // zero: without an answer
	Until           time.Time // Accept, TakeOver, Renew
	State           int       // that was read or written
}

// String is the request as one line of a report.
func (q SessionRequest) String() string {
	s := fmt.Sprintf("%s to %s %-9s %s", q.Begun.Format("15:04:05.000"), q.Ended.Format("15:04:05.000"), q.Kind, q.Client)
	switch {
	case q.Kind == Read || q.Kind == Write:
		s += fmt.Sprintf(" state=%d", q.State)
	case !q.Until.IsZero():
		s += " until=" + q.Until.Format("15:04:05.000")
	}
	return s
}

// sessionOp is a request, or the end of a lock.
type sessionOp struct {
	SessionRequest

	lease int  // Accept, TakeOver and Renew: number of the lock
	ends  bool // the lock with this number ends
}

type sessionState struct {
	client string // "" for none
	lease  int
	state  int
}

func sessionModel() porcupine.Model {
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{sessionState{}} },
		Step: func(state, input, _ any) []any { return stepSession(state.(sessionState), input.(sessionOp)) }, //nolint:forcetypeassert // ours
	}
	return model.ToModel()
}

func stepSession(s sessionState, op sessionOp) []any {
	free, held, written := s, s, s
	free.client, free.lease = "", 0
	held.client, held.lease = op.Client, op.lease
	written.state = op.State
	isHolder := s.client == op.Client
	switch {
	case op.ends && s.lease == op.lease:
		return []any{free}
	case op.ends:
		return []any{s}
	case op.Kind == Accept && s.client == "", op.Kind == TakeOver, op.Kind == Renew && isHolder:
		return []any{held}
	case op.Kind == Use && isHolder, op.Kind == Read && isHolder && s.state == op.State:
		return []any{s}
	case op.Kind == Write && op.Ended.IsZero() && isHolder:
		return []any{s, written}
	case op.Kind == Write && isHolder:
		return []any{written}
	case op.Kind == Release && isHolder:
		return []any{s, free}
	case op.Kind == Release, op.Kind == Write && op.Ended.IsZero():
		return []any{s}
	}
	return nil
}

// sessionOps returns the operations of one session.
func sessionOps(requests []SessionRequest) (ops []porcupine.Operation) {
	ended := func(q *SessionRequest) int64 {
		if q.Ended.IsZero() {
			return never
		}
		return q.Ended.UnixNano()
	}
	slices.SortStableFunc(requests, func(a, b SessionRequest) int { return cmp.Compare(ended(&a), ended(&b)) })
	for i := range requests {
		q := &requests[i]
		// When a lock is known to be held that was asked for after this one: the end of this one has happened then, or never will.
		next := int64(never)
		for j := i + 1; j < len(requests); j++ {
			if k := requests[j].Kind; (k == Accept || k == TakeOver || k == Renew) && !requests[j].Begun.Before(q.Ended) {
				next = ended(&requests[j])
				break
			}
		}
		op := porcupine.Operation{Input: sessionOp{SessionRequest: *q, lease: i + 1}, Call: q.Begun.UnixNano(), Return: ended(q)}
		if q.Kind == Release {
			op.Return = nextLock(requests, q)
		}
		ops = append(ops, op)
		if until := q.Until.UnixNano(); !q.Until.IsZero() && until <= next {
			ops = append(ops, porcupine.Operation{Input: sessionOp{lease: i + 1, ends: true}, Call: until, Return: next})
		}
	}
	return ops
}

// nextLock returns when the first lock is known to be held that was asked for after a request began.
func nextLock(requests []SessionRequest, q *SessionRequest) int64 {
	for i := range requests {
		if k := requests[i].Kind; (k == Accept || k == TakeOver) && !requests[i].Ended.IsZero() && requests[i].Begun.After(q.Begun) {
			return requests[i].Ended.UnixNano()
		}
	}
	return never
}

// Sessions checks the histories of sessions. Each is searched for the given time at most.
func Sessions(requests []SessionRequest, within time.Duration) (r Result) {
	bySession := make(map[string][]SessionRequest)
	for _, q := range requests {
		bySession[q.Session] = append(bySession[q.Session], q)
	}
	model := sessionModel()
	for session, of := range bySession {
		r.check(model, sessionOps(of), within, func() string {
			var s strings.Builder
			fmt.Fprintf(&s, "session %s", session)
			for _, q := range of {
				s.WriteString("\n    " + q.String())
			}
			return s.String()
		})
	}
	return r
}
