package load

import (
	"fmt"
	"time"

	"github.com/peeklock/peeklock/cluster/router"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/history"
	"github.com/peeklock/peeklock/test/sim/judge"
)

// taken adds a queue that is received from by receive-and-delete.
func (b *builder) taken() {
	s := b.stream("taken")
	s.Takes, s.IsExact = new(judge.Takes), true
	s.To = b.queue(s, s.Name, nil)
	s.From = []judge.Source{{At: s.To}}
}

// take receives by receive-and-delete until receiving ends.
func (l *Load) take(c *client, s *stream, from judge.Source) {
	for {
		p := c.process(l.receiving)
		if p == nil {
			return
		}
		r := p.Node.Router().Receiver(from.At, true)
		for l.receiving.Err() == nil && !p.HasEnded() && c.rand.IntN(50) != 0 {
			if !l.takeSome(c, p, s, r) {
				sleep(reconnectAfter)
			}
		}
		r.Close()
	}
}

// takeSome makes one request for messages, which are gone when it is answered. It returns false when the request
// failed: then as many messages as it asked for may be lost.
func (l *Load) takeSome(c *client, p *Process, s *stream, r *router.Receiver) bool {
	most, asked := 1+c.rand.IntN(batchMax), time.Now()
	got, heard := ask(p, func(answer func(locked)) {
		r.Lock(most, 1<<20, lockWait, func(code fsm.Code, d []fsm.Delivery) { answer(locked{code, d}) })
	})
	// After a time without a leader a request ends without messages, whatever it has deleted; so it does, as busy, when
	// its member stops.
	isAnswered := heard && got.code == fsm.OK && (len(got.deliveries) > 0 || time.Since(asked) < answerWithin)
	if !isAnswered {
		s.Takes.Add(most, time.Now().Add(lockWait))
		return false
	}
	l.operations.Add(int64(len(got.deliveries)))
	for i := range got.deliveries {
		d := &got.deliveries[i]
		s.CheckDue(idOf(d.Payload))
		s.Add(history.Event{
			Kind: history.ReceivedAndDeleted, ID: idOf(d.Payload), Client: c.name, Sequence: int64(d.Lock.Sequence),
			Note: fmt.Sprintf("m%d", p.Member),
		})
	}
	return true
}
