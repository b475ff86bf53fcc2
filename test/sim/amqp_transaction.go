package sim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/sim/simnet"
)

// The links of a client of transactions. go-amqp knows no transactions, so it writes frames itself.
const (
	coordinatorLink uint32 = iota
	sendLink
	receiveLink
)

const (
	transferDestination = wire.Symbol("com.microsoft:transfer-destination-address")
	frameBytes          = 16 << 10 // of the payload of a frame that is sent
	framesMax           = 1 << 20  // bytes of a frame that is received
	sessionWindow       = 5000     // transfers that a connection receives at most
	movesPerConnection  = 40
)

// movedByGateway adds a queue whose messages AMQP clients move to another one in transactions.
func (b *builder) movedByGateway() {
	s := b.stream("amqp-moved")
	s.isAMQP, s.isExact, s.immediate = true, true, true
	s.to = b.queue(s, s.name, nil)
	s.relay = &source{at: s.to}
	s.from = []source{{at: b.queue(s, "amqp-moved-to", nil)}}
}

// moveAMQP moves messages in transactions over the gateways until receiving ends.
func (l *load) moveAMQP(c *client, s *stream) {
	for l.receiving.Err() == nil {
		if err := l.moveOnConnection(c, s); err != nil {
			c.pause(l.receiving, reconnectAfter)
		}
	}
}

// moveOnConnection moves some messages over one connection. After an error the outcome of the last one is unknown.
func (l *load) moveOnConnection(c *client, s *stream) error {
	p := c.process(l.receiving)
	if p == nil {
		return l.receiving.Err()
	}
	ctx, cancel := context.WithTimeout(l.receiving, connectWithin)
	defer cancel()
	stream, err := c.world.clients.Dial(ctx, "tcp", simnet.Address(p.member.number, amqpPort))
	if err != nil {
		return err
	}
	defer stream.Close()
	k := &frameClient{conn: stream, reader: wire.NewReader(stream, framesMax)}
	if err := k.open(c.name, s.to.Name, s.from[0].at.Name); err != nil {
		return err
	}
	for n := uint32(0); n < movesPerConnection && l.receiving.Err() == nil; n++ {
		isRolledBack := c.rand.IntN(5) == 0
		if err := k.move(n, isRolledBack); err != nil {
			return err
		}
		l.operations.Add(1)
	}
	return nil
}

// frameClient is an AMQP connection whose frames are written one by one.
type frameClient struct {
	conn   net.Conn
	reader *wire.Reader
	sent   uint32 // deliveries
}

// move receives a message, and moves it in a transaction, or rolls the transaction back and returns the message.
func (k *frameClient) move(received uint32, isRolledBack bool) error {
	if err := k.write(&wire.Flow{
		NextIncomingID: new(uint32), IncomingWindow: sessionWindow, OutgoingWindow: sessionWindow,
		Handle: new(receiveLink), DeliveryCount: &received, LinkCredit: new(uint32(1)),
	}); err != nil {
		return err
	}
	id, payload, err := k.receive()
	if err != nil {
		return err
	}
	var m amqp.Message
	if err := m.UnmarshalBinary(payload); err != nil {
		return err
	}
	moved := amqp.NewMessage(m.GetData())
	moved.Properties = &amqp.MessageProperties{MessageID: m.Properties.MessageID}
	if payload, err = moved.MarshalBinary(); err != nil {
		return err
	}
	transaction, err := k.declare()
	if err != nil {
		return err
	}
	if _, err = k.deliver(sendLink, payload, &wire.TransactionalState{TxnID: transaction}); err != nil {
		return err
	}
	settlement := &wire.Disposition{
		Role: wire.RoleReceiver, First: id, Last: &id, State: &wire.TransactionalState{TxnID: transaction, Outcome: &wire.Accepted{}},
	}
	if err = k.write(settlement); err != nil {
		return err
	}
	if _, err = k.outcome(wire.RoleSender, id); err != nil {
		return err
	}
	if _, err = k.command(&wire.Discharge{TxnID: transaction, Fail: isRolledBack}); err != nil || !isRolledBack {
		return err
	}
	return k.write(&wire.Disposition{Role: wire.RoleReceiver, First: id, Last: &id, Settled: true, State: &wire.Released{}})
}

// open logs in, and attaches the links: to the coordinator, from a queue, and through that queue to another one.
func (k *frameClient) open(name, from, to string) error {
	bytes := header(wire.HeaderSASL())
	bytes = wire.AppendFrame(bytes, wire.FrameSASL, 0, &wire.SASLInit{Mechanism: "PLAIN", InitialResponse: []byte("\x00anybody\x00any")})
	bytes = append(bytes, header(wire.HeaderAMQP())...)
	for _, p := range []wire.Performative{
		&wire.Open{ContainerID: name, Hostname: new("sim")},
		&wire.Begin{IncomingWindow: sessionWindow, OutgoingWindow: sessionWindow},
		&wire.Attach{
			Name: name + "-coordinator", Handle: coordinatorLink, Role: wire.RoleSender, Source: &wire.Source{},
			Coordinator: &wire.Coordinator{}, InitialDeliveryCount: new(uint32),
		},
		&wire.Attach{
			Name: name + "-send", Handle: sendLink, Role: wire.RoleSender, Source: &wire.Source{}, Target: &wire.Target{Address: from},
			InitialDeliveryCount: new(uint32), Properties: wire.Map{{Key: transferDestination, Value: to}},
		},
		&wire.Attach{
			Name: name + "-receive", Handle: receiveLink, Role: wire.RoleReceiver, Source: &wire.Source{Address: from}, Target: &wire.Target{Address: "here"},
		},
	} {
		bytes = wire.AppendFrame(bytes, wire.FrameAMQP, 0, p)
	}
	if _, err := k.conn.Write(bytes); err != nil {
		return err
	}
	_ = k.conn.SetReadDeadline(time.Now().Add(connectWithin))
	if _, err := k.reader.ReadHeader(); err != nil {
		return err
	}
	if _, err := awaitFrame[*wire.SASLOutcome](k); err != nil {
		return err
	}
	if _, err := k.reader.ReadHeader(); err != nil {
		return err
	}
	for range receiveLink + 1 {
		if _, err := awaitFrame[*wire.Attach](k); err != nil {
			return err
		}
	}
	return nil
}

func header(h [8]byte) []byte { return h[:] }

func (k *frameClient) write(p wire.Performative) error {
	_, err := k.conn.Write(wire.AppendFrame(nil, wire.FrameAMQP, 0, p))
	return err
}

// errEnded is the error of a link, session or connection that the gateway has ended.
var errEnded = errors.New("ended by the gateway")

// awaitFrame reads frames up to the next one of a type. The end of anything is an error.
func awaitFrame[T wire.Performative](k *frameClient) (wanted T, err error) {
	for {
		frame, err := k.reader.ReadFrame()
		if err != nil {
			return wanted, err
		}
		if found, isWanted := frame.Body.(T); isWanted {
			return found, nil
		}
		switch body := frame.Body.(type) {
		case *wire.Detach, *wire.End, *wire.Close:
			return wanted, fmt.Errorf("%w: %T", errEnded, body)
		}
	}
}

// receive reads the next delivery.
func (k *frameClient) receive() (id uint32, payload []byte, err error) {
	_ = k.conn.SetReadDeadline(time.Now().Add(answerWithin))
	for isFirst := true; ; isFirst = false {
		t, err := awaitFrame[*wire.Transfer](k)
		if err != nil {
			return 0, nil, err
		}
		if isFirst && t.DeliveryID != nil {
			id = *t.DeliveryID
		}
		payload = append(payload, t.Payload...)
		if !t.More {
			return id, payload, nil
		}
	}
}

// deliver sends a delivery in as many frames as it needs, and returns its outcome.
func (k *frameClient) deliver(link uint32, payload []byte, state any) (any, error) {
	id := k.sent
	k.sent++
	for isMore := true; isMore; {
		part := payload[:min(len(payload), frameBytes)]
		payload = payload[len(part):]
		isMore = len(payload) > 0
		t := &wire.Transfer{Handle: link, DeliveryID: &id, DeliveryTag: fmt.Append(nil, id), MessageFormat: new(uint32), State: state, More: isMore}
		if _, err := k.conn.Write(wire.AppendTransfer(nil, 0, t, part)); err != nil {
			return nil, err
		}
	}
	return k.outcome(wire.RoleReceiver, id)
}

// outcome reads the outcome of a delivery. One that is refused is an error.
func (k *frameClient) outcome(role wire.Role, id uint32) (any, error) {
	_ = k.conn.SetReadDeadline(time.Now().Add(answerWithin))
	for {
		d, err := awaitFrame[*wire.Disposition](k)
		switch {
		case err != nil:
			return nil, err
		case d.Role != role || d.First > id || d.Last != nil && *d.Last < id:
			continue
		}
		state := d.State
		if within, isWithin := state.(*wire.TransactionalState); isWithin {
			state = within.Outcome
		}
		if _, isRefused := state.(*wire.Rejected); isRefused {
			return nil, fmt.Errorf("delivery %d: %w", id, fsm.InvalidArgument)
		}
		return d.State, nil
	}
}

// command sends a command to the coordinator.
func (k *frameClient) command(command any) (any, error) {
	return k.deliver(coordinatorLink, wire.AppendValue(wire.AppendSectionDescriptor(nil, wire.SectionValue), command), nil)
}

// declare begins a transaction.
func (k *frameClient) declare() ([]byte, error) {
	state, err := k.command(&wire.Declare{})
	if err != nil {
		return nil, err
	}
	declared, isDeclared := state.(*wire.Declared)
	if !isDeclared {
		return nil, fmt.Errorf("declare: %w", fsm.InvalidArgument)
	}
	return append([]byte(nil), declared.TxnID...), nil
}
