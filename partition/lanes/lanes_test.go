package lanes

import (
	"encoding/binary"
	"testing"

	"github.com/peeklock/peeklock/fsm"
)

// TestLanesTakeTurns: namespaces get as much of the entries, whatever the size and number of their commands, and each keeps its
// order. One that always has commands is never left out.
func TestLanesTakeTurns(t *testing.T) {
	t.Parallel()
	const namespaces, rounds = 3, 400
	var q Queue[struct{}]
	sizes := [namespaces + 1]int{0, 40 << 10, 1000, 150 << 10}
	sent, taken, bytes := [namespaces + 1]uint32{}, [namespaces + 1]uint32{}, [namespaces + 1]int{}
	fill := func(id fsm.NamespaceID) {
		command := make([]byte, sizes[id])
		binary.LittleEndian.PutUint32(command, sent[id])
		sent[id]++
		if !q.Add(id, Command[struct{}]{Info: fsm.CommandInfo{Entity: fsm.EntityID(id)}, Bytes: command}) {
			t.Fatalf("%d commands are too many", q.count)
		}
	}
	for id := fsm.NamespaceID(1); id <= namespaces; id++ {
		for range 20_000_000 / sizes[id] / namespaces {
			fill(id)
		}
	}
	for range rounds {
		s, _, ok := q.Take(1 << 30)
		if !ok {
			t.Fatal("no command")
		}
		id := s.Info.Entity
		if id == 0 { // the one that comes and goes
			continue
		}
		if got := binary.LittleEndian.Uint32(s.Bytes); got != taken[id] {
			t.Fatalf("command %d of namespace %d comes before command %d", got, id, taken[id])
		}
		taken[id]++
		bytes[id] += len(s.Bytes)
		q.Add(4, Command[struct{}]{Bytes: []byte{1}})
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
	const entryBytes = 512 << 10
	var q Queue[struct{}]
	for range 3 {
		q.Add(1, Command[struct{}]{Info: fsm.CommandInfo{Messages: 4000}, Bytes: make([]byte, 10)})
	}
	if _, _, ok := q.Take(entryBytes); !ok {
		t.Fatal("4,000 messages do not fit")
	}
	if _, _, ok := q.Take(entryBytes - 4000*messageCost); ok {
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
		s := Command[struct{}]{Info: info, Bytes: command}
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
	var q Queue[struct{}]
	of := func(n byte) Command[struct{}] {
		return Command[struct{}]{Info: fsm.CommandInfo{Entity: 7}, Bytes: append(make([]byte, turnCost), n)}
	}
	q.Add(0, of(1))
	q.Add(0, of(2))
	q.Add(3, of(3))
	for want := byte(1); want <= 3; want++ {
		if s, _, ok := q.Take(1 << 30); !ok || s.Bytes[turnCost] != want {
			t.Fatalf("%v %v, want %d", ok, s.Bytes[turnCost:], want)
		}
	}
	if q.Add(3, of(4)); len(q.unknown) != 0 || q.of[3] == nil {
		t.Errorf("%d entities are remembered as unknown, and %v has commands; want none, and namespace 3", len(q.unknown), q.of)
	}
}

// TestNamespacesShareTheQueueOfCommands: a namespace whose commands fill the queue leaves places for another one.
func TestNamespacesShareTheQueueOfCommands(t *testing.T) {
	t.Parallel()
	var q Queue[struct{}]
	one := Command[struct{}]{Bytes: make([]byte, 8)}
	n := 0
	for q.Add(1, one) {
		n++
	}
	if n != CommandsMax/2 {
		t.Errorf("one namespace has %d commands, want %d", n, CommandsMax/2)
	}
	if !q.Add(2, one) {
		t.Error("another namespace is refused")
	}
	q = Queue[struct{}]{}
	one.Bytes = make([]byte, 1<<20)
	for n = 0; q.Add(1, one); n++ {
	}
	if n != BytesMax/2>>20 {
		t.Errorf("one namespace has %d MiB, want %d", n, BytesMax/2>>20)
	}
	if !q.Add(2, one) {
		t.Error("another namespace is refused")
	}
}
