package router

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
func (r *Router) AddRule(ctx context.Context, at fsm.EntityRef, rule fsm.Rule) error {
	return r.putRule(ctx, at.Entity, rule, false)
}

// RemoveRule removes a rule by name. Errors wrap RuleNotFound, EntityNotFound, ServerBusy
// or Timeout.
func (r *Router) RemoveRule(ctx context.Context, at fsm.EntityRef, name string) error {
	return r.dropRule(ctx, at.Entity, name)
}

// ListRules returns up to max rules (1000) of a subscription by name, case-insensitively, after the first skip.
func (r *Router) ListRules(ctx context.Context, at fsm.EntityRef, skip, max int) ([]fsm.Rule, error) {
	if at.Kind != fsm.SubscriptionEntity {
		return nil, fmt.Errorf("rules of %q: %w: only a subscription has rules", at.Name, fsm.NotAllowed)
	}
	if len(at.Shards) > 0 {
		at = shards.Ref(at, 0) // all shards have the same
	}
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

func (r *Router) putRule(ctx context.Context, entity fsm.Entity, rule fsm.Rule, replace bool) error {
	err := rule.Validate()
	put := func(id fsm.EntityID) fsm.Command { return fsm.PutRule{Subscription: id, Rule: rule, Replace: replace} }
	switch {
	case err != nil:
	case len(entity.Shards) > 0:
		refusal := fsm.RuleExists
		if replace {
			refusal = fsm.RuleNotFound
		}
		err = r.changeShardRules(ctx, fsm.EntityRef{Entity: entity}, refusal, put, func(id fsm.EntityID) fsm.Command {
			return fsm.PutRule{Subscription: id, Rule: rule, Replace: !replace}
		})
	default:
		err = r.changeRules(ctx, entity, put(entity.ID))
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

func (r *Router) dropRule(ctx context.Context, entity fsm.Entity, name string) error {
	drop := func(id fsm.EntityID) fsm.Command { return fsm.DropRule{Subscription: id, Name: name} }
	var err error
	if len(entity.Shards) > 0 {
		err = r.changeShardRules(ctx, fsm.EntityRef{Entity: entity}, fsm.RuleNotFound, drop, nil)
	} else {
		err = r.changeRules(ctx, entity, drop(entity.ID))
	}
	if err != nil {
		return fmt.Errorf("drop rule %q of %q: %w", name, entity.Name, err)
	}
	return nil
}

// changeRules submits a command about the rules of an entity.
func (r *Router) changeRules(ctx context.Context, entity fsm.Entity, command fsm.Command) error {
	if entity.Kind != fsm.SubscriptionEntity {
		return fmt.Errorf("%w: only a subscription has rules", fsm.NotAllowed)
	}
	return r.withRecreate(ctx, entity.ID, func() error {
		_, err := r.Command(ctx, entity.Partition, command)
		return err
	})
}

// withRecreate calls a function, and once more when the partition does not know the entity and the
// catalog does, because its creation was interrupted.
func (r *Router) withRecreate(ctx context.Context, id fsm.EntityID, ask func() error) error {
	err := ask()
	if errors.Is(err, fsm.EntityNotFound) {
		if err = r.putShard(ctx, id); err == nil {
			err = ask()
		}
	}
	return err
}
