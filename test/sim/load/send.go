package load

import (
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/history"
)

// send sends until sending ends.
func (l *Load) send(c *client, s *stream) {
	for c.think(l.sending, sendEvery) {
		if p := c.process(l.sending); p != nil {
			_ = l.sendOne(c, p, s, c.rand.IntN(10) == 0) // the history has the outcome
		}
	}
}

// sendOne sends one message, or some as one request, and records what came of it.
func (l *Load) sendOne(c *client, p *Process, s *stream, batch bool) fsm.Code {
	n := 1
	if batch {
		n += c.rand.IntN(4)
	}
	var messages []fsm.Message
	for range n {
		messages = append(messages, l.message(c, s))
		s.Add(history.Event{Kind: history.SendBegun, ID: messages[len(messages)-1].ID, Client: c.name})
	}
	if s.isAMQP {
		for i := range messages {
			messages[i] = stored(&messages[i])
		}
	}
	code, heard := send(p, s.To, messages)
	for tries := 0; s.resends && (!heard || code != fsm.OK || c.rand.IntN(10) == 0) && tries < 20; tries++ {
		if !c.think(l.sending, reconnectAfter) {
			break
		}
		if p = c.process(l.sending); p == nil {
			break
		}
		code, heard = send(p, s.To, messages)
	}
	kind := l.outcome(s, heard && p != nil, code, n)
	for i := range messages {
		s.Add(history.Event{Kind: kind, ID: messages[i].ID, Client: c.name, Note: note(p, code)})
	}
	return code
}

// outcome returns what an answer to a send of n messages says about them.
func (l *Load) outcome(s *stream, heard bool, code fsm.Code, n int) history.Kind {
	switch {
	case heard && code == fsm.OK:
		l.operations.Add(int64(n))
		s.Lives.Answered()
		return history.SendAccepted
	case !heard || isUnknown(code) || s.resends:
		return history.SendUnknown
	}
	return history.SendRefused
}
