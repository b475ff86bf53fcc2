package load

import (
	"time"

	"github.com/peeklock/peeklock/cluster/router"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/sim/judge"
)

// receive receives and settles until receiving ends.
func (l *Load) receive(c *client, s *stream, from judge.Source) {
	for {
		p := c.process(l.receiving)
		if p == nil {
			return
		}
		if s.HasSessions {
			l.receiveSession(c, p, s, from)
			continue
		}
		r := p.Node.Router().Receiver(from.At, false)
		for l.receiving.Err() == nil && !p.HasEnded() && c.rand.IntN(50) != 0 {
			if !l.receiveSome(c, p, s, from, r, time.Now()) {
				sleep(reconnectAfter)
			}
			l.fetchDeferred(c, p, s, from)
			if s.rest > 0 && from.At.Sub == fsm.MainQueue {
				c.think(l.sending, s.rest)
			}
		}
		r.Close()
	}
}

// receiveSome makes one request for messages and settles what comes; the locks last at least for the lock duration
// from since on. It returns false when the request failed.
func (l *Load) receiveSome(c *client, p *Process, s *stream, from judge.Source, r *router.Receiver, since time.Time) bool {
	got, heard := l.lockSome(c, p, r)
	if !heard || got.code != fsm.OK {
		return false
	}
	l.settleAll(c, p, s, from, since, got.deliveries)
	return true
}

// fetchMax is how many messages are fetched together: after a restore each message that ever was deferred may be.
const fetchMax = 32

// fetchDeferred fetches some messages that may be deferred, if there are any, and settles them.
func (l *Load) fetchDeferred(c *client, p *Process, s *stream, from judge.Source) {
	sequences := s.mayBeDeferred()
	if len(sequences) == 0 || from.At.Sub != fsm.MainQueue || from.Name != "" {
		return
	}
	c.rand.Shuffle(len(sequences), func(i, j int) { sequences[i], sequences[j] = sequences[j], sequences[i] })
	some := sequences[:min(len(sequences), fetchMax)]
	asked := time.Now()
	got, heard := ask(p, func(answer func(locked)) {
		p.Node.Router().Fetch(from.At, some, false, func(code fsm.Code, d []fsm.Delivery) { answer(locked{code, d}) })
	})
	if heard && got.code == fsm.OK {
		l.settleAll(c, p, s, from, asked, got.deliveries)
	}
}
