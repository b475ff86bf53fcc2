package queue

import (
	"fmt"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
)

// Selector evaluates an SQL filter with messages as the rules of a topic do, for callers outside of a state
// machine. It is not safe for concurrent use.
type Selector struct {
	filter  *filter.Expr
	runner  filter.Runner
	message evaluatedMessage
}

// NewSelector returns a Selector for the text of an SQL filter. Errors are those of [filter.Parse].
func NewSelector(text string) (*Selector, error) {
	parsed, err := filter.Parse(text, nil)
	if err != nil {
		return nil, fmt.Errorf("selector: %w", err)
	}
	return &Selector{filter: parsed}, nil
}

// Selects reports whether the filter is true for a message with these properties, which AppendProperties has
// written, and how many steps the evaluation took. A filter that fails, or that takes more steps than a rule
// may, selects nothing, and neither do properties that are not valid.
func (s *Selector) Selects(d *fsm.Delivery, properties []byte) (selected bool, steps uint64) {
	if !fsm.ValidProperties(properties) {
		return false, 0
	}
	m := &s.message
	m.begin(0, d.Lock.Sequence, properties)
	m.enqueued, m.life, m.size = d.Enqueued, fsm.Forever, len(d.Payload)
	if d.Expires != 0 {
		m.life = fsm.Millis(d.Expires - d.Enqueued)
	}
	s.runner.Begin(m)
	truth, err := s.runner.Match(s.filter, ruleStepsMax)
	s.runner.Begin(nil)
	m.begin(0, 0, nil) // releases the properties
	return truth == filter.True && err == nil, s.runner.Steps()
}
