package partition

import (
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// TestCommandsWaitForTheirLevel verifies that a leader refuses a command whose format level its log has not reached,
// so that the router tries again: the machine would answer that the command is invalid, which is final.
func TestCommandsWaitForTheirLevel(t *testing.T) {
	t.Parallel()
	ms := newMembers(t, 1, nil)
	ms[0].start(1)
	_, g := leader(t, ms, 1)
	a := &asker{origin: 1}
	must(t, g, a.next(), fsm.PutEntity{Entity: 1, Version: 1, Settings: settings()})
	must(t, g, a.next(), fsm.RaiseLevel{Level: fsm.LevelTransactions - 1})
	early := map[fsm.Header]fsm.Command{
		a.next():                   fsm.SendMessages{Entity: 1, Messages: make([]fsm.Message, 4500)},
		(&asker{origin: 2}).next(): fsm.ReserveNumbers{Entity: 1, Count: 1},
	}
	for once, command := range early {
		if got := ask(t, g, once, command); got.Outcome != Refused || got.Final || got.Result.Code != fsm.ServerBusy {
			t.Errorf("%T below its level: %+v", command, got)
		}
	}
	refused := make(chan Answer, 1)
	g.Lock(LockRequest{
		Header: (&asker{origin: 3}).next(), Until: time.Now().Add(time.Minute), Done: func(a Answer) { refused <- a },
		Accept: &fsm.AcceptSession{Entity: 1, Token: fsm.SessionToken{1}},
	})
	if got := <-refused; got.Outcome != Refused || got.Result.Code != fsm.ServerBusy {
		t.Errorf("accepting a session below its level: %+v", got)
	}
	must(t, g, fsm.Header{}, fsm.RaiseLevel{Level: fsm.FormatLevel})
	for once, command := range early {
		must(t, g, once, command)
	}
}
