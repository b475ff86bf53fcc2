package management

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/settlement"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// Perform performs one operation of an entity's management node
// (docs/service-bus-protocol.md#management-operations). The response is sent when the broker answers: nothing
// here blocks the reader.
func (m *Manager) Perform(ctx context.Context, r *Request, operation string) {
	if cause := NotAllowed(operation, &r.At); cause.Condition != "" {
		r.Respond(ctx, Response{Reply: refusal.Reply{Cause: cause, Status: http.StatusBadRequest}})
		return
	}
	body, _ := r.Body.(wire.Map)
	if r.Transaction != nil && m.manageInTransaction(ctx, r, operation, body) {
		return
	}
	row, known := table[operation]
	switch {
	case !known:
		r.Respond(ctx, UnknownOperation(operation))
	case row.waits:
		go func() {
			defer m.conn.Recovered(ctx)
			row.perform(m, ctx, r, body)
		}()
	default:
		row.perform(m, ctx, r, body)
	}
}

// lockIDs reads the lock tokens of a request. ok is false if a token does not belong to this entity, or if
// there are none or too many: then resp is the answer.
func (m *Manager) lockIDs(r *Request, body wire.Map) (ids []fsm.LockID, resp Response, ok bool) {
	tokens := valuesOf[wire.UUID](body.Get("lock-tokens"))
	if len(tokens) == 0 || len(tokens) > TokensMax {
		return nil, badRequest("The request must name between 1 and %d lock tokens. Ask for fewer at a time.", TokensMax), false
	}
	ids = make([]fsm.LockID, len(tokens))
	for i, token := range tokens {
		if ids[i], ok = m.broker.ParseLockToken(r.At, message.TokenFromUUID(token)); !ok {
			return nil, ResponseFor(fsm.MessageLockLost), false
		}
	}
	return ids, Response{}, true
}

// renewLock extends locks. The answer is an array of timestamps, not a list.
func (m *Manager) renewLock(ctx context.Context, r *Request, body wire.Map) {
	ids, resp, ok := m.lockIDs(r, body)
	if !ok {
		r.Respond(ctx, resp)
		return
	}
	m.broker.Renew(r.At, ids, func(codes []fsm.Code, untils []fsm.Instant) {
		m.withSessionCodes(ctx, r, body, codes, func(codes []fsm.Code) {
			resp := ResponseFor(refusal.Worst(codes))
			if resp.Condition == "" {
				ends := make([]time.Time, len(untils))
				for i, until := range untils {
					ends[i] = time.UnixMilli(int64(until))
				}
				resp.Body = wire.Map{{Key: "expirations", Value: wire.Array{Values: ends}}}
			}
			r.Respond(ctx, resp)
		})
	})
}

// updateDisposition settles by lock token: always for deferred messages, for others if their link has ended.
func (m *Manager) updateDisposition(ctx context.Context, r *Request, body wire.Map) {
	settlements, resp, ok := m.settlementsOf(r, body)
	if !ok {
		r.Respond(ctx, resp)
		return
	}
	settle := func(part []fsm.Settlement, done func([]fsm.Code)) { m.broker.Settle(r.At, part, done) }
	settlement.InParts(settlements, settle, func(codes []fsm.Code) {
		m.conn.CountSettled(settlements, codes)
		m.withSessionCodes(ctx, r, body, codes, func(codes []fsm.Code) {
			resp := ResponseFor(refusal.Worst(codes))
			resp.Reply = refusal.SettleReplyOf(refusal.Worst(codes))
			r.Respond(ctx, resp)
		})
	})
}

// settlementsOf reads an update-disposition. ok is false if it cannot be done: then resp is the answer.
func (m *Manager) settlementsOf(r *Request, body wire.Map) (settlements []fsm.Settlement, resp Response, ok bool) {
	what, resp, ok := decideByName(body)
	if !ok {
		return nil, resp, false
	}
	ids, resp, ok := m.lockIDs(r, body)
	if !ok {
		return nil, resp, false
	}
	seen := make(map[fsm.LockID]struct{}, len(ids))
	settlements = make([]fsm.Settlement, 0, len(ids))
	for _, id := range ids {
		if _, again := seen[id]; again {
			continue // named twice: one settlement
		}
		seen[id] = struct{}{}
		what.Lock = id
		settlements = append(settlements, what)
	}
	return settlements, resp, true
}

// decideByName converts the status names of update-disposition to a settlement.
func decideByName(body wire.Map) (what fsm.Settlement, resp Response, ok bool) {
	switch status := body.Text("disposition-status"); status {
	case "completed":
		what.Verb = fsm.Complete
	case "abandoned":
		what.Verb = fsm.Abandon
	case "defered", "deferred": // the SDKs spell it with one r
		what.Verb = fsm.Defer
	case "suspended":
		what.Verb = fsm.DeadLetter
		what.Reason = message.ReasonText(body.Get("deadletter-reason"))
		what.Description = message.ReasonText(body.Get("deadletter-description"))
	default:
		return what, badRequest("The disposition status '%.64s' is not known.", status), false
	}
	properties, _ := body.Get("properties-to-modify").(wire.Map)
	if cause := settlement.SetModifications(&what, properties); cause.Condition != "" {
		return what, Response{Reply: refusal.Reply{Cause: cause, Status: http.StatusBadRequest}}, false
	}
	return what, resp, true
}

// peekMessage reads messages without locking them.
func (m *Manager) peekMessage(ctx context.Context, r *Request, body wire.Map) {
	from, ok := message.IntegerOf(body.Get("from-sequence-number"))
	count, okCount := message.IntegerOf(body.Get("message-count"))
	if !ok || !okCount || count < 1 {
		r.Respond(ctx, badRequest("The request needs from-sequence-number and a positive message-count."))
		return
	}
	ctx, cancel := context.WithTimeout(ctx, PeekWithin)
	defer cancel()
	first, most := fsm.SequenceNumber(max(0, from)), int(min(count, PeekMessagesMax))
	var found []fsm.Delivery
	var err error
	if session, one := m.requestedSession(r, body); one {
		found, err = m.broker.PeekSession(ctx, r.At, session, first, most, PeekBytesMax)
	} else {
		found, err = m.broker.Peek(ctx, r.At, first, most, PeekBytesMax)
	}
	if err != nil {
		r.Respond(ctx, ResponseFor(refusal.CodeOf(err)))
		return
	}
	messages := make([]any, 0, len(found))
	for _, d := range found {
		encoded, err := message.AppendDelivery(nil, r.At, d, message.DeliveryOptions{Peeked: true})
		if err != nil {
			m.log.ErrorContext(ctx, "failed to encode stored message", "path", r.Path, "sequence", uint64(d.Lock.Sequence), "error", err)
			continue
		}
		messages = append(messages, wire.Map{{Key: "message", Value: encoded}})
	}
	if len(messages) == 0 {
		r.Respond(ctx, noContent("No messages.", nil))
		return
	}
	r.Respond(ctx, success(wire.Map{{Key: "messages", Value: messages}}))
}

// deferredFetch is a receive-by-sequence-number in progress: deferred messages are fetched a few at a time, so
// that the size of an answer is limited.
type deferredFetch struct {
	m                *Manager
	r                *Request
	receiveAndDelete bool
	fetch            func([]fsm.SequenceNumber, bool, func(fsm.Code, []fsm.Delivery))
	left             []fsm.SequenceNumber
	messages         []any
	bytes            int
}

// sequenceNumbers reads the numbers of a request. ok is false if there are none or too many: then resp is the
// answer.
func sequenceNumbers(body wire.Map) (numbers []fsm.SequenceNumber, resp Response, ok bool) {
	given := valuesOf[int64](body.Get("sequence-numbers"))
	if len(given) == 0 || len(given) > TokensMax {
		return nil, badRequest("The request must name between 1 and %d sequence numbers. Ask for fewer at a time.", TokensMax), false
	}
	numbers = make([]fsm.SequenceNumber, len(given))
	for i, n := range given {
		numbers[i] = fsm.SequenceNumber(max(0, n)) // no message has number 0
	}
	return numbers, Response{}, true
}

// receiveBySequenceNumber locks deferred messages, or receives and deletes them.
func (m *Manager) receiveBySequenceNumber(ctx context.Context, r *Request, body wire.Map) {
	numbers, resp, ok := sequenceNumbers(body)
	if !ok {
		r.Respond(ctx, resp)
		return
	}
	seen := make(map[fsm.SequenceNumber]bool, len(numbers))
	numbers = slices.DeleteFunc(numbers, func(n fsm.SequenceNumber) bool {
		again := seen[n]
		seen[n] = true
		return again
	})
	f := &deferredFetch{m: m, r: r, left: numbers}
	mode, given := message.IntegerOf(body.Get("receiver-settle-mode"))
	f.receiveAndDelete = given && mode == 0
	f.fetch = func(some []fsm.SequenceNumber, receiveAndDelete bool, done func(fsm.Code, []fsm.Delivery)) {
		m.broker.Fetch(r.At, some, receiveAndDelete, done)
	}
	if r.At.Settings.RequiresSession && r.At.Sub == fsm.MainQueue {
		held, resp, ok := m.heldSession(r, body)
		if !ok {
			r.Respond(ctx, resp)
			return
		}
		f.fetch = held.Fetch
	}
	f.next(ctx)
}

// next requests the next few messages, or answers.
func (f *deferredFetch) next(ctx context.Context) {
	if len(f.left) == 0 || f.bytes >= FetchBytesMax {
		f.finish(ctx, fsm.OK)
		return
	}
	some := f.left[:min(len(f.left), FetchedAtOnce(&f.r.At))]
	f.left = f.left[len(some):]
	f.fetch(some, f.receiveAndDelete, func(code fsm.Code, found []fsm.Delivery) {
		if code != fsm.OK && code != fsm.MessageNotFound {
			f.finish(ctx, code)
			return
		}
		before := f.bytes
		for _, d := range found {
			f.add(ctx, d)
		}
		f.m.conn.HoldResponse(f.bytes - before)
		if len(found) < len(some) && !f.receiveAndDelete {
			f.finish(ctx, fsm.MessageNotFound)
			return
		}
		f.next(ctx)
	})
}

// FetchedAtOnce returns how many deferred messages are requested from the broker at a time: at most FetchBytesMax of the
// largest messages of the entity, since all that is requested is held in memory until it is answered.
func FetchedAtOnce(at *fsm.EntityRef) int {
	return int(max(1, min(FetchAtOnceMax, FetchBytesMax/max(1, at.Settings.MaxMessageBytes))))
}

// add encodes one message. Go and Python read the lock token from the message, the other clients from the
// entry beside it.
func (f *deferredFetch) add(ctx context.Context, d fsm.Delivery) {
	d.State = fsm.Deferred // the state that clients show for a fetched message, locked or not
	var options message.DeliveryOptions
	var token fsm.LockToken
	if !f.receiveAndDelete {
		token = f.m.broker.LockToken(f.r.At, d.Lock)
		options.LockToken = &token
	}
	encoded, err := message.AppendDelivery(nil, f.r.At, d, options)
	if err != nil {
		f.m.log.ErrorContext(ctx, "failed to encode stored message", "path", f.r.Path, "sequence", uint64(d.Lock.Sequence), "error", err)
		return
	}
	entry := wire.Map{{Key: "message", Value: encoded}}
	if !f.receiveAndDelete {
		entry = append(entry, wire.Pair{Key: "lock-token", Value: message.UUIDFromToken(token)})
	}
	f.messages = append(f.messages, entry)
	f.bytes += len(encoded)
}

// finish answers. It returns messages that were fetched before a failure, and the client requests the rest
// again. Only a number that is not there makes a request under locks fail as a whole, as in the service: what was
// found stays locked until its lock ends. Messages that were deleted are always returned.
func (f *deferredFetch) finish(ctx context.Context, code fsm.Code) {
	defer f.m.conn.HoldResponse(-f.bytes)
	if len(f.messages) == 0 || code == fsm.MessageNotFound {
		if code == fsm.OK {
			code = fsm.MessageNotFound
		}
		f.r.Respond(ctx, ResponseFor(code))
		return
	}
	f.r.Respond(ctx, success(wire.Map{{Key: "messages", Value: f.messages}}))
}

// valuesOf reads an array or a list of one type; it returns nil for any other value.
func valuesOf[T any](v any) []T {
	if array, ok := v.(wire.Array); ok {
		v = array.Values
	}
	switch values := v.(type) {
	case []T:
		return values
	case []any:
		all := make([]T, 0, len(values))
		for _, one := range values {
			t, ok := one.(T)
			if !ok {
				return nil
			}
			all = append(all, t)
		}
		return all
	case T: // an array of one element may be sent as the element itself
		return []T{values}
	}
	return nil
}
