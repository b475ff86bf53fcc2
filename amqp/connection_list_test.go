package amqp

import (
	"strings"
	"testing"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/topology"
)

// TestConnectionsAreListed checks what the list says about connections: who, which library, which links with credit and
// unsettled messages, who holds a lock; and that pages, namespaces and texts are bounded.
func TestConnectionsAreListed(t *testing.T) {
	t.Parallel()
	broker := newFakeBroker("orders", "other")
	broker.messages(t, "orders", 3)
	s, p := piped(t, broker, func(c *Config) { c.ContainerID = "member-a" })
	p.login()
	p.receiver(0, "orders")
	p.credit(0, 0, 5)
	p.deliveries(3)
	p.sender(1, "other")
	p.transfer(1, 0, encodedMessage(t, nil))
	p.accepted()
	for range 2 {
		connect(t, s).login()
	}

	page := s.ConnectionList(topology.ConnectionQuery{Max: 2})
	if len(page.Connections) != 2 || page.Next != page.Connections[1].ID {
		t.Fatalf("the first page has %d connections and goes on after %q, want 2 and the last", len(page.Connections), page.Next)
	}
	first := page.Connections[0]
	if first.Member != "member-a" || !strings.HasPrefix(first.ID, "member-a-") || first.NamespaceID != fsm.DefaultNamespace || first.Sessions != 1 || first.LinkCount != 2 {
		t.Errorf("the first connection is %+v", first)
	}
	if first.Received != 1 || first.Delivered != 3 || first.MemoryBytes < 3*unsettledBytes || first.Restricted {
		t.Errorf("the first connection has %d messages from and %d to its client and holds %d bytes (restricted: %t), want 1, 3 and at least %d",
			first.Received, first.Delivered, first.MemoryBytes, first.Restricted, 3*unsettledBytes)
	}
	want := []topology.Link{
		{Name: "r0", Entity: "orders", Role: topology.Receiver, Credit: 2, Unsettled: 3},
		{Name: first.Links[1].Name, Entity: "other", Role: topology.Sender, Credit: linkCreditMax - 1},
	}
	for i := range want {
		if first.Links[i] != want[i] {
			t.Errorf("link %d is %+v, want %+v", i, first.Links[i], want[i])
		}
	}
	page = s.ConnectionList(topology.ConnectionQuery{After: page.Connections[1].Number, Max: 2})
	if len(page.Connections) != 1 || page.Next != "" {
		t.Errorf("the last page has %d connections and goes on after %q, want 1 and no more", len(page.Connections), page.Next)
	}
	if page = s.ConnectionList(topology.ConnectionQuery{Namespace: 7, Max: 9}); len(page.Connections) != 0 {
		t.Errorf("another namespace has the connections %+v", page.Connections)
	}

	at, err := broker.Resolve(t.Context(), fsm.DefaultNamespace, "orders")
	if err != nil {
		t.Fatal(err)
	}
	q := topology.LockQuery{Partition: at.Partition, Entity: at.ID, Sequences: []fsm.SequenceNumber{1, 2, 99}}
	held := s.LockHolders(q)
	for _, h := range held {
		if h.Connection != first.ID {
			t.Errorf("message %d is held by %s, want %s", h.Sequence, h.Connection, first.ID)
		}
	}
	if len(held) != 2 {
		t.Errorf("%+v hold the locks of 1, 2 and 99, want those of 1 and 2", held)
	}
	if q.Sub = fsm.DeadLetterQueue; len(s.LockHolders(q)) != 0 {
		t.Error("the dead-letter queue has holders of locks, want none")
	}
}

// TestConnectionIsClosedByHand closes a connection by its number: not from another namespace, and no other connection.
func TestConnectionIsClosedByHand(t *testing.T) {
	t.Parallel()
	s, p := piped(t, newFakeBroker("orders"))
	p.login()
	other := connect(t, s)
	other.login()
	number := s.ConnectionList(topology.ConnectionQuery{Max: 1}).Connections[0].Number
	if s.CloseConnection(t.Context(), topology.CloseConnection{Number: number, Namespace: 7}) || s.CloseConnection(t.Context(), topology.CloseConnection{Number: 1}) {
		t.Fatal("a connection was closed from another namespace, or under another number")
	}
	if !s.CloseConnection(t.Context(), topology.CloseConnection{Number: number, Namespace: fsm.DefaultNamespace}) {
		t.Fatal("the connection was not closed")
	}
	if fault := expect[*wire.Close](p).Error; fault == nil || fault.Condition != wire.ConditionConnectionForced {
		t.Errorf("the client got %+v, want amqp:connection:forced", fault)
	}
	if list := s.ConnectionList(topology.ConnectionQuery{Max: 9}).Connections; len(list) != 1 || list[0].Number == number {
		t.Errorf("the list has %+v, want the other connection only", list)
	}
	other.receiver(0, "orders")
}

// TestLibraryOfClientIsBounded checks the texts that a client states about itself.
func TestLibraryOfClientIsBounded(t *testing.T) {
	t.Parallel()
	l := libraryOf(&wire.Open{Properties: wire.Map{
		{Key: wire.Symbol("product"), Value: strings.Repeat("x", 1000)}, {Key: wire.Symbol("version"), Value: 7}, {Key: "product", Value: "no symbol"},
	}}).Value()
	if len(l.product) != clientTextBytesMax || l.version != "" {
		t.Errorf("the library is %+v, want %d bytes of the product and no version", l, clientTextBytesMax)
	}
}
