package management

import (
	"context"
	"fmt"
	"math"

	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/rule"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// The functions below handle the operations on the rules of a subscription
// (docs/service-bus-protocol.md#rule-operations). Each waits for the broker on its own goroutine; requestsMax
// limits their number.

// addRule adds a rule: 409 if a rule of its name exists.
func (m *Manager) addRule(ctx context.Context, r *Request, body wire.Map) {
	added, err := rule.Parse(body)
	if err != nil {
		r.Respond(ctx, badRequest("The rule '%.64s' cannot be taken: %s. Correct it and send it again.", added.Name, err))
		return
	}
	ctx, cancel := context.WithTimeout(ctx, RuleWithin)
	defer cancel()
	r.Respond(ctx, ruleResponse(r, added.Name, m.broker.AddRule(ctx, r.At, added)))
}

// removeRule removes a rule by name: 404 if it does not exist.
func (m *Manager) removeRule(ctx context.Context, r *Request, body wire.Map) {
	name := body.Text(rule.NameKey)
	if name == "" {
		r.Respond(ctx, badRequest("The request has no %s. Name the rule.", rule.NameKey))
		return
	}
	ctx, cancel := context.WithTimeout(ctx, RuleWithin)
	defer cancel()
	r.Respond(ctx, ruleResponse(r, name, m.broker.RemoveRule(ctx, r.At, name)))
}

// ruleResponse returns the response for the broker's result of an operation on one rule.
func ruleResponse(r *Request, name string, err error) Response {
	if err == nil {
		return success(nil)
	}
	resp := ResponseFor(refusal.CodeOf(err))
	switch refusal.CodeOf(err) { //nolint:exhaustive // the others say what they always say
	case fsm.RuleNotFound: // in the words that the Java and JavaScript clients look for
		resp.Text = refusal.NotFoundText(fmt.Sprintf("%s/Rules/%.64s", r.URL, name))
	case fsm.RuleExists:
		resp.Text = fmt.Sprintf("The messaging entity '%s' already exists. Choose another name, or remove that rule first.", fmt.Sprintf("%s/Rules/%.64s", r.URL, name))
	case fsm.EntityNotFound: // in the words that the Java and JavaScript clients look for
		resp.Text = refusal.NotFoundText(r.URL)
	case fsm.QuotaExceeded:
		resp.Text = "The topic has as many rules as it may have. Remove some, of any of its subscriptions."
	}
	return resp
}

// enumerateRules lists rules by name. The answer holds up to top rules, and fewer if
// they exceed rulesBytesMax. A page of 100 always fits: .NET requests 100, and considers a shorter page the
// last one.
func (m *Manager) enumerateRules(ctx context.Context, r *Request, body wire.Map) {
	top, okTop := integerOr(body.Get("top"), math.MaxInt32)
	skip, okSkip := integerOr(body.Get("skip"), 0)
	if !okTop || !okSkip || top < 1 || skip < 0 {
		r.Respond(ctx, badRequest("The request needs a positive top and a skip that is not negative."))
		return
	}
	ctx, cancel := context.WithTimeout(ctx, RuleWithin)
	defer cancel()
	rules, held, resp := m.listRules(ctx, r, top, int(skip))
	defer m.conn.HoldResponse(-held)
	switch {
	case resp.Condition != "":
	case len(rules) == 0:
		resp = noContent("No rules.", nil)
	default:
		resp.Body = wire.Map{{Key: "rules", Value: rules}}
	}
	r.Respond(ctx, resp)
}

// listRules requests rules, a few at a time, and encodes them. held are the bytes that it has counted with HoldResponse.
func (m *Manager) listRules(ctx context.Context, r *Request, top int64, skip int) (rules []any, held int, resp Response) {
	atOnce := rulesAtOnceMin
	for size := 0; int64(len(rules)) < top && size < rulesBytesMax; {
		most := int(min(top-int64(len(rules)), int64(atOnce)))
		some, err := m.broker.ListRules(ctx, r.At, skip+len(rules), most)
		if err != nil {
			return nil, held, ruleResponse(r, "", err)
		}
		for i := range some {
			shown := rule.Encode(&some[i])
			size += len(shown)
			rules = append(rules, wire.Map{{Key: rule.DescriptionKey, Value: wire.Raw(shown)}})
		}
		if more := 2*size - held; more > 0 { // as rules and once more encoded
			m.conn.HoldResponse(more)
			held += more
		}
		if len(some) < most {
			break
		}
		atOnce = min(rulesAtOnceMax, max(rulesAtOnceMin, rulesPageBytes/max(1, size/len(rules))))
	}
	return rules, held, success(nil)
}

// integerOr returns the value of an AMQP integer, or a default if the value is missing.
func integerOr(v any, absent int64) (n int64, ok bool) {
	if v == nil {
		return absent, true
	}
	n, ok = message.IntegerOf(v)
	return min(n, math.MaxInt32), ok
}
