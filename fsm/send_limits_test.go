package fsm_test

import (
	"testing"

	"github.com/peeklock/peeklock/fsm"
)

// A batch has up to 4,500 messages, and what the gateway adds to a message does not count.
func TestSendLimits(t *testing.T) {
	t.Parallel()
	const messages, maxBytes, overhead = 4500, 1000, 256
	b := newBetween(t)
	b.put(1, 1, func(s *fsm.EntitySettings) { s.MaxMessageBytes = maxBytes })
	payload := func(n int) fsm.SendMessages {
		return fsm.SendMessages{Entity: 1, Messages: []fsm.Message{{Payload: make([]byte, n)}}}
	}
	for name, row := range map[string]struct {
		command fsm.SendMessages
		want    fsm.Code
	}{
		"a full batch":          {fsm.SendMessages{Entity: 1, Messages: make([]fsm.Message, messages)}, fsm.OK},
		"one message more":      {fsm.SendMessages{Entity: 1, Messages: make([]fsm.Message, messages+1)}, fsm.InvalidArgument},
		"the largest payload":   {payload(maxBytes + overhead), fsm.OK},
		"a payload of one more": {payload(maxBytes + overhead + 1), fsm.MessageTooLarge},
	} {
		if code := b.do(row.command).Code; code != row.want {
			t.Errorf("%s: %v, want %v", name, code, row.want)
		}
	}
}
