package amqp

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/peeklock/peeklock/amqp/account"
	"github.com/peeklock/peeklock/amqp/consumers"
	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// linkState is the state of a link (part 2, 2.6.3).
type linkState uint8

const (
	attaching linkState = iota // the broker resolves the entity; our attach is not sent yet
	attached
	detaching // our detach is sent, the peer's has not been received
	gone
)

// nodeKind is the kind of node that a link is attached to.
type nodeKind uint8

const (
	entityNode nodeKind = iota
	cbsNode
	managementNode
	coordinatorNode
	subscriptionNode // a durable subscription of JMS, which the client is going to delete
)

// endpoint is an incomingLink or an outgoingLink.
type endpoint interface {
	base() *link
	flow(f *wire.Flow)
	ready() // our attach is sent
	drop()  // the link has ended: release its resources
}

// link has the fields of both kinds of links. Incoming and outgoing are seen from the gateway: on an
// incomingLink the client sends.
type link struct {
	session      *session
	handle       uint32
	name         string
	clientSends  bool // the client sends
	state        linkState
	kind         nodeKind
	path         string          // reduced address, which grants must cover
	temporary    bool            // the link creates the entity at path, and that ends with it
	creates      fsm.EntityKind  // the kind of that entity
	subscription *subscription   // the subscription of JMS at path; nil for other links
	consumes     []consumers.Key // the subscriptions that count the link as their consumer
	viaPath      string          // path of the entity through which a link sends to another entity
	right        fsm.Rights      // the right that a link to an entity needs
	entity       fsm.EntityRef   // the entity at path
	reply        *wire.Attach
	bytes        int // that it holds, as counted in linkCounts
}

func (l *link) base() *link { return l }

// attach begins a link (part 2, 2.7.3). Slow work runs on its own goroutine, so a slow catalog delays only the
// links that need it.
func (s *session) attach(ctx context.Context, a *wire.Attach) *wire.Error {
	c := s.conn
	c.links.attaches++
	if a.Handle > s.handleMax {
		return &wire.Error{Condition: wire.ConditionFramingError, Description: fmt.Sprintf("Handle %d is above the handle-max of %d.", a.Handle, s.handleMax)}
	}
	if s.links[a.Handle] != nil {
		s.fail(ctx, refusal.New(wire.ConditionHandleInUse, "Handle %d has a link already. Use another.", a.Handle))
		return nil
	}
	l := link{session: s, handle: a.Handle, name: a.Name, clientSends: a.Role == wire.RoleSender, reply: attachReply(a)}
	cause := l.readAttach(a)
	var wants *sessionFilter
	var selects *selectorFilter
	if cause.Condition == "" && !l.clientSends && a.Source != nil {
		wants, selects, cause = l.readSource(a.Source)
	}
	switch {
	case cause.Condition != "":
	case c.links.open >= linksMax:
		cause = refusal.AfterChange(wire.ConditionResourceLimitExceeded, "The connection has %d links; more are not possible. Detach some, or open another connection.", linksMax)
	case !c.credentials.Authenticated() && c.links.open >= unauthenticatedLinksMax:
		return c.unauthenticatedLimit("links", unauthenticatedLinksMax)
	case !c.memory.takeLink(c.account):
		cause = refusal.AfterChange(wire.ConditionResourceLimitExceeded, "The key has %d links to this member, on all its connections, and all keys together may have %d, each at most as many as are free. Detach some, or use connections to several members.",
			c.account.Held(account.Links), c.account.Capacity(account.Links))
	case l.temporary && len(c.temporaries) >= temporariesMax:
		cause = refusal.AfterChange(wire.ConditionResourceLimitExceeded, "The connection has %d temporary queues and topics and consumers of topics; more are not possible. Close some, or open another connection.", temporariesMax)
	case l.isSecondTokenSender():
		cause = refusal.AfterChange(wire.ConditionNotAllowed, "The connection has a link to $cbs already. Use that, detach it first, or open another connection.")
	default:
		now := time.Now()
		path, ok, revoked := l.permitted(now)
		if revoked {
			c.credentials.CheckKeys(ctx, now)
		}
		if !ok {
			c.credentials.AuditMissing(ctx, path, l.right, "")
			cause = c.credentials.Missing(path, l.right, now)
		} else {
			cause = l.foreignTemporary()
		}
	}
	if cause.Condition != "" {
		l.refuse(ctx, cause)
		if c.refusals++; !c.credentials.Authenticated() && c.refusals >= unauthenticatedRefusalsMax {
			return c.unauthenticatedLimit("refused links", unauthenticatedRefusalsMax)
		}
		return nil
	}
	e := l.newEndpoint(a)
	if in, ok := e.(*incomingLink); ok && l.kind == cbsNode {
		c.tokenSender = in
	}
	if o, ok := e.(*outgoingLink); ok && l.kind == entityNode {
		o.wantedSession, o.acceptTimeout = wants, openTimeout(a.Properties)
		o.setSelector(selects)
	}
	if l.name != "" && l.kind != coordinatorNode { // Java has one of the same name in each session
		c.takeOver(ctx, l.key())
		c.linksByKey[l.key()] = e
	}
	l.beginEntity()
	s.links[a.Handle] = e
	c.links.began(e)
	if l.kind == cbsNode || l.kind == coordinatorNode {
		e.base().completeAttach(ctx, e, fsm.EntityRef{})
		return nil
	}
	go c.resolve(ctx, e)
	return nil
}

// readSource reads the filters of a source. The selector of a consumer of a topic becomes the rule of its subscription.
func (l *link) readSource(source *wire.Source) (wants *sessionFilter, selects *selectorFilter, cause refusal.Cause) {
	wants, selects, cause = l.readFilters(source)
	if cause.Condition == "" && selects != nil && l.subscription != nil {
		l.setRule(selects)
		selects = nil
	}
	return wants, selects, cause
}

// linkKey identifies a link on a connection: by its name and direction (part 2, 2.6.1), and, contrary to that
// section, by its address: Java names the link to a session after the session, and uses the name "s1" for two
// queues on one connection. A client may use one name for both directions.
type linkKey struct {
	name        string
	path        string // in lower case
	clientSends bool   // the client sends
}

// The path of a subscription may not be known yet, and its topic is what the client names.
func (l *link) key() linkKey {
	path := l.path
	if l.subscription != nil {
		path = l.subscription.topic
	}
	return linkKey{l.name, strings.ToLower(path), l.clientSends}
}

// takeOver ends the previous link with the key, because the client has attached the link again: the client has
// forgotten the old link, or wants to replace it.
func (c *conn) takeOver(ctx context.Context, id linkKey) {
	e := c.linksByKey[id]
	if e == nil {
		return
	}
	cause := refusal.New(wire.ConditionStolen, "The link was attached again under the same name. Use the newer one, or another name.")
	e.base().detach(ctx, e, cause)
}

// detach ends a link, or its attach, regardless of what it waits for.
func (l *link) detach(ctx context.Context, e endpoint, cause refusal.Cause) {
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

// permitted reports whether the credentials of the connection allow the link. If not, it returns the entity
// that they do not allow; revoked reports that the key of a credential is no longer valid. Any right in an
// entity suffices to attach to its management node (the Go client does so for senders too); its operations are
// checked one by one.
func (l *link) permitted(now time.Time) (path string, ok, revoked bool) {
	switch c := &l.session.conn.credentials; l.kind {
	case cbsNode, coordinatorNode:
		return "", true, false
	case subscriptionNode:
		if l.path == "" { // not found yet
			return "", c.Authenticated(), false
		}
		ok, revoked = c.Covers(l.path, l.right, now)
		return l.path, ok, revoked
	case managementNode:
		if ok, revoked = c.Covers(l.path, fsm.Send, now); !ok {
			ok, revoked = c.Covers(l.path, fsm.Listen, now)
		}
		return l.path, ok, revoked
	case entityNode:
		if l.viaPath != "" {
			if ok, revoked = c.Covers(l.viaPath, l.right, now); !ok {
				return l.viaPath, false, revoked
			}
		}
		ok, also := c.Covers(l.path, l.right, now)
		return l.path, ok, revoked || also
	}
	return l.path, false, false
}

// isSecondTokenSender reports whether the peer attaches a link to $cbs while it has another one there. A link of
// the same name is the same link, attached again.
func (l *link) isSecondTokenSender() bool {
	other := l.session.conn.tokenSender
	return l.kind == cbsNode && l.clientSends && other != nil && other.state == attached && other.key() != l.key()
}

// newEndpoint returns a link of the kind that the attach requests.
func (l *link) newEndpoint(a *wire.Attach) endpoint {
	if a.Role == wire.RoleSender {
		in := &incomingLink{link: *l, messageBytesMax: nodeMessageBytesMax}
		if a.InitialDeliveryCount != nil {
			in.credit.count = *a.InitialDeliveryCount
		}
		return in
	}
	o := &outgoingLink{link: *l}
	o.browses = l.kind == entityNode && browses(a.Source)
	o.receiveAndDelete = !o.browses && a.SndSettleMode != nil && *a.SndSettleMode == settledMode
	// A response needs no settling. Only a client that forbids settled transfers gets unsettled responses.
	o.presettled = o.receiveAndDelete || o.browses || l.kind != entityNode && (a.SndSettleMode == nil || *a.SndSettleMode != unsettledMode)
	if l.kind != entityNode {
		if t := a.Target; t != nil {
			o.replyTo, _ = t.Address.(string)
		}
	}
	return o
}

// refuse answers an attach with an attach without our terminus and, in the same write, a closing detach:
// otherwise go-amqp and rhea would consider the link open.
func (l *link) refuse(ctx context.Context, cause refusal.Cause) {
	if l.reply.Role == wire.RoleSender {
		l.reply.Source = nil
	} else {
		l.reply.Target, l.reply.Coordinator = nil, nil
	}
	c := l.session.conn
	l.countThrottled(cause, 1)
	c.emit(l.session.channel, l.reply)
	c.emit(l.session.channel, &wire.Detach{Handle: l.handle, Closed: true, Error: c.newError(ctx, cause, "link", l.name, "path", l.path)})
}

// refuseAttaching refuses a link that already belongs to the session.
func (l *link) refuseAttaching(ctx context.Context, cause refusal.Cause) {
	l.refuse(ctx, cause)
	l.state = gone
	delete(l.session.links, l.handle)
	l.session.conn.links.ended(l)
	l.releaseName()
	// A temporary entity is counted until its creation has ended: resolve ends and deletes it.
}

// releaseName frees the key of the link. No other link can have the key, because takeOver ends the old link
// first.
func (l *link) releaseName() { delete(l.session.conn.linksByKey, l.key()) }

// detachWithError detaches a link with an error. The link is kept until the peer's detach is received, so that
// frames that crossed are recognised.
func (l *link) detachWithError(ctx context.Context, e endpoint, cause refusal.Cause) {
	if l.state != attached {
		return
	}
	s := l.session
	l.countThrottled(cause, 1)
	s.flushDispositions()
	s.conn.emit(s.channel, &wire.Detach{Handle: l.handle, Closed: true, Error: s.conn.newError(ctx, cause, "link", l.name, "path", l.path)})
	e.drop()
	l.state = detaching
	s.conn.links.began(e) // drop subtracted it; the link counts until the peer has seen the detach
}

// detached handles the peer's detach. A handle without a link belonged to a link that was refused.
func (s *session) detached(d *wire.Detach) {
	e := s.links[d.Handle]
	if e == nil {
		return
	}
	l := e.base()
	delete(s.links, d.Handle)
	if o, ok := e.(*outgoingLink); ok {
		o.forgetLost()
	}
	if l.state == detaching {
		l.state = gone
		s.conn.links.ended(l)
		return
	}
	s.flushDispositions()
	if l.state == attaching { // 2.6.3: an attach is answered before the detach
		l.reply.Source, l.reply.Target, l.reply.Coordinator = nil, nil, nil
		s.conn.emit(s.channel, l.reply)
	}
	reply := &wire.Detach{Handle: d.Handle, Closed: d.Closed}
	if o, ok := e.(*outgoingLink); ok && l.kind == subscriptionNode && l.state == attached && d.Closed && d.Error == nil {
		o.unsubscribe(reply)
		return
	}
	if o, ok := e.(*outgoingLink); ok && o.messageSession != nil && !o.sessionFree && !o.keepsSession() {
		o.pendingDetach = reply
		s.releasing++
		e.drop()
		return
	}
	e.drop()
	s.conn.emit(s.channel, reply)
}

// end releases what both kinds of links hold at their end; it returns false if the link had ended before.
func (l *link) end() bool {
	if l.state == gone || l.state == detaching {
		if l.state == detaching {
			l.state = gone
			l.session.conn.links.ended(l)
		}
		return false
	}
	created := l.state == attached
	l.state = gone
	if created {
		l.endUse()
	}
	l.session.conn.links.ended(l)
	l.releaseName()
	if created {
		l.endTemporary()
	}
	return true
}

// linkBytesOf returns the bytes that a link holds: names and addresses are as long as the client likes.
func linkBytesOf(e endpoint) int {
	l := e.base()
	bytes := linkBytes + len(l.name) + 2*len(l.path) + len(l.viaPath) // its key has the path again
	if l.reply != nil && l.reply.Source != nil {
		bytes += len(textOf(l.reply.Source.Address))
	}
	if l.reply != nil && l.reply.Target != nil {
		bytes += len(textOf(l.reply.Target.Address))
	}
	if o, ok := e.(*outgoingLink); ok {
		bytes += len(o.replyTo)
		if o.selector != nil {
			bytes += len(o.selector.text) + len(o.selector.sql)
		}
	}
	return bytes
}

// textOf returns a string, "" for every other value.
func textOf(v any) string {
	text, _ := v.(string)
	return text
}

// countThrottled counts requests on the link if that is why they are refused.
func (l *link) countThrottled(cause refusal.Cause, requests int) {
	if cause.Condition == wire.ConditionServerBusy && l.entity.ID != 0 {
		l.session.conn.totals.Throttled.Add(&l.entity.Entity, requests, time.Now())
	}
}
