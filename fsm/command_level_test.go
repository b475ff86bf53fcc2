package fsm_test

import (
	"testing"

	"github.com/peeklock/peeklock/fsm"
)

// The level of an encoded command is that of the command.
func TestEncodedCommandsHaveTheirLevel(t *testing.T) {
	t.Parallel()
	settles := func(n int) fsm.Transact {
		s := fsm.SettleMessages{Address: fsm.Address{Entity: 1}, Settlements: make([]fsm.Settlement, n)}
		for i := range s.Settlements {
			s.Settlements[i] = fsm.Settlement{Lock: fsm.LockID{Sequence: fsm.SequenceNumber(i + 1), Epoch: 1}, Verb: fsm.Complete}
		}
		return fsm.Transact{Settles: []fsm.SettleMessages{s}}
	}
	for name, c := range map[string]struct {
		command fsm.Command
		want    uint32
	}{
		"a batch of every level":        {fsm.SendMessages{Entity: 1, Messages: make([]fsm.Message, 4096)}, 1},
		"a batch of level 4":            {fsm.SendMessages{Entity: 1, Messages: make([]fsm.Message, 4097)}, 4},
		"a transaction of every level":  {settles(100), 1},
		"a transaction of level 4":      {settles(101), 4},
		"a fence":                       {exampleFence(), 4},
		"a fetch of ready messages":     {fsm.FetchReady{Address: fsm.Address{Entity: 1}, Seen: []fsm.LockID{{Sequence: 1}}}, 5},
		"a lock with a token":           {fsm.AcceptSession{Entity: 1, Token: fsm.SessionToken{1}}, 6},
		"a command without other forms": {fsm.Pulse{}, 1},
	} {
		if got := fsm.CommandLevel(fsm.AppendCommand(nil, fsm.Header{Incarnation: 1, Serial: 1, Low: 1}, c.command)); got != c.want {
			t.Errorf("%s: level %d, want %d", name, got, c.want)
		}
	}
	if got := fsm.CommandLevel([]byte{255}); got != 1 {
		t.Errorf("bytes that are not a command: level %d, want 1", got)
	}
}
