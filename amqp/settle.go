package amqp

import (
	"context"
	"slices"

	"go.opentelemetry.io/otel/trace"

	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/settlement"
	"github.com/peeklock/peeklock/amqp/tracing"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// decision is the settlement that a receiver's delivery state requests.
type decision struct {
	settlement  fsm.Settlement // without the lock
	outcome     outcome        // the answer on success, which is the requested outcome
	notTerminal bool           // not a terminal state: nothing is settled
	refused     refusal.Cause
}

// decide converts a delivery state to a settlement (docs/service-bus-protocol.md#settlement-requests). Only
// undeliverable-here distinguishes abandon from defer: SDKs set delivery-failed differently.
func decide(state any, settled bool) decision {
	switch state := state.(type) {
	case *wire.Accepted:
		return decision{settlement: fsm.Settlement{Verb: fsm.Complete}, outcome: accepted}
	case *wire.Released:
		return decision{settlement: fsm.Settlement{Verb: fsm.Release}, outcome: released}
	case *wire.Modified:
		d := decision{settlement: fsm.Settlement{Verb: fsm.Abandon}, outcome: modified}
		if state.UndeliverableHere != nil && *state.UndeliverableHere {
			d.settlement.Verb = fsm.Defer
		}
		d.setModifications(state.MessageAnnotations)
		return d
	case *wire.Rejected:
		d := decision{settlement: fsm.Settlement{Verb: fsm.DeadLetter}, outcome: rejected}
		if e := state.Error; e != nil {
			var rest wire.Map
			d.settlement.Reason, d.settlement.Description, rest = message.SplitDeadLetter(e.Info)
			if d.settlement.Description == "" {
				d.settlement.Description = e.Description // Python sends the description there
			}
			d.setModifications(rest)
		}
		return d
	case *wire.TransactionalState:
		return decision{refused: refusal.New(wire.ConditionInvalidField, "The outcome within a transaction is a transaction itself. Give one of the four outcomes.")}
	case nil:
		if settled { // the receiver forgets the delivery, which then counts as never sent
			return decision{settlement: fsm.Settlement{Verb: fsm.Release}, outcome: released}
		}
	}
	return decision{notTerminal: true}
}

// setModifications adds the properties that come with an outcome.
func (d *decision) setModifications(properties wire.Map) {
	d.refused = settlement.SetModifications(&d.settlement, properties)
}

// settleCall is one call of Broker.Settle: the deliveries of one disposition frame that belong to one link.
type settleCall struct {
	link          *outgoingLink
	deliveries    []settledDelivery
	settlements   []fsm.Settlement
	outcome       outcome
	clientSettled bool   // the client has settled: it gets no answer
	share         *share // nil: they store nothing
	spans         []trace.Span
}

// disposition handles the outcome that a receiver reports for deliveries. A report of a sender about its own
// deliveries changes nothing, because the gateway has settled them already.
func (s *session) disposition(ctx context.Context, d *wire.Disposition) {
	if d.Role != wire.RoleReceiver {
		return
	}
	defer s.countUnsettled()
	last := d.First
	if d.Last != nil {
		last = *d.Last
	}
	if state, ok := d.State.(*wire.TransactionalState); ok {
		s.settleInTransaction(ctx, d, last, state)
		return
	}
	what := decide(d.State, d.Settled)
	if what.notTerminal {
		return
	}
	searched := min(uint64(last-d.First)+1, uint64(len(s.unsettled)))
	taken := s.takeUnsettled(d.First, last)
	s.conn.costs.countSettled(int(searched), len(taken))
	switch {
	case what.refused.Condition != "":
		s.refuseAll(ctx, taken, what, d.Settled)
	case len(taken) == 0 && d.First == last && !d.Settled && d.State != nil:
		s.reject(s.conn.newError(ctx, refusal.ReplyOf(fsm.MessageLockLost).Cause), d.First, last)
	default:
		s.settleDeliveries(ctx, s.keepEnlisted(taken, what, d), what, d.Settled)
	}
	s.unsettledFreed()
}

// settleDeliveries settles the deliveries of each link with one call.
func (s *session) settleDeliveries(ctx context.Context, taken []settledDelivery, what decision, settled bool) {
	if ofOneLink(taken) {
		s.settleOfLink(ctx, taken, what, settled)
		return
	}
	for _, mine := range byLink(len(taken), func(i int) settledDelivery { return taken[i] }) {
		s.settleOfLink(ctx, mine, what, settled)
	}
}

// settleOfLink settles deliveries of one link.
func (s *session) settleOfLink(ctx context.Context, mine []settledDelivery, what decision, settled bool) {
	if len(mine) == 0 {
		return
	}
	c := s.conn
	if l := mine[0].link; l.sessionLost && l.state != attached {
		if !settled {
			s.refuseLost(ctx, mine)
		}
		return
	}
	group := &settleCall{link: mine[0].link, deliveries: mine, outcome: what.outcome, clientSettled: settled}
	if group.link.kind != entityNode { // responses: the broker has nothing to settle
		if !settled {
			s.answerRange(group, 0, len(mine))
		}
		return
	}
	group.settlements = make([]fsm.Settlement, len(mine))
	for i, t := range mine {
		group.settlements[i] = what.settlement
		group.settlements[i].Lock = t.lock
	}
	if stored := len(mine) * settlement.Stored(&what.settlement); stored > 0 {
		c.costs.countStored(stored)
		group.share = &share{account: c.account, settled: int64(min(stored, settledAtOnceMax))}
	}
	group.spans = c.tracer.StartSettle(group.link.path, len(mine), func(i int) *trace.SpanContext { return mine[i].delivered }, what.settlement.Verb)
	group.link.settling += len(mine)
	c.memory.settlements += len(mine)
	c.brokerCalls = append(c.brokerCalls, func() {
		done := func(codes []fsm.Code) { group.finish(ctx, codes) }
		switch {
		case group.share == nil:
			c.config.Broker.Settle(group.link.entity, group.settlements, done) // the usual case, without another allocation
		case !group.share.take(ctx, 0):
			done(slices.Repeat([]fsm.Code{fsm.ServerBusy}, len(group.settlements)))
		default:
			settlement.InParts(group.settlements, group.settle, done)
		}
	})
}

// refuseLost answers settlements of deliveries whose link has lost its session. mu is held.
func (s *session) refuseLost(ctx context.Context, mine []settledDelivery) {
	for _, t := range mine {
		s.reject(s.conn.newError(ctx, refusal.ReplyOf(fsm.SessionLockLost).Cause, "path", t.link.path), t.id, t.id)
	}
}

// ofOneLink reports whether all deliveries belong to one link, which is the usual case.
func ofOneLink(taken []settledDelivery) bool {
	for i := range taken {
		if taken[i].link != taken[0].link {
			return false
		}
	}
	return true
}

// byLink groups n deliveries by link, in their order. at returns each of them. The cost is proportional to the
// number of deliveries, regardless of the number of links.
func byLink(n int, at func(i int) settledDelivery) (groups [][]settledDelivery) {
	places := make(map[*outgoingLink]int) // index in groups
	for i := range n {
		t := at(i)
		place, known := places[t.link]
		if !known {
			place = len(groups)
			places[t.link] = place
			groups = append(groups, nil)
		}
		groups[place] = append(groups[place], t)
	}
	return groups
}

// answerRange reports that deliveries[from:to] of the call are settled as requested; each id without
// neighbours gets its own frame.
func (s *session) answerRange(g *settleCall, from, to int) {
	for _, t := range g.deliveries[from:to] {
		s.queueDisposition(wire.RoleSender, g.outcome, t.id, t.id)
	}
}

// settle settles a part of the deliveries.
func (g *settleCall) settle(part []fsm.Settlement, done func([]fsm.Code)) {
	g.link.session.conn.config.Broker.Settle(g.link.entity, part, done)
}

// finish is the done function of Broker.Settle.
func (g *settleCall) finish(ctx context.Context, codes []fsm.Code) {
	held := g.link.messageSession
	if held == nil || !slices.Contains(codes, fsm.MessageLockLost) {
		g.answer(ctx, codes)
		return
	}
	c := g.link.session.conn
	c.mu.Lock()
	lost := g.link.sessionLost
	c.mu.Unlock()
	if lost {
		g.answer(ctx, settlement.LostCodes(codes))
		return
	}
	go func() {
		defer c.recovered(ctx)
		codes, lost := settlement.SessionCodes(ctx, held, codes)
		if lost {
			c.mu.Lock()
			g.link.loseSession(ctx) // while the deliveries hold the link
			c.unlock()
		}
		g.answer(ctx, codes)
	}()
}

// answer answers a disposition when its settlements are done or refused.
func (g *settleCall) answer(ctx context.Context, codes []fsm.Code) {
	c := g.link.session.conn
	if g.spans != nil {
		tracing.End(g.spans, refusal.SettleReplyOf(refusal.Worst(codes)).Condition)
	}
	if g.share != nil {
		g.share.release()
	}
	g.link.messagesReturned(g.settlements)
	c.mu.Lock()
	defer c.unlock()
	c.stats.CountSettled(g.settlements, codes)
	c.memory.settlements -= len(g.deliveries)
	g.link.settling -= len(g.deliveries)
	s := g.link.session
	if g.link.state != attached || s.ended {
		return
	}
	defer s.countUnsettled()
	for from := 0; from < len(codes); {
		to := from + 1
		for to < len(codes) && codes[to] == codes[from] && g.deliveries[to].id == g.deliveries[to-1].id+1 {
			to++
		}
		v := refusal.SettleReplyOf(codes[from])
		if codes[from] != fsm.OK {
			v = v.WithEntity(c.urlOf(g.link.path))
		}
		g.link.countThrottled(v.Cause, to-from)
		if v.Retry == refusal.RetryLater {
			for _, t := range g.deliveries[from:to] {
				s.unsettled[t.id] = t.unsettled // the client may settle it again
			}
		}
		switch {
		case g.clientSettled:
		case v.Condition == "":
			s.answerRange(g, from, to)
		default:
			s.reject(c.newError(ctx, v.ForSettlement(), "path", g.link.path), g.deliveries[from].id, g.deliveries[to-1].id)
		}
		from = to
	}
	g.link.settledAfterLoss(ctx)
}

// refuseAll answers a malformed disposition. The locks remain.
func (s *session) refuseAll(ctx context.Context, taken []settledDelivery, what decision, settled bool) {
	for _, t := range taken {
		s.unsettled[t.id] = t.unsettled
	}
	if len(taken) == 0 || settled {
		return
	}
	refused := s.conn.newError(ctx, what.refused.ForSettlement(), "path", taken[0].link.path)
	for from := 0; from < len(taken); {
		to := from + 1
		for to < len(taken) && taken[to].id == taken[to-1].id+1 && taken[to].id != 0 { // go-amqp cannot read a range that wraps
			to++
		}
		s.reject(refused, taken[from].id, taken[to-1].id)
		from = to
	}
}

// reject reports that deliveries could not be settled as requested.
func (s *session) reject(e *wire.Error, first, last uint32) {
	before := len(s.conn.out)
	defer func() { s.conn.costs.countAnswered(len(s.conn.out) - before) }()
	s.conn.emitDisposition(s.channel, &wire.Disposition{Role: wire.RoleSender, First: first, Last: &last, Settled: true, State: &wire.Rejected{Error: e}})
}
