package amqp

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

// manage performs one operation of an entity's management node
// (docs/service-bus-protocol.md#management-operations). The response is sent when the broker answers: nothing
// here blocks the reader.
func (m *manager) manage(ctx context.Context, r *managed, operation string) {
	if cause := operationNotAllowed(operation, &r.at); cause.Condition != "" {
		r.respond(ctx, response{Reply: refusal.Reply{Cause: cause, Status: http.StatusBadRequest}})
		return
	}
	body, _ := r.body.(wire.Map)
	if r.transaction != nil && m.manageInTransaction(ctx, r, operation, body) {
		return
	}
	switch operation {
	case renewOperation:
		m.renewLock(ctx, r, body)
	case renewSessionOperation:
		m.renewSessionLock(ctx, r, body)
	case getStateOperation:
		go m.getSessionState(ctx, r, body)
	case setStateOperation:
		go m.setSessionState(ctx, r, body)
	case listSessionsOperation:
		go m.listSessions(ctx, r, body)
	case peekOperation:
		go m.peekMessage(ctx, r, body)
	case dispositionOperation:
		m.updateDisposition(ctx, r, body)
	case deferredOperation:
		m.receiveBySequenceNumber(ctx, r, body)
	case scheduleOperation:
		m.scheduleMessage(ctx, r, body)
	case cancelOperation:
		m.cancelScheduled(ctx, r, body)
	case batchDeleteOperation:
		m.batchDelete(ctx, r)
	case addRuleOperation:
		go m.addRule(ctx, r, body)
	case removeRuleOperation:
		go m.removeRule(ctx, r, body)
	case enumerateRulesOperation:
		go m.enumerateRules(ctx, r, body)
	default:
		r.respond(ctx, unknownOperation(operation))
	}
}

// lockIDs reads the lock tokens of a request. ok is false if a token does not belong to this entity, or if
// there are none or too many: then resp is the answer.
func (m *manager) lockIDs(r *managed, body wire.Map) (ids []fsm.LockID, resp response, ok bool) {
	tokens := valuesOf[wire.UUID](body.Get("lock-tokens"))
	if len(tokens) == 0 || len(tokens) > tokensMax {
		return nil, badRequest("The request must name between 1 and %d lock tokens. Ask for fewer at a time.", tokensMax), false
	}
	ids = make([]fsm.LockID, len(tokens))
	for i, token := range tokens {
		if ids[i], ok = m.broker.ParseLockToken(r.at, message.TokenFromUUID(token)); !ok {
			return nil, responseFor(fsm.MessageLockLost), false
		}
	}
	return ids, response{}, true
}

// renewLock extends locks. The answer is an array of timestamps, not a list.
func (m *manager) renewLock(ctx context.Context, r *managed, body wire.Map) {
	ids, resp, ok := m.lockIDs(r, body)
	if !ok {
		r.respond(ctx, resp)
		return
	}
	m.broker.Renew(r.at, ids, func(codes []fsm.Code, untils []fsm.Instant) {
		m.withSessionCodes(ctx, r, body, codes, func(codes []fsm.Code) {
			resp := responseFor(refusal.Worst(codes))
			if resp.Condition == "" {
				ends := make([]time.Time, len(untils))
				for i, until := range untils {
					ends[i] = time.UnixMilli(int64(until))
				}
				resp.body = wire.Map{{Key: "expirations", Value: wire.Array{Values: ends}}}
			}
			r.respond(ctx, resp)
		})
	})
}

// updateDisposition settles by lock token: always for deferred messages, for others if their link has ended.
func (m *manager) updateDisposition(ctx context.Context, r *managed, body wire.Map) {
	settlements, resp, ok := m.settlementsOf(r, body)
	if !ok {
		r.respond(ctx, resp)
		return
	}
	m.broker.Settle(r.at, settlements, func(codes []fsm.Code) {
		m.conn.CountSettled(settlements, codes)
		m.withSessionCodes(ctx, r, body, codes, func(codes []fsm.Code) {
			resp := responseFor(refusal.Worst(codes))
			resp.Reply = refusal.SettleReplyOf(refusal.Worst(codes))
			r.respond(ctx, resp)
		})
	})
}

// settlementsOf reads an update-disposition. ok is false if it cannot be done: then resp is the answer.
func (m *manager) settlementsOf(r *managed, body wire.Map) (settlements []fsm.Settlement, resp response, ok bool) {
	what, resp, ok := decideByName(body)
	if !ok {
		return nil, resp, false
	}
	ids, resp, ok := m.lockIDs(r, body)
	if !ok {
		return nil, resp, false
	}
	settlements = make([]fsm.Settlement, len(ids))
	for i, id := range ids {
		settlements[i] = what
		settlements[i].Lock = id
	}
	return settlements, resp, true
}

// decideByName converts the status names of update-disposition to a settlement.
func decideByName(body wire.Map) (what fsm.Settlement, resp response, ok bool) {
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
		return what, response{Reply: refusal.Reply{Cause: cause, Status: http.StatusBadRequest}}, false
	}
	return what, resp, true
}

// largestPeek returns the bytes of the largest response to a peek. The size of the response is not known in advance: the
// peek pays for the largest, and counts it twice while it is in progress, as payloads and once more encoded. The reader
// stops while the requests of a connection count more than it may have in progress, so a connection peeks a few
// batches at a time, or one when memory is short.
func largestPeek(r *managed) int {
	body, _ := r.body.(wire.Map)
	count, _ := message.IntegerOf(body.Get("message-count"))
	largest := int64(r.at.Settings.MaxMessageBytes)
	return int(min(max(0, min(count, peekMessagesMax))*largest, peekBytesMax))
}

// peekMessage reads messages without locking them.
func (m *manager) peekMessage(ctx context.Context, r *managed, body wire.Map) {
	defer m.conn.Recovered(ctx)
	from, ok := message.IntegerOf(body.Get("from-sequence-number"))
	count, okCount := message.IntegerOf(body.Get("message-count"))
	if !ok || !okCount || count < 1 {
		r.respond(ctx, badRequest("The request needs from-sequence-number and a positive message-count."))
		return
	}
	ctx, cancel := context.WithTimeout(ctx, peekWithin)
	defer cancel()
	first, most := fsm.SequenceNumber(max(0, from)), int(min(count, peekMessagesMax))
	var found []fsm.Delivery
	var err error
	if session, one := m.requestedSession(r, body); one {
		found, err = m.broker.PeekSession(ctx, r.at, session, first, most, peekBytesMax)
	} else {
		found, err = m.broker.Peek(ctx, r.at, first, most, peekBytesMax)
	}
	if err != nil {
		r.respond(ctx, responseFor(refusal.CodeOf(err)))
		return
	}
	messages := make([]any, 0, len(found))
	for _, d := range found {
		encoded, err := message.AppendDelivery(nil, r.at, d, message.DeliveryOptions{Peeked: true})
		if err != nil {
			m.log.ErrorContext(ctx, "failed to encode stored message", "path", r.path, "sequence", uint64(d.Lock.Sequence), "error", err)
			continue
		}
		messages = append(messages, wire.Map{{Key: "message", Value: encoded}})
	}
	if len(messages) == 0 {
		r.respond(ctx, noContent("No messages.", nil))
		return
	}
	r.respond(ctx, success(wire.Map{{Key: "messages", Value: messages}}))
}

// deferredFetch is a receive-by-sequence-number in progress: deferred messages are fetched a few at a time, so
// that the size of an answer is limited.
type deferredFetch struct {
	m                *manager
	r                *managed
	receiveAndDelete bool
	fetch            func([]fsm.SequenceNumber, bool, func(fsm.Code, []fsm.Delivery))
	left             []fsm.SequenceNumber
	messages         []any
	bytes            int
}

// sequenceNumbers reads the numbers of a request. ok is false if there are none or too many: then resp is the
// answer.
func sequenceNumbers(body wire.Map) (numbers []fsm.SequenceNumber, resp response, ok bool) {
	given := valuesOf[int64](body.Get("sequence-numbers"))
	if len(given) == 0 || len(given) > tokensMax {
		return nil, badRequest("The request must name between 1 and %d sequence numbers. Ask for fewer at a time.", tokensMax), false
	}
	numbers = make([]fsm.SequenceNumber, len(given))
	for i, n := range given {
		numbers[i] = fsm.SequenceNumber(max(0, n)) // no message has number 0
	}
	return numbers, response{}, true
}

// receiveBySequenceNumber locks deferred messages, or receives and deletes them.
func (m *manager) receiveBySequenceNumber(ctx context.Context, r *managed, body wire.Map) {
	numbers, resp, ok := sequenceNumbers(body)
	if !ok {
		r.respond(ctx, resp)
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
		m.broker.Fetch(r.at, some, receiveAndDelete, done)
	}
	if r.at.Settings.RequiresSession && r.at.Sub == fsm.MainQueue {
		held, resp, ok := m.heldSession(r, body)
		if !ok {
			r.respond(ctx, resp)
			return
		}
		f.fetch = held.Fetch
	}
	f.next(ctx)
}

// next requests the next few messages, or answers.
func (f *deferredFetch) next(ctx context.Context) {
	if len(f.left) == 0 || f.bytes >= fetchBytesMax {
		f.finish(ctx, fsm.OK)
		return
	}
	some := f.left[:min(len(f.left), fetchAtOnceMax)]
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

// add encodes one message. Go and Python read the lock token from the message, the other clients from the
// entry beside it.
func (f *deferredFetch) add(ctx context.Context, d fsm.Delivery) {
	d.State = fsm.Deferred // the state that clients show for a fetched message, locked or not
	var options message.DeliveryOptions
	var token fsm.LockToken
	if !f.receiveAndDelete {
		token = f.m.broker.LockToken(f.r.at, d.Lock)
		options.LockToken = &token
	}
	encoded, err := message.AppendDelivery(nil, f.r.at, d, options)
	if err != nil {
		f.m.log.ErrorContext(ctx, "failed to encode stored message", "path", f.r.path, "sequence", uint64(d.Lock.Sequence), "error", err)
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
		f.r.respond(ctx, responseFor(code))
		return
	}
	f.r.respond(ctx, success(wire.Map{{Key: "messages", Value: f.messages}}))
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

// workOf returns the units of work that an operation costs, besides those of a request and without its response.
func workOf(operation string, request any) int {
	body, _ := request.(wire.Map)
	switch operation {
	case renewOperation, dispositionOperation:
		return countOf(body.Get("lock-tokens")) / itemsPerUnit
	case cancelOperation:
		return countOf(body.Get("sequence-numbers")) / itemsPerUnit
	case batchDeleteOperation:
		most, _ := message.IntegerOf(body.Get(messageCountKey))
		return int(max(0, min(most, purgeMessagesMax))) / itemsPerUnit
	case deferredOperation:
		fetches := (countOf(body.Get("sequence-numbers")) + fetchAtOnceMax - 1) / fetchAtOnceMax
		return fetches * fetchCost
	}
	return 0
}

// countOf returns the number of elements of a list in a request, at most tokensMax: longer ones are refused.
func countOf(v any) int {
	if array, ok := v.(wire.Array); ok {
		v = array.Values
	}
	switch values := v.(type) {
	case []wire.UUID:
		return min(len(values), tokensMax)
	case []int64:
		return min(len(values), tokensMax)
	case []any:
		return min(len(values), tokensMax)
	}
	return 1
}
