package judge

import (
	"fmt"
	"sync"
	"time"
)

// answerEvery is how often clients hear answers while nothing is wrong: a longer time without one is an outage.
const answerEvery = 3 * time.Second

// Lives judges when the messages of a stream expire.
type Lives struct {
	mu     sync.Mutex
	of     map[string]time.Duration // by message: its time to live
	served period                   // when senders and receivers last got answers
}

// NewLives returns a judge of messages that live forever, until it is told otherwise.
func NewLives() *Lives { return &Lives{of: make(map[string]time.Duration)} }

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

// Set notes the time to live of a message, before it is sent.
func (l *Lives) Set(id string, life time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of[id] = life
}

// Answered is called when a client has heard an answer. l may be nil.
func (l *Lives) Answered() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.served.answered()
}

// Resumed is called when hosts run again that stood still: a partition with one replica may have answered meanwhile, at a
// time that stood still. l may be nil.
func (l *Lives) Resumed() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.served = period{}
}

// check returns what is wrong with a delivery of a message that was enqueued at a time and asked for at another one, "" if nothing
// is.
func (l *Lives) check(id string, enqueued time.Time, isDead bool, asked time.Time, c *Clocks) string {
	l.mu.Lock()
	life, expires := l.of[id]
	l.served.answered()
	isSettled := asked.Sub(l.served.begun) > agreeWithin
	l.mu.Unlock()
	ends := enqueued.Add(life)
	switch {
	case isDead && !expires:
		return fmt.Sprintf("message %s was dead-lettered, and has no time to live", id)
	case isDead && time.Now().Before(ends.Add(-ClockSlack-c.Ahead(time.Now()))):
		return fmt.Sprintf("message %s, enqueued at %v for %v, had expired at %v", id, enqueued, life, time.Now())
	case !isDead && expires && isSettled && asked.After(ends.Add(ClockSlack+c.behind(asked))) && c.Agree():
		return fmt.Sprintf("message %s, enqueued at %v for %v, was given to a receiver that asked at %v", id, enqueued, life, asked)
	}
	return ""
}
