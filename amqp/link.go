package amqp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// linkState is where a link is in its life (part 2, 2.6.3).
type linkState uint8

const (
	attaching linkState = iota // the broker is being asked; our attach is not sent
	attached
	detaching // our detach is sent, the peer's has not come
	gone
)

// nodeKind is what a link is attached to.
type nodeKind uint8

const (
	entityNode nodeKind = iota
	cbsNode
	managementNode
)

// endpoint is an incomingLink or an outgoingLink.
type endpoint interface {
	base() *link
	flow(f *wire.Flow)
	ready() // our attach is sent
	drop()  // the link is over: give back what it holds
}

// link is what both kinds of links have. Incoming and outgoing are seen from us: on an
// incomingLink the client sends.
type link struct {
	session *session
	handle  uint32
	name    string
	sends   bool // the client does
	state   linkState
	kind    nodeKind
	path    string     // reduced address: what tokens are checked against
	right   fsm.Rights // without which a link to an entity may not be
	place   fsm.Place  // unless kind is cbsNode
	reply   *wire.Attach
}

func (l *link) base() *link { return l }

// attach begins a link (part 2, 2.7.3). Whatever takes time is done on a goroutine of
// its own, so a slow catalog delays only the links that ask for it.
func (s *session) attach(ctx context.Context, a *wire.Attach) *wire.Error {
	c := s.conn
	if a.Handle > s.handleMax {
		return &wire.Error{Condition: wire.ConditionFramingError, Description: fmt.Sprintf("Handle %d is above the handle-max of %d.", a.Handle, s.handleMax)}
	}
	if s.links[a.Handle] != nil {
		s.fail(ctx, refused(wire.ConditionHandleInUse, "Handle %d has a link already. Use another.", a.Handle))
		return nil
	}
	l := link{session: s, handle: a.Handle, name: a.Name, sends: a.Role == wire.RoleSender, reply: attachReply(a)}
	why := l.describe(a)
	switch {
	case why.condition != "":
	case c.links >= linksMax:
		why = refusal{wire.ConditionResourceLimitExceeded, fmt.Sprintf("The connection has %d links; more are not possible. Detach some, or open another connection.", linksMax), afterChange}
	case !l.permitted(time.Now()):
		why = refusal{wire.ConditionUnauthorizedAccess, fmt.Sprintf("Unauthorized access to '%s': %s claims are needed. Put a token on $cbs that has them.", l.path, claim(l.right)), afterChange}
	}
	if why.condition != "" {
		l.refuse(ctx, why)
		return nil
	}
	e := l.endpoint(a)
	if l.name != "" {
		c.steal(ctx, l.identity())
		c.names[l.identity()] = e
	}
	s.links[a.Handle] = e
	c.links++
	if l.kind == cbsNode {
		e.base().attached(ctx, e, fsm.Place{})
		return nil
	}
	entity, _ := cutManagement(l.path)
	go c.resolve(ctx, e, entity)
	return nil
}

// identity is what tells a link from others on a connection: its name and its direction
// (part 2, 2.6.1). A client may use one name for both directions.
type identity struct {
	name  string
	sends bool // the client does
}

func (l *link) identity() identity { return identity{l.name, l.sends} }

// steal takes a link away from the one that had its name before, because the client has
// attached it anew: it has forgotten the old one, or wants to be rid of it.
func (c *conn) steal(ctx context.Context, id identity) {
	e := c.names[id]
	if e == nil {
		return
	}
	why := refused(wire.ConditionStolen, "The link was attached again under the same name. Use the newer one, or another name.")
	switch l := e.base(); l.state {
	case attaching:
		l.withdraw(ctx, why)
	case attached:
		l.fault(ctx, e, why)
	case detaching, gone:
	}
}

// describe fills in what an attach asks for, or says why it cannot be had.
func (l *link) describe(a *wire.Attach) refusal {
	var address any
	switch {
	case len(a.Name) > linkNameBytesMax:
		return refused(wire.ConditionInvalidField, "The link name is longer than %d bytes. Use a shorter one.", linkNameBytesMax)
	case a.Coordinator != nil:
		return noTransactions()
	case a.Role == wire.RoleSender && a.Target != nil:
		address, l.right = a.Target.Address, fsm.Send
		if a.Target.Dynamic {
			return noDynamicNodes()
		}
	case a.Role == wire.RoleReceiver && a.Source != nil:
		address, l.right = a.Source.Address, fsm.Listen
		if a.Source.Dynamic {
			return noDynamicNodes()
		}
		if wantsMessageSession(a.Source.Filter) {
			return refused(wire.ConditionNotAllowed, "It is not possible for an entity that does not require sessions to create a sessionful message receiver. Use a receiver without session.")
		}
	default:
		return refused(wire.ConditionInvalidField, "The attach has no terminus at the broker's end. Name an entity there.")
	}
	path, ok := reducePath(address)
	if !ok || path == "" {
		return refused(wire.ConditionInvalidField, "The attach has no address. Name an entity.")
	}
	l.path = path
	if strings.EqualFold(path, cbsPath) {
		l.kind, l.right = cbsNode, 0
	} else if _, ok := cutManagement(path); ok {
		l.kind, l.right = managementNode, 0
	}
	return refusal{}
}

func noDynamicNodes() refusal {
	return refused(wire.ConditionNotImplemented, "Dynamic nodes are not supported. Name an entity.")
}

// permitted says whether the tokens of the connection allow the link. Who may do
// anything with an entity may attach to its management node (the Go client does for
// senders too); its operations are checked one by one.
func (l *link) permitted(now time.Time) bool {
	switch g := l.session.conn.grants; l.kind {
	case cbsNode:
		return true
	case managementNode:
		return g.allow(l.path, fsm.Send, now) || g.allow(l.path, fsm.Listen, now)
	case entityNode:
		return g.allow(l.path, l.right, now)
	}
	return false
}

// wantsMessageSession says whether a source filter asks for a Service Bus session.
func wantsMessageSession(filter wire.Map) bool {
	for _, pair := range filter {
		if pair.Key == wire.Symbol("com.microsoft:session-filter") || pair.Key == "com.microsoft:session-filter" {
			return true
		}
	}
	return false
}

// claim names a right as the cloud's messages do.
func claim(right fsm.Rights) string {
	if right == fsm.Send {
		return "'Send'"
	}
	if right == fsm.Listen {
		return "'Listen'"
	}
	return "'Send' or 'Listen'"
}

// endpoint makes the link of the kind that the attach asks for.
func (l *link) endpoint(a *wire.Attach) endpoint {
	if a.Role == wire.RoleSender {
		return &incomingLink{link: *l, messageBytesMax: nodeMessageBytesMax}
	}
	o := &outgoingLink{link: *l}
	o.takes = a.SndSettleMode != nil && *a.SndSettleMode == settledMode
	// A response needs no settling. Only who forbids settled transfers gets others.
	o.presettled = o.takes || l.kind != entityNode && (a.SndSettleMode == nil || *a.SndSettleMode != unsettledMode)
	if l.kind != entityNode {
		if t := a.Target; t != nil {
			o.replyTo, _ = t.Address.(string)
		}
	}
	return o
}

// The sender settle modes (part 2, 2.8.2).
const (
	unsettledMode = 0
	settledMode   = 1
	mixedMode     = 2
)

// attachReply is the attach that answers a: the same settle modes, source and target,
// because SDKs compare them (wire contract 3.3). Only what outlives the frame and means
// the same to us is echoed: no filters, and no values that we did not understand.
func attachReply(a *wire.Attach) *wire.Attach {
	snd, rcv := uint8(mixedMode), uint8(0)
	if a.SndSettleMode != nil {
		snd = *a.SndSettleMode
	}
	if a.RcvSettleMode != nil {
		rcv = *a.RcvSettleMode
	}
	r := &wire.Attach{Name: a.Name, Handle: a.Handle, Role: !a.Role, SndSettleMode: &snd, RcvSettleMode: &rcv, Properties: wire.Map{}}
	if a.Source != nil {
		src := *a.Source
		src.Filter, src.DynamicNodeProperties, src.DefaultOutcome = nil, nil, echoOutcome(src.DefaultOutcome)
		src.Address = echoAddress(src.Address)
		r.Source = &src
	} else {
		r.Source = &wire.Source{}
	}
	if a.Target != nil {
		dst := *a.Target
		dst.DynamicNodeProperties = nil
		dst.Address = echoAddress(dst.Address)
		r.Target = &dst
	} else {
		r.Target = &wire.Target{}
	}
	if a.Role == wire.RoleReceiver {
		zero := uint32(0)
		r.InitialDeliveryCount = &zero
	}
	return r
}

// echoAddress lets only strings through: others may lie in the reader's buffer.
func echoAddress(address any) any {
	if s, ok := address.(string); ok {
		return s
	}
	return nil
}

// echoOutcome lets the plain outcomes through.
func echoOutcome(state any) any {
	switch state.(type) {
	case *wire.Accepted:
		return &wire.Accepted{}
	case *wire.Released:
		return &wire.Released{}
	case *wire.Rejected:
		return &wire.Rejected{}
	case *wire.Modified:
		return &wire.Modified{}
	}
	return nil
}

// resolve asks the broker for the entity of a link that is attaching.
func (c *conn) resolve(ctx context.Context, e endpoint, entity string) {
	defer c.recovered(ctx)
	place, err := c.config.Broker.Resolve(ctx, entity)
	c.mu.Lock()
	defer c.unlock()
	l := e.base()
	if l.state != attaching || c.phase >= closing {
		return
	}
	var code fsm.Code
	if err != nil && !errors.As(err, &code) {
		code = fsm.ServerBusy
	}
	switch {
	case err == nil && l.sends && l.kind == entityNode && place.Sub != fsm.MainQueue:
		l.withdraw(ctx, refused(wire.ConditionNotAllowed, "A dead-letter queue cannot be sent to. Send to the queue itself."))
	case err == nil && l.kind == entityNode && barred(place.Settings.Status, l.sends):
		l.withdraw(ctx, verdictOf(fsm.EntityDisabled).about(entity).refusal)
	case err == nil:
		l.attached(ctx, e, place)
	default:
		l.withdraw(ctx, verdictOf(code).about(entity).refusal)
	}
}

// barred says whether the status of an entity forbids links of a direction.
func barred(status fsm.EntityStatus, sends bool) bool {
	switch status {
	case fsm.Disabled:
		return true
	case fsm.SendDisabled:
		return sends
	case fsm.ReceiveDisabled:
		return !sends
	case fsm.Active:
	}
	return false
}

// The property of an attach that tells how large a batch may be (wire contract 3.2).
const batchBytesKey = wire.Symbol("com.microsoft:max-message-batch-size")

// attached sends our attach.
func (l *link) attached(ctx context.Context, e endpoint, place fsm.Place) {
	l.state, l.place = attached, place
	if in, ok := e.(*incomingLink); ok {
		in.limit(int(min(place.Settings.MaxMessageBytes, messageBytesMax)))
		limit := uint64(in.messageBytesMax)
		l.reply.MaxMessageSize = &limit // batches are cut to it; absent would mean nothing fits
		l.reply.Properties = wire.Map{{Key: batchBytesKey, Value: min(limit, batchBytesMax)}}
	}
	c := l.session.conn
	c.emit(l.session.channel, l.reply)
	l.reply = nil
	if !c.proven && l.kind != cbsNode {
		c.proven = true
		c.retime()
	}
	c.log.DebugContext(ctx, "link attached", "path", l.path, "link", l.name)
	e.ready()
}

// refuse answers an attach with an attach without our terminus and, in the same write,
// a closing detach: go-amqp and rhea would else take the link for open.
func (l *link) refuse(ctx context.Context, why refusal) {
	if l.reply.Role == wire.RoleSender {
		l.reply.Source = nil
	} else {
		l.reply.Target = nil
	}
	c := l.session.conn
	c.emit(l.session.channel, l.reply)
	c.emit(l.session.channel, &wire.Detach{Handle: l.handle, Closed: true, Error: c.explain(ctx, why, "link", l.name, "path", l.path)})
}

// withdraw refuses a link that is in the session already.
func (l *link) withdraw(ctx context.Context, why refusal) {
	l.refuse(ctx, why)
	l.state = gone
	delete(l.session.links, l.handle)
	l.session.conn.links--
	l.unname()
}

// unname frees the link's name. No other link can have it: steal ends the old one first.
func (l *link) unname() { delete(l.session.conn.names, l.identity()) }

// fault detaches a link of ours with an error. It stays until the peer's detach comes,
// so that frames which crossed are recognised.
func (l *link) fault(ctx context.Context, e endpoint, why refusal) {
	if l.state != attached {
		return
	}
	s := l.session
	s.flushDispositions()
	s.conn.emit(s.channel, &wire.Detach{Handle: l.handle, Closed: true, Error: s.conn.explain(ctx, why, "link", l.name, "path", l.path)})
	e.drop()
	l.state = detaching
	s.conn.links++ // drop took it off; it counts until the peer has seen it
}

// detached takes the peer's detach. A handle without link was refused before.
func (s *session) detached(d *wire.Detach) {
	e := s.links[d.Handle]
	if e == nil {
		return
	}
	l := e.base()
	delete(s.links, d.Handle)
	if l.state == detaching {
		l.state = gone
		s.conn.links--
		return
	}
	s.flushDispositions()
	if l.state == attaching { // 2.6.3: an attach is answered before the detach
		l.reply.Source, l.reply.Target = nil, nil
		s.conn.emit(s.channel, l.reply)
	}
	e.drop()
	s.conn.emit(s.channel, &wire.Detach{Handle: d.Handle, Closed: d.Closed})
}

// over ends the part of a link that both kinds have; false when it had ended before.
func (l *link) over() bool {
	if l.state == gone || l.state == detaching {
		if l.state == detaching {
			l.state = gone
			l.session.conn.links--
		}
		return false
	}
	l.state = gone
	l.session.conn.links--
	l.unname()
	return true
}
