package load

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/history"
	"github.com/peeklock/peeklock/test/sim/judge"
)

const (
	sessionFilter   = "com.microsoft:session-filter"
	acceptTimeout   = "com.microsoft:timeout" // property of an attach: how long to wait for a session, in milliseconds
	sequenceKey     = "x-opt-sequence-number"
	scheduledKey    = "x-opt-scheduled-enqueue-time"
	gatewayBatchMax = 5

	selectorFilter = "apache.org:selector-filter:string"
	selectorCode   = 0x0000468C00000004
)

// colorOf returns one of two colors, which an AMQP message has as its subject, for selectors.
func colorOf(id string) string { return []string{"red", "blue"}[id[len(id)-1]%2] }

// viaGateway adds a queue with dead letters and a queue with sessions that are used by AMQP clients alone.
func (b *builder) viaGateway() {
	s := b.stream("amqp")
	s.isAMQP, s.IsExact = true, true
	s.To = b.queue(s, s.Name, func(e *fsm.EntitySettings) { e.MaxDeliveryCount = deliveriesMax })
	s.From = []judge.Source{{At: s.To}, {At: deadLetters(s.To)}}

	s = b.stream("amqp-sessions")
	s.isAMQP, s.IsExact, s.HasSessions, s.immediate = true, true, true, true
	s.To = b.queue(s, s.Name, func(e *fsm.EntitySettings) { e.RequiresSession = true })
	s.From = []judge.Source{{At: s.To}}
}

// encoded returns the message that an AMQP client sends for a message of the load.
func encoded(m *fsm.Message) *amqp.Message {
	sent := amqp.NewMessage(m.Payload)
	color := colorOf(m.ID)
	sent.Properties = &amqp.MessageProperties{MessageID: m.ID, Subject: &color}
	if m.HasSession {
		sent.Properties.GroupID = &m.Session
	}
	if m.EnqueueAt != 0 {
		sent.Annotations = amqp.Annotations{scheduledKey: time.UnixMilli(int64(m.EnqueueAt))}
	}
	return sent
}

// stored returns a message as the gateway stores it.
func stored(m *fsm.Message) fsm.Message {
	bytes, err := encoded(m).MarshalBinary()
	if err != nil {
		panic(fmt.Sprintf("sim: encode message %s: %v", m.ID, err))
	}
	parsed, err := message.Parse(bytes)
	if err != nil {
		panic(fmt.Sprintf("sim: parse message %s: %v", m.ID, err))
	}
	return parsed
}

// sendAMQP sends through gateways until sending ends.
func (l *Load) sendAMQP(c *client, s *stream) {
	var k *connection
	var sender *amqp.Sender
	for c.think(l.sending, sendEvery) {
		if k == nil {
			if k = c.connect(l.sending); k == nil {
				continue
			}
			ctx, cancel := context.WithTimeout(l.sending, connectWithin)
			var err error
			sender, err = k.session.NewSender(ctx, s.Name, &amqp.SenderOptions{Name: k.linkName()})
			cancel()
			if err != nil {
				k.close()
				k = nil
				continue
			}
		}
		if !l.sendOneAMQP(c, k, sender, s) {
			k.close()
			k = nil
		}
	}
	if k != nil {
		k.close()
	}
}

// sendOneAMQP sends one message. It returns false when the link is of no more use.
func (l *Load) sendOneAMQP(c *client, k *connection, sender *amqp.Sender, s *stream) bool {
	m := l.message(c, s)
	s.Add(history.Event{Kind: history.SendBegun, ID: m.ID, Client: c.name})
	ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
	defer cancel()
	err := sender.Send(ctx, encoded(&m), nil)
	kind := history.SendUnknown
	switch {
	case err == nil:
		l.operations.Add(1)
		kind = history.SendAccepted
	case isRefused(err):
		kind = history.SendRefused
	}
	s.Add(history.Event{Kind: kind, ID: m.ID, Client: c.name, Note: fmt.Sprintf("gateway %d: %v", k.member, err)})
	return kind != history.SendUnknown && c.rand.IntN(50) != 0
}

// receiveAMQP receives through gateways and settles until receiving ends.
func (l *Load) receiveAMQP(c *client, s *stream, from judge.Source) {
	path := from.At.Name
	if from.At.Sub == fsm.DeadLetterQueue {
		path += "/$DeadLetterQueue"
	}
	for l.receiving.Err() == nil {
		if !l.receiveOnLink(c, s, from, path) {
			c.pause(l.receiving, reconnectAfter)
		}
	}
}

// receiveOnLink attaches a receiver and receives some messages. It returns false when that failed.
func (l *Load) receiveOnLink(c *client, s *stream, from judge.Source, path string) bool {
	k := c.connect(l.receiving)
	if k == nil {
		return false
	}
	defer k.close()
	options := &amqp.ReceiverOptions{Name: k.linkName(), Credit: -1, SettlementMode: amqp.ReceiverSettleModeSecond.Ptr()}
	asked := time.Now()
	if s.HasSessions {
		var name any
		if c.rand.IntN(5) == 0 {
			name = strconv.Itoa(c.rand.IntN(sessionsOfStream))
		}
		options.Filters = []amqp.LinkFilter{amqp.NewLinkFilter(sessionFilter, 0, name)}
		options.Properties = map[string]any{acceptTimeout: uint32(lockWait.Milliseconds())}
	}
	receiver := &amqpReceiver{load: l, client: c, stream: s, from: from, path: path, connection: k}
	if !s.HasSessions && c.rand.IntN(3) == 0 && l.sending.Err() == nil { // in the end, everything must be received
		receiver.color = colorOf(strconv.Itoa(c.rand.IntN(2)))
		options.Filters = []amqp.LinkFilter{amqp.NewLinkFilter(selectorFilter, selectorCode, "JMSType = '"+receiver.color+"'")}
	}
	ctx, cancel := context.WithTimeout(l.receiving, connectWithin)
	defer cancel()
	r, err := k.session.NewReceiver(ctx, path, options)
	if err != nil {
		return false
	}
	receiver.link = r
	if s.HasSessions {
		return receiver.receiveSession(asked)
	}
	for l.receiving.Err() == nil && c.rand.IntN(30) != 0 && (receiver.color == "" || l.sending.Err() == nil) {
		if !receiver.receiveSome(time.Now()) {
			return false
		}
	}
	return true
}

// amqpReceiver is a receiving link.
type amqpReceiver struct {
	*connection

	load   *Load
	client *client
	stream *stream
	from   judge.Source
	path   string
	link   *amqp.Receiver
	color  string // of the messages that the link selects; "" for all
}

// receiveSession receives messages of the session that the link holds. Its lock began at asked or later.
func (r *amqpReceiver) receiveSession(asked time.Time) bool {
	name, _ := r.link.LinkSourceFilterValue(sessionFilter).(string)
	sessions, until := r.stream.Sessions, asked.Add(judge.LockSure)
	if !time.Now().Before(until) {
		return false
	}
	r.load.operations.Add(1)
	sessions.Accepted(name, judge.Holder{Client: r.client.name, Until: until}, asked, false)
	defer r.gateway.whenItStops(func() { sessions.Releasing(name, r.client.name) })()
	for i := range 3 {
		if i == 1 && r.client.rand.IntN(3) == 0 {
			asked = time.Now()
			if r.manage(r.path, "com.microsoft:renew-session-lock", map[string]any{"session-id": name}) != nil {
				break
			}
			r.load.operations.Add(1)
			until = asked.Add(judge.LockSure)
			sessions.Renewed(name, r.client.name, until)
		}
		if !time.Now().Before(until.Add(-lockWait)) || !r.receiveSome(asked) {
			break
		}
	}
	sessions.Releasing(name, r.client.name)
	ctx, cancel := context.WithTimeout(context.Background(), connectWithin)
	defer cancel()
	return r.link.Close(ctx) == nil
}

// receiveSome requests some messages and settles what comes. Their locks began at since or later. It returns false
// when the link is of no more use.
func (r *amqpReceiver) receiveSome(since time.Time) bool {
	c := r.client
	if r.link.IssueCredit(uint32(1+c.rand.IntN(gatewayBatchMax))) != nil {
		return false
	}
	var messages []*amqp.Message
	for wait := lockWait; ; wait = moreWithin {
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		m, err := r.link.Receive(ctx, nil)
		timedOut := ctx.Err() != nil
		cancel()
		if err != nil && !timedOut {
			return false
		}
		if err != nil {
			break
		}
		messages = append(messages, m)
	}
	ctx, cancel := context.WithTimeout(context.Background(), drainWithin)
	defer cancel()
	isDrained := r.link.DrainCredit(ctx, nil) == nil
	for m := r.link.Prefetched(); m != nil; m = r.link.Prefetched() {
		messages = append(messages, m)
	}
	return r.settleAll(since, messages) && isDrained
}

// settleAll records messages and settles each after a while.
func (r *amqpReceiver) settleAll(since time.Time, messages []*amqp.Message) bool {
	until := since.Add(judge.LockSure)
	if !time.Now().Before(until) {
		return len(messages) == 0 // the locks may have ended before the messages came
	}
	r.load.operations.Add(int64(len(messages)))
	for _, m := range messages {
		id := fmt.Sprint(m.Properties.MessageID)
		r.stream.CheckDue(id)
		if r.color != "" && colorOf(id) != r.color {
			r.stream.Find(fmt.Sprintf("not selected: message %s came to a receiver of %s ones", id, r.color))
		}
		sequence, _ := m.Annotations[sequenceKey].(int64)
		r.stream.Add(history.Event{
			Kind: history.Delivered, ID: id, Client: r.client.name, Sequence: sequence, FailedDeliveries: m.Header.DeliveryCount,
			LockedUntil: until, Note: fmt.Sprintf("gateway %d", r.member),
		})
		if r.stream.HasSessions { // the lock is that of the session
			defer r.gateway.whenItStops(func() {
				r.stream.Add(history.Event{Kind: history.SettleBegun, ID: id, Client: r.client.name, Note: "the gateway stops"})
			})()
		}
	}
	for _, m := range messages {
		if !r.client.think(context.Background(), thinkMean) || !r.settle(m) {
			return false
		}
	}
	return true
}

// settle settles a message. It returns false when the link is of no more use.
func (r *amqpReceiver) settle(m *amqp.Message) bool {
	c, s, id := r.client, r.stream, fmt.Sprint(m.Properties.MessageID)
	if c.rand.IntN(50) == 0 && !s.HasSessions && r.load.sending.Err() == nil {
		r.renew(m)
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
	defer cancel()
	verb, settle := fsm.Complete, func() error { return r.link.AcceptMessage(ctx, m) }
	switch n := c.rand.IntN(100); {
	case r.from.At.Sub != fsm.MainQueue:
	case n < 5:
		verb, settle = fsm.Abandon, func() error { return r.link.ModifyMessage(ctx, m, &amqp.ModifyMessageOptions{DeliveryFailed: true}) }
	case n < 8:
		verb, settle = fsm.Release, func() error { return r.link.ReleaseMessage(ctx, m) }
	case n < 10 && s.hasDeadLetters():
		verb, settle = fsm.DeadLetter, func() error { return r.link.RejectMessage(ctx, m, nil) }
	case n < 11 && !s.HasSessions && r.load.sending.Err() == nil: // in the end, everything must be received
		return true // the lock ends by itself
	}
	s.Add(history.Event{Kind: history.SettleBegun, ID: id, Client: c.name, Note: fmt.Sprint(verb)})
	err := settle()
	kind := history.SettleFailed
	if err == nil {
		r.load.operations.Add(1)
		kind = history.Returned
		if verb == fsm.Complete {
			kind = history.Completed
		}
	}
	s.Add(history.Event{Kind: kind, ID: id, Client: c.name, Note: fmt.Sprintf("gateway %d: %v", r.member, err)})
	return err == nil || isRefused(err)
}

// renew extends the lock of a message and waits a little more than it lasted before.
func (r *amqpReceiver) renew(m *amqp.Message) {
	var token amqp.UUID
	copy(token[:], uuidOf(m.DeliveryTag))
	asked := time.Now()
	if err := r.manage(r.path, "com.microsoft:renew-lock", map[string]any{"lock-tokens": []amqp.UUID{token}}); err != nil {
		return // the lock may be lost; the settlement shows whether the link is
	}
	r.load.operations.Add(1)
	r.stream.Add(history.Event{Kind: history.Renewed, ID: fmt.Sprint(m.Properties.MessageID), Client: r.client.name, LockedUntil: asked.Add(judge.LockSure)})
	sleep(time.Duration(r.client.rand.Int64N(int64(judge.LockDuration / 2))))
}

// uuidOf returns the UUID of a lock, whose delivery tag is a GUID in the byte order of .NET.
func uuidOf(tag []byte) []byte {
	if len(tag) != len(fsm.LockToken{}) {
		return nil
	}
	id := message.UUIDFromToken(fsm.LockToken(tag))
	return id[:]
}
