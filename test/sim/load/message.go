package load

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/fsm"
)

// message makes the next message of a stream.
func (l *Load) message(c *client, s *stream) fsm.Message {
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
func note(p *Process, code fsm.Code) string {
	if p == nil {
		return "no member runs"
	}
	return fmt.Sprintf("m%d: %v", p.Member, code)
}

// Reread is Config.Reread of a member: the payload is an AMQP message that the gateway stored, or the whole message.
func Reread(payload, patches []byte) (fsm.Message, error) {
	if m, err := message.Reread(payload, patches); err == nil {
		return m, nil
	}
	return fsm.Message{ID: idOf(payload), Payload: payload}, nil
}
