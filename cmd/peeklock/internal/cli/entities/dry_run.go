package entities

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/fsm"
)

// mustNotExist returns an error if there is an object at path, which is called name.
func mustNotExist(i command.Invocation, path, name string) error {
	switch err := i.Client.Call(i.Ctx, http.MethodGet, path, nil, nil); {
	case err == nil:
		return fmt.Errorf("%s exists already", name)
	case client.IsNotFound(err), client.IsCode(err, "RuleNotFound"):
		return nil
	default:
		return err
	}
}

// check checks settings as far as they do not depend on the limits of the namespace.
func (r *resource[T]) check(given *entity.Settings, old fsm.EntitySettings) error {
	_, err := given.ApplyTo(r.kind, old, entity.Limits{MessageBytes: entity.TierMessageBytesMax, LockDuration: entity.TierLockDurationMax})
	return err
}

// wouldCreate says that an entity would be created.
func (r *resource[T]) wouldCreate(i command.Invocation, given *entity.Settings) (command.Would, error) {
	name := r.kind.String() + " " + i.Args[0]
	if err := r.check(given, entity.DefaultSettings(r.kind)); err != nil {
		return command.Would{}, err
	}
	if topic, _, ok := fsm.SplitSubscriptionPath(i.Args[0]); ok {
		if err := i.Client.Call(i.Ctx, http.MethodGet, TopicPath(topic), nil, nil); err != nil {
			return command.Would{}, err
		}
	}
	if err := mustNotExist(i, r.path(i.Args[0]), name); err != nil {
		return command.Would{}, err
	}
	changes, err := command.Changes(given, struct{}{})
	return command.Would{Would: "create " + name, Changes: changes}, err
}

// wouldUpdate says which settings would change.
func (r *resource[T]) wouldUpdate(i command.Invocation, given *entity.Settings) (command.Would, error) {
	var now T
	if err := i.Client.Call(i.Ctx, http.MethodGet, r.path(i.Args[0]), nil, &now); err != nil {
		return command.Would{}, err
	}
	current, stored := r.settings(&now), entity.DefaultSettings(r.kind)
	current.StoreIn(&stored)
	if err := r.check(given, stored); err != nil {
		return command.Would{}, err
	}
	name, _ := r.summary(&now)
	return command.WouldUpdate(r.kind.String()+" "+name, given, current)
}

// wouldDelete says what would be deleted.
func (r *resource[T]) wouldDelete(i command.Invocation) (command.Would, error) {
	var now T
	if err := i.Client.Call(i.Ctx, http.MethodGet, r.path(i.Args[0]), nil, &now); err != nil {
		return command.Would{}, err
	}
	name, _ := r.summary(&now)
	return command.Wouldf("delete %s %s with %s", r.kind, name, r.holds(&now))
}

// heldText returns the messages of a queue or subscription.
func heldText(counts *api.Counts) string {
	if counts == nil {
		return "all its messages, whose number is unknown"
	}
	var texts []string
	for _, c := range []struct {
		n    uint64
		what string
	}{
		{counts.Active, "active"},
		{counts.Deferred, "deferred"},
		{counts.Scheduled, "scheduled"},
		{counts.DeadLetter, "dead-letter"},
		{counts.Transfer, "transfer"},
		{counts.TransferDeadLetter, "transfer dead-letter"},
	} {
		if c.n > 0 {
			texts = append(texts, fmt.Sprintf("%d %s", c.n, c.what))
		}
	}
	if len(texts) == 0 {
		return "no messages"
	}
	return strings.Join(texts, ", ") + " messages"
}

// heldByTopic returns what a topic has.
func heldByTopic(counts *api.TopicCounts) string {
	if counts == nil {
		return "all its subscriptions, whose number is unknown"
	}
	return fmt.Sprintf("%d subscriptions with all their messages, and %d scheduled messages", counts.Subscriptions, counts.Scheduled)
}
