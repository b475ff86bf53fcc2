package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/peeklock/peeklock/cluster/router"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/history"
)

// taken adds a queue that is received from by receive-and-delete.
func (b *builder) taken() {
	s := b.stream("taken")
	s.takes, s.isExact = true, true
	s.to = b.queue(s, s.name, nil)
	s.from = []source{{at: s.to}}
}

// take receives by receive-and-delete until receiving ends.
func (l *load) take(c *client, s *stream, from source) {
	for {
		p := c.process(l.receiving)
		if p == nil {
			return
		}
		r := p.node.Router().Receiver(from.at, true)
		for l.receiving.Err() == nil && !p.hasEnded() && c.rand.IntN(50) != 0 {
			if !l.takeSome(c, p, s, r) {
				sleep(reconnectAfter)
			}
		}
		r.Close()
	}
}

// takeSome makes one request for messages, which are gone when it is answered. It returns false when the request
// failed: then as many messages as it asked for may be lost.
func (l *load) takeSome(c *client, p *process, s *stream, r *router.Receiver) bool {
	most, asked := 1+c.rand.IntN(batchMax), time.Now()
	got, heard := ask(p, func(answer func(locked)) {
		r.Lock(most, 1<<20, lockWait, func(code fsm.Code, d []fsm.Delivery) { answer(locked{code, d}) })
	})
	// After a time without a leader a request ends without messages, whatever it has deleted; so it does, as busy, when
	// its member stops.
	isAnswered := heard && got.code == fsm.OK && (len(got.deliveries) > 0 || time.Since(asked) < answerWithin)
	if !isAnswered {
		s.mu.Lock()
		s.unanswered = append(s.unanswered, take{until: time.Now().Add(lockWait), most: most})
		s.mu.Unlock()
		return false
	}
	l.operations.Add(int64(len(got.deliveries)))
	for i := range got.deliveries {
		d := &got.deliveries[i]
		s.checkDue(idOf(d.Payload))
		s.Add(history.Event{
			Kind: history.ReceivedAndDeleted, ID: idOf(d.Payload), Client: c.name, Sequence: int64(d.Lock.Sequence),
			Note: fmt.Sprintf("m%d", p.member.number),
		})
	}
	return true
}

// take is a request of receive-and-delete without an answer, how many messages it may have deleted at most, and until
// when: the leader lets it wait although its member has lost power.
type take struct {
	until time.Time
	most  int
}

// checkTakes leaves out the lost messages that requests without an answer explain: each as many as it asked for, of
// those whose sending had begun before its end.
func (s *stream) checkTakes(found []history.Violation) []history.Violation {
	s.mu.Lock()
	unanswered := slices.Clone(s.unanswered)
	s.mu.Unlock()
	return slices.DeleteFunc(found, func(v history.Violation) bool {
		by := slices.IndexFunc(unanswered, func(t take) bool { return t.most > 0 && !t.until.Before(v.Events[0].At) })
		if v.Rule != history.RuleLost || by < 0 {
			return false
		}
		unanswered[by].most--
		return true
	})
}
