package amqp

import (
	"context"
	"slices"
	"strings"

	"github.com/peeklock/peeklock/amqp/address"
	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/transaction"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// readAttach reads the request of an attach, or returns the reason why it is refused.
func (l *link) readAttach(a *wire.Attach) refusal.Cause {
	var named any
	switch {
	case len(a.Name) > linkNameBytesMax:
		return refusal.New(wire.ConditionInvalidField, "The link name is longer than %d bytes. Use a shorter one.", linkNameBytesMax)
	case a.Coordinator != nil && a.Role == wire.RoleSender:
		l.kind = coordinatorNode
		return refusal.Cause{}
	case a.Role == wire.RoleSender && a.Target != nil:
		named, l.right = a.Target.Address, fsm.Send
		if a.Target.Dynamic {
			return l.readTemporary(named, a.Target.Capabilities)
		}
	case a.Role == wire.RoleReceiver && a.Source != nil:
		named, l.right = a.Source.Address, fsm.Listen
		if a.Source.Dynamic {
			return l.readTemporary(named, a.Source.Capabilities)
		}
	case a.Role == wire.RoleReceiver && a.Name != "":
		return l.readUnsubscribe(a)
	default:
		return refusal.New(wire.ConditionInvalidField, "The attach has no terminus at the broker's end. Name an entity there.")
	}
	path, ok := address.Reduce(named)
	if !ok || path == "" {
		return refusal.New(wire.ConditionInvalidField, "The attach has no address. Name an entity.")
	}
	l.path = path
	if strings.EqualFold(path, address.CBS) {
		l.kind, l.right = cbsNode, 0
	} else if _, ok := address.CutManagement(path); ok {
		l.kind, l.right = managementNode, 0
	}
	if a.Role == wire.RoleReceiver {
		return l.readSubscription(a)
	}
	return l.readTransferDestination(a)
}

// destinationKey is the property of a sender's attach that names the destination of its messages; the target
// is then the entity through which they are sent
// (docs/service-bus-protocol.md#sending-through-another-entity).
const destinationKey = wire.Symbol("com.microsoft:transfer-destination-address")

// readTransferDestination reads the destination of a sender whose destination differs from its target.
func (l *link) readTransferDestination(a *wire.Attach) refusal.Cause {
	if l.kind != entityNode || !l.clientSends {
		return refusal.Cause{}
	}
	for _, pair := range a.Properties {
		if pair.Key != destinationKey && pair.Key != string(destinationKey) || pair.Value == nil {
			continue
		}
		named, _ := wire.AsText(pair.Value)
		path, ok := address.Reduce(named)
		if !ok || path == "" {
			return refusal.New(wire.ConditionInvalidField, "%s is not an address. Name the entity there that the messages are for.", destinationKey)
		}
		l.path, l.viaPath = path, l.path
	}
	return refusal.Cause{}
}

// Sender settle modes (part 2, 2.8.2).
const (
	unsettledMode = 0
	settledMode   = 1
	mixedMode     = 2
)

// attachReply returns the attach that answers a: with the same settle modes, source and target, because SDKs
// compare them (docs/service-bus-protocol.md#attach-replies). It echoes only values that outlive the frame and
// that the gateway supports: no filters, and no values that the gateway does not know.
func attachReply(a *wire.Attach) *wire.Attach {
	snd, rcv := uint8(mixedMode), uint8(0)
	if a.SndSettleMode != nil {
		snd = *a.SndSettleMode
	}
	if a.RcvSettleMode != nil {
		rcv = *a.RcvSettleMode
	}
	r := &wire.Attach{Name: a.Name, Handle: a.Handle, Role: !a.Role, SndSettleMode: &snd, RcvSettleMode: &rcv, Properties: wire.Map{}}
	if a.Role == wire.RoleReceiver && browses(a.Source) {
		snd = settledMode
	}
	if a.Source != nil {
		src := *a.Source
		src.Filter, src.DynamicNodeProperties, src.DefaultOutcome = nil, nil, echoOutcome(src.DefaultOutcome)
		src.Address = echoAddress(src.Address)
		src.ExpiryPolicy, src.DistributionMode = echoSymbol(src.ExpiryPolicy), echoSymbol(src.DistributionMode)
		src.Outcomes, src.Capabilities = echoSymbols(src.Outcomes), echoSymbols(src.Capabilities)
		r.Source = &src
	} else {
		r.Source = &wire.Source{}
	}
	if a.Target != nil {
		dst := *a.Target
		dst.DynamicNodeProperties = nil
		dst.Address = echoAddress(dst.Address)
		dst.ExpiryPolicy, dst.Capabilities = echoSymbol(dst.ExpiryPolicy), echoSymbols(dst.Capabilities)
		r.Target = &dst
	} else if a.Coordinator != nil {
		r.Coordinator = transaction.Coordinator()
	} else {
		r.Target = &wire.Target{}
	}
	if a.Role == wire.RoleReceiver {
		zero := uint32(0)
		r.InitialDeliveryCount = &zero
	}
	return r
}

// echoAddress returns only strings: other values may be part of the reader's buffer.
func echoAddress(address any) any {
	if s, ok := address.(string); ok {
		return s
	}
	return nil
}

// Limits of symbols in an attach that its answer repeats. The answer is kept while the link waits, for a session up to ten
// minutes. Clients send four symbols of 30 bytes.
const (
	echoedSymbolsMax     = 16
	echoedSymbolBytesMax = 64
)

// echoSymbols returns symbols that the answer repeats: all, or none if there are too many or too long ones.
func echoSymbols(symbols []wire.Symbol) []wire.Symbol {
	if len(symbols) > echoedSymbolsMax || slices.ContainsFunc(symbols, func(s wire.Symbol) bool { return len(s) > echoedSymbolBytesMax }) {
		return nil
	}
	return symbols
}

// echoSymbol is echoSymbols for an optional symbol.
func echoSymbol(s *wire.Symbol) *wire.Symbol {
	if s == nil || len(*s) > echoedSymbolBytesMax {
		return nil
	}
	return s
}

// echoOutcome returns one of the four outcomes without its fields.
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

// resolve asks the broker for the entity of a link that is being attached, and for the entity through which
// its messages are sent.
func (c *conn) resolve(ctx context.Context, e endpoint) {
	defer c.recovered(ctx)
	l := e.base()
	place, via, cause := l.entitiesOf(ctx)
	c.mu.Lock()
	defer c.unlock()
	defer func() { //nolint:contextcheck // the deletion must not end with the connection
		if l.state == attached {
			return
		}
		l.endUse()
		l.endTemporary() // also after an error: the entity may have been created
	}()
	if l.state != attaching || c.phase >= phaseClosing {
		return
	}
	if cause.Condition == "" {
		cause = entitiesNotAllowed(e, &place, via)
	}
	o, receives := e.(*outgoingLink)
	switch {
	case cause.Condition != "":
		l.refuseAttaching(ctx, cause)
	case receives && o.wantedSession != nil:
		o.acceptSession(place)
	default:
		l.completeAttach(ctx, e, place)
	}
}

// entitiesOf finds the entity of a link, or creates it if it is temporary, and the entity through which the link sends.
func (l *link) entitiesOf(ctx context.Context) (place, via fsm.EntityRef, cause refusal.Cause) {
	c := l.session.conn
	var err error
	switch {
	case l.kind == subscriptionNode:
		return place, via, l.findSubscription(ctx)
	case l.subscription != nil:
		place, cause = l.subscribe(ctx)
		return place, via, cause
	case l.temporary:
		if place, err = l.createTemporary(ctx, nil); err != nil {
			cause = creationRefusal(err, l.path)
		}
		return place, via, cause
	}
	path := l.viaPath
	if path != "" {
		via, err = c.resolvePath(ctx, path)
	}
	if err == nil {
		path, _ = address.CutManagement(l.path)
		place, err = c.resolvePath(ctx, path)
	}
	if err != nil {
		cause = refusal.ReplyOf(refusal.CodeOf(err)).WithEntity(c.urlOf(path)).Cause
	}
	return place, via, cause
}

// entitiesNotAllowed returns the reason why a link cannot be attached to its entity, or send through via, if there is
// one. mu is held.
func entitiesNotAllowed(e endpoint, place *fsm.EntityRef, via fsm.EntityRef) refusal.Cause {
	l := e.base()
	if l.kind == entityNode {
		if cause := attachNotAllowed(place, l.clientSends); cause.Condition != "" {
			return cause
		}
		if o, ok := e.(*outgoingLink); ok && !o.browses {
			if cause := o.sessionMismatch(place); cause.Condition != "" {
				return cause
			}
		}
	}
	if in, ok := e.(*incomingLink); ok && l.viaPath != "" {
		if cause := in.setVia(via); cause.Condition != "" {
			return cause
		}
	}
	if l.kind == entityNode && isDisabled(place.Settings.Status, l.clientSends) {
		return refusal.ReplyOf(fsm.EntityDisabled).WithEntity(l.path).Cause
	}
	return refusal.Cause{}
}

// Property of an attach that limits the size of a batch (docs/service-bus-protocol.md#link-properties).
const batchBytesKey = wire.Symbol("com.microsoft:max-message-batch-size")

// completeAttach sends our attach.
func (l *link) completeAttach(ctx context.Context, e endpoint, place fsm.EntityRef) {
	l.state, l.entity = attached, place
	if in, ok := e.(*incomingLink); ok {
		most := min(place.Settings.MaxMessageBytes, message.BytesMax)
		if in.viaEntity != nil {
			most = min(most, in.viaEntity.Settings.MaxMessageBytes)
		}
		in.setMaxMessageSize(int(most))
		limit := uint64(in.messageBytesMax)
		l.reply.MaxMessageSize = &limit // clients limit batches to it; without it, they would send no batches
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
