package amqp

import (
	"context"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// scheduleMessage stores messages that become active at the time that each one names in
// its annotations; a time that has passed means now. The answer is an array of long, one
// number per message, in order; 0 stands for a duplicate, which was not stored.
func (c *conn) scheduleMessage(ctx context.Context, r *request, body wire.Map) {
	messages, say, ok := c.scheduledMessages(r, body)
	if !ok {
		c.respond(ctx, r, say)
		return
	}
	c.config.Broker.Schedule(r.link.place, messages, func(code fsm.Code, sequences []fsm.SequenceNumber) {
		say := answer(code)
		if code == fsm.OK {
			numbers := make([]int64, len(sequences))
			for i, n := range sequences {
				numbers[i] = int64(n)
			}
			say.body = wire.Map{{Key: "sequence-numbers", Value: wire.Array{Values: numbers}}}
		}
		c.respond(ctx, r, say)
	})
}

// scheduledMessages reads the messages of a request. What a client says of a message
// beside it is not looked at: the message says it itself.
func (c *conn) scheduledMessages(r *request, body wire.Map) (messages []fsm.Message, say response, ok bool) {
	entries, _ := lookup(body, "messages").([]any)
	if len(entries) == 0 || len(entries) > batchMessagesMax {
		return nil, badRequest("The request must hold between 1 and %d messages. Schedule fewer at a time.", batchMessagesMax), false
	}
	messages = make([]fsm.Message, len(entries))
	for i, entry := range entries {
		entry, _ := entry.(wire.Map)
		encoded, _ := lookup(entry, "message").([]byte)
		if len(encoded) > int(min(r.link.place.Settings.MaxMessageBytes, messageBytesMax)) {
			return nil, answer(fsm.MessageTooLarge), false
		}
		m, err := c.parseOne(encoded)
		if err != nil {
			say = badRequest("")
			say.refusal = refusalOf("The message", err)
			return nil, say, false
		}
		if m.EnqueueAt == 0 {
			return nil, badRequest("A message to be scheduled has no annotation %s. Give it one.", scheduledEnqueueTimeKey), false
		}
		messages[i] = m
	}
	if err := sessioned(&r.link.place, messages); err != nil {
		say = badRequest("")
		say.refusal = refusalOf("The message", err)
		return nil, say, false
	}
	if r.link.place.Kind == fsm.TopicEntity {
		if err := c.rules.readAll(messages); err != nil {
			say = badRequest("")
			say.refusal = refusalOf("The message", err)
			return nil, say, false
		}
	}
	return messages, say, true
}

// cancelScheduled takes scheduled messages back: all of them, or none when one is not
// there any more.
func (c *conn) cancelScheduled(ctx context.Context, r *request, body wire.Map) {
	numbers, say, ok := sequenceNumbers(body)
	if !ok {
		c.respond(ctx, r, say)
		return
	}
	c.config.Broker.CancelScheduled(r.link.place, numbers, func(code fsm.Code) {
		c.respond(ctx, r, answer(code))
	})
}

// batchDelete removes messages that nobody holds, oldest first. Fewer than asked for
// says that no more were there.
func (c *conn) batchDelete(ctx context.Context, r *request, body wire.Map) {
	count, ok := integerOf(lookup(body, "message-count"))
	if !ok || count < 1 {
		c.respond(ctx, r, badRequest("The request needs a positive message-count. Give one of at most %d.", purgeMessagesMax))
		return
	}
	var before fsm.Instant // whenever enqueued
	if given := lookup(body, "enqueued-time-utc"); given != nil {
		if before, ok = instantOf(given); !ok {
			c.respond(ctx, r, badRequest("enqueued-time-utc is not a timestamp. Give it as one."))
			return
		}
		before = max(1, before) // 0 would mean whenever
	}
	c.config.Broker.Purge(r.link.place, before, int(min(count, purgeMessagesMax)), func(code fsm.Code, count int) {
		say := answer(code)
		deleted := wire.Map{{Key: "message-count", Value: int32(count)}}
		switch {
		case code == fsm.OK && count == 0:
			say = empty("No messages.", deleted)
		case code == fsm.OK:
			say.body = deleted
		}
		c.respond(ctx, r, say)
	})
}
