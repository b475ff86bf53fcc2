package amqp

import (
	"context"
	"time"

	"github.com/peeklock/peeklock/amqp/account"
	"github.com/peeklock/peeklock/amqp/budget"
	"github.com/peeklock/peeklock/amqp/wire"
)

// Estimated sizes of the parts of a connection, in bytes. The estimates are high rather than low.
const (
	linkBytes        = 1024 // a link and its place in maps, without its name and its addresses
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

// takeLink takes a link of the account of the owner for an attach; nil is none yet. If the attach is refused for another reason,
// conn.updateAccount gives it back.
func (m *memory) takeLink(owner *account.Account) bool {
	if owner == nil {
		return true
	}
	if !owner.Take(account.Links, 1) {
		return false
	}
	m.accountedLinks++
	return true
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

// restricted reports whether memory is short and the connection holds more than its fair share.
func (m *memory) restricted() bool { return m.account.Level() >= budget.NoCredit }

// shortOfMemory reports whether memory is so short that sends of this connection are refused.
func (m *memory) shortOfMemory() bool { return m.account.Level() >= budget.Busy }

// fairPart returns a limit in bytes, lowered to the fair share while the connection is restricted.
func (m *memory) fairPart(most int) int {
	if !m.restricted() {
		return most
	}
	return int(min(int64(most), max(fairBytesMin, m.account.Fair())))
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
	case wire.Array:
		return decodedBytes(v.Values)
	case []any:
		bytes := len(v) * decodedItemBytes
		for i := range v {
			bytes += decodedBytes(v[i])
		}
		return bytes
	case []int32:
		return 4 * len(v)
	case []uint32:
		return 4 * len(v)
	case []int64:
		return 8 * len(v)
	case []uint64:
		return 8 * len(v)
	case []wire.UUID:
		return 16 * len(v)
	case []string:
		return 16 * len(v)
	case []wire.Symbol:
		return 16 * len(v)
	case []time.Time:
		return 24 * len(v)
	case wire.Described:
		return decodedPairBytes + decodedBytes(v.Descriptor) + decodedBytes(v.Value)
	}
	return 0
}
