package client

import (
	"testing"

	"github.com/peeklock/peeklock/fsm"
)

// TestSharedOutcomeTakesItsBytesOnce: the memory for a command is estimated with the properties of settlements that have
// one outcome once, as the command holds them.
func TestSharedOutcomeTakesItsBytesOnce(t *testing.T) {
	t.Parallel()
	c := fsm.SettleMessages{Address: fsm.Address{Entity: 1}, Settlements: make([]fsm.Settlement, 1000)}
	for i := range c.Settlements {
		c.Settlements[i] = fsm.Settlement{Lock: fsm.LockID{Sequence: fsm.SequenceNumber(i + 1), Epoch: 1}, Verb: fsm.Defer, Properties: make([]byte, 60<<10)}
	}
	encoded, estimate := len(fsm.AppendCommand(nil, fsm.Header{}, c)), commandSize(c)
	if estimate < encoded || estimate > 2*encoded {
		t.Errorf("estimated %d bytes, want at least the %d that are encoded and at most twice as many", estimate, encoded)
	}
}
