//go:build level2

package partition

import (
	"testing"

	"github.com/peeklock/peeklock/fsm"
)

// TestCommandsWaitForTheirLevel verifies that a leader refuses a command whose format level its log has not reached,
// so that the router tries again: the machine would answer that the command is invalid, which is final.
func TestCommandsWaitForTheirLevel(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ms := newMembers(t, 1, nil)
		ms[0].start(1)
		_, g := leader(t, ms, 1)
		a := &asker{origin: 1}
		must(t, g, a.next(), fsm.PutEntity{Entity: 1, Version: 1, Settings: settings()})
		must(t, g, a.next(), fsm.RaiseLevel{Level: fsm.FormatLevel - 1})
		once, early := a.next(), fsm.SendMessages{Entity: 1, Messages: make([]fsm.Message, 1), Mark: 1}
		if got := ask(t, g, once, early); got.Outcome != Refused || got.Final || got.Result.Code != fsm.ServerBusy {
			t.Errorf("a command below its level: %+v, want a refusal that is not final", got)
		}
		must(t, g, fsm.Header{}, fsm.RaiseLevel{Level: fsm.FormatLevel})
		must(t, g, once, early)
	})
}
