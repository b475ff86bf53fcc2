package amqp

import (
	"context"
	"fmt"

	"github.com/peeklock/peeklock/fsm"
)

// topic creates a topic with subscriptions, each with the rule that matches everything.
func (h *fakeBroker) topic(name string, subscriptions ...string) *fakeBroker {
	id := h.create(fsm.Entity{Name: name, Kind: fsm.TopicEntity})
	for _, s := range subscriptions {
		h.create(fsm.Entity{Name: fsm.SubscriptionPath(name, s), Kind: fsm.SubscriptionEntity, Topic: id})
	}
	return h
}

// rule performs a command about rules; it wraps the code as the cluster does.
func (h *fakeBroker) rule(what string, command fsm.Command) error {
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

func (h *fakeBroker) AddRule(_ context.Context, at fsm.EntityRef, rule fsm.Rule) error {
	return h.rule("put rule "+rule.Name, fsm.PutRule{Subscription: at.ID, Rule: rule})
}

func (h *fakeBroker) RemoveRule(_ context.Context, at fsm.EntityRef, name string) error {
	return h.rule("drop rule "+name, fsm.DropRule{Subscription: at.ID, Name: name})
}

func (h *fakeBroker) ListRules(_ context.Context, at fsm.EntityRef, skip, most int) ([]fsm.Rule, error) {
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
