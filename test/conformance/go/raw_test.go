package conformance

import (
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/test/harness"
)

// The cases here use AMQP frame by frame, for what go-amqp never sends and for the exact
// form of the answers. Clients of other languages depend on both.

func rawChecks() []check {
	return []check{
		{name: "ranges", run: ranges},
		{name: "shape of answers", run: shapeOfAnswers},
		{name: "shape of drain", run: shapeOfDrain},
		{name: "shape of refusal", run: shapeOfRefusal},
		{name: "all at once", run: allAtOnce},
		{name: "aborted transfer", run: abortedTransfer},
		{name: "hostile", run: hostile},
	}
}

// raw is a connection that the case drives frame by frame.
type raw struct {
	suite
	conn   net.Conn
	reader *wire.Reader
	tags   [][]byte // of all deliveries read so far
}

// plain returns the SASL response for the key of the cluster.
func plain() *wire.SASLInit {
	return &wire.SASLInit{Mechanism: "PLAIN", InitialResponse: []byte("\x00" + harness.KeyName + "\x00" + harness.Key)}
}

// rawConn opens a TCP connection to a member and sends nothing.
func (s suite) rawConn(member int) *raw {
	s.Helper()
	conn, err := (&net.Dialer{}).DialContext(s.ctx, "tcp", s.Members[member-1].AMQP)
	s.must("dial", err)
	s.Cleanup(func() { _ = conn.Close() })
	s.must("deadline", conn.SetDeadline(time.Now().Add(caseWithin)))
	return &raw{suite: s, conn: conn, reader: wire.NewReader(conn, 1<<20)}
}

// rawSession opens the connection and session 0 step by step.
func (s suite) rawSession(member int) *raw {
	s.Helper()
	r := s.rawConn(member)
	sasl, amqp := wire.HeaderSASL(), wire.HeaderAMQP()
	r.bytes(sasl[:])
	r.header(sasl)
	expect[*wire.SASLMechanisms](r)
	r.bytes(wire.AppendFrame(nil, wire.FrameSASL, 0, plain()))
	if outcome := expect[*wire.SASLOutcome](r); outcome.Code != 0 {
		s.Fatalf("sasl outcome %d", outcome.Code)
	}
	r.bytes(amqp[:])
	r.header(amqp)
	r.write(open(), begin())
	expect[*wire.Open](r)
	expect[*wire.Begin](r)
	return r
}

func open() *wire.Open {
	return &wire.Open{ContainerID: "raw", Hostname: ptr("localhost"), MaxFrameSize: ptr(uint32(65536)), ChannelMax: ptr(uint16(10))}
}

func begin() *wire.Begin {
	return &wire.Begin{IncomingWindow: 5000, OutgoingWindow: 5000, HandleMax: ptr(uint32(10))}
}

// attach returns the attach of a client that sends to, or receives from, the queue of the case.
func (r *raw) attach(role wire.Role, handle uint32) *wire.Attach {
	a := &wire.Attach{
		Name: fmt.Sprintf("link-%d", handle), Handle: handle, Role: role,
		SndSettleMode: ptr(uint8(0)), RcvSettleMode: ptr(uint8(1)),
		Source: &wire.Source{Address: r.queue}, Target: &wire.Target{Address: "me"},
	}
	if role == wire.RoleSender {
		a.SndSettleMode, a.RcvSettleMode = ptr(uint8(2)), ptr(uint8(0))
		a.Source.Address, a.Target.Address = "me", r.queue
		a.InitialDeliveryCount = ptr(uint32(0))
	}
	return a
}

// flow returns a flow that grants credit to a link.
func flow(handle, deliveryCount, credit uint32, drain bool) *wire.Flow {
	return &wire.Flow{
		NextIncomingID: ptr(uint32(0)), IncomingWindow: 5000, OutgoingWindow: 5000,
		Handle: &handle, DeliveryCount: &deliveryCount, LinkCredit: &credit, Drain: drain,
	}
}

func (r *raw) bytes(b []byte) {
	r.Helper()
	_, err := r.conn.Write(b)
	r.must("write", err)
}

// write sends frames on channel 0, in one write.
func (r *raw) write(frames ...wire.Performative) {
	r.Helper()
	var b []byte
	for _, f := range frames {
		b = wire.AppendFrame(b, wire.FrameAMQP, 0, f)
	}
	r.bytes(b)
}

func (r *raw) header(want [8]byte) {
	r.Helper()
	got, err := r.reader.ReadHeader()
	if err != nil || got != want {
		r.Fatalf("protocol header % x, %v, want % x", got, err, want)
	}
}

// read returns the next frame that is not empty.
func (r *raw) read() wire.Performative {
	r.Helper()
	for {
		f, err := r.reader.ReadFrame()
		r.must("read", err)
		if f.Body != nil {
			return f.Body
		}
	}
}

// expect reads up to the next frame of type P and skips the others.
func expect[P wire.Performative](r *raw) P {
	r.Helper()
	for {
		switch p := r.read().(type) {
		case P:
			return p
		case *wire.Close:
			r.Fatalf("connection closed: %+v", p.Error)
		case *wire.End:
			r.Fatalf("session ended: %+v", p.Error)
		case *wire.Detach:
			r.Fatalf("link detached: %+v", p.Error)
		}
	}
}

// linkFlow reads up to the next flow of a link.
func (r *raw) linkFlow() wire.Flow {
	r.Helper()
	for {
		if f := expect[*wire.Flow](r); f.Handle != nil {
			return *f
		}
	}
}

// deliveries reads n deliveries of one frame each and returns their ids.
func (r *raw) deliveries(n int) []uint32 {
	r.Helper()
	var ids []uint32
	for range n {
		t := expect[*wire.Transfer](r)
		ids = append(ids, *t.DeliveryID)
		r.tags = append(r.tags, slices.Clone(t.DeliveryTag))
	}
	return ids
}

// settled reads dispositions until they cover the given ids. Each must be settled, come from the sender,
// and have a state that pleases accepts.
func (r *raw) settled(ids []uint32, pleases func(any) bool) {
	r.Helper()
	left := slices.Clone(ids)
	for len(left) > 0 {
		d := expect[*wire.Disposition](r)
		last := d.First
		if d.Last != nil {
			last = *d.Last
		}
		if d.Role != wire.RoleSender || !d.Settled || !pleases(d.State) {
			r.Fatalf("disposition role %v, settled %v, state %+v", d.Role, d.Settled, d.State)
		}
		left = slices.DeleteFunc(left, func(id uint32) bool { return id >= d.First && id <= last })
	}
}

func is[P any](state any) bool {
	_, ok := state.(P)
	return ok
}

// One disposition settles a range of deliveries; a settled disposition gets no answer.
func ranges(s suite) {
	s.send(12)
	r := s.rawSession(2)
	r.write(r.attach(wire.RoleReceiver, 0), flow(0, 0, 12, false))
	expect[*wire.Attach](r)
	ids := r.deliveries(12)
	for i, id := range ids {
		if id != ids[0]+uint32(i) {
			s.Fatalf("delivery ids %v are not contiguous", ids)
		}
	}
	r.write(&wire.Disposition{Role: wire.RoleReceiver, First: ids[0], Last: &ids[5], State: &wire.Accepted{}})
	r.settled(ids[:6], is[*wire.Accepted])
	s.counts(harness.Counts{Active: 6, Locked: 6})
	// The disposition is settled, so there is no answer. A range may include settled deliveries and end beyond the last.
	r.write(&wire.Disposition{Role: wire.RoleReceiver, First: ids[0], Last: ptr(ids[11] + 100), Settled: true, State: &wire.Accepted{}})
	s.counts(harness.Counts{})
	// The next disposition received is the answer to a later request.
	s.send(1)
	r.write(flow(0, 12, 1, false))
	next := r.deliveries(1)
	r.write(&wire.Disposition{Role: wire.RoleReceiver, First: next[0], State: &wire.Accepted{}})
	d := expect[*wire.Disposition](r)
	if d.First != next[0] {
		s.Errorf("a settled disposition was answered: first %d", d.First)
	}
}

// The answer to a settlement has the outcome that the client asked for; for a dead-letter it is a
// rejected without an error. A settlement that fails gets a rejected with an error.
func shapeOfAnswers(s suite) {
	s.send(4)
	r := s.rawSession(2)
	r.write(r.attach(wire.RoleReceiver, 0), flow(0, 0, 4, false))
	answer := expect[*wire.Attach](r)
	if answer.Role != wire.RoleSender || answer.InitialDeliveryCount == nil || *answer.SndSettleMode != 0 || *answer.RcvSettleMode != 1 ||
		answer.Source == nil || answer.Source.Address != s.queue || answer.Target == nil || answer.Target.Address != "me" {
		s.Errorf("attach answered with %+v", answer)
	}
	ids := r.deliveries(4)
	for i, c := range []struct {
		state   any
		pleases func(any) bool
	}{
		{&wire.Accepted{}, is[*wire.Accepted]},
		{&wire.Modified{UndeliverableHere: ptr(true)}, is[*wire.Modified]},
		{&wire.Rejected{Error: &wire.Error{Condition: "com.microsoft:dead-letter", Info: wire.Map{
			{Key: wire.Symbol("DeadLetterReason"), Value: "r"}, {Key: wire.Symbol("DeadLetterErrorDescription"), Value: nil},
		}}}, func(state any) bool { rejected, ok := state.(*wire.Rejected); return ok && rejected.Error == nil }},
	} {
		r.write(&wire.Disposition{Role: wire.RoleReceiver, First: ids[i], State: c.state})
		r.settled(ids[i:i+1], c.pleases)
	}
	s.counts(harness.Counts{Active: 1, Locked: 1, Deferred: 1, DeadLetter: 1})
	// The last delivery is first settled over another link: settling it here is too late, and the answer says why.
	token := tokenOf(r.tags[3])
	s.must("complete elsewhere", s.receiver(3).CompleteMessage(s.ctx, &azservicebus.ReceivedMessage{LockToken: token}, nil))
	r.write(&wire.Disposition{Role: wire.RoleReceiver, First: ids[3], State: &wire.Accepted{}})
	r.settled(ids[3:], func(state any) bool {
		rejected, ok := state.(*wire.Rejected)
		return ok && rejected.Error != nil && rejected.Error.Condition == wire.ConditionMessageLockLost
	})
}

// tokenOf returns the lock token of a delivery tag: a GUID in the byte order of .NET,
// whose first three groups are reversed.
func tokenOf(tag []byte) [16]byte {
	token := [16]byte(tag)
	slices.Reverse(token[:4])
	slices.Reverse(token[4:6])
	slices.Reverse(token[6:8])
	return token
}

// The answer to a drain is a flow with all its fields: drain set, no credit left, the
// delivery-count advanced by the unused credit, no echo.
func shapeOfDrain(s suite) {
	s.send(2)
	r := s.rawSession(3)
	r.write(r.attach(wire.RoleReceiver, 0), flow(0, 0, 10, true))
	expect[*wire.Attach](r)
	r.deliveries(2)
	f := r.linkFlow()
	if !f.Drain || f.Echo || f.NextIncomingID == nil || f.IncomingWindow == 0 || f.OutgoingWindow == 0 ||
		*f.Handle != 0 || f.DeliveryCount == nil || *f.DeliveryCount != 10 || f.LinkCredit == nil || *f.LinkCredit != 0 {
		s.Errorf("drain answered with %+v", f)
	}
	// A sender gets its credit immediately, with all fields.
	r.write(r.attach(wire.RoleSender, 1))
	answer := expect[*wire.Attach](r)
	if answer.MaxMessageSize == nil || *answer.MaxMessageSize == 0 || *answer.SndSettleMode != 2 || *answer.RcvSettleMode != 0 {
		s.Errorf("attach answered with %+v", answer)
	}
	f = r.linkFlow()
	if f.DeliveryCount == nil || f.LinkCredit == nil || *f.LinkCredit == 0 || f.NextIncomingID == nil || f.IncomingWindow == 0 {
		s.Errorf("a sender's first flow is %+v", f)
	}
}

// A refused attach is answered with an attach without the terminus, followed by a closing detach.
func shapeOfRefusal(s suite) {
	r := s.rawSession(1)
	for _, role := range []wire.Role{wire.RoleSender, wire.RoleReceiver} {
		a := r.attach(role, 0)
		a.Source.Address, a.Target.Address = "nowhere", "nowhere"
		r.write(a)
		answer := expect[*wire.Attach](r)
		if role == wire.RoleSender && answer.Target != nil || role == wire.RoleReceiver && answer.Source != nil {
			s.Errorf("a refusing attach has source %+v, target %+v", answer.Source, answer.Target)
		}
		d, ok := r.read().(*wire.Detach)
		if !ok || !d.Closed || d.Error == nil || d.Error.Condition != wire.ConditionNotFound {
			s.Fatalf("behind the refusing attach came %+v", d)
		}
		r.write(&wire.Detach{Handle: 0, Closed: true})
	}
}

// A client may write everything except its transfers before it reads anything.
func allAtOnce(s suite) {
	r := s.rawConn(2)
	sasl, amqp := wire.HeaderSASL(), wire.HeaderAMQP()
	b := wire.AppendFrame(sasl[:], wire.FrameSASL, 0, plain())
	b = append(b, amqp[:]...)
	for _, f := range []wire.Performative{
		open(), begin(), r.attach(wire.RoleSender, 0), r.attach(wire.RoleReceiver, 1), flow(1, 0, 5, false),
	} {
		b = wire.AppendFrame(b, wire.FrameAMQP, 0, f)
	}
	r.bytes(b)
	r.header(sasl)
	expect[*wire.SASLOutcome](r)
	r.header(amqp)
	expect[*wire.Open](r)
	for f := r.linkFlow(); *f.Handle != 0; f = r.linkFlow() {
	}
	settled := true
	r.write(&wire.Transfer{
		Handle: 0, DeliveryID: ptr(uint32(0)), DeliveryTag: []byte{}, MessageFormat: ptr(uint32(0)), Settled: &settled, Payload: message("x"),
	})
	got := expect[*wire.Transfer](r)
	if len(got.DeliveryTag) != 16 || string(got.Payload[len(got.Payload)-1:]) != "x" {
		s.Errorf("transfer %+v", got)
	}
}

// message returns an encoded message with a data section.
func message(body string) []byte {
	return wire.AppendBinary(wire.AppendSectionDescriptor(nil, wire.SectionData), []byte(body))
}

// A delivery that is aborted midway is discarded; concurrent deliveries are not.
func abortedTransfer(s suite) {
	r := s.rawSession(1)
	r.write(r.attach(wire.RoleSender, 0))
	expect[*wire.Attach](r)
	whole := message("whole")
	r.write(
		&wire.Transfer{Handle: 0, DeliveryID: ptr(uint32(0)), DeliveryTag: []byte("a"), MessageFormat: ptr(uint32(0)), More: true, Payload: message("half")[:4]},
		&wire.Transfer{Handle: 0, Aborted: true},
		&wire.Transfer{Handle: 0, DeliveryID: ptr(uint32(1)), DeliveryTag: []byte("b"), MessageFormat: ptr(uint32(0)), More: true, Payload: whole[:3]},
		&wire.Transfer{Handle: 0, Payload: whole[3:]},
	)
	d := expect[*wire.Disposition](r)
	if d.First != 1 || !d.Settled || d.Role != wire.RoleReceiver || !is[*wire.Accepted](d.State) {
		s.Errorf("disposition %+v", d)
	}
	got := s.receiveOne(s.receiver(2))
	if diff := cmp.Diff("whole", string(got.Body)); diff != "" {
		s.Errorf("(-want +got)\n%s", diff)
	}
	s.counts(harness.Counts{Active: 1, Locked: 1})
}

// A peer that sends invalid data loses its connection, and no other client is affected.
func hostile(s suite) {
	sasl := wire.HeaderSASL()
	for name, b := range map[string][]byte{
		"no protocol":       []byte("\x00rubbish\r\n\r\n"),
		"not AMQP":          []byte("SSH-2.0-client\r\n\r\n"),
		"a frame of 4 GiB":  append(sasl[:], 0xff, 0xff, 0xff, 0xff, 2, 1, 0, 0),
		"a frame of nought": append(sasl[:], 0, 0, 0, 0, 2, 1, 0, 0),
		"a map of 4 GiB":    append(sasl[:], 0, 0, 0, 20, 2, 1, 0, 0, 0, 0x53, 0x41, 0xd1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff),
		"deep nesting":      append(append(sasl[:], 0, 0, 0x20, 8, 2, 1, 0, 0), make([]byte, 0x2000)...),
	} {
		r := s.rawConn(1)
		_, _ = r.conn.Write(b)
		if _, err := io.Copy(io.Discard, r.conn); err != nil && r.ctx.Err() == nil {
			// A reset is also an acceptable end.
			s.Logf("%s: %v", name, err)
		}
	}
	r := s.rawSession(1)
	r.write(&wire.Transfer{Handle: 7, Payload: []byte("for no link")})
	for {
		f, err := r.reader.ReadFrame()
		if err != nil {
			s.Fatalf("no word about a transfer for no link: %v", err)
		}
		if is[*wire.End](f.Body) || is[*wire.Close](f.Body) {
			break
		}
	}
	s.send(1) // to the same member
	s.counts(harness.Counts{Active: 1})
}
