package amqp

import (
	"context"
	"fmt"

	"github.com/peeklock/peeklock/amqp/management"
	"github.com/peeklock/peeklock/amqp/wire"
)

// performative is a row of the table of what a client may send on an open connection. The reader performs what the table
// names and nothing else, so that nothing is performed without a price and a bound. Requests to $management have a table of
// their own (package management). Tests take each row at its limits.
type performative struct {
	name  string // as the standard names it
	right string // what it requires, in words of documents
	units int    // that it costs in addition to those of every frame and its bytes
	price string // the units that depend on what it does, in words of documents; "": none
	// answerBytes is the most that the gateway answers at once, besides as many bytes as the frame itself has, and besides the
	// responses and deliveries, which have prices and bounds of their own.
	answerBytes int
	// handle handles the body. The mutex of the connection is held.
	handle func(c *conn, ctx context.Context, channel uint16, body wire.Performative) *wire.Error
}

// kind is the index of a row of the table.
type kind uint8

const (
	heartbeatKind kind = iota
	beginKind
	endKind
	attachKind
	detachKind
	flowKind
	transferKind
	dispositionKind
	closeKind
	putTokenKind // the request to $cbs
	kinds
)

// Bounds of answers, in bytes. An answer with an error has its text.
const (
	plainAnswerBytes = 128
	errorAnswerBytes = 2 << 10
)

// releasePrice is the price of countReleased in words.
var releasePrice = fmt.Sprintf("messages that were locked for the client and not sent, and are released: %d, and 1 for each %d of them and for each %d KiB", //nolint:gochecknoglobals // never changed
	releaseCost, management.ItemsPerUnit, releasedUnitBytes>>10)

// performatives has all rows.
var performatives = [kinds]performative{ //nolint:gochecknoglobals // never changed
	heartbeatKind: {
		name: "empty frame", right: "none",
		handle: func(c *conn, _ context.Context, _ uint16, _ wire.Performative) *wire.Error {
			c.shrinkBuffers()
			return nil
		},
	},
	beginKind: {
		name: "begin", right: "none", units: beginCost, answerBytes: plainAnswerBytes,
		handle: func(c *conn, _ context.Context, channel uint16, body wire.Performative) *wire.Error {
			return c.begin(channel, body.(*wire.Begin)) //nolint:forcetypeassert // kindOf
		},
	},
	endKind: {
		name: "end", right: "none", answerBytes: plainAnswerBytes,
		handle: func(c *conn, _ context.Context, channel uint16, _ wire.Performative) *wire.Error {
			return c.endSession(channel)
		},
	},
	attachKind: {
		name: "attach", right: "Send or Listen, for the entity; none for `$cbs` and the coordinator", price: fmt.Sprintf("%d for a link beyond the most that the connection had at a time", attachCost),
		answerBytes: errorAnswerBytes,
		handle:      onSession(func(ctx context.Context, s *session, a *wire.Attach) *wire.Error { return s.attach(ctx, a) }),
	},
	detachKind: {
		name: "detach", right: "none", price: releasePrice, answerBytes: plainAnswerBytes,
		handle: onSession(func(_ context.Context, s *session, d *wire.Detach) *wire.Error {
			s.detached(d)
			return nil
		}),
	},
	flowKind: {
		name: "flow", right: "that of the link", answerBytes: plainAnswerBytes,
		price:  fmt.Sprintf("%d for a request for messages that finds none; %d links of a session that continue because its window opens: 1; ", emptyLockCost, linksPerUnit) + releasePrice,
		handle: onSession(func(_ context.Context, s *session, f *wire.Flow) *wire.Error { s.flow(f); return nil }),
	},
	transferKind: { // handleTransfer, without the mutex
		name: "transfer", right: "that of the link", answerBytes: errorAnswerBytes,
		price: fmt.Sprintf("none for deliveries, which credit limits; a frame with fewer than %d bytes that does not end its delivery: %d; in a transaction %d, and %d KiB: 1; refused because memory is short: %d",
			shortPayloadBytes, frameCost, 1, transactedUnitBytes>>10, memoryRefusalCost),
	},
	dispositionKind: {
		name: "disposition", right: "that of the link", answerBytes: errorAnswerBytes,
		price: fmt.Sprintf("%d unsettled deliveries among which it searches, %d deliveries that it settles, %d KiB of properties and reasons that are stored, once for each message (at most %d units), %d bytes of refusals: 1 each",
			foundPerUnit, management.ItemsPerUnit, management.StoredUnitBytes>>10, management.StoredUnitsMax, responseUnitBytes),
		handle: onSession(func(ctx context.Context, s *session, d *wire.Disposition) *wire.Error {
			s.disposition(ctx, d)
			return nil
		}),
	},
	closeKind: {
		name: "close", right: "none", answerBytes: plainAnswerBytes,
		handle: func(c *conn, _ context.Context, _ uint16, _ wire.Performative) *wire.Error {
			c.emit(0, &wire.Close{})
			return nil
		},
	},
	putTokenKind: { // (*conn).putToken, as any request
		name: "`put-token` to `$cbs`", right: "none", answerBytes: errorAnswerBytes,
		price: fmt.Sprintf("a shared access signature: %d, a JWT: %d; in addition to that of any request", putTokenCost, putJWTCost),
	},
}

// onSession returns a handler of a frame that belongs to a session.
func onSession[T wire.Performative](do func(context.Context, *session, T) *wire.Error) func(*conn, context.Context, uint16, wire.Performative) *wire.Error {
	return func(c *conn, ctx context.Context, channel uint16, body wire.Performative) *wire.Error {
		s, fault := c.session(channel)
		if s == nil {
			return fault
		}
		return do(ctx, s, body.(T)) //nolint:forcetypeassert // kindOf
	}
}

// kindOf returns the row of a frame; ok is false for one that is not allowed on an open connection.
func kindOf(body wire.Performative) (k kind, ok bool) {
	switch body.(type) {
	case nil:
		return heartbeatKind, true
	case *wire.Transfer:
		return transferKind, true
	case *wire.Disposition:
		return dispositionKind, true
	case *wire.Flow:
		return flowKind, true
	case *wire.Attach:
		return attachKind, true
	case *wire.Detach:
		return detachKind, true
	case *wire.Begin:
		return beginKind, true
	case *wire.End:
		return endKind, true
	case *wire.Close:
		return closeKind, true
	}
	return 0, false
}
