package amqp

import (
	"context"
	"fmt"

	"github.com/peeklock/peeklock/fsm"
)

// topic makes a topic with subscriptions, each with the rule that takes everything.
func (h *house) topic(name string, subscriptions ...string) *house {
	id := h.make(fsm.Entity{Name: name, Kind: fsm.TopicEntity})
	for _, s := range subscriptions {
		h.make(fsm.Entity{Name: fsm.SubscriptionPath(name, s), Kind: fsm.SubscriptionEntity, Topic: id})
	}
	return h
}

// rule performs a command about rules; the code is wrapped as the cluster does.
func (h *house) rule(what string, command fsm.Command) error {
	h.mu.Lock()
	refuse := h.ruleErr
	h.mu.Unlock()
	if refuse != nil {
		return fmt.Errorf("%s: %w", what, refuse)
	}
	if code := h.do(command).Code; code != fsm.OK {
		return fmt.Errorf("%s: %w", what, code)
	}
	return nil
}

func (h *house) AddRule(_ context.Context, at fsm.Place, rule fsm.Rule) error {
	return h.rule("put rule "+rule.Name, fsm.PutRule{Subscription: at.ID, Rule: rule})
}

func (h *house) RemoveRule(_ context.Context, at fsm.Place, name string) error {
	return h.rule("drop rule "+name, fsm.DropRule{Subscription: at.ID, Name: name})
}

func (h *house) ListRules(_ context.Context, at fsm.Place, skip, most int) ([]fsm.Rule, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ruleErr != nil {
		return nil, fmt.Errorf("rules: %w", h.ruleErr)
	}
	rules, ok := h.queues.Rules(at.ID, skip, most)
	if !ok {
		return nil, fmt.Errorf("rules: %w", fsm.EntityNotFound)
	}
	return rules, nil
}
