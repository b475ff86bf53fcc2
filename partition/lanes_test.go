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

// TestLanesTakeTurns: namespaces get as much of the entries, whatever the size and number of their commands, and each keeps its
// order. One that always has commands is never left out.
func TestLanesTakeTurns(t *testing.T) {
	t.Parallel()
	const namespaces, rounds = 3, 400
	var q lanes
	sizes := [namespaces + 1]int{0, 40 << 10, 1000, 150 << 10}
	sent, taken, bytes := [namespaces + 1]uint32{}, [namespaces + 1]uint32{}, [namespaces + 1]int{}
	fill := func(id fsm.NamespaceID) {
		command := make([]byte, sizes[id])
		binary.LittleEndian.PutUint32(command, sent[id])
		sent[id]++
		if !q.add(id, submission{info: fsm.CommandInfo{Entity: fsm.EntityID(id)}, command: command}) {
			t.Fatalf("%d commands are too many", q.count)
		}
	}
	for id := fsm.NamespaceID(1); id <= namespaces; id++ {
		for range 20_000_000 / sizes[id] / namespaces {
			fill(id)
		}
	}
	for range rounds {
		s, ok := q.take(1 << 30)
		if !ok {
			t.Fatal("no command")
		}
		id := s.info.Entity
		if id == 0 { // the one that comes and goes
			continue
		}
		if got := binary.LittleEndian.Uint32(s.command); got != taken[id] {
			t.Fatalf("command %d of namespace %d comes before command %d", got, id, taken[id])
		}
		taken[id]++
		bytes[id] += len(s.command)
		q.add(4, submission{command: []byte{1}})
	}
	for id := 1; id <= namespaces; id++ {
		if bytes[id] < bytes[1]/2-150<<10 || bytes[id] > 2*bytes[1]+150<<10 {
			t.Errorf("namespaces got %d bytes; want about the same for each", bytes[1:])
		}
	}
}

// TestMessagesCost: an entry ends when its messages have cost as much as its bytes may.
func TestMessagesCost(t *testing.T) {
	t.Parallel()
	var q lanes
	for range 3 {
		q.add(1, submission{info: fsm.CommandInfo{Messages: 4000}, command: make([]byte, 10)})
	}
	if _, ok := q.take(entryBytesMax); !ok {
		t.Fatal("4,000 messages do not fit")
	}
	if _, ok := q.take(entryBytesMax - 4000*messageCost); ok {
		t.Error("8,000 messages fit into an entry")
	}
}

// TestPropertiesCostForEachMessage: a command that adds properties to many messages costs as much as it writes.
func TestPropertiesCostForEachMessage(t *testing.T) {
	t.Parallel()
	cost := func(n, properties int) int {
		settlements := make([]fsm.Settlement, n)
		for i := range settlements {
			settlements[i] = fsm.Settlement{Lock: fsm.LockID{Sequence: fsm.SequenceNumber(i + 1), Epoch: 1 << 30}, Verb: fsm.Abandon, Properties: make([]byte, properties)}
		}
		command := fsm.AppendCommand(nil, fsm.Header{}, fsm.SettleMessages{Address: fsm.Address{Entity: 1}, Settlements: settlements})
		info, err := fsm.PeekCommand(command)
		if err != nil {
			t.Fatal(err)
		}
		s := submission{info: info, command: command}
		return s.cost()
	}
	if got := cost(10, 60_000); got < 10*59_000 {
		t.Errorf("10 messages with 60,000 bytes of properties cost %d, want about as much", got)
	}
	if got := cost(1000, 0); got > 1000*100 {
		t.Errorf("1,000 settlements without properties cost %d, want their own bytes or little more", got)
	}
}

// TestUnknownNamespaceKeepsTheOrder: a command stays behind one of the same entity that came when its namespace was not known yet.
func TestUnknownNamespaceKeepsTheOrder(t *testing.T) {
	t.Parallel()
	var q lanes
	of := func(n byte) submission {
		return submission{info: fsm.CommandInfo{Entity: 7}, command: append(make([]byte, laneTurnCost), n)}
	}
	q.add(0, of(1))
	q.add(0, of(2))
	q.add(3, of(3))
	for want := byte(1); want <= 3; want++ {
		if s, ok := q.take(1 << 30); !ok || s.command[laneTurnCost] != want {
			t.Fatalf("%v %v, want %d", ok, s.command[laneTurnCost:], want)
		}
	}
	if q.add(3, of(4)); len(q.unknown) != 0 || q.of[3] == nil {
		t.Errorf("%d entities are remembered as unknown, and %v has commands; want none, and namespace 3", len(q.unknown), q.of)
	}
}

// TestNamespacesShareTheQueueOfCommands: a namespace whose commands fill the queue leaves places for another one.
func TestNamespacesShareTheQueueOfCommands(t *testing.T) {
	t.Parallel()
	var q lanes
	one := submission{command: make([]byte, 8)}
	n := 0
	for q.add(1, one) {
		n++
	}
	if n != queueCommandsMax/2 {
		t.Errorf("one namespace has %d commands, want %d", n, queueCommandsMax/2)
	}
	if !q.add(2, one) {
		t.Error("another namespace is refused")
	}
	q = lanes{}
	one.command = make([]byte, 1<<20)
	for n = 0; q.add(1, one); n++ {
	}
	if n != queueBytesMax/2>>20 {
		t.Errorf("one namespace has %d MiB, want %d", n, queueBytesMax/2>>20)
	}
	if !q.add(2, one) {
		t.Error("another namespace is refused")
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
