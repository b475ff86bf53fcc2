package emulator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm"
)

const (
	concurrencyMax       = 8 // entities at a time
	retryPause           = 200 * time.Millisecond
	rulesPage            = 200
	defaultMessageBytes  = 256 << 10 // bytes, of an entity that is made
	defaultDeliveryCount = 3
	defaultLockDuration  = time.Minute
)

// Control is what Apply needs of the cluster. Its methods have the meaning of those of admin.Control, and are safe for
// concurrent use. Errors wrap an fsm.Code: what fails with ServerBusy or Timeout is tried again.
type Control interface {
	In(namespace fsm.Namespace) Entities
	Namespace(ctx context.Context, name string) (fsm.Namespace, error)
	CreateNamespace(ctx context.Context, name string, settings fsm.NamespaceSettings, rules []fsm.AccessRule) (fsm.Namespace, error)
}

// Entities is what Apply needs of a namespace: a part of admin.NamespaceView, which implements it.
type Entities interface {
	CreateEntity(ctx context.Context, kind fsm.EntityKind, name string, settings fsm.EntitySettings, rule *fsm.Rule, access []fsm.AccessRule) (fsm.Entity, error)
	UpdateEntity(ctx context.Context, kind fsm.EntityKind, name string, settings fsm.EntitySettings) (fsm.Entity, error)
	Entity(ctx context.Context, kind fsm.EntityKind, name string) (fsm.Entity, fsm.Counts, error)
	PutRule(ctx context.Context, subscription string, rule fsm.Rule, replace bool) error
	DropRule(ctx context.Context, subscription, name string) error
	Rules(ctx context.Context, subscription string, skip, max int) ([]fsm.Rule, error)
}

// Report counts the namespaces and entities that Apply created, updated or left unchanged. A changed rule counts as a
// change of its subscription.
type Report struct {
	Created   int `json:"created"`
	Updated   int `json:"updated"`
	Unchanged int `json:"unchanged"`
	// Problems list what could not be created or changed as the file says, each with its path.
	Problems []string `json:"problems,omitempty"`
}

// Apply creates and updates what the file lists. It retries while the cluster is busy; only the end of ctx is an error,
// after which the file may be applied again. What fails is in the report, and the rest is done.
func (f *File) Apply(ctx context.Context, cluster Control) (Report, error) {
	var works []*task
	for i := range f.namespaces {
		more, err := f.namespaces[i].tasks(ctx, cluster, i == 0)
		if err != nil {
			return report(works), err
		}
		works = append(works, more...)
	}
	return perform(ctx, works)
}

// ApplyTo creates in another namespace what the file lists for the default one; else it is as Apply.
func (f *File) ApplyTo(ctx context.Context, cluster Control, namespace fsm.Namespace) (Report, error) {
	if len(f.namespaces) == 0 {
		return Report{}, nil
	}
	return perform(ctx, f.namespaces[0].entityTasks(cluster, namespace))
}

// perform does all steps of the tasks.
func perform(ctx context.Context, works []*task) (Report, error) {
	var err error
	for _, step := range []struct {
		atOnce int
		do     func(*task, context.Context) error
	}{
		// One at a time: each entity is placed on the partition with the fewest, which does not count those that are
		// being created.
		{1, func(w *task, ctx context.Context) error { return w.create(ctx, fsm.QueueEntity, fsm.TopicEntity) }},
		{concurrencyMax, func(w *task, ctx context.Context) error { return w.create(ctx, fsm.SubscriptionEntity) }},
		{concurrencyMax, (*task).applySettings},
		{concurrencyMax, (*task).applyRules},
	} {
		if err = concurrently(ctx, works, step.atOnce, step.do); err != nil {
			break
		}
	}
	return report(works), err
}

// task is an entity that is to be created or updated, or a namespace (resource nil), which exists by then.
type task struct {
	*resource

	namespace Entities
	limits    entity.Limits // of the namespace
	created   bool
	updated   bool
	problem   string // why it failed, or what stays different
	failed    bool   // no further step is tried
}

func report(works []*task) Report {
	var r Report
	for _, w := range works {
		switch {
		case w.created:
			r.Created++
		case w.updated:
			r.Updated++
		case !w.failed:
			r.Unchanged++
		}
		if w.problem != "" {
			r.Problems = append(r.Problems, w.problem)
		}
	}
	return r
}

// tasks creates the namespace, unless it exists, and returns the tasks in it.
func (n *namespace) tasks(ctx context.Context, cluster Control, first bool) ([]*task, error) {
	name, made := n.name, false
	if first {
		name = fsm.DefaultNamespaceName
	}
	var space fsm.Namespace
	err := retryWhileBusy(ctx, func() (err error) {
		space, err = cluster.Namespace(ctx, name)
		if errors.Is(err, fsm.EntityNotFound) && !first {
			space, err = cluster.CreateNamespace(ctx, name, fsm.NamespaceSettings{}, nil)
			made = err == nil
		}
		if errors.Is(err, fsm.EntityExists) { // another member was first
			space, err = cluster.Namespace(ctx, name)
		}
		return err
	})
	all := []*task{{created: made}}
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		all[0].failed, all[0].problem = true, fmt.Sprintf("%s (%s): %v", n.path, name, err)
		return all, nil
	}
	if first {
		all = nil // the file does not list the default namespace
	}
	return append(all, n.entityTasks(cluster, space)...), nil
}

// entityTasks returns the tasks for the entities, in a namespace that exists.
func (n *namespace) entityTasks(cluster Control, space fsm.Namespace) []*task {
	all := make([]*task, len(n.entities))
	for i, e := range n.entities {
		all[i] = &task{resource: e, namespace: cluster.In(space), limits: entity.LimitsOf(space.Settings)}
	}
	return all
}

// concurrently does a step for all tasks, some at a time, and returns the first error.
func concurrently(ctx context.Context, works []*task, atOnce int, step func(*task, context.Context) error) error {
	slots := make(chan struct{}, atOnce)
	errs := make([]error, len(works))
	var group sync.WaitGroup
	for i, w := range works {
		if w.resource == nil || w.failed {
			continue
		}
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			errs[i] = step(w, ctx)
		})
	}
	group.Wait()
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		return errs[i]
	}
	return nil
}

// retryWhileBusy calls ask until it returns another error than that the cluster is busy. To create something
// twice is safe: the second attempt finds it.
func retryWhileBusy(ctx context.Context, ask func() error) error {
	for {
		err := ask()
		if !errors.Is(err, fsm.ServerBusy) && !errors.Is(err, fsm.Timeout) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(retryPause):
		}
	}
}

// attempt calls ask with retryWhileBusy. An error is recorded and ends the task: then goOn is false. The returned error is
// that of ctx only.
func (w *task) attempt(ctx context.Context, ask func() error) (goOn bool, err error) {
	err = retryWhileBusy(ctx, ask)
	switch {
	case err == nil:
		return true, nil
	case ctx.Err() != nil:
		return false, err
	}
	w.recordProblem("%v", err)
	w.failed = true
	return false, nil
}

// recordProblem keeps the first problem of a task: later ones usually follow from it.
func (w *task) recordProblem(format string, args ...any) {
	if w.problem == "" {
		w.problem = fmt.Sprintf("%s (%s): %s", w.path, w.name, fmt.Sprintf(format, args...))
	}
}

// defaults are those of the emulator for number and duration of locks, because tests depend on them. Its time to live of
// an hour is a limit of the emulator and does not apply.
func (w *task) defaults() fsm.EntitySettings {
	s := fsm.DefaultSettings()
	s.LockDuration = fsm.Millis(defaultLockDuration.Milliseconds())
	s.MaxDeliveryCount = defaultDeliveryCount
	s.DuplicateWindow = fsm.Millis(entity.DuplicateWindowMin.Milliseconds())
	s.MaxMessageBytes = defaultMessageBytes
	s.MaxMessageBytes = min(s.MaxMessageBytes, w.limits.MessageBytes)
	s.DeadLetterOnFilterErrors = w.kind == fsm.SubscriptionEntity
	return s
}

// create creates an entity of these kinds, without forwarding, if it does not exist.
func (w *task) create(ctx context.Context, kinds ...fsm.EntityKind) error {
	if !slices.Contains(kinds, w.kind) {
		return nil
	}
	settings := w.defaults()
	w.settings.StoreIn(&settings)
	settings.ForwardTo, settings.ForwardDeadLettersTo = "", ""
	var rule *fsm.Rule
	if len(w.rules) > 0 {
		rule = &w.rules[0]
	}
	_, err := w.attempt(ctx, func() error {
		_, err := w.namespace.CreateEntity(ctx, w.kind, w.name, settings, rule, nil)
		if errors.Is(err, fsm.EntityExists) {
			return nil
		}
		w.created = err == nil
		return w.explain(err)
	})
	return err
}

// applySettings changes the settings that the file gives.
func (w *task) applySettings(ctx context.Context) error {
	var found fsm.Entity
	goOn, err := w.attempt(ctx, func() (err error) {
		found, _, err = w.namespace.Entity(ctx, w.kind, w.name)
		if errors.Is(err, fsm.EntityNotFound) {
			return fmt.Errorf("the name is taken by an entity of another kind: %w", fsm.EntityExists)
		}
		return err
	})
	if !goOn || err != nil {
		return err
	}
	old := found.Settings.WithDefaults()
	wanted := old
	w.settings.StoreIn(&wanted)
	w.keepFixed(&wanted, &old)
	if wanted == old {
		return nil
	}
	_, err = w.attempt(ctx, func() error {
		_, err := w.namespace.UpdateEntity(ctx, w.kind, w.name, wanted)
		w.updated = w.updated || err == nil
		return w.explain(err)
	})
	return err
}

// explain names the setting that a namespace refused because it exceeds its limit.
func (w *task) explain(err error) error {
	if !errors.Is(err, fsm.InvalidArgument) {
		return err
	}
	if refused := w.settings.Check(w.limits); refused != nil {
		return fmt.Errorf("%w: Properties.%w", fsm.InvalidArgument, refused)
	}
	return err
}

// keepFixed reports differences in settings that cannot be changed, and keeps them as they are. A destination that
// differs in case alone stays as it is, too.
func (w *task) keepFixed(wanted, old *fsm.EntitySettings) {
	table := entity.Table()
	for i := range table {
		s := &table[i]
		was, is := s.ElementText(old), s.ElementText(wanted)
		switch {
		case s.Fixed && was != is:
			w.recordProblem("Properties.%s is %s in the %s that exists, and cannot be changed: delete it first", s.Element, was, w.kind)
			s.Copy(wanted, old)
		case s.Destination && strings.EqualFold(was, is):
			s.Copy(wanted, old)
		}
	}
}

// applyRules creates and changes the rules of the file. Other rules of the subscription stay, except the default rule that matches
// all messages.
func (w *task) applyRules(ctx context.Context) error {
	if w.kind != fsm.SubscriptionEntity || len(w.rules) == 0 {
		return nil
	}
	_, err := w.attempt(ctx, func() error {
		present, err := w.listRules(ctx)
		if err != nil {
			return err
		}
		for i := range w.rules {
			if err := w.putRule(ctx, present, w.rules[i]); err != nil {
				return err
			}
		}
		return w.dropDefaultRule(ctx, present)
	})
	return err
}

// listRules returns all rules of the subscription.
func (w *task) listRules(ctx context.Context) ([]fsm.Rule, error) {
	var all []fsm.Rule
	for {
		page, err := w.namespace.Rules(ctx, w.name, len(all), rulesPage)
		if err != nil {
			return nil, err
		}
		if all = append(all, page...); len(page) < rulesPage {
			return all, nil
		}
	}
}

func (w *task) putRule(ctx context.Context, present []fsm.Rule, rule fsm.Rule) error {
	at := slices.IndexFunc(present, func(p fsm.Rule) bool { return strings.EqualFold(p.Name, rule.Name) })
	if at >= 0 && equalRules(&present[at], &rule) {
		return nil
	}
	err := w.namespace.PutRule(ctx, w.name, rule, at >= 0)
	switch {
	case err == nil:
		w.updated = true
	case errors.Is(err, fsm.RuleExists) && at < 0: // another member was first, with the same file
		return nil
	}
	return err
}

func (w *task) dropDefaultRule(ctx context.Context, present []fsm.Rule) error {
	for i := range present {
		p := &present[i]
		if slices.ContainsFunc(w.rules, func(r fsm.Rule) bool { return strings.EqualFold(r.Name, p.Name) }) {
			continue
		}
		if p.Name != fsm.DefaultRuleName || p.Filter.Kind != fsm.TrueFilter || p.Action.Text != "" {
			w.recordProblem("the subscription also has the rule %q, which stays: remove it if it is not wanted", truncate(p.Name))
			continue
		}
		switch err := w.namespace.DropRule(ctx, w.name, p.Name); {
		case err == nil:
			w.updated = true
		case !errors.Is(err, fsm.RuleNotFound):
			return err
		}
	}
	return nil
}

// equalRules reports whether two rules do the same.
func equalRules(a, b *fsm.Rule) bool {
	return a.Filter.Kind == b.Filter.Kind && slices.Equal(a.Filter.Conditions, b.Filter.Conditions) &&
		equalTexts(&a.Filter.SQL, &b.Filter.SQL) && equalTexts(&a.Action, &b.Action)
}

func equalTexts(a, b *fsm.SQLText) bool {
	return a.Text == b.Text && slices.Equal(a.Parameters, b.Parameters)
}
