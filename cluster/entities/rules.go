package entities

import (
	"context"
	"errors"
	"fmt"

	"github.com/peeklock/peeklock/cluster/query"
	"github.com/peeklock/peeklock/cluster/shards"
	"github.com/peeklock/peeklock/fsm"
)

// The limits that error texts name, as in fsm.
const (
	sqlRulesMax         = 2000    // of a topic, true and false ones included
	correlationRulesMax = 100_000 // of a topic
	rulesMiBMax         = 125     // of a topic, MiB
)

// AddRule adds a rule to a subscription. Errors wrap RuleExists,
// EntityNotFound, QuotaExceeded, InvalidArgument, ServerBusy or Timeout.
func (r *Manager) AddRule(ctx context.Context, at fsm.EntityRef, rule fsm.Rule) error {
	return r.putRule(ctx, at.Entity, rule, false)
}

// RemoveRule removes a rule by name. Errors wrap RuleNotFound, EntityNotFound, ServerBusy
// or Timeout.
func (r *Manager) RemoveRule(ctx context.Context, at fsm.EntityRef, name string) error {
	return r.dropRule(ctx, at.Entity, name)
}

// ListRules returns up to max rules (1000) of a subscription by name, case-insensitively, after the first skip.
func (r *Manager) ListRules(ctx context.Context, at fsm.EntityRef, skip, max int) ([]fsm.Rule, error) {
	if at.Kind != fsm.SubscriptionEntity {
		return nil, fmt.Errorf("rules of %q: %w: only a subscription has rules", at.Name, fsm.NotAllowed)
	}
	at = shards.Ref(at, 0) // all shards have the same
	q := rulesQuery{EntityIn: query.Entity(at), Skip: skip, Max: max}
	var rules []fsm.Rule
	err := r.withRecreate(ctx, at.ID, func() (err error) {
		rules, err = listRules.At(ctx, r, q)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("rules of %q: %w", at.Name, err)
	}
	return rules, nil
}

// PutRule adds a rule to a subscription, or with replace replaces the one of that name. Errors are
// those of AddRule, and RuleNotFound with replace.
func (r NamespaceView) PutRule(ctx context.Context, subscription string, rule fsm.Rule, replace bool) error {
	entity, err := r.entityOfKind(ctx, fsm.SubscriptionEntity, subscription)
	if err != nil {
		return fmt.Errorf("subscription %q: %w", subscription, err)
	}
	return r.putRule(ctx, entity, rule, replace)
}

// DropRule removes a rule by name. Errors are those of RemoveRule.
func (r NamespaceView) DropRule(ctx context.Context, subscription, name string) error {
	entity, err := r.entityOfKind(ctx, fsm.SubscriptionEntity, subscription)
	if err != nil {
		return fmt.Errorf("subscription %q: %w", subscription, err)
	}
	return r.dropRule(ctx, entity, name)
}

// Rules lists up to max rules (1000) of a subscription by name, case-insensitively, after the first skip.
func (r NamespaceView) Rules(ctx context.Context, subscription string, skip, max int) ([]fsm.Rule, error) {
	entity, err := r.entityOfKind(ctx, fsm.SubscriptionEntity, subscription)
	if err != nil {
		return nil, fmt.Errorf("subscription %q: %w", subscription, err)
	}
	return r.ListRules(ctx, fsm.EntityRef{Entity: entity}, skip, max)
}

func (r *Manager) putRule(ctx context.Context, entity fsm.Entity, rule fsm.Rule, replace bool) error {
	refusal := fsm.RuleExists
	if replace {
		refusal = fsm.RuleNotFound
	}
	put := func(replace bool) func(fsm.EntityID) fsm.Command {
		return func(id fsm.EntityID) fsm.Command { return fsm.PutRule{Subscription: id, Rule: rule, Replace: replace} }
	}
	err := rule.Validate()
	if err == nil {
		err = r.changeRules(ctx, entity, refusal, put(replace), put(!replace))
	}
	if errors.Is(err, fsm.QuotaExceeded) {
		err = explainRules(err)
	}
	if err != nil {
		return fmt.Errorf("put rule %q of %q: %w", rule.Name, entity.Name, err)
	}
	return nil
}

// explainRules adds the limits of rules to an error.
func explainRules(err error) error {
	return fmt.Errorf("%w: the subscriptions of a topic have at most %d rules with a correlation filter and %d others, of %d MiB in all",
		err, correlationRulesMax, sqlRulesMax, rulesMiBMax)
}

func (r *Manager) dropRule(ctx context.Context, entity fsm.Entity, name string) error {
	drop := func(id fsm.EntityID) fsm.Command { return fsm.DropRule{Subscription: id, Name: name} }
	err := r.changeRules(ctx, entity, fsm.RuleNotFound, drop, nil)
	if err != nil {
		return fmt.Errorf("drop rule %q of %q: %w", name, entity.Name, err)
	}
	return nil
}

// changeRules changes the rules of a subscription, in every shard. Shards may differ after an
// interrupted change: a shard that refuses because it has the change already is not an error if
// another shard needed the change; repair then makes the shards that refused equal.
func (r *Manager) changeRules(ctx context.Context, entity fsm.Entity, refusal fsm.Code, change, repair func(fsm.EntityID) fsm.Command) error {
	at := fsm.EntityRef{Entity: entity}
	refusals := make([]bool, shards.Count(at))
	err := shards.Each(ctx, at, func(ctx context.Context, part fsm.EntityRef, shard int) error {
		err := r.changeShard(ctx, part.Entity, change(part.ID))
		if errors.Is(err, refusal) {
			refusals[shard] = true
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	left := 0
	for _, refused := range refusals {
		if refused {
			left++
		}
	}
	switch {
	case left == len(refusals):
		return refusal
	case left == 0 || repair == nil:
		return nil
	}
	return shards.Each(ctx, at, func(ctx context.Context, part fsm.EntityRef, shard int) error {
		if !refusals[shard] {
			return nil
		}
		return r.changeShard(ctx, part.Entity, repair(part.ID))
	})
}

// changeShard submits a command about the rules of an entity that is not partitioned, or of a shard.
func (r *Manager) changeShard(ctx context.Context, entity fsm.Entity, command fsm.Command) error {
	if entity.Kind != fsm.SubscriptionEntity {
		return fmt.Errorf("%w: only a subscription has rules", fsm.NotAllowed)
	}
	return r.withRecreate(ctx, entity.ID, func() error {
		_, err := r.Command(ctx, entity.Partition, command)
		return err
	})
}
