package message

import (
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// ApplySessions adapts messages to an entity: an entity without sessions stores messages without a session,
// and one that requires sessions refuses messages without one.
func ApplySessions(at *fsm.EntityRef, messages []fsm.Message) error {
	switch {
	case at.Settings.RequiresSession:
		for i := range messages {
			if !messages[i].HasSession {
				return NewError(wire.ConditionNotAllowed, "the SessionId was not set, and entities that have session support enabled can only receive messages that have the SessionId set to a valid value")
			}
		}
	case at.Kind != fsm.TopicEntity:
		for i := range messages {
			m := &messages[i]
			if m.HasSession && len(at.Shards) > 0 {
				m.PartitionKey = m.Session // it still binds the message to a shard
			}
			m.Session, m.HasSession = "", false
		}
	}
	return nil
}

// ParseWithID converts one encoded message to its stored form. A message without id gets one, in the
// buffer, which grows as needed and may be used for the next message.
func ParseWithID(buffer *[]byte, encoded []byte) (fsm.Message, error) {
	var ok bool
	if *buffer, ok = AppendWithID((*buffer)[:0], encoded); ok {
		encoded = *buffer
	}
	return Parse(encoded)
}
