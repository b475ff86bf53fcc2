package load

import (
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/sim/judge"
)

// The times to live of the stream of messages that expire, and how slowly it is received.
const (
	lifeMin      = time.Second
	lifeMax      = 20 * time.Second
	expiringRest = 5 * time.Second
)

// expiring adds a queue whose expired messages are dead-lettered. Half of the messages have a time to live, and
// receivers pause so long that many expire.
func (b *builder) expiring() {
	s := b.stream("expiring")
	s.immediate = true
	s.IsExact = true
	s.Lives, s.rest = judge.NewLives(), expiringRest
	s.To = b.queue(s, s.Name, func(e *fsm.EntitySettings) { e.DeadLetterOnExpiry = true })
	s.From = []judge.Source{{At: s.To}, {At: deadLetters(s.To)}}
	s.prepare = func(c *client, m *fsm.Message, _ int64) {
		if c.rand.IntN(2) == 0 {
			return
		}
		m.TimeToLive = fsm.Millis((lifeMin + time.Duration(c.rand.Int64N(int64(lifeMax-lifeMin)))).Milliseconds())
		s.Lives.Set(m.ID, time.Duration(m.TimeToLive)*time.Millisecond)
	}
}
