package amqp

import (
	"context"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// manage performs one operation of an entity's management node
// (docs/service-bus-protocol.md#management-operations). The response is sent when the broker answers: nothing
// here blocks the reader.
func (c *conn) manage(ctx context.Context, r *request, operation string) {
	if cause := operationNotAllowed(operation, &r.at); cause.Condition != "" {
		c.respond(ctx, r, response{Reply: refusal.Reply{Cause: cause, Status: http.StatusBadRequest}})
		return
	}
	body, _ := r.body.(wire.Map)
	if r.transaction != nil && c.manageInTransaction(ctx, r, operation, body) {
		return
	}
	switch operation {
	case renewOperation:
		c.renewLock(ctx, r, body)
	case renewSessionOperation:
		c.renewSessionLock(ctx, r, body)
	case getStateOperation:
		go c.getSessionState(ctx, r, body)
	case setStateOperation:
		go c.setSessionState(ctx, r, body)
	case listSessionsOperation:
		go c.listSessions(ctx, r, body)
	case peekOperation:
		go c.peekMessage(ctx, r, body)
	case dispositionOperation:
		c.updateDisposition(ctx, r, body)
	case deferredOperation:
		c.receiveBySequenceNumber(ctx, r, body)
	case scheduleOperation:
		c.scheduleMessage(ctx, r, body)
	case cancelOperation:
		c.cancelScheduled(ctx, r, body)
	case batchDeleteOperation:
		c.batchDelete(ctx, r)
	case addRuleOperation:
		go c.addRule(ctx, r, body)
	case removeRuleOperation:
		go c.removeRule(ctx, r, body)
	case enumerateRulesOperation:
		go c.enumerateRules(ctx, r, body)
	default:
		c.respond(ctx, r, unknownOperation(operation))
	}
}

// lockIDs reads the lock tokens of a request. ok is false if a token does not belong to this entity, or if
// there are none or too many: then resp is the answer.
func (c *conn) lockIDs(r *request, body wire.Map) (ids []fsm.LockID, resp response, ok bool) {
	tokens := valuesOf[wire.UUID](body.Get("lock-tokens"))
	if len(tokens) == 0 || len(tokens) > tokensMax {
		return nil, badRequest("The request must name between 1 and %d lock tokens. Ask for fewer at a time.", tokensMax), false
	}
	ids = make([]fsm.LockID, len(tokens))
	for i, token := range tokens {
		if ids[i], ok = c.config.Broker.ParseLockToken(r.at, message.TokenFromUUID(token)); !ok {
			return nil, responseFor(fsm.MessageLockLost), false
		}
	}
	return ids, response{}, true
}

// renewLock extends locks. The answer is an array of timestamps, not a list.
func (c *conn) renewLock(ctx context.Context, r *request, body wire.Map) {
	ids, resp, ok := c.lockIDs(r, body)
	if !ok {
		c.respond(ctx, r, resp)
		return
	}
	c.config.Broker.Renew(r.at, ids, func(codes []fsm.Code, untils []fsm.Instant) {
		c.withSessionCodes(ctx, r, body, codes, func(codes []fsm.Code) {
			resp := responseFor(refusal.Worst(codes))
			if resp.Condition == "" {
				ends := make([]time.Time, len(untils))
				for i, until := range untils {
					ends[i] = time.UnixMilli(int64(until))
				}
				resp.body = wire.Map{{Key: "expirations", Value: wire.Array{Values: ends}}}
			}
			c.respond(ctx, r, resp)
		})
	})
}

// updateDisposition settles by lock token: always for deferred messages, for others if their link has ended.
func (c *conn) updateDisposition(ctx context.Context, r *request, body wire.Map) {
	settlements, resp, ok := c.settlementsOf(r, body)
	if !ok {
		c.respond(ctx, r, resp)
		return
	}
	c.config.Broker.Settle(r.at, settlements, func(codes []fsm.Code) {
		c.mu.Lock()
		c.countSettled(settlements, codes)
		c.mu.Unlock()
		c.withSessionCodes(ctx, r, body, codes, func(codes []fsm.Code) {
			resp := responseFor(refusal.Worst(codes))
			resp.Reply = refusal.SettleReplyOf(refusal.Worst(codes))
			c.respond(ctx, r, resp)
		})
	})
}

// settlementsOf reads an update-disposition. ok is false if it cannot be done: then resp is the answer.
func (c *conn) settlementsOf(r *request, body wire.Map) (settlements []fsm.Settlement, resp response, ok bool) {
	what, resp, ok := decideByName(body)
	if !ok {
		return nil, resp, false
	}
	ids, resp, ok := c.lockIDs(r, body)
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
	if cause := setModifications(&what, properties); cause.Condition != "" {
		return what, response{Reply: refusal.Reply{Cause: cause, Status: http.StatusBadRequest}}, false
	}
	return what, resp, true
}

// largestPeek returns the bytes of the largest response to a peek. The size of the response is not known in advance: the
// peek pays for the largest, and counts it twice while it is in progress, as payloads and once more encoded. The reader
// stops while the requests of a connection count more than it may have in progress, so a connection peeks a few
// batches at a time, or one when memory is short.
func largestPeek(r *request) int {
	body, _ := r.body.(wire.Map)
	count, _ := integerOf(body.Get("message-count"))
	largest := int64(r.at.Settings.MaxMessageBytes)
	return int(min(max(0, min(count, peekMessagesMax))*largest, peekBytesMax))
}

// peekMessage reads messages without locking them.
func (c *conn) peekMessage(ctx context.Context, r *request, body wire.Map) {
	defer c.recovered(ctx)
	from, ok := integerOf(body.Get("from-sequence-number"))
	count, okCount := integerOf(body.Get("message-count"))
	if !ok || !okCount || count < 1 {
		c.respond(ctx, r, badRequest("The request needs from-sequence-number and a positive message-count."))
		return
	}
	ctx, cancel := context.WithTimeout(ctx, peekWithin)
	defer cancel()
	first, most := fsm.SequenceNumber(max(0, from)), int(min(count, peekMessagesMax))
	var found []fsm.Delivery
	var err error
	if session, one := c.requestedSession(r, body); one {
		found, err = c.config.Broker.PeekSession(ctx, r.at, session, first, most, peekBytesMax)
	} else {
		found, err = c.config.Broker.Peek(ctx, r.at, first, most, peekBytesMax)
	}
	if err != nil {
		c.respond(ctx, r, responseFor(refusal.CodeOf(err)))
		return
	}
	messages := make([]any, 0, len(found))
	for _, d := range found {
		encoded, err := message.AppendDelivery(nil, r.at, d, message.DeliveryOptions{Peeked: true})
		if err != nil {
			c.log.ErrorContext(ctx, "failed to encode stored message", "path", r.link.path, "sequence", uint64(d.Lock.Sequence), "error", err)
			continue
		}
		messages = append(messages, wire.Map{{Key: "message", Value: encoded}})
	}
	if len(messages) == 0 {
		c.respond(ctx, r, noContent("No messages.", nil))
		return
	}
	c.respond(ctx, r, success(wire.Map{{Key: "messages", Value: messages}}))
}

// deferredFetch is a receive-by-sequence-number in progress: deferred messages are fetched a few at a time, so
// that the size of an answer is limited.
type deferredFetch struct {
	c                *conn
	r                *request
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
func (c *conn) receiveBySequenceNumber(ctx context.Context, r *request, body wire.Map) {
	numbers, resp, ok := sequenceNumbers(body)
	if !ok {
		c.respond(ctx, r, resp)
		return
	}
	seen := make(map[fsm.SequenceNumber]bool, len(numbers))
	numbers = slices.DeleteFunc(numbers, func(n fsm.SequenceNumber) bool {
		again := seen[n]
		seen[n] = true
		return again
	})
	f := &deferredFetch{c: c, r: r, left: numbers}
	mode, given := integerOf(body.Get("receiver-settle-mode"))
	f.receiveAndDelete = given && mode == 0
	f.fetch = func(some []fsm.SequenceNumber, receiveAndDelete bool, done func(fsm.Code, []fsm.Delivery)) {
		c.config.Broker.Fetch(r.at, some, receiveAndDelete, done)
	}
	if r.at.Settings.RequiresSession && r.at.Sub == fsm.MainQueue {
		held, resp, ok := c.heldSession(r, body)
		if !ok {
			c.respond(ctx, r, resp)
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
		f.charge(f.bytes - before)
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
		token = f.c.config.Broker.LockToken(f.r.at, d.Lock)
		options.LockToken = &token
	}
	encoded, err := message.AppendDelivery(nil, f.r.at, d, options)
	if err != nil {
		f.c.log.ErrorContext(ctx, "failed to encode stored message", "path", f.r.link.path, "sequence", uint64(d.Lock.Sequence), "error", err)
		return
	}
	entry := wire.Map{{Key: "message", Value: encoded}}
	if !f.receiveAndDelete {
		entry = append(entry, wire.Pair{Key: "lock-token", Value: message.UUIDFromToken(token)})
	}
	f.messages = append(f.messages, entry)
	f.bytes += len(encoded)
}

// charge counts the part of the answer that exists.
func (f *deferredFetch) charge(bytes int) {
	f.c.mu.Lock()
	defer f.c.unlock()
	f.c.memory.responseBytes += bytes
}

// finish answers. It returns messages that were fetched before a failure, and the client requests the rest
// again. Only a number that is not there makes a request under locks fail as a whole, as in the service: what was
// found stays locked until its lock ends. Messages that were deleted are always returned.
func (f *deferredFetch) finish(ctx context.Context, code fsm.Code) {
	defer f.charge(-f.bytes)
	if len(f.messages) == 0 || code == fsm.MessageNotFound {
		if code == fsm.OK {
			code = fsm.MessageNotFound
		}
		f.c.respond(ctx, f.r, responseFor(code))
		return
	}
	f.c.respond(ctx, f.r, success(wire.Map{{Key: "messages", Value: f.messages}}))
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

// integerOf reads any AMQP integer: SDKs use different widths.
func integerOf(v any) (int64, bool) {
	switch n := v.(type) {
	case int8:
		return int64(n), true
	case int16:
		return int64(n), true
	case int32:
		return int64(n), true
	case int64:
		return n, true
	case uint8:
		return int64(n), true
	case uint16:
		return int64(n), true
	case uint32:
		return int64(n), true
	case uint64:
		return int64(min(n, math.MaxInt64)), true
	}
	return 0, false
}

// costOf returns the units that a request costs, without its response. permitted means that the node has the
// operation and that the connection may perform it: otherwise all that is done is to refuse it.
func costOf(r *request, operation string, permitted bool) int {
	if !permitted {
		return requestCost
	}
	body, _ := r.body.(wire.Map)
	switch operation {
	case putTokenOperation:
		return requestCost + putTokenCost
	case renewOperation, dispositionOperation:
		return requestCost + countOf(body.Get("lock-tokens"))/itemsPerUnit
	case cancelOperation:
		return requestCost + countOf(body.Get("sequence-numbers"))/itemsPerUnit
	case batchDeleteOperation:
		most, _ := integerOf(body.Get(messageCountKey))
		return requestCost + int(max(0, min(most, purgeMessagesMax)))/itemsPerUnit
	case deferredOperation:
		fetches := (countOf(body.Get("sequence-numbers")) + fetchAtOnceMax - 1) / fetchAtOnceMax
		return requestCost + fetches*fetchCost
	}
	return requestCost
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
