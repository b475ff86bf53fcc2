package queue

import (
	"cmp"
	"errors"
	"slices"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/evaluate"
	"github.com/peeklock/peeklock/fsm/filter"
	"github.com/peeklock/peeklock/fsm/index"
	"github.com/peeklock/peeklock/fsm/totals"
)

// topics publishes messages, at once or in the next pulses, and keeps the rules of subscriptions.
type topics struct {
	*core
	*messages

	pending       []*entityState // topics with Pending messages, sorted by id; derived
	lastPublished fsm.EntityID   // the topic whose Pending messages were published last
	spent         uint64         // steps of the current entry so far
	exceeded      uint64         // rules that exceeded their budget, on this replica

	// Scratch space, reused from one message to the next.
	evaluated   evaluate.Message
	matched     []*entityState // subscriptions with rules that match
	correlated  filter.Matches[indexedRule]
	actionPatch []byte // patches of a copy that an action changed
	runner      filter.Runner
}

// errActionBytes is the failure of an action. All replicas make the same text of it.
var errActionBytes = errors.New("the actions of the topic's rules expand one message beyond the limit")

// Limits of publishing.
const (
	// actionBytesMax bounds the patches that the actions of all rules make for one message. Further
	// actions fail.
	actionBytesMax = 64 << 20
)

// Reason of a message that is dead-lettered because a rule failed, as in Azure Service Bus.
const reasonFilter = "FilterEvaluationException"

// ruleNameProperty is the application property with the name of the rule that changed a copy.
const ruleNameProperty = "RuleName"

// ruleMatch is a rule with an action that matches a message, or a rule that fails.
type ruleMatch struct {
	number     uint64 // of the rule
	rule       *rule
	err        error
	steps      uint64 // of its filter
	correlated bool   // it has a correlation filter
}

// fanOut gives a message with number n at a topic, which was accepted at a time, to the
// subscriptions whose rules match. The caller stores it if there are copies.
func (q *topics) fanOut(x *entityState, n fsm.SequenceNumber, m *sentMessage, enqueued fsm.Instant) (copies int) {
	life := x.effectiveTimeToLive(m.ttl)
	s := &q.evaluated
	s.Begin(evaluate.Arrival{Topic: x.id, Number: n, Enqueued: enqueued, Life: life, Size: len(m.payload)}, m.properties)
	c := fanOutContext{
		life: life, patches: m.patches, session: m.session, hasSession: m.hasSession, correlationBudget: x.topicState.sharedBudget(),
		rec: index.Copy(n, len(m.payload), enqueued, m.hops),
	}
	q.runner.Begin(s)
	q.spent += stepsMessage + stepsPropertyByte*uint64(len(m.properties))
	matched := q.matchOnly(m.only)
	if m.only == 0 {
		matched = q.matchRules(x.topicState)
	}
	for _, subscription := range matched {
		copies += q.deliverCopies(subscription, &c)
		subscription.rules.forgetMatches()
	}
	s.End()
	q.runner.Begin(nil)
	return copies
}

// matchRules finds the rules that match the evaluated message, and those that fail. It records them in
// their subscriptions, and returns these subscriptions in order. A rule that does not match causes no
// allocation. A message may match correlationRulesMax rules, so all work for a match is done once: the
// rules of all subscriptions together are not sorted, those without action not even listed.
func (q *topics) matchRules(h *topicState) []*entityState {
	s := &q.evaluated
	q.matched = q.matched[:0]
	for _, r := range h.trueRules {
		q.addMatch(r, nil, 0)
	}
	for _, r := range h.sqlRules {
		s.BeginRule(r.number)
		truth, err := q.runner.Match(r.parsed.SQL, ruleBudget(0))
		steps := q.runner.Steps()
		q.spent += steps
		switch {
		case err != nil:
			q.countExceeded(err)
			q.addMatch(r, err, 0)
		case truth == filter.True:
			q.addMatch(r, nil, steps)
		}
	}
	if h.index.Len() > 0 {
		var steps uint64
		q.correlated.Found, steps = h.index.Match(s, q.correlated.Found)
		q.spent += steps + stepsMatch*uint64(len(q.correlated.Found))
		q.addCorrelated()
	}
	slices.SortFunc(q.matched, func(a, b *entityState) int { return cmp.Compare(a.id, b.id) })
	return q.matched
}

// matchOnly selects a subscription as if it had a rule without action that matches; none for 0.
func (q *topics) matchOnly(id fsm.EntityID) []*entityState {
	q.matched = q.matched[:0]
	if id != 0 {
		q.rulesOf(q.byID[id]).plain = true
	}
	return q.matched
}

// addMatch records a rule without correlation filter that matches, or fails with an error.
func (q *topics) addMatch(r *rule, err error, steps uint64) {
	b := q.rulesOf(r.subscription)
	if r.parsed.Action == nil && err == nil {
		b.plain = true
		return
	}
	b.matches = append(b.matches, ruleMatch{number: r.number, rule: r, err: err, steps: steps})
}

// rulesOf returns the rules of a subscription, one of which matches or fails, and lists the
// subscription the first time.
func (q *topics) rulesOf(x *entityState) *ruleSet {
	if !x.rules.matched {
		x.rules.matched = true
		q.matched = append(q.matched, x)
	}
	return &x.rules
}

// forgetMatches makes the scratch space ready for the next message.
func (b *ruleSet) forgetMatches() {
	clear(b.matches) // they reference rules
	b.matches, b.matched, b.plain = b.matches[:0], false, false
}

// fanOutContext is what the copies of a message have in common.
type fanOutContext struct {
	rec     index.Record
	life    fsm.Millis // time to live at the topic
	patches []byte     // of the message, from where it was forwarded

	session    []byte
	hasSession bool

	actionBytes       int    // bytes of patches that actions have made
	correlationBudget uint64 // what the actions of correlation filters of each subscription may take
}

// deliverCopies makes the copies of one subscription: one if a rule without action matches, one for
// every rule with an action that matches, and a dead letter if a rule fails and the subscription
// keeps such messages.
func (q *topics) deliverCopies(x *entityState, c *fanOutContext) (copies int) {
	matches := x.rules.matches
	slices.SortFunc(matches, func(a, b ruleMatch) int { return cmp.Compare(a.number, b.number) })
	c.rec.SetExpires(c.rec.Enqueued().Expiry(min(c.life, x.settings.DefaultTimeToLive)))
	if x.rules.plain {
		q.addCopy(x, c, c.patches)
		copies++
	}
	var failure error
	share := c.correlationBudget
	for i := range matches {
		m := &matches[i]
		err := m.err
		if err == nil {
			var patches []byte
			if patches, err = q.runAction(m, c, &share); err == nil {
				unchanged := c.rec.Expires()
				c.rec.SetExpires(c.rec.Enqueued().Expiry(min(q.evaluated.TimeToLive(), x.settings.DefaultTimeToLive)))
				q.addCopy(x, c, patches)
				c.rec.SetExpires(unchanged)
				copies++
			}
			q.evaluated.BeginAction(0) // other rules evaluate the message as it was sent
		}
		if failure == nil {
			failure = err
		}
	}
	if failure != nil && x.settings.DeadLetterOnFilterErrors {
		q.addFailedCopy(x, c, failure)
		copies++
	}
	return copies
}

// runAction applies the action of a rule to a copy, and returns its patches. share is the rest of
// the budget of all correlation filters of the subscription. The patches are valid until the next call.
func (q *topics) runAction(m *ruleMatch, c *fanOutContext, share *uint64) ([]byte, error) {
	if c.actionBytes >= actionBytesMax {
		return nil, errActionBytes
	}
	budget := ruleBudget(m.steps)
	if m.correlated {
		budget = min(budget, *share)
	}
	if budget == 0 { // the action would fail at once; most of correlationRulesMax do
		q.spent += stepsActionAttempt
		q.exceeded++
		return nil, filter.OverBudget()
	}
	s, r := &q.evaluated, m.rule
	s.BeginAction(r.number)
	err := q.runner.Apply(r.parsed.Action, s, budget-min(budget, stepsChangedCopy))
	steps := min(budget, q.runner.Steps()+stepsChangedCopy)
	q.spent += steps + stepsActionAttempt
	if m.correlated {
		*share -= steps
	}
	if err != nil {
		q.countExceeded(err)
		return nil, err
	}
	name := fsm.Change{Property: filter.Property{Name: ruleNameProperty}, Value: filter.Text(r.Name)}
	q.actionPatch = fsm.AppendPatch(q.actionPatch[:0], c.patches, &fsm.Patch{Changes: s.ChangesAnd(name)})
	c.actionBytes += len(q.actionPatch)
	return q.actionPatch, nil
}

// countExceeded counts a rule that exceeded its budget.
func (q *topics) countExceeded(err error) {
	if errors.Is(err, filter.ErrSteps) {
		q.exceeded++
	}
}

// addCopy stores a copy at the tail of a subscription.
func (q *topics) addCopy(x *entityState, c *fanOutContext, patches []byte) {
	q.spent += stepsCopy + uint64(len(patches))/patchBytes
	sub := &x.subs[fsm.MainQueue]
	x.last++
	x.totals.Incoming++
	session := index.NoSession
	if x.sessions != nil {
		var ok bool
		if session, ok = q.copySessionSlot(x, c); !ok {
			q.deadLetterSessionless(x, c.rec, patches)
			return
		}
	}
	at := sub.ix.Insert(x.last, c.rec, session)
	q.storePatches(sub, at, patches)
	q.notifyReady(sub)
}

// addFailedCopy stores a copy in the dead-letter queue of a subscription, because a rule failed.
func (q *topics) addFailedCopy(x *entityState, c *fanOutContext, failure error) {
	q.spent += stepsCopy + stepsChangedCopy + uint64(len(c.patches))/patchBytes
	sub := &x.subs[fsm.DeadLetterQueue]
	x.last++
	x.totals.Incoming++
	x.totals.DeadLettered[totals.FilterFailed]++
	rec := c.rec
	rec.SetDeadLetterExpiry(q.times.Wall, x.settings.DeadLetterTimeToLive)
	session := index.NoSession
	if x.sessions != nil {
		session, _ = q.copySessionSlot(x, c)
	}
	at := sub.ix.Insert(x.last, rec, session)
	q.storePatches(sub, at, fsm.JoinPatches(c.patches, &fsm.Patch{DeadLetter: true, Reason: reasonFilter, Description: failure.Error()}))
	q.notifyReady(sub)
}

// unsubscribe removes a subscription from a topic that stays: its copies are released at once.
func (q *topics) unsubscribe(x *entityState) {
	x.topic.topicState.removeSubscription(x)
	for i := range x.subs {
		x.subs[i].ix.Freeze().Walk(0, func(_ fsm.SequenceNumber, rec *index.Record, patch fsm.Ref, _ uint32) bool {
			if !rec.IsCopy() { // it came by a transaction
				q.releaseBodies(rec.Body(), patch)
				return true
			}
			q.releaseCopy(x.topic, rec.OriginalNumber())
			if patch != (fsm.Ref{}) {
				q.bodies.Release(patch)
			}
			return true
		})
		x.subs[i].ix.Clear()
	}
	x.topic.subs[fsm.MainQueue].ix.RemoveStaleTimers()
}

// copySessionSlot returns the session of a copy for a subscription: the one set by the current
// action, else that of the message.
func (q *topics) copySessionSlot(x *entityState, c *fanOutContext) (slot uint32, ok bool) {
	s := &q.evaluated
	if !s.Changed() && c.hasSession {
		return q.sessionSlot(x, c.session, true)
	}
	v := s.System(filter.SessionID)
	if v.Kind() != filter.KindText || len(v.AsText()) > fsm.SessionIDBytesMax {
		return index.Sessionless, false
	}
	return q.sessionSlot(x, []byte(v.AsText()), true)
}

// addCorrelated records the rules with correlation filters that match, those with an action in order.
func (q *topics) addCorrelated() {
	list := &q.correlated
	acting := list.Found[:0]
	for _, m := range list.Found {
		if b := q.rulesOf(m.Value.subscription); m.Value.acting == nil {
			b.plain = true
		} else {
			acting = append(acting, m)
		}
	}
	for _, m := range list.Sorted(acting) {
		b := &m.Value.subscription.rules
		b.matches = append(b.matches, ruleMatch{number: m.ID, rule: m.Value.acting, correlated: true})
	}
	list.Forget()
}
