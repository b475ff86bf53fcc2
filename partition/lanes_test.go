package partition

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// namespacedProposer is one whose entities are of the namespaces of the same number; entity 0 and those from 100 on are not known.
func namespacedProposer(t *testing.T) *proposer {
	t.Helper()
	p := gatheringProposer(t)
	p.g.cfg.Namespace = func(info *fsm.CommandInfo, _ []byte) fsm.NamespaceID {
		if info.Entity >= 100 {
			return 0
		}
		return fsm.NamespaceID(info.Entity)
	}
	return p
}

// sendNumbered submits a send of a message whose body begins with a number.
func sendNumbered(p *proposer, entity fsm.EntityID, number uint32, size int) {
	body := make([]byte, max(4, size))
	binary.LittleEndian.PutUint32(body, number)
	p.g.Submit(fsm.AppendCommand(nil, fsm.Header{}, send(entity, body)), func(Answer) {})
}

// TestCommandsOfANamespaceDoNotWaitBehindThoseOfAnother: behind thousands of commands of another namespace, those of a small one are
// in the next entry.
func TestCommandsOfANamespaceDoNotWaitBehindThoseOfAnother(t *testing.T) {
	t.Parallel()
	p := namespacedProposer(t)
	for n := range uint32(300) {
		sendNumbered(p, 1, n, 60<<10)
	}
	for n := range uint32(3) {
		sendNumbered(p, 2, n, 1000)
	}
	b := p.compose(time.Now())
	small := 0
	for _, command := range b.commands {
		if info, err := fsm.PeekCommand(command); err != nil {
			t.Fatal(err)
		} else if info.Entity == 2 {
			small++
		}
	}
	if small != 3 || len(b.commands) < 8 {
		t.Errorf("the next entry has %d commands, %d of the small namespace; want all 3, and more of the other", len(b.commands), small)
	}
}

// TestLocksHavePlacesInFullEntries: receivers are served while more commands wait than fit into an entry.
func TestLocksHavePlacesInFullEntries(t *testing.T) {
	t.Parallel()
	p := gatheringProposer(t)
	queueCommands(p, 3*entryCommandsMax, func(Answer) {})
	p.g.Lock(LockRequest{Header: fsm.Header{Receiver: 1, Serial: 1}, Lock: fsm.LockMessages{Address: fsm.Address{Entity: 1}, Max: 1}, Until: time.Now().Add(time.Hour), Done: func(Answer) {}})
	b := p.compose(time.Now())
	if last := b.items[len(b.items)-1]; last.waiter == nil || len(b.items) != entryCommandsMax {
		t.Errorf("an entry of %d commands has no lock", len(b.items))
	}
}
