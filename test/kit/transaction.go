package kit

import "github.com/peeklock/peeklock/fsm"

// Complete returns the part of a transaction that completes messages of an entity.
func Complete(at fsm.EntityRef, locks ...fsm.LockID) fsm.SettleAt {
	s := fsm.SettleAt{At: at}
	for _, lock := range locks {
		s.Settlements = append(s.Settlements, fsm.Settlement{Lock: lock, Verb: fsm.Complete})
	}
	return s
}

// SendTo returns the part of a transaction that sends messages to an entity, each with its text as id and payload.
func SendTo(at fsm.EntityRef, texts ...string) fsm.SendTo {
	s := fsm.SendTo{At: at}
	for _, text := range texts {
		s.Messages = append(s.Messages, fsm.Message{ID: text, Payload: []byte(text)})
	}
	return s
}
