package management

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/peeklock/peeklock/amqp/rule"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
)

// Results of the broker for rules become status, condition and text.
func TestRuleResultsBecomeStatusAndCondition(t *testing.T) {
	t.Parallel()
	r := &Request{URL: "sb://h/t/Subscriptions/s"}
	for _, c := range []struct {
		err       error
		status    int32
		condition wire.Symbol
		text      string
		gone      bool
	}{
		{nil, 200, "", "OK", false},
		{fsm.RuleNotFound, 404, wire.ConditionNotFound, "The messaging entity 'sb://h/t/Subscriptions/s/Rules/r' could not be found.", false},
		{fsm.RuleExists, 409, wire.ConditionEntityAlreadyExists, "The messaging entity 'sb://h/t/Subscriptions/s/Rules/r' already exists.", false},
		{fsm.EntityNotFound, 404, wire.ConditionNotFound, "could not be found", true},
		{fsm.QuotaExceeded, 403, wire.ConditionResourceLimitExceeded, "as many rules as it may have", false},
		{fsm.ServerBusy, 503, wire.ConditionServerBusy, "", false},
		{fsm.Timeout, 408, wire.ConditionTimeout, "", false},
		{context.DeadlineExceeded, 503, wire.ConditionServerBusy, "", false},
	} {
		err := c.err
		if err != nil {
			err = fmt.Errorf("put rule: %w", err)
		}
		resp := ruleResponse(r, "r", err)
		if resp.Status != c.status || resp.Condition != c.condition || resp.EntityGone != c.gone || !strings.Contains(resp.Text, c.text) {
			t.Errorf("%v: %+v", c.err, resp)
		}
	}
}

// many is a broker with as many rules as requested.
type many struct {
	Broker
	rule  fsm.Rule
	asked []int
}

func (m *many) ListRules(_ context.Context, _ fsm.EntityRef, _, most int) ([]fsm.Rule, error) {
	m.asked = append(m.asked, most)
	return slices.Repeat([]fsm.Rule{m.rule}, most), nil
}

// holder counts the bytes of responses that a Manager holds.
type holder struct {
	Conn
	mu         sync.Mutex
	held, most int
}

func (h *holder) HoldResponse(bytes int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held += bytes
	h.most = max(h.most, h.held)
}

// holds returns what is held now, and the most that was held at a time.
func (h *holder) holds() (now, most int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.held, h.most
}

func (*holder) Recovered(context.Context) {}

// An answer is limited regardless of the request, and a page of .NET fits with rules of any size. What is requested
// from the broker at a time is limited too, and all of it is counted while it is held.
func TestRulesAreBounded(t *testing.T) {
	t.Parallel()
	longest := fsm.Rule{Name: strings.Repeat("n", 50), Action: fsm.SQLText{Text: strings.Repeat("😀", filter.TextCharactersMax)}}
	longest.Filter.Kind = fsm.CorrelationFilter
	for i := range filter.ConditionsMax {
		longest.Filter.Conditions = append(longest.Filter.Conditions, filter.Condition{Property: filter.Property{Name: fmt.Sprintf("%03d", i), Scope: filter.User}, Value: filter.Text(strings.Repeat("v", filter.CorrelationBytesMax/filter.ConditionsMax-3))})
	}
	if n := len(rule.Encode(&longest)); n*rulesAtOnceMax > rulesBytesMax {
		t.Errorf("%d rules of %d bytes do not fit into %d", rulesAtOnceMax, n, rulesBytesMax)
	}
	h := &many{rule: longest}
	c := &holder{}
	m := New(c, h, nil, nil)
	rules, held, resp := m.listRules(t.Context(), &Request{}, 1<<31-1, 0)
	bytes := len(rules) * len(rule.Encode(&longest))
	if resp.Condition != "" || bytes > rulesBytesMax+rulesPageBytes || len(rules) < rulesAtOnceMax {
		t.Errorf("%d rules of %d bytes, %+v", len(rules), bytes, resp)
	}
	if held < 2*bytes || held != c.held {
		t.Errorf("%d and %d bytes are counted of %d", held, c.held, bytes)
	}
	if most := slices.Max(h.asked); most > rulesAtOnceMax || most*len(rule.Encode(&longest)) > rulesPageBytes {
		t.Errorf("asked for %v", h.asked)
	}
	m.enumerateRules(t.Context(), &Request{Respond: func(context.Context, Response) {}}, nil)
	if c.held != held {
		t.Errorf("%d bytes are held after the response", c.held-held)
	}
	short := &many{rule: fsm.Rule{Name: "r", Filter: fsm.RuleFilter{Kind: fsm.TrueFilter}}}
	if rules, _, _ := New(c, short, nil, nil).listRules(t.Context(), &Request{}, 2*rulesAtOnceMax, 0); len(rules) != 2*rulesAtOnceMax || slices.Max(short.asked) != rulesAtOnceMax {
		t.Errorf("%d short rules by requests for %v", len(rules), short.asked)
	}
}
