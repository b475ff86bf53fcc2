package amqp

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// verdict is a fsm.Code in the words of AMQP and of the management node.
type verdict struct {
	condition wire.Symbol // empty for OK
	status    int32       // statusCode of a management response (wire contract 7.4)
	text      string
	retry     bool // the same request may go well later
}

// verdictOf is the table from codes to conditions: one row per Code.
func verdictOf(code fsm.Code) verdict {
	switch code {
	case fsm.OK:
		return verdict{"", http.StatusOK, "OK", false}
	case fsm.EntityNotFound:
		return verdict{wire.ConditionNotFound, http.StatusNotFound, "The messaging entity could not be found.", false}
	case fsm.EntityExists:
		return verdict{wire.ConditionEntityAlreadyExists, http.StatusConflict, "The entity exists already.", false}
	case fsm.MessageLockLost:
		return verdict{wire.ConditionMessageLockLost, http.StatusGone, "The lock supplied is invalid. Either the lock expired, or the message has already been removed from the queue.", false}
	case fsm.MessageNotFound:
		return verdict{wire.ConditionMessageNotFound, http.StatusNotFound, "The message could not be found.", false}
	case fsm.MessageTooLarge:
		return verdict{wire.ConditionMessageSizeExceeded, http.StatusBadRequest, "The message is larger than the entity allows.", false}
	case fsm.QuotaExceeded:
		return verdict{wire.ConditionResourceLimitExceeded, http.StatusForbidden, "The entity is full.", false}
	case fsm.InvalidArgument:
		return verdict{wire.ConditionArgumentError, http.StatusBadRequest, "An argument is not valid.", false}
	case fsm.NotAllowed:
		return verdict{wire.ConditionNotAllowed, http.StatusBadRequest, "The operation is not allowed here.", false}
	case fsm.Unauthorized:
		return verdict{wire.ConditionUnauthorizedAccess, http.StatusUnauthorized, "Unauthorized access.", false}
	case fsm.ServerBusy:
		return verdict{wire.ConditionServerBusy, http.StatusServiceUnavailable, "The server was unable to process the request; please retry.", true}
	case fsm.Timeout:
		return verdict{wire.ConditionTimeout, http.StatusRequestTimeout, "The operation did not complete within the allotted time.", true}
	case fsm.Stale, fsm.Internal:
		return verdict{wire.ConditionInternalError, http.StatusInternalServerError, "The service was unable to process the request.", true}
	case fsm.NotImplemented:
		return verdict{wire.ConditionNotImplemented, http.StatusNotImplemented, "The operation is not supported.", false}
	case fsm.EntityDisabled:
		return verdict{wire.ConditionEntityDisabled, http.StatusForbidden, "The entity is disabled for this operation.", false}
	case fsm.PreconditionFails:
		return verdict{wire.ConditionPreconditionFailed, http.StatusPreconditionFailed, "The entity was changed in the meantime.", false}
	}
	return verdict{wire.ConditionInternalError, http.StatusInternalServerError, "The service was unable to process the request.", true}
}

// about names the entity where clients look for it: JS and Java tell a missing entity
// from other trouble by this very text (wire contract 9.2).
func (v verdict) about(path string) verdict {
	if v.condition == wire.ConditionNotFound {
		v.text = notFoundText(path)
	}
	return v
}

// refusal makes an error for the client: the condition, a text with a tracking id, and
// whether a retry can help (T.1). The id is logged, so that an operator can find what a
// client was told.
func (c *conn) refusal(ctx context.Context, condition wire.Symbol, text string, retry bool, about ...any) *wire.Error {
	id := fmt.Sprintf("%016x", rand.Uint64()) //nolint:gosec // an id to search logs by, not a secret
	log := c.log.With(about...)
	log.LogAttrs(ctx, slog.LevelInfo, "request refused", slog.String("tracking_id", id), slog.String("condition", string(condition)), slog.String("reason", text))
	return &wire.Error{Condition: condition, Description: describeRefusal(text, id, retry)}
}

// describeRefusal is the text that people see.
func describeRefusal(text, id string, retry bool) string {
	advice := "A retry will not help."
	if retry {
		advice = "A retry may help."
	}
	return text + " " + advice + " TrackingId:" + id
}

// decision is what a receiver's delivery state asks for.
type decision struct {
	settlement fsm.Settlement // without the lock
	outcome    outcome        // the answer when it went well: the same as was asked
	keep       bool           // not a terminal state: nothing is settled
	fault      wire.Symbol
	reason     string
}

// decide turns a delivery state into a settlement (wire contract 5.4). Abandon and
// defer are told apart by undeliverable-here alone: delivery-failed differs by SDK.
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
		d.modify(state.MessageAnnotations)
		return d
	case *wire.Rejected:
		d := decision{settlement: fsm.Settlement{Verb: fsm.DeadLetter}, outcome: rejected}
		if e := state.Error; e != nil {
			var rest wire.Map
			d.settlement.Reason, d.settlement.Description, rest = splitDeadLetter(e.Info)
			if d.settlement.Description == "" {
				d.settlement.Description = e.Description // Python puts it there
			}
			d.modify(rest)
		}
		return d
	case *wire.TransactionalState:
		return decision{fault: wire.ConditionNotImplemented, reason: "Transactions are not supported."}
	case nil:
		if settled { // the receiver forgets it without a word: as if it was never sent
			return decision{settlement: fsm.Settlement{Verb: fsm.Release}, outcome: released}
		}
	}
	return decision{keep: true}
}

// modify adds properties to be merged into the message.
func (d *decision) modify(properties wire.Map) {
	if len(properties) == 0 {
		return
	}
	encoded, err := encodeProperties(properties)
	if err != nil {
		d.fault, d.reason = wire.ConditionArgumentError, err.Error()
		return
	}
	d.settlement.Properties = encoded
}

// settlement is one call of Broker.Settle: the deliveries of one disposition frame that
// came from one link.
type settlement struct {
	link        *outgoingLink
	taken       []took
	settlements []fsm.Settlement
	outcome     outcome
	settled     bool // by the client already: no answer
}

// disposition takes what a receiver says of deliveries. What a sender says of its own
// changes nothing: ours is the last word on those, and it is always settled.
func (s *session) disposition(ctx context.Context, d *wire.Disposition) {
	if d.Role != wire.RoleReceiver {
		return
	}
	last := d.First
	if d.Last != nil {
		last = *d.Last
	}
	what := decide(d.State, d.Settled)
	if what.keep {
		return
	}
	taken := s.take(d.First, last)
	switch {
	case what.fault != "":
		s.refuseAll(ctx, taken, what, d.Settled)
	case len(taken) == 0 && d.First == last && !d.Settled && d.State != nil:
		v := verdictOf(fsm.MessageLockLost)
		s.reject(s.conn.refusal(ctx, v.condition, v.text, v.retry), d.First, last)
	default:
		s.settleTaken(ctx, taken, what, d.Settled)
	}
	s.roomier()
}

// settleTaken groups deliveries by their link and settles each group with one call.
func (s *session) settleTaken(ctx context.Context, taken []took, what decision, settled bool) {
	c := s.conn
	for len(taken) > 0 {
		var mine, others []took
		for i, t := range taken {
			if t.link == taken[0].link {
				if others != nil {
					mine = append(mine, t)
				}
			} else {
				if others == nil {
					mine = append(mine, taken[:i]...)
				}
				others = append(others, t)
			}
		}
		if others == nil {
			mine = taken // the usual case
		}
		taken = others
		group := &settlement{link: mine[0].link, taken: mine, outcome: what.outcome, settled: settled}
		if group.link.kind != entityNode { // a response: nothing to settle at the broker
			if !settled {
				s.answerRange(group, 0, len(mine))
			}
			continue
		}
		group.settlements = make([]fsm.Settlement, len(mine))
		for i, t := range mine {
			group.settlements[i] = what.settlement
			group.settlements[i].Lock = t.lock
		}
		c.after = append(c.after, func() {
			c.config.Broker.Settle(group.link.place, group.settlements, func(codes []fsm.Code) { c.finishSettle(ctx, group, codes) })
		})
	}
}

// answerRange says that taken[from:to] is settled as asked; ids without neighbours
// become frames of their own.
func (s *session) answerRange(g *settlement, from, to int) {
	for _, t := range g.taken[from:to] {
		s.settle(wire.RoleSender, g.outcome, t.id, t.id)
	}
}

// finishSettle is the done function of Broker.Settle.
func (c *conn) finishSettle(ctx context.Context, g *settlement, codes []fsm.Code) {
	c.mu.Lock()
	defer c.unlock()
	s := g.link.session
	if g.link.state != attached || s.ended {
		return
	}
	for from := 0; from < len(codes); {
		to := from + 1
		for to < len(codes) && codes[to] == codes[from] && g.taken[to].id == g.taken[to-1].id+1 {
			to++
		}
		v := verdictOf(codes[from]).about(g.link.path)
		if v.retry {
			for _, t := range g.taken[from:to] {
				s.unsettled[t.id] = t.unsettled // the client may ask again
			}
		}
		switch {
		case g.settled:
		case v.condition == "":
			s.answerRange(g, from, to)
		default:
			s.reject(c.refusal(ctx, v.condition, v.text, v.retry, "path", g.link.path), g.taken[from].id, g.taken[to-1].id)
		}
		from = to
	}
}

// refuseAll answers a disposition that cannot be understood. The locks stay.
func (s *session) refuseAll(ctx context.Context, taken []took, what decision, settled bool) {
	for _, t := range taken {
		s.unsettled[t.id] = t.unsettled
		if !settled {
			s.reject(s.conn.refusal(ctx, what.fault, what.reason, false), t.id, t.id)
		}
	}
}

// reject says that deliveries could not be settled as asked.
func (s *session) reject(e *wire.Error, first, last uint32) {
	s.conn.emit(s.channel, &wire.Disposition{Role: wire.RoleSender, First: first, Last: &last, Settled: true, State: &wire.Rejected{Error: e}})
}
