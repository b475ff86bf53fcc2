package management

import (
	"context"
	"fmt"
	"net/http"

	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// scheduleMessage stores messages that become active at the time in their annotations; a time in the past
// means now. The answer is an array of long, one number per message, in order. A duplicate, which was not stored, has a
// number that no message has.
func (m *Manager) scheduleMessage(ctx context.Context, r *Request, body wire.Map) {
	messages, resp, ok := m.scheduledMessages(r, body)
	if !ok {
		r.Respond(ctx, resp)
		return
	}
	m.broker.Schedule(r.At, messages, func(code fsm.Code, sequences []fsm.SequenceNumber) {
		resp := ResponseFor(code)
		resp.Cause = m.conn.BusyReason(code, resp.Cause)
		if code == fsm.OK {
			numbers := make([]int64, len(sequences))
			for i, n := range sequences {
				numbers[i] = int64(n)
			}
			resp.Body = wire.Map{{Key: "sequence-numbers", Value: wire.Array{Values: numbers}}}
		}
		r.Respond(ctx, resp)
	})
}

// scheduledMessages reads the messages of a request. It ignores the entries that clients write beside a
// message, because the message itself contains the values.
func (m *Manager) scheduledMessages(r *Request, body wire.Map) (messages []fsm.Message, resp Response, ok bool) {
	entries, _ := body.Get("messages").([]any)
	if len(entries) == 0 || len(entries) > message.BatchMessagesMax {
		return nil, badRequest("The request must hold between 1 and %d messages. Schedule fewer at a time.", message.BatchMessagesMax), false
	}
	if cause := m.conn.MemoryRefusal(); cause.Condition != "" {
		resp = ResponseFor(fsm.ServerBusy)
		resp.Cause = cause
		return nil, resp, false
	}
	messages = make([]fsm.Message, len(entries))
	var buffer []byte
	for i, entry := range entries {
		entry, _ := entry.(wire.Map)
		encoded, _ := entry.Get("message").([]byte)
		if len(encoded) > int(min(r.At.Settings.MaxMessageBytes, message.BytesMax)) {
			return nil, ResponseFor(fsm.MessageTooLarge), false
		}
		parsed, err := message.ParseWithID(&buffer, encoded)
		if err != nil {
			resp = badRequest("")
			resp.Cause = refusal.Of("The message", err)
			return nil, resp, false
		}
		if parsed.EnqueueAt == 0 {
			return nil, badRequest("A message to be scheduled has no annotation %s. Give it one.", message.ScheduledEnqueueTimeKey), false
		}
		messages[i] = parsed
	}
	if err := message.ApplySessions(&r.At, messages); err != nil {
		resp = badRequest("")
		resp.Cause = refusal.Of("The message", err)
		return nil, resp, false
	}
	if r.At.Kind == fsm.TopicEntity {
		var rules message.RuleReader
		if err := rules.ReadAll(messages); err != nil {
			resp = badRequest("")
			resp.Cause = refusal.Of("The message", err)
			return nil, resp, false
		}
	}
	return messages, resp, true
}

// cancelScheduled cancels scheduled messages: all of them, or none if one is not scheduled any longer.
func (m *Manager) cancelScheduled(ctx context.Context, r *Request, body wire.Map) {
	numbers, resp, ok := sequenceNumbers(body)
	if !ok {
		r.Respond(ctx, resp)
		return
	}
	m.broker.CancelScheduled(r.At, numbers, func(code fsm.Code) {
		r.Respond(ctx, ResponseFor(code))
	})
}

// Keys of the body of a batch delete.
const (
	MessageCountKey    = "message-count"
	enqueuedTimeUTCKey = "enqueued-time-utc"
	SessionIDKey       = "session-id"
)

// deletion holds the conditions of a batch delete.
type deletion struct {
	most    int
	before  fsm.Instant // 0: at any time
	session *string     // only messages of this session; nil: of every session that no link holds
}

// batchDelete removes messages that are not locked, oldest first. A number below the requested one means that
// no more remain.
func (m *Manager) batchDelete(ctx context.Context, r *Request, _ wire.Map) {
	asked, cause := deletionOf(r)
	if cause.Condition != "" {
		r.Respond(ctx, Response{Reply: refusal.Reply{Cause: cause, Status: http.StatusBadRequest}})
		return
	}
	if asked.session != nil {
		go m.deleteInSession(ctx, r, asked)
		return
	}
	m.broker.Purge(r.At, asked.before, asked.most, func(code fsm.Code, count int) {
		r.Respond(ctx, deleted(code, count))
	})
}

// deleteInSession performs a batch delete in one session, which a link may hold.
func (m *Manager) deleteInSession(ctx context.Context, r *Request, asked deletion) {
	defer m.conn.Recovered(ctx)
	ctx, cancel := context.WithTimeout(ctx, sessionWithin)
	defer cancel()
	count, err := m.broker.PurgeSession(ctx, r.At, *asked.session, asked.before, asked.most)
	code := fsm.OK
	if err != nil {
		code = refusal.CodeOf(err)
	}
	r.Respond(ctx, deleted(code, count))
}

// deleted returns the response to a batch delete.
func deleted(code fsm.Code, count int) Response {
	resp := ResponseFor(code)
	body := wire.Map{{Key: MessageCountKey, Value: int32(count)}}
	switch {
	case code == fsm.OK && count == 0:
		resp = noContent("No messages.", body)
	case code == fsm.OK:
		resp.Body = body
	}
	return resp
}

// deletionOf reads a batch delete. It refuses entries that it does not know: ignoring a condition would delete
// messages that should remain.
func deletionOf(r *Request) (asked deletion, cause refusal.Cause) {
	body, ok := r.Body.(wire.Map)
	if !ok {
		return asked, refusal.New(wire.ConditionArgumentError, "The body of the request is not a map. Send one with %s.", MessageCountKey)
	}
	if cause = checkDeletionKeys(body); cause.Condition != "" {
		return asked, cause
	}
	count, ok := message.IntegerOf(body.Get(MessageCountKey))
	if !ok || count < 1 {
		return asked, refusal.New(wire.ConditionArgumentError, "The request needs a positive %s. Give one of at most %d.", MessageCountKey, PurgeMessagesMax)
	}
	asked.most = int(min(count, PurgeMessagesMax))
	if moment := body.Get(enqueuedTimeUTCKey); moment != nil {
		if asked.before, ok = message.InstantOf(moment); !ok {
			return asked, refusal.New(wire.ConditionArgumentError, "%s is not a timestamp. Give it as one.", enqueuedTimeUTCKey)
		}
		asked.before = max(1, asked.before) // 0 would mean at any time
	}
	session := body.Get(SessionIDKey)
	if session == nil {
		return asked, refusal.Cause{}
	}
	asked.session, cause = sessionToDelete(session, &r.At)
	return asked, cause
}

// checkDeletionKeys refuses keys that a batch delete does not have, and duplicate ones.
func checkDeletionKeys(body wire.Map) refusal.Cause {
	given := make(map[string]bool, 3)
	for _, pair := range body {
		key, ok := pair.Key.(string)
		if symbol, is := pair.Key.(wire.Symbol); is {
			key, ok = string(symbol), true
		}
		switch {
		case !ok || key != MessageCountKey && key != enqueuedTimeUTCKey && key != SessionIDKey:
			return refusal.New(wire.ConditionArgumentError, "The request has an unknown entry %.64q. Send only %s, %s and %s.", fmt.Sprint(pair.Key), MessageCountKey, enqueuedTimeUTCKey, SessionIDKey)
		case given[key]:
			return refusal.New(wire.ConditionArgumentError, "The request has %s twice. Send it once.", key)
		}
		given[key] = true
	}
	return refusal.Cause{}
}

// sessionToDelete reads the session-id of a batch delete.
func sessionToDelete(given any, at *fsm.EntityRef) (*string, refusal.Cause) {
	name, ok := given.(string)
	if !ok {
		return nil, refusal.New(wire.ConditionArgumentError, "%s is not a string. Give the id of the session as one.", SessionIDKey)
	}
	if err := message.CheckName("session id", []byte(name)); err != nil {
		return nil, refusal.New(wire.ConditionArgumentError, "The session id has more than %d characters. Use a shorter one.", message.NameCharactersMax)
	}
	if !at.Settings.RequiresSession || at.Sub != fsm.MainQueue {
		return nil, noSessions(at)
	}
	return &name, refusal.Cause{}
}
