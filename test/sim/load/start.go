package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/peeklock/peeklock/fsm"
)

// Start starts the clients of all streams: a sender, receivers for each source, and what else a stream has.
func (l *Load) Start() {
	for _, s := range l.streams {
		if send := l.senderOf(s); send != nil {
			sender := l.client("sender")
			l.senders.Go(func() { send(sender, s) })
		}
		for _, work := range s.work {
			worker := l.client("worker")
			l.senders.Go(func() { work(worker) })
		}
		if s.redrives {
			operator := l.client("operator")
			l.receivers.Go(func() { l.redrive(operator, s) })
		}
		if s.relay != nil {
			relay := l.client("relay")
			if s.isAMQP {
				l.receivers.Go(func() { l.moveAMQP(relay, s) })
			} else {
				l.receivers.Go(func() { l.receive(relay, s, *s.relay) })
			}
		}
		l.startReceivers(s)
	}
}

// senderOf returns what the sender of a stream does; nil: it has none.
func (l *Load) senderOf(s *stream) func(*client, *stream) {
	switch {
	case s.schedules, s.isBacklog:
		return nil
	case s.isAMQP:
		return l.sendAMQP
	}
	return l.send
}

// startReceivers starts the receivers of a stream. Sources with different names may be copies in one subscription.
func (l *Load) startReceivers(s *stream) {
	received := make(map[fsm.Address]bool)
	for _, from := range s.From {
		if received[from.At.Address()] {
			continue
		}
		received[from.At.Address()] = true
		for range receiversOfSource {
			receiver, receive := l.client("receiver"), l.receive
			switch {
			case s.isAMQP:
				receive = l.receiveAMQP
			case s.Takes != nil:
				receive = l.take
			}
			l.receivers.Go(func() {
				if s.isBacklog {
					<-l.sending.Done()
				}
				receive(receiver, s, from)
			})
		}
	}
}

// Finish ends the load: everything is received, although nothing more is sent, and then every queue takes another
// message. Without an error, every client has ended. Stop must follow.
func (l *Load) Finish(ctx context.Context) error {
	l.stopSending()
	l.senders.Wait()
	c := l.client("last")
	p := c.process(ctx)
	if err := l.awaitEmpty(ctx, c, p); err != nil {
		return err
	}
	for _, s := range l.streams {
		for p == nil || l.sendOne(c, p, s, false) != fsm.OK {
			if !c.think(ctx, reconnectAfter) {
				return fmt.Errorf("%w: %s takes no messages", ErrStuck, s.Name)
			}
			p = c.process(ctx)
		}
	}
	if err := l.awaitEmpty(ctx, c, p); err != nil {
		return err
	}
	l.stopReceiving()
	l.receivers.Wait()
	return nil
}

// awaitEmpty waits until the entities hold no messages.
func (l *Load) awaitEmpty(ctx context.Context, c *client, p *Process) error {
	for {
		n, where, err := l.remaining(ctx, p)
		if err == nil && n == 0 {
			return nil
		}
		if !c.think(ctx, reconnectAfter) {
			return fmt.Errorf("%w: %d messages remain%s: %w", ErrStuck, n, where, cmp.Or(err, ctx.Err()))
		}
		p = cmp.Or(c.process(ctx), p)
	}
}

// remaining returns how many messages the entities hold, and an entity that holds some, for an error; "" if none does.
func (l *Load) remaining(ctx context.Context, p *Process) (n uint64, where string, err error) {
	var entities []fsm.Entity
	for _, s := range l.streams {
		entities = append(entities, s.Entities...)
	}
	counts, err := p.Node.Router().Counts(ctx, entities)
	for i, c := range counts {
		if more := c.Active + c.Deferred + c.Scheduled + c.DeadLetter + c.Transfer + c.TransferDeadLetter; more > 0 {
			n += more
			where = fmt.Sprintf(", some at %s (entity %d of partition %d): %+v", entities[i].Name, entities[i].ID, entities[i].Partition, c)
		}
	}
	return n, where, err
}

// ErrStuck says that the cluster does not serve in time although no fault is left.
var ErrStuck = errors.New("not everything was served in time after the last fault")
