package inspect

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
)

// Limits of a selection.
const (
	numbersMax       = 1000 // sequence numbers of one request
	containsBytesMax = 1024 // of the text that a body has to contain
	reasonBytesMax   = 4096 // of the reason of a dead letter
)

// condition is a checked api.Selection.
type condition struct {
	sub      fsm.SubQueue
	states   fsm.StateSet // 0: all
	session  *string
	numbers  []fsm.SequenceNumber // ascending; empty: all
	where    *filter.Expr         // nil: none
	contains []byte
	path     *jsonPath // nil: none
	reason   string
	before   fsm.Instant // enqueued before it; 0: at any time
}

// states are the names of states in selections. A locked message is active, too.
func states(name string) (fsm.StateSet, bool) {
	switch name {
	case api.StateActive:
		return fsm.SetOf(fsm.Ready, fsm.Locked, fsm.Forwarding), true
	case api.StateLocked:
		return fsm.SetOf(fsm.Locked), true
	case api.StateDeferred:
		return fsm.SetOf(fsm.Deferred), true
	case api.StateScheduled:
		return fsm.SetOf(fsm.Scheduled), true
	}
	return 0, false
}

// newCondition checks a selection. Errors wrap fsm.InvalidArgument.
func newCondition(s *api.Selection) (condition, error) {
	c := condition{session: s.Session, contains: []byte(s.Contains), reason: s.Reason}
	var err error
	if c.sub, err = SubQueue(s.SubQueue); err != nil {
		return c, err
	}
	for _, name := range s.States {
		set, ok := states(name)
		if !ok {
			return c, fmt.Errorf("%w: a state is active, locked, deferred or scheduled, not %.40q", fsm.InvalidArgument, name)
		}
		c.states |= set
	}
	switch {
	case len(s.Sequences) > numbersMax:
		return c, fmt.Errorf("%w: at most %d sequence numbers are possible, not %d", fsm.InvalidArgument, numbersMax, len(s.Sequences))
	case len(s.Contains) > containsBytesMax:
		return c, fmt.Errorf("%w: contains has at most %d bytes", fsm.InvalidArgument, containsBytesMax)
	case len(s.Reason) > reasonBytesMax:
		return c, fmt.Errorf("%w: reason has at most %d bytes", fsm.InvalidArgument, reasonBytesMax)
	case s.Session != nil && len(*s.Session) > fsm.SessionIDBytesMax:
		return c, fmt.Errorf("%w: a session id has at most %d bytes", fsm.InvalidArgument, fsm.SessionIDBytesMax)
	}
	c.numbers = slices.Clone(s.Sequences)
	slices.Sort(c.numbers)
	c.numbers = slices.Compact(c.numbers)
	if s.Before != nil {
		c.before = fsm.Instant(max(1, s.Before.UnixMilli()))
	}
	if s.Where != "" {
		if c.where, err = filter.Parse(s.Where, nil); err != nil {
			return c, fmt.Errorf("%w: where: %s", fsm.InvalidArgument, err.Error())
		}
	}
	if s.Path != "" {
		if c.path, err = parsePath(s.Path); err != nil {
			return c, fmt.Errorf("%w: path: %s", fsm.InvalidArgument, err.Error())
		}
	}
	return c, nil
}

// SubQueue returns the sub-queue with a name of the control API; "" is the main queue. Errors wrap fsm.InvalidArgument.
func SubQueue(name string) (fsm.SubQueue, error) {
	switch name {
	case "", "main":
		return fsm.MainQueue, nil
	case "deadLetter":
		return fsm.DeadLetterQueue, nil
	case "transferDeadLetter":
		return fsm.TransferDeadLetterQueue, nil
	}
	return 0, fmt.Errorf("%w: subQueue is main, deadLetter or transferDeadLetter, not %.40q", fsm.InvalidArgument, name)
}

// matcher evaluates a condition for one message after another. Only one goroutine may use it.
type matcher struct {
	condition

	runner  filter.Runner
	message candidate
}

// errWhere is an evaluation that fails for one message. Leaving the message out would hide the error.
var errWhere = errors.New("the expression fails")

// matches reports whether a message meets the condition, and the steps of its filter.
func (m *matcher) matches(at *fsm.EntityRef, d *fsm.Delivery) (matches bool, steps uint64, err error) {
	if m.states != 0 && !m.states.Has(d.State) || m.before != 0 && d.Enqueued >= m.before {
		return false, 0, nil
	}
	c := &m.message
	if err := c.begin(at, d); err != nil {
		return false, 0, err
	}
	defer c.end()
	if m.session != nil {
		if v := c.System(filter.SessionID); v.Kind() != filter.KindText || v.AsText() != *m.session {
			return false, 0, nil
		}
	}
	if m.reason != "" {
		if v := c.System(filter.DeadLetterReason); v.Kind() != filter.KindText || v.AsText() != m.reason {
			return false, 0, nil
		}
	}
	if m.where != nil {
		m.runner.Begin(c)
		truth, err := m.runner.Match(m.where, whereStepsMax)
		steps = m.runner.Steps()
		m.runner.Begin(nil)
		if err != nil {
			return false, steps, fmt.Errorf("%w: where: %w for the message %d: %s", fsm.InvalidArgument, errWhere, d.Lock.Sequence, err.Error())
		}
		if truth != filter.True {
			return false, steps, nil
		}
	}
	if len(m.contains) == 0 && m.path == nil {
		return true, steps, nil
	}
	ok, err := c.bodyMatches(m.contains, m.path)
	return ok, steps, err
}

// toTime returns a moment, nil for none.
func toTime(t fsm.Instant) *time.Time {
	if t == 0 {
		return nil
	}
	at := api.ToTime(t)
	return &at
}

// deadLetterSource returns the entity of a dead letter as clients see it.
func deadLetterSource(at *fsm.EntityRef) string { return strings.ToLower(at.Name) }
