package sim

import (
	"fmt"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/sim/simplan"
)

// The times to live of the stream of messages that expire, and how slowly it is received.
const (
	lifeMin      = time.Second
	lifeMax      = 20 * time.Second
	expiringRest = 5 * time.Second
	// agreeWithin is how long the wall time of a partition may lag behind after an outage: until its leader knows
	// the clocks of a quorum, which another fault may delay.
	agreeWithin = simplan.FaultLengthMax + 5*time.Second
	answerEvery = 3 * time.Second // a longer time without an answer is an outage
)

// period is a time in which answers came, without an outage.
type period struct{ begun, last time.Time }

// answered extends the period, or begins another one.
func (p *period) answered() {
	now := time.Now()
	if now.Sub(p.last) > answerEvery {
		p.begun = now
	}
	p.last = now
}

// expiring adds a queue whose expired messages are dead-lettered. Half of the messages have a time to live, and
// receivers pause so long that many expire.
func (b *builder) expiring() {
	s := b.stream("expiring")
	s.immediate = true
	s.isExact = true
	s.lives = make(map[string]time.Duration)
	s.to = b.queue(s, s.name, func(e *fsm.EntitySettings) { e.DeadLetterOnExpiry = true })
	s.from = []source{{at: s.to, rest: expiringRest}, {at: deadLetters(s.to)}}
	s.prepare = func(c *client, m *fsm.Message, _ int64) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if c.rand.IntN(2) == 0 {
			return
		}
		m.TimeToLive = fsm.Millis((lifeMin + time.Duration(c.rand.Int64N(int64(lifeMax-lifeMin)))).Milliseconds())
		s.lives[m.ID] = millis(m.TimeToLive)
	}
}

// checkLife notes a message that expired too early or too late. It was asked for at a time.
func (s *stream) checkLife(d *fsm.Delivery, isDead bool, asked time.Time) {
	if s.lives == nil {
		return
	}
	id := idOf(d.Payload)
	s.mu.Lock()
	life, expires := s.lives[id]
	s.served.answered()
	isSettled := asked.Sub(s.served.begun) > agreeWithin
	s.mu.Unlock()
	ends := time.UnixMilli(int64(d.Enqueued)).Add(life)
	switch {
	case isDead && !expires:
		s.find(fmt.Sprintf("message %s was dead-lettered, and has no time to live", id))
	case isDead && time.Now().Before(ends.Add(-clockSlack-s.clocks.ahead(time.Now()))):
		s.find(fmt.Sprintf("message %s, enqueued at %v for %v, had expired at %v", id, time.UnixMilli(int64(d.Enqueued)), life, time.Now()))
	case !isDead && expires && isSettled && asked.After(ends.Add(clockSlack+s.clocks.behind(asked))) && s.clocksAgree():
		s.find(fmt.Sprintf("message %s, enqueued at %v for %v, was given to a receiver that asked at %v", id, time.UnixMilli(int64(d.Enqueued)), life, asked))
	}
}

func millis(m fsm.Millis) time.Duration { return time.Duration(m) * time.Millisecond }
