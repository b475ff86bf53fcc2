package amqp

import (
	"context"
	"fmt"
	"time"

	"github.com/peeklock/peeklock/amqp/account"
	"github.com/peeklock/peeklock/amqp/budget"
	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/transaction"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// Estimated sizes of the parts of a connection, in bytes. The estimates are high rather than low.
const (
	linkBytes        = 1024 // a link, its name and its place in maps
	sessionBytes     = 512
	unsettledBytes   = 80  // a delivery in the map of those that are not settled
	grantBytes       = 512 // a token that is stored
	settlementBytes  = 256 // a settlement that the broker has not answered, with its delivery
	decodedPairBytes = 64  // a key and a value of a decoded map, without the data that they refer to
	decodedItemBytes = 32  // an element of a decoded list
)

// memory counts what the connection holds, for the budget of the process, unless another counter of the
// connection counts it. The mutex of the connection guards all of it.
type memory struct {
	account        *budget.Account
	creditWithheld bool // credit was withheld because the account was restricted
	closed         bool // the connection has ended; its account is closed with the last answer of the broker
	panicked       bool // a panic ended the connection: the memory it holds is not known, and no answer is awaited

	decodedBytes      int // bytes of batches and requests besides those in inFlightBytes
	responseBytes     int // bytes of responses that are being assembled
	settlements       int // settlements that the broker has not answered
	unsettled         int // deliveries in the maps of all sessions
	partlySentBytes   int // bytes of deliveries that have begun and are not completely in the output buffer
	queuedResponses   int // bytes of responses among conn.queuedBytes
	accounted         int // bytes of responses in the account of the owner: those assembled or queued
	accountedLinks    int // links in the account of the owner
	writeBufferBytes  int // bytes of the buffer that the writer is sending
	readerBufferBytes int // bytes of the buffers that the reader keeps
}

// heldBytes returns what the connection holds beyond its fixed cost, in bytes. mu is held.
func (c *conn) heldBytes() int64 {
	m := &c.memory
	fixed := 0
	if !m.closed {
		fixed = c.credentials.Grants() * grantBytes
	}
	return int64(c.partialBytes+c.partialBytes/4+ // append grows by up to a quarter
		c.inFlightBytes+c.transactions.Bytes()+c.transactions.Len()*transaction.OverheadBytes+c.queuedBytes+cap(c.out)+cap(c.scratch)+
		m.decodedBytes+m.responseBytes+m.partlySentBytes+m.writeBufferBytes+m.readerBufferBytes) +
		int64(m.settlements*settlementBytes+m.unsettled*unsettledBytes+c.links*linkBytes+len(c.sessions)*sessionBytes+fixed)
}

// updateAccount records in the budget what the connection holds. mu is held.
func (c *conn) updateAccount() {
	if responses := c.memory.responseBytes + c.memory.queuedResponses; c.account != nil && responses != c.memory.accounted {
		c.account.Add(account.AnswerBytes, int64(responses-c.memory.accounted))
		c.memory.accounted = responses
	}
	if c.account != nil && c.links != c.memory.accountedLinks {
		c.account.Add(account.Links, int64(c.links-c.memory.accountedLinks))
		c.memory.accountedLinks = c.links
	}
	held := c.heldBytes()
	c.memory.account.Set(held)
	if c.memory.closed && (held == 0 || c.memory.panicked) {
		c.memory.account.Close()
	}
}

// share is what a request takes of the resources that all owners share.
type share struct {
	account         *account.Account
	answer, settled int64 // bytes
	taken           bool
	refused         account.Resource // why it was not taken
}

// take takes the share, and waits for it a while if the owner holds too much. It returns false if it is not taken.
func (s *share) take(ctx context.Context, within time.Duration) bool {
	amounts := [...]struct {
		of account.Resource
		n  int64
	}{{account.Requests, 1}, {account.AnswerBytes, s.answer}, {account.SettledBytes, s.settled}}
	for i, a := range amounts {
		if s.account.Take(a.of, a.n) || within > 0 && s.account.Wait(ctx, a.of, a.n, within) {
			continue
		}
		for _, before := range amounts[:i] {
			s.account.Release(before.of, before.n)
		}
		s.refused = a.of
		return false
	}
	s.taken = true
	return true
}

// release releases the share if it was taken.
func (s *share) release() {
	if !s.taken {
		return
	}
	s.taken = false
	s.account.Release(account.Requests, 1)
	s.account.Release(account.AnswerBytes, s.answer)
	s.account.Release(account.SettledBytes, s.settled)
}

// endMemory is called when reader and writer have ended. Requests without an answer are counted until the
// broker answers.
func (c *conn) endMemory() {
	c.mu.Lock()
	defer c.unlock()
	c.out, c.scratch, c.idBuffer = nil, nil, nil
	c.memory.writeBufferBytes, c.memory.readerBufferBytes, c.memory.queuedResponses, c.memory.closed = 0, 0, 0, true
}

// restricted reports whether memory is short and the connection holds more than its fair share.
func (c *conn) restricted() bool { return c.memory.account.Level() >= budget.NoCredit }

// shortOfMemory reports whether memory is so short that sends of this connection are refused.
func (c *conn) shortOfMemory() bool { return c.memory.account.Level() >= budget.Busy }

// fairPart returns a limit in bytes, lowered to the fair share while the connection is restricted.
func (c *conn) fairPart(most int) int {
	if !c.restricted() {
		return most
	}
	return int(min(int64(most), max(fairBytesMin, c.memory.account.Fair())))
}

// refuseForMemory returns the refusal of a send for lack of memory, and counts it.
func (c *conn) refuseForMemory() refusal.Cause {
	c.totals.memoryRefused.Add(1)
	return refusal.Later(
		wire.ConditionServerBusy,
		"The member is short of memory, and this connection holds more than its fair share of it. Have fewer and smaller messages on the way, and try again in a moment.")
}

// withBusyReason adds the reason why the member accepts no new messages to a server-busy refusal, and the reason why the
// namespace may not store more to one because of that, if the reason is known.
func (c *conn) withBusyReason(code fsm.Code, cause refusal.Cause) refusal.Cause {
	if code == fsm.ServerBusy && c.config.BusyReason != nil {
		if reason := c.config.BusyReason(); reason != "" {
			cause.Text = reason
		}
	}
	if code == fsm.NamespaceFull && c.config.QuotaReason != nil {
		if reason := c.config.QuotaReason(c.credentials.Namespace()); reason != "" {
			cause.Text = reason
		}
	}
	return cause
}

// memoryChanged is called by the budget when the level of the connection changes. It must not block: the
// caller holds the mutex of the budget, and perhaps that of the connection.
func (c *conn) memoryChanged(level budget.Level) {
	if level == budget.Evicted {
		go c.closeForMemory()
		return
	}
	c.notify() // the writer restores credit
}

// restoreCredit grants the credit that was withheld while the account was restricted. mu is held.
func (c *conn) restoreCredit() {
	if !c.memory.creditWithheld || c.restricted() {
		return
	}
	c.memory.creditWithheld = false
	for _, s := range c.sessions {
		for _, e := range s.links {
			if l, ok := e.(*incomingLink); ok && l.state == attached && l.kind == entityNode && l.credit.refill(1) {
				l.emitFlow()
			}
		}
	}
}

// closeForMemory closes the connection because it holds more than any other while memory is nearly used up.
// Its memory is released at once, before the peer has answered the close.
func (c *conn) closeForMemory() {
	ctx := context.Background()
	defer c.recovered(ctx)
	c.mu.Lock()
	held := c.heldBytes()
	c.unlock()
	if ok, before := c.refusalLog.Allow(c.origin, time.Now()); ok {
		c.log.WarnContext(ctx, "connection ended to free memory", "bytes", held, "not_logged", before)
	}
	c.fail(ctx, &wire.Error{Condition: wire.ConditionConnectionForced, Description: fmt.Sprintf(
		"The member is nearly out of memory, and this connection held more than its fair share of it: %d bytes. Have fewer and smaller messages on the way.", held)})
	c.mu.Lock()
	c.dropSessions()
	c.unlock()
	timer := time.NewTimer(closeWithin)
	defer timer.Stop()
	select {
	case <-c.written:
	case <-timer.C:
	}
	_ = c.peer.Close() // the peer may not read our close
}

// decodedBytes returns the size of a decoded value, without the bytes from which it was decoded.
func decodedBytes(v any) int {
	switch v := v.(type) {
	case wire.Map:
		bytes := len(v) * decodedPairBytes
		for i := range v {
			bytes += decodedBytes(v[i].Key) + decodedBytes(v[i].Value)
		}
		return bytes
	case []any:
		bytes := len(v) * decodedItemBytes
		for i := range v {
			bytes += decodedBytes(v[i])
		}
		return bytes
	case wire.Described:
		return decodedPairBytes + decodedBytes(v.Descriptor) + decodedBytes(v.Value)
	}
	return 0
}
