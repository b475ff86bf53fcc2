package entities

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/admin/emulator"
	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
	"github.com/peeklock/peeklock/fsm"
)

// remoteControl is the cluster as package emulator needs it, through the control API.
type remoteControl struct{ client *client.Client }

// In returns the entities of a namespace.
func (r remoteControl) In(namespace fsm.Namespace) emulator.Entities {
	return remoteEntities{r.client.InNamespace(namespace.Name)}
}

// Namespace returns the name and the limits of a namespace.
func (r remoteControl) Namespace(ctx context.Context, name string) (fsm.Namespace, error) {
	return r.namespace(ctx, http.MethodGet, name)
}

// CreateNamespace creates a namespace with the settings and keys that the control API gives to a new one.
func (r remoteControl) CreateNamespace(ctx context.Context, name string, _ fsm.NamespaceSettings, _ []fsm.AccessRule) (fsm.Namespace, error) {
	return r.namespace(ctx, http.MethodPut, name)
}

func (r remoteControl) namespace(ctx context.Context, method, name string) (fsm.Namespace, error) {
	var found api.Namespace
	err := codedError(r.client.Call(ctx, method, namespacePath(name), nil, &found))
	namespace := fsm.Namespace{Name: found.Name}
	if found.MaxMessageBytes != nil {
		namespace.Settings.MessageBytesMax = *found.MaxMessageBytes
	}
	return namespace, err
}

// remoteEntities are the entities of one namespace, through the control API.
type remoteEntities struct{ client *client.Client }

// entity sends a request about an entity. All kinds have these fields.
func (r remoteEntities) entity(ctx context.Context, method string, kind fsm.EntityKind, name string, body any) (fsm.Entity, error) {
	plural := map[fsm.EntityKind]string{fsm.QueueEntity: "queues", fsm.TopicEntity: "topics", fsm.SubscriptionEntity: "subscriptions"}[kind]
	var found struct {
		Name string `json:"name"`
		entity.Settings
	}
	if err := r.client.Call(ctx, method, client.NamePath("/v1/"+plural+"/", name), body, &found); err != nil {
		return fsm.Entity{}, codedError(err)
	}
	e := fsm.Entity{Kind: kind, Name: found.Name, Settings: entity.DefaultSettings(kind)}
	found.StoreIn(&e.Settings)
	return e, nil
}

// CreateEntity creates an entity. access is not used: package emulator gives none.
func (r remoteEntities) CreateEntity(ctx context.Context, kind fsm.EntityKind, name string, settings fsm.EntitySettings, rule *fsm.Rule, _ []fsm.AccessRule) (fsm.Entity, error) {
	body := api.SubscriptionRequest{Settings: entity.DescribeSettings(kind, settings)}
	if rule != nil {
		described := entity.DescribeRule(*rule)
		body.DefaultRule = &described
	}
	return r.entity(ctx, http.MethodPut, kind, name, body)
}

// UpdateEntity changes the settings of an entity.
func (r remoteEntities) UpdateEntity(ctx context.Context, kind fsm.EntityKind, name string, settings fsm.EntitySettings) (fsm.Entity, error) {
	return r.entity(ctx, http.MethodPatch, kind, name, entity.DescribeSettings(kind, settings))
}

// Entity returns an entity without its counts.
func (r remoteEntities) Entity(ctx context.Context, kind fsm.EntityKind, name string) (fsm.Entity, fsm.Counts, error) {
	e, err := r.entity(ctx, http.MethodGet, kind, name, nil)
	return e, fsm.Counts{}, err
}

// PutRule adds or replaces a rule.
func (r remoteEntities) PutRule(ctx context.Context, subscription string, rule fsm.Rule, replace bool) error {
	path := RulePath(subscription, rule.Name)
	if replace {
		path += "&replace=true"
	}
	return codedError(r.client.Call(ctx, http.MethodPut, path, entity.DescribeRule(rule), nil))
}

// DropRule removes a rule.
func (r remoteEntities) DropRule(ctx context.Context, subscription, name string) error {
	return codedError(r.client.Call(ctx, http.MethodDelete, RulePath(subscription, name), nil, nil))
}

// Rules returns a page of the rules of a subscription.
func (r remoteEntities) Rules(ctx context.Context, subscription string, skip, most int) ([]fsm.Rule, error) {
	var page api.RulePage
	query := url.Values{"skip": {fmt.Sprint(skip)}, "max": {fmt.Sprint(most)}}
	if err := r.client.Call(ctx, http.MethodGet, client.NamePath("/v1/rules/", subscription)+"?"+query.Encode(), nil, &page); err != nil {
		return nil, codedError(err)
	}
	rules := make([]fsm.Rule, len(page.Rules))
	for i := range page.Rules {
		var err error
		if rules[i], err = page.Rules[i].Parse(); err != nil {
			return nil, fmt.Errorf("rule %q of %s: %w", page.Rules[i].Name, subscription, err)
		}
	}
	return rules, nil
}

// codedError adds the codes that package emulator distinguishes to an error of [Client.Call]. Without an answer, the request
// may be sent again, because package emulator only sends what can be repeated.
func codedError(err error) error {
	code, refused := client.Code(err)
	switch {
	case err == nil:
		return nil
	case cli.IsUnknown(err):
		return fmt.Errorf("%w: %w", fsm.Timeout, err)
	case !refused:
		return fmt.Errorf("%w: %w", fsm.ServerBusy, err)
	}
	known, found := map[string]fsm.Code{
		"EntityNotFound": fsm.EntityNotFound, "EntityExists": fsm.EntityExists, "RuleNotFound": fsm.RuleNotFound, "RuleExists": fsm.RuleExists,
		"ServerBusy": fsm.ServerBusy, "Timeout": fsm.Timeout,
	}[code]
	if !found {
		return err
	}
	return fmt.Errorf("%w: %w", known, err)
}
