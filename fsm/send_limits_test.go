package fsm_test

import (
	"testing"

	"github.com/peeklock/peeklock/fsm"
)

// From level 4 on a batch has up to 4,500 messages, and what the gateway adds to a message does not count. Below it a
// state machine refuses what older members refuse.
func TestSendLimitsByLevel(t *testing.T) {
	t.Parallel()
	const maxBytes = 1000
	payload := func(n int) fsm.SendMessages {
		return fsm.SendMessages{Entity: 1, Messages: []fsm.Message{{Payload: make([]byte, n)}}}
	}
	for _, c := range []struct {
		level           uint32
		messages, bytes int
	}{{3, 4096, maxBytes}, {fsm.FormatLevel, 4500, maxBytes + 256}} {
		b := newBetween(t)
		b.put(1, 1, func(s *fsm.EntitySettings) { s.MaxMessageBytes = maxBytes })
		b.must(fsm.RaiseLevel{Level: c.level})
		whole := fsm.SendMessages{Entity: 1, Messages: make([]fsm.Message, c.messages)}
		b.must(whole)
		if whole.Level() > c.level {
			t.Errorf("%d messages need level %d", c.messages, whole.Level())
		}
		if code := b.do(fsm.SendMessages{Entity: 1, Messages: make([]fsm.Message, c.messages+1)}).Code; code != fsm.InvalidArgument {
			t.Errorf("level %d: a batch of %d messages: %v", c.level, c.messages+1, code)
		}
		b.must(payload(c.bytes))
		if code := b.do(payload(c.bytes + 1)).Code; code != fsm.MessageTooLarge {
			t.Errorf("level %d: a payload of %d bytes: %v", c.level, c.bytes+1, code)
		}
	}
}
