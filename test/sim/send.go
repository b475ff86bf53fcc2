package sim

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/history"
)

// send sends until sending ends.
func (l *load) send(c *client, s *stream) {
	for c.think(l.sending, sendEvery) {
		if p := c.process(l.sending); p != nil {
			_ = l.sendOne(c, p, s, c.rand.IntN(10) == 0) // the history has the outcome
		}
	}
}

// sendOne sends one message, or some as one request, and records what came of it.
func (l *load) sendOne(c *client, p *process, s *stream, batch bool) fsm.Code {
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
func (l *load) outcome(s *stream, heard bool, code fsm.Code, n int) history.Kind {
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

// message makes the next message of a stream.
func (l *load) message(c *client, s *stream) fsm.Message {
	number := s.next.Add(1)
	m := fsm.Message{ID: s.Name + "/" + strconv.FormatInt(number, 10)}
	if s.HasSessions {
		m.HasSession, m.Session = true, strconv.Itoa(c.rand.IntN(sessionsOfStream))
		m.ID = s.Name + "/" + m.Session + "/" + strconv.FormatInt(number, 10)
	}
	size := c.rand.IntN(bodyMax)
	if c.rand.IntN(100) == 0 {
		size = largeBody
	}
	m.Payload = []byte(m.ID + "|" + strings.Repeat(".", size))
	if s.schedules || !s.immediate && c.rand.IntN(20) == 0 {
		at := time.Now().Add(time.Duration(c.rand.Int64N(int64(scheduleMax))))
		m.EnqueueAt = fsm.Instant(at.UnixMilli())
		s.SetDue(m.ID, at)
	}
	if s.prepare != nil {
		s.prepare(c, &m, number)
	}
	return m
}

// numberOf returns the number of the message with an id.
func numberOf(id string) int64 {
	number, err := strconv.ParseInt(id[strings.LastIndexByte(id, '/')+1:], 10, 64)
	if err != nil {
		return -1
	}
	return number
}

// idOf returns the id that message has given to a message.
func idOf(payload []byte) string {
	id, _, _ := bytes.Cut(payload, []byte("|"))
	return string(id)
}

// note says where a request was made, and how it ended.
func note(p *process, code fsm.Code) string {
	if p == nil {
		return "no member runs"
	}
	return fmt.Sprintf("m%d: %v", p.member.number, code)
}
