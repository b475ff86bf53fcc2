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

// linkState is the state of a link (part 2, 2.6.3).
type linkState uint8

const (
	attaching linkState = iota // the broker resolves the entity; our attach is not sent
	attached
	detaching // our detach is sent, the peer's has not come
	gone
)

// nodeKind is the kind of node that a link is attached to.
type nodeKind uint8

const (
	entityNode nodeKind = iota
	cbsNode
	managementNode
	coordinatorNode
)

// endpoint is an incomingLink or an outgoingLink.
type endpoint interface {
	base() *link
	flow(f *wire.Flow)
	ready() // our attach is sent
	drop()  // the link has ended: release what it holds
}

// link has the fields of both kinds of links. Incoming and outgoing are meant from the gateway's side: on an
// incomingLink the client sends.
type link struct {
	session     *session
	handle      uint32
	name        string
	clientSends bool // the client sends
	state       linkState
	kind        nodeKind
	path        string        // reduced address, which grants are checked against
	viaPath     string        // of a link that sends through another entity: that entity's path
	right       fsm.Rights    // the right that a link to an entity needs
	entity      fsm.EntityRef // the entity at path
	reply       *wire.Attach
}

func (l *link) base() *link { return l }

// attach begins a link (part 2, 2.7.3). Slow work is done on a goroutine of
// its own, so a slow catalog delays only the links that need it.
func (s *session) attach(ctx context.Context, a *wire.Attach) *wire.Error {
	c := s.conn
	if a.Handle > s.handleMax {
		return &wire.Error{Condition: wire.ConditionFramingError, Description: fmt.Sprintf("Handle %d is above the handle-max of %d.", a.Handle, s.handleMax)}
	}
	if s.links[a.Handle] != nil {
		s.fail(ctx, newRefusal(wire.ConditionHandleInUse, "Handle %d has a link already. Use another.", a.Handle))
		return nil
	}
	l := link{session: s, handle: a.Handle, name: a.Name, clientSends: a.Role == wire.RoleSender, reply: attachReply(a)}
	cause := l.readAttach(a)
	var wants *sessionFilter
	if cause.condition == "" && !l.clientSends {
		wants, cause = sessionFilterOf(a.Source.Filter)
	}
	switch {
	case cause.condition != "":
	case c.links >= linksMax:
		cause = refusal{wire.ConditionResourceLimitExceeded, fmt.Sprintf("The connection has %d links; more are not possible. Detach some, or open another connection.", linksMax), retryAfterChange}
	case !c.authenticated && c.links >= unauthenticatedLinksMax:
		return c.unauthenticatedLimit("links", unauthenticatedLinksMax)
	default:
		now := time.Now()
		path, ok, revoked := l.permitted(now)
		if revoked {
			c.checkGrants(ctx, now, true)
		}
		if !ok {
			c.auditMissing(ctx, path, l.right, "")
			cause = unauthorized(path, l.right)
		}
	}
	if cause.condition != "" {
		l.refuse(ctx, cause)
		if c.refusals++; !c.authenticated && c.refusals >= unauthenticatedRefusalsMax {
			return c.unauthenticatedLimit("refused links", unauthenticatedRefusalsMax)
		}
		return nil
	}
	e := l.newEndpoint(a)
	if o, ok := e.(*outgoingLink); ok && l.kind == entityNode {
		o.wantedSession, o.acceptTimeout = wants, openTimeout(a.Properties)
	}
	if l.name != "" && l.kind != coordinatorNode { // Java has one of the same name in each session
		c.takeOver(ctx, l.key())
		c.linksByKey[l.key()] = e
	}
	s.links[a.Handle] = e
	c.links, c.linksChanged = c.links+1, time.Now()
	if l.kind == cbsNode || l.kind == coordinatorNode {
		e.base().completeAttach(ctx, e, fsm.EntityRef{})
		return nil
	}
	go c.resolve(ctx, e)
	return nil
}

// linkKey identifies a link on a connection: by its name and direction
// (part 2, 2.6.1), and its address, contrary to that section: Java names the
// link to a session after the session, and has "s1" of two queues on one connection. A
// client may use one name for both directions.
type linkKey struct {
	name        string
	path        string // in lower case
	clientSends bool   // the client sends
}

func (l *link) key() linkKey { return linkKey{l.name, strings.ToLower(l.path), l.clientSends} }

// takeOver ends the link that has had the key, because the client has
// attached it again: it has forgotten the old one, or wants to replace it.
func (c *conn) takeOver(ctx context.Context, id linkKey) {
	e := c.linksByKey[id]
	if e == nil {
		return
	}
	cause := newRefusal(wire.ConditionStolen, "The link was attached again under the same name. Use the newer one, or another name.")
	e.base().detach(ctx, e, cause)
}

// detach ends a link, or its attaching, whatever it waits for.
func (l *link) detach(ctx context.Context, e endpoint, cause refusal) {
	switch l.state {
	case attaching:
		if o, ok := e.(*outgoingLink); ok && o.cancelAccept != nil {
			c := l.session.conn
			c.brokerCalls = append(c.brokerCalls, o.cancelAccept)
		}
		l.refuseAttaching(ctx, cause)
	case attached:
		l.detachWithError(ctx, e, cause)
	case detaching, gone:
	}
}

// readAttach reads what an attach asks for, or returns why it is refused.
func (l *link) readAttach(a *wire.Attach) refusal {
	var address any
	switch {
	case len(a.Name) > linkNameBytesMax:
		return newRefusal(wire.ConditionInvalidField, "The link name is longer than %d bytes. Use a shorter one.", linkNameBytesMax)
	case a.Coordinator != nil && a.Role == wire.RoleSender:
		l.kind = coordinatorNode
		return refusal{}
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
	default:
		return newRefusal(wire.ConditionInvalidField, "The attach has no terminus at the broker's end. Name an entity there.")
	}
	path, ok := reducePath(address)
	if !ok || path == "" {
		return newRefusal(wire.ConditionInvalidField, "The attach has no address. Name an entity.")
	}
	l.path = path
	if strings.EqualFold(path, cbsPath) {
		l.kind, l.right = cbsNode, 0
	} else if _, ok := cutManagement(path); ok {
		l.kind, l.right = managementNode, 0
	}
	return l.readTransferDestination(a)
}

// destinationKey is the property of a sender's attach that names the destination of its messages; the
// target is then the entity that they go through (docs/service-bus-protocol.md#sending-through-another-entity).
const destinationKey = wire.Symbol("com.microsoft:transfer-destination-address")

// readTransferDestination reads the destination of a sender that names another entity than
// its target.
func (l *link) readTransferDestination(a *wire.Attach) refusal {
	if l.kind != entityNode || !l.clientSends {
		return refusal{}
	}
	for _, pair := range a.Properties {
		if pair.Key != destinationKey && pair.Key != string(destinationKey) || pair.Value == nil {
			continue
		}
		address, _ := wire.AsText(pair.Value)
		path, ok := reducePath(address)
		if !ok || path == "" {
			return newRefusal(wire.ConditionInvalidField, "%s is not an address. Name the entity there that the messages are for.", destinationKey)
		}
		l.path, l.viaPath = path, l.path
	}
	return refusal{}
}

func noDynamicNodes() refusal {
	return newRefusal(wire.ConditionNotImplemented, "Dynamic nodes are not supported. Name an entity.")
}

// permitted reports whether the credentials of the connection allow the link, and if not,
// which entity they do not allow; revoked, that the key of one is no longer valid. Any right in an entity is enough to attach to its management
// node (the Go client does for senders too); its operations are checked one by one.
func (l *link) permitted(now time.Time) (path string, ok, revoked bool) {
	switch g := l.session.conn.grants; l.kind {
	case cbsNode, coordinatorNode:
		return "", true, false
	case managementNode:
		if ok, revoked = g.allow(l.path, fsm.Send, now); !ok {
			ok, revoked = g.allow(l.path, fsm.Listen, now)
		}
		return l.path, ok, revoked
	case entityNode:
		if l.viaPath != "" {
			if ok, revoked = g.allow(l.viaPath, l.right, now); !ok {
				return l.viaPath, false, revoked
			}
		}
		ok, also := g.allow(l.path, l.right, now)
		return l.path, ok, revoked || also
	}
	return l.path, false, false
}

// newEndpoint makes the link of the kind that the attach asks for.
func (l *link) newEndpoint(a *wire.Attach) endpoint {
	if a.Role == wire.RoleSender {
		return &incomingLink{link: *l, messageBytesMax: nodeMessageBytesMax}
	}
	o := &outgoingLink{link: *l}
	o.receiveAndDelete = a.SndSettleMode != nil && *a.SndSettleMode == settledMode
	// A response needs no settling. Only a client that forbids settled transfers gets unsettled ones.
	o.presettled = o.receiveAndDelete || l.kind != entityNode && (a.SndSettleMode == nil || *a.SndSettleMode != unsettledMode)
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
// because SDKs compare them (docs/service-bus-protocol.md#attach-replies). Only values that outlive the frame and
// that the gateway supports are echoed: no filters, and no values that it did not understand.
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
	} else if a.Coordinator != nil {
		r.Coordinator = coordinatorReply()
	} else {
		r.Target = &wire.Target{}
	}
	if a.Role == wire.RoleReceiver {
		zero := uint32(0)
		r.InitialDeliveryCount = &zero
	}
	return r
}

// echoAddress returns strings only: other values may lie in the reader's buffer.
func echoAddress(address any) any {
	if s, ok := address.(string); ok {
		return s
	}
	return nil
}

// echoOutcome returns the four outcomes without their fields.
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

// resolve asks the broker for the entity of a link that is attaching, and for the entity that
// its messages go through.
func (c *conn) resolve(ctx context.Context, e endpoint) {
	defer c.recovered(ctx)
	l := e.base()
	var via fsm.EntityRef
	var err error
	entity := l.viaPath
	if entity != "" {
		via, err = c.config.Broker.Resolve(ctx, c.namespace, entity)
	}
	var place fsm.EntityRef
	if err == nil {
		entity, _ = cutManagement(l.path)
		place, err = c.config.Broker.Resolve(ctx, c.namespace, entity)
	}
	c.mu.Lock()
	defer c.unlock()
	if l.state != attaching || c.phase >= phaseClosing {
		return
	}
	var code fsm.Code
	if err != nil && !errors.As(err, &code) {
		code = fsm.ServerBusy
	}
	var cause refusal
	o, receives := e.(*outgoingLink)
	if err == nil && l.kind == entityNode {
		cause = attachNotAllowed(&place, l.clientSends)
		if receives && cause.condition == "" {
			cause = o.sessionMismatch(&place)
		}
	}
	if in, ok := e.(*incomingLink); ok && err == nil && cause.condition == "" && l.viaPath != "" {
		cause = in.setVia(via)
	}
	switch {
	case cause.condition != "":
		l.refuseAttaching(ctx, cause)
	case err == nil && l.kind == entityNode && isDisabled(place.Settings.Status, l.clientSends):
		l.refuseAttaching(ctx, errorReplyOf(fsm.EntityDisabled).withEntity(entity).refusal)
	case err == nil && receives && o.wantedSession != nil:
		o.acceptSession(place)
	case err == nil:
		l.completeAttach(ctx, e, place)
	default:
		l.refuseAttaching(ctx, errorReplyOf(code).withEntity(entity).refusal)
	}
}

// isDisabled reports whether the status of an entity forbids links of a direction.
func isDisabled(status fsm.EntityStatus, sends bool) bool {
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

// The property of an attach that says how large a batch may be (docs/service-bus-protocol.md#link-properties).
const batchBytesKey = wire.Symbol("com.microsoft:max-message-batch-size")

// completeAttach sends our attach.
func (l *link) completeAttach(ctx context.Context, e endpoint, place fsm.EntityRef) {
	l.state, l.entity = attached, place
	if in, ok := e.(*incomingLink); ok {
		most := min(place.Settings.MaxMessageBytes, messageBytesMax)
		if in.viaEntity != nil {
			most = min(most, in.viaEntity.Settings.MaxMessageBytes)
		}
		in.setMaxMessageSize(int(most))
		limit := uint64(in.messageBytesMax)
		l.reply.MaxMessageSize = &limit // clients cut batches to it; if it were absent, they would send none
		if l.kind != coordinatorNode {
			l.reply.Properties = wire.Map{{Key: batchBytesKey, Value: min(limit, batchBytesMax)}}
		}
	}
	c := l.session.conn
	c.emit(l.session.channel, l.reply)
	l.reply = nil
	c.log.DebugContext(ctx, "link attached", "path", l.path, "link", l.name)
	e.ready()
}

// refuse answers an attach with an attach without our terminus and, in the same write,
// a closing detach: otherwise go-amqp and rhea would consider the link open.
func (l *link) refuse(ctx context.Context, cause refusal) {
	if l.reply.Role == wire.RoleSender {
		l.reply.Source = nil
	} else {
		l.reply.Target, l.reply.Coordinator = nil, nil
	}
	c := l.session.conn
	c.emit(l.session.channel, l.reply)
	c.emit(l.session.channel, &wire.Detach{Handle: l.handle, Closed: true, Error: c.newError(ctx, cause, "link", l.name, "path", l.path)})
}

// refuseAttaching refuses a link that is in the session already.
func (l *link) refuseAttaching(ctx context.Context, cause refusal) {
	l.refuse(ctx, cause)
	l.state = gone
	delete(l.session.links, l.handle)
	l.session.conn.linkEnded()
	l.releaseName()
}

// releaseName frees the key of the link. No other link can have it: takeOver ends the old one first.
func (l *link) releaseName() { delete(l.session.conn.linksByKey, l.key()) }

// detachWithError detaches a link with an error. The link stays until the peer's detach comes,
// so that frames that crossed are recognised.
func (l *link) detachWithError(ctx context.Context, e endpoint, cause refusal) {
	if l.state != attached {
		return
	}
	s := l.session
	s.flushDispositions()
	s.conn.emit(s.channel, &wire.Detach{Handle: l.handle, Closed: true, Error: s.conn.newError(ctx, cause, "link", l.name, "path", l.path)})
	e.drop()
	l.state = detaching
	s.conn.links++ // drop subtracted it; it counts until the peer has seen the detach
}

// detached handles the peer's detach. A handle without a link was refused before.
func (s *session) detached(d *wire.Detach) {
	e := s.links[d.Handle]
	if e == nil {
		return
	}
	l := e.base()
	delete(s.links, d.Handle)
	if l.state == detaching {
		l.state = gone
		s.conn.linkEnded()
		return
	}
	s.flushDispositions()
	if l.state == attaching { // 2.6.3: an attach is answered before the detach
		l.reply.Source, l.reply.Target, l.reply.Coordinator = nil, nil, nil
		s.conn.emit(s.channel, l.reply)
	}
	reply := &wire.Detach{Handle: d.Handle, Closed: d.Closed}
	if o, ok := e.(*outgoingLink); ok && o.messageSession != nil {
		o.pendingDetach = reply
		e.drop()
		return
	}
	e.drop()
	s.conn.emit(s.channel, reply)
}

// end does what both kinds of links do at their end; false when the link had ended before.
func (l *link) end() bool {
	if l.state == gone || l.state == detaching {
		if l.state == detaching {
			l.state = gone
			l.session.conn.linkEnded()
		}
		return false
	}
	l.state = gone
	l.session.conn.linkEnded()
	l.releaseName()
	return true
}

// linkEnded updates the number of links.
func (c *conn) linkEnded() { c.links, c.linksChanged = c.links-1, time.Now() }
