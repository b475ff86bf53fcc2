package evaluate

import (
	"fmt"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
)

// StepsMax is the budget of one rule for one message, in steps of package filter: its filter, its action and the
// copy that the action makes.
const StepsMax = 12_800

// Selector evaluates an SQL filter with messages as the rules of a topic do, for callers outside of a state
// machine. It is not safe for concurrent use.
type Selector struct {
	filter  *filter.Expr
	runner  filter.Runner
	message Message
}

// NewSelector returns a Selector for the text of an SQL filter. Errors are those of [filter.Parse].
func NewSelector(text string) (*Selector, error) {
	parsed, err := filter.Parse(text, nil)
	if err != nil {
		return nil, fmt.Errorf("selector: %w", err)
	}
	return &Selector{filter: parsed}, nil
}

// Selects reports whether the filter is true for a message with these properties, which [fsm.AppendProperties]
// has written, and how many steps the evaluation took. A filter that fails, or that takes more steps than a rule
// may, selects nothing, and neither do properties that are not valid.
func (s *Selector) Selects(d *fsm.Delivery, properties []byte) (selected bool, steps uint64) {
	if !fsm.ValidProperties(properties) {
		return false, 0
	}
	a := Arrival{Number: d.Lock.Sequence, Enqueued: d.Enqueued, Life: fsm.Forever, Size: len(d.Payload)}
	if d.Expires != 0 {
		a.Life = fsm.Millis(d.Expires - d.Enqueued)
	}
	m := &s.message
	m.Begin(a, properties)
	s.runner.Begin(m)
	truth, err := s.runner.Match(s.filter, StepsMax)
	s.runner.Begin(nil)
	m.End()
	return truth == filter.True && err == nil, s.runner.Steps()
}
