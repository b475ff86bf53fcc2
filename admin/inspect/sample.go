package inspect

import (
	"fmt"
	"time"

	"github.com/peeklock/peeklock/amqp/jsonmessage"
	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/evaluate"
	"github.com/peeklock/peeklock/fsm/filter"
)

// Sample is a message that was not sent, for which rules are evaluated as a topic evaluates them. It is not safe for
// concurrent use.
type Sample struct {
	message evaluate.Message
	runner  filter.Runner
}

// NewSample returns a Sample as if the message arrived at a time. Errors wrap fsm.InvalidArgument.
func NewSample(m *jsonmessage.Message, at time.Time) (*Sample, error) {
	encoded, err := m.Encode()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", fsm.InvalidArgument, err.Error())
	}
	var buffer []byte
	stored, err := message.ParseWithID(&buffer, encoded)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", fsm.InvalidArgument, err.Error())
	}
	all := []fsm.Message{stored}
	if err := new(message.RuleReader).ReadAll(all); err != nil {
		return nil, fmt.Errorf("%w: %s", fsm.InvalidArgument, err.Error())
	}
	a := evaluate.Arrival{Number: 1, Enqueued: fsm.Instant(at.UnixMilli()), Life: fsm.Forever, Size: len(stored.Payload)}
	if stored.TimeToLive != 0 {
		a.Life = stored.TimeToLive
	}
	s := new(Sample)
	s.message.Begin(a, all[0].Properties)
	return s, nil
}

// Takes reports whether a rule matches the message. An error is that of the filter, which then matches nothing.
func (s *Sample) Takes(rule *fsm.Rule) (bool, error) {
	parsed, err := fsm.ParseRule(rule)
	if err != nil {
		return false, fmt.Errorf("rule %q: %w", rule.Name, err)
	}
	switch rule.Filter.Kind {
	case fsm.TrueFilter:
		return true, nil
	case fsm.SQLFilter:
		s.runner.Begin(&s.message)
		truth, err := s.runner.Match(parsed.SQL, evaluate.StepsMax)
		s.runner.Begin(nil)
		return truth == filter.True && err == nil, err //nolint:wrapcheck // it says what fails and where
	case fsm.CorrelationFilter:
		return parsed.Correlation.Match(&s.message), nil
	case fsm.FalseFilter:
	}
	return false, nil
}
