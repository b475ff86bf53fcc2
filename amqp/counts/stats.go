package counts

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/peeklock/peeklock/amqp/budget"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

const (
	verbs         = int(fsm.Release) + 1 // verbs of settlements, and 0
	conditionsMax = 64                   // conditions with a count of their own, enough for all that the gateway sends
)

// Stats holds the statistics of the gateway since it was opened. All but the first three only rise. Events on
// connections are included with a short delay.
type Stats struct {
	Connections int // open now
	Sessions    int // open
	Links       int // attached links, including those to $cbs and other nodes

	Accepted  uint64 // connections accepted
	Rejected  uint64 // connections rejected because there were too many in total or from one address
	BytesIn   uint64 // bytes from clients as AMQP, without TLS and WebSocket
	BytesOut  uint64 // bytes to clients
	Received  uint64 // messages from clients that were stored, or enlisted in a transaction
	Delivered uint64 // messages sent to clients, counted at each delivery
	Requests  uint64 // requests to $management and $cbs
	// Settled counts messages by verb, regardless of how the receiver settled them.
	Settled [verbs]uint64
	// Presettled counts refused deliveries that their sender had settled, so that the sender gets no answer.
	Presettled uint64
	Logins     uint64 // refused credentials: by SASL, and tokens put to $cbs
	// Refused counts refusals by the condition that the client got.
	Refused map[wire.Symbol]uint64
	// Memory holds the stats of the memory for connections. MemoryRefused counts the messages that were
	// refused because their connection held more than its fair share.
	Memory        budget.Stats
	MemoryRefused uint64
}

// Totals are the counters of a gateway. They are safe for concurrent use; the zero value is ready.
type Totals struct {
	sessions, links atomic.Int64

	Accepted, Rejected, BytesIn, BytesOut, Logins, MemoryRefused atomic.Uint64

	received, delivered, requests, presettled atomic.Uint64

	settled [verbs]atomic.Uint64

	mu      sync.Mutex
	refused map[wire.Symbol]uint64

	Throttled Throttles // requests by entity
}

// Connection counts events of a connection that are not reported yet. The mutex of the connection guards it. It
// is added to the totals once for everything that one write of output answers, so a single message costs no
// atomic operation.
type Connection struct {
	counted                                   bool
	Received, Delivered, Requests, Presettled uint64
	settled                                   [verbs]uint64
	sessions, links                           int    // the values last reported
	allReceived, allDelivered                 uint64 // reported since the connection was opened
}

// CountRefusal counts a refusal. Refusals are written and logged, so they are rare enough for a lock.
func (t *Totals) CountRefusal(condition wire.Symbol) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.refused == nil {
		t.refused = make(map[wire.Symbol]uint64)
	}
	if _, known := t.refused[condition]; !known && len(t.refused) >= conditionsMax {
		return
	}
	t.refused[condition]++
}

// IsCounted reports whether something was counted that is not reported.
func (t *Connection) IsCounted() bool { return t.counted }

// Messages returns the messages that the connection has received from its client and delivered to it since it was opened.
func (t *Connection) Messages() (received, delivered uint64) {
	return t.allReceived + t.Received, t.allDelivered + t.Delivered
}

// Report adds the counts, and the changes of the numbers of sessions and links, to the totals.
func (t *Connection) Report(all *Totals, sessions, links int) {
	if sessions != t.sessions {
		all.sessions.Add(int64(sessions - t.sessions))
		t.sessions = sessions
	}
	if links != t.links {
		all.links.Add(int64(links - t.links))
		t.links = links
	}
	if !t.counted {
		return
	}
	t.allReceived, t.allDelivered = t.Messages()
	for _, f := range []struct {
		from *uint64
		to   *atomic.Uint64
	}{
		{&t.Received, &all.received},
		{&t.Delivered, &all.delivered},
		{&t.Requests, &all.requests},
		{&t.Presettled, &all.presettled},
	} {
		addTo(f.to, f.from)
	}
	for i := range t.settled {
		addTo(&all.settled[i], &t.settled[i])
	}
	t.counted = false
}

func addTo(to *atomic.Uint64, from *uint64) {
	if *from != 0 {
		to.Add(*from)
		*from = 0
	}
}

// Count returns the counters, to which the caller adds before the next unlock, and ensures that they are reported: by
// the writer, or by that unlock if the connection has ended.
func (t *Connection) Count() *Connection {
	t.counted = true
	return t
}

// CountSettled counts settled messages.
func (t *Connection) CountSettled(settlements []fsm.Settlement, codes []fsm.Code) {
	t.counted = true
	for i := range min(len(settlements), len(codes)) {
		if verb := int(settlements[i].Verb); codes[i] == fsm.OK && verb < verbs {
			t.settled[verb]++
		}
	}
}

// CountCommitted counts the settlements of a transaction.
func (t *Connection) CountCommitted(work *fsm.Transaction) {
	t.counted = true
	for i := range work.Settles {
		for j := range work.Settles[i].Settlements {
			if verb := int(work.Settles[i].Settlements[j].Verb); verb < verbs {
				t.settled[verb]++
			}
		}
	}
}

// Stats returns the statistics of the totals; those of the connections and of their memory are 0.
func (t *Totals) Stats() Stats {
	f := Stats{
		Sessions: int(t.sessions.Load()), Links: int(t.links.Load()),
		Accepted: t.Accepted.Load(), Rejected: t.Rejected.Load(), BytesIn: t.BytesIn.Load(), BytesOut: t.BytesOut.Load(),
		Received: t.received.Load(), Delivered: t.delivered.Load(), Requests: t.requests.Load(),
		Presettled: t.presettled.Load(), Logins: t.Logins.Load(), MemoryRefused: t.MemoryRefused.Load(),
	}
	for i := range t.settled {
		f.Settled[i] = t.settled[i].Load()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	f.Refused = maps.Clone(t.refused)
	return f
}
