package admin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/admin/inspect"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/topology"
)

// fakeControl is a Control in memory.
type fakeControl struct {
	Operations // nil unless a test sets it

	mu       sync.Mutex
	entities map[string]fsm.Entity // by name in lower case
	rules    map[string][]fsm.Rule // by name of the subscription in lower case
	fails    error                 // returned by every call, if set
	holds    chan struct{}         // if set, List waits for it
	asked    []string              // purges and redrives
	sessions []fsm.Session         // sessions of every entity that has some
	listed   atomic.Int32
	figured  int  // calls of Figures
	endless  bool // Entities never ends
	rivals   int  // number of concurrent changes of access rules before the next attempt

	id        fsm.NamespaceID
	namespace fsm.Namespace
	others    map[fsm.NamespaceID]*fakeControl
}

func newFakeControl() *fakeControl {
	return &fakeControl{
		entities: make(map[string]fsm.Entity), rules: make(map[string][]fsm.Rule), others: make(map[fsm.NamespaceID]*fakeControl),
		id: fsm.DefaultNamespace, namespace: fsm.Namespace{ID: fsm.DefaultNamespace, Name: fsm.DefaultNamespaceName, Version: 1},
	}
}

// find searches the given kinds; all kinds if none is given.
func (h *fakeControl) find(name string, kinds ...fsm.EntityKind) (fsm.Entity, error) {
	if h.fails != nil {
		return fsm.Entity{}, h.fails
	}
	e, ok := h.entities[strings.ToLower(name)]
	if !ok || len(kinds) > 0 && !slices.Contains(kinds, e.Kind) {
		return fsm.Entity{}, fmt.Errorf("entity %q: %w", name, fsm.EntityNotFound)
	}
	return e, nil
}

func (h *fakeControl) CreateEntity(_ context.Context, kind fsm.EntityKind, name string, s fsm.EntitySettings, rule *fsm.Rule, access []fsm.AccessRule) (fsm.Entity, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, err := h.find(name); err == nil {
		return fsm.Entity{}, fmt.Errorf("create queue: %w", fsm.EntityExists)
	}
	if h.fails != nil {
		return fsm.Entity{}, h.fails
	}
	e := fsm.Entity{ID: fsm.EntityID(len(h.entities) + 1), Kind: kind, Name: name, Partition: 3, Version: 1, Settings: s, Created: 1795176000000, Updated: 1795176000000, Access: dated(access), AccessVersion: 1}
	if kind == fsm.SubscriptionEntity {
		path, _, _ := fsm.SplitSubscriptionPath(name)
		topic, err := h.find(path, fsm.TopicEntity)
		if err != nil {
			return fsm.Entity{}, fmt.Errorf("create subscription: %w", err)
		}
		e.Topic = topic.ID
		if rule == nil {
			rule = &fsm.Rule{Name: fsm.DefaultRuleName}
		}
		h.rules[strings.ToLower(name)] = []fsm.Rule{*rule}
	}
	h.entities[strings.ToLower(name)] = e
	return e, nil
}

func (h *fakeControl) UpdateEntity(_ context.Context, kind fsm.EntityKind, name string, s fsm.EntitySettings) (fsm.Entity, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e, err := h.find(name, kind)
	if err == nil {
		e.Settings, e.Version = s, e.Version+1
		h.entities[strings.ToLower(e.Name)] = e
	}
	return e, err
}

func (h *fakeControl) DeleteEntity(_ context.Context, kind fsm.EntityKind, name string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	e, err := h.find(name, kind)
	delete(h.entities, strings.ToLower(e.Name))
	return err
}

func (h *fakeControl) Entity(_ context.Context, kind fsm.EntityKind, name string) (fsm.Entity, fsm.Counts, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e, err := h.find(name, kind)
	return e, fsm.Counts{Active: 7, Scheduled: 2, Bytes: 9, Transfer: 4, TransferDeadLetter: 5, Subscriptions: 6}, err
}

func (h *fakeControl) Entities(ctx context.Context, kind fsm.EntityKind, under, after string, max int) ([]fsm.Entity, error) {
	h.listed.Add(1)
	if h.holds != nil {
		select {
		case <-h.holds:
		case <-ctx.Done():
		}
	}
	if h.endless {
		return slices.Repeat([]fsm.Entity{{Kind: kind, Name: "q"}}, max), nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var list []fsm.Entity
	for n, e := range h.entities {
		topic, _, _ := fsm.SplitSubscriptionPath(e.Name)
		if e.Kind == kind && strings.EqualFold(topic, under) && n > strings.ToLower(after) {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b fsm.Entity) int { return strings.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name)) })
	return list[:min(max, len(list))], h.fails
}

func (h *fakeControl) Sessions(_ context.Context, path string, skip, max int) ([]fsm.Session, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e, err := h.find(path, fsm.QueueEntity, fsm.SubscriptionEntity)
	if err != nil {
		return nil, err
	}
	if !e.Settings.RequiresSession {
		return nil, fmt.Errorf("sessions: %w", fsm.NotAllowed)
	}
	skip = min(skip, len(h.sessions))
	return h.sessions[skip:min(skip+max, len(h.sessions))], nil
}

func (h *fakeControl) PutRule(_ context.Context, subscription string, rule fsm.Rule, replace bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, err := h.find(subscription, fsm.SubscriptionEntity); err != nil {
		return err
	}
	key := strings.ToLower(subscription)
	i := h.rule(key, rule.Name)
	switch {
	case replace && i < 0:
		return fmt.Errorf("put rule: %w", fsm.RuleNotFound)
	case replace:
		h.rules[key][i] = rule
	case i >= 0:
		return fmt.Errorf("put rule: %w", fsm.RuleExists)
	default:
		rule.Created = 1795176000000
		h.rules[key] = append(h.rules[key], rule)
	}
	return nil
}

func (h *fakeControl) rule(key, name string) int {
	return slices.IndexFunc(h.rules[key], func(r fsm.Rule) bool { return strings.EqualFold(r.Name, name) })
}

func (h *fakeControl) DropRule(_ context.Context, subscription, name string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, err := h.find(subscription, fsm.SubscriptionEntity); err != nil {
		return err
	}
	key := strings.ToLower(subscription)
	i := h.rule(key, name)
	if i < 0 {
		return fmt.Errorf("drop rule: %w", fsm.RuleNotFound)
	}
	h.rules[key] = slices.Delete(h.rules[key], i, i+1)
	return nil
}

func (h *fakeControl) Rules(_ context.Context, subscription string, skip, max int) ([]fsm.Rule, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, err := h.find(subscription, fsm.SubscriptionEntity); err != nil {
		return nil, err
	}
	all := h.rules[strings.ToLower(subscription)]
	all = all[min(skip, len(all)):]
	return slices.Clone(all[:min(max, len(all))]), nil
}

// Rates returns those of two entities.
func (h *fakeControl) Rates(_ context.Context, q topology.RatesQuery) []topology.EntityRates {
	all := []topology.EntityRates{
		{Name: "busy", Rates: topology.Rates{Outgoing: 3}, Samples: []topology.Sample{{Outgoing: 30}}},
		{Name: "quiet", Rates: topology.Rates{Incoming: 2}, Samples: []topology.Sample{{Incoming: 20}}},
	}
	if q.Name == "" {
		all[0].Samples, all[1].Samples = nil, nil
		list := []topology.EntityRates{all[1], all[0]}
		if q.Total {
			list = slices.Insert(list, 0, topology.EntityRates{Samples: []topology.Sample{{Incoming: 20, Outgoing: 30}}})
		}
		return list
	}
	return slices.DeleteFunc(all, func(e topology.EntityRates) bool { return e.Name != q.Name })
}

// Audit returns one event.
func (h *fakeControl) Audit(_ context.Context, after string, _ int) (topology.AuditPage, error) {
	if after != "" {
		return topology.AuditPage{}, fmt.Errorf("%w: %s is no cursor", fsm.InvalidArgument, after)
	}
	return topology.AuditPage{Events: []topology.AuditEvent{{Event: "admin_change", Member: "a", Fields: map[string]string{"who": "root"}}}}, nil
}

// Storage returns one member and one backup.
func (*fakeControl) Storage(context.Context) topology.Storage {
	return topology.Storage{Members: []topology.MemberStorage{{ID: "1", Name: "a", DiskBytes: 100, FreeBytes: 40}}, Backups: []topology.Backup{{Partition: 1, Bytes: 7}}}
}

// Figures returns those of the named entities that exist.
func (h *fakeControl) Figures(_ context.Context, q topology.FiguresQuery) topology.Figures {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.figured++
	var f topology.Figures
	for _, name := range q.Rows {
		if e, err := h.find(name); err == nil {
			f.Rows = append(f.Rows, topology.EntityFigures{Name: e.Name, Kind: e.Kind.String(), Depths: topology.Depths{Active: uint64(h.figured)}})
		}
	}
	f.Queues = len(h.entities)
	return f
}

func (h *fakeControl) Counts(_ context.Context, entities []fsm.Entity) ([]fsm.Counts, error) {
	counts := make([]fsm.Counts, len(entities))
	for i := range counts {
		counts[i] = fsm.Counts{Active: uint64(entities[i].ID)}
	}
	return counts, nil
}

func (h *fakeControl) PurgeEntity(_ context.Context, name string, sub fsm.SubQueue, before time.Time, most int) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e, err := h.find(name)
	if e.Kind == fsm.TopicEntity && err == nil {
		return 0, fmt.Errorf("%w: %s is a topic", fsm.NotAllowed, name)
	}
	h.asked = append(h.asked, fmt.Sprintf("purge %s %d %s %d", e.Name, sub, before.UTC().Format(time.RFC3339), most))
	return 3, err
}

// fakeMessages is the broker of the routes about single messages: it records what it is asked for.
type fakeMessages struct {
	inspect.Broker // nil: no test reads a message

	control *fakeControl
}

func (m fakeMessages) Resolve(_ context.Context, _ fsm.NamespaceID, path string) (fsm.EntityRef, error) {
	m.control.mu.Lock()
	defer m.control.mu.Unlock()
	e, err := m.control.find(path)
	return fsm.EntityRef{Entity: e}, err
}

func (m fakeMessages) Peek(_ context.Context, at fsm.EntityRef, from fsm.SequenceNumber, most, _ int) ([]fsm.Delivery, error) {
	m.control.mu.Lock()
	defer m.control.mu.Unlock()
	m.control.asked = append(m.control.asked, fmt.Sprintf("peek %s %d from %d %d", at.Name, at.Sub, from, most))
	return nil, nil
}

func (m fakeMessages) Redrive(_ context.Context, at fsm.EntityRef, sequences []fsm.SequenceNumber) (int, error) {
	m.control.mu.Lock()
	defer m.control.mu.Unlock()
	m.control.asked = append(m.control.asked, fmt.Sprintf("redrive %s %v", at.Name, sequences))
	return len(sequences), nil
}

func (m fakeMessages) SettleUnlocked(_ context.Context, at fsm.EntityRef, sequences []fsm.SequenceNumber, verb fsm.Verb, states fsm.StateSet) (int, error) {
	m.control.mu.Lock()
	defer m.control.mu.Unlock()
	m.control.asked = append(m.control.asked, fmt.Sprintf("settle %s %d %v %d %d", at.Name, at.Sub, sequences, verb, states))
	return len(sequences), nil
}

func (h *fakeControl) Status(context.Context) (topology.Status, error) {
	return topology.Status{ClusterID: "c", Members: []topology.Member{
		{ID: "2", Name: "b", State: "dead", AMQP: "b:5672"}, {ID: "1", Name: "c", State: "alive", AMQP: "c:5672"}, {ID: "3", Name: "a", State: "alive", AMQP: "a:5672"},
	}, Partitions: []topology.Partition{{ID: 9, Replicas: []fsm.MemberID{"2", "4"}}}}, h.fails
}

// In returns the fake itself for the default namespace, and a separate fake for each other one.
func (h *fakeControl) In(id fsm.NamespaceID) NamespaceView {
	h.mu.Lock()
	defer h.mu.Unlock()
	if id == h.id {
		return h
	}
	if other, ok := h.others[id]; ok {
		return other
	}
	nowhere := newFakeControl()
	nowhere.fails = fsm.EntityNotFound
	return nowhere
}

func (h *fakeControl) NamespaceByHost(_ context.Context, host string) (fsm.NamespaceID, error) {
	name, _, _ := strings.Cut(host, ":")
	label, _, _ := strings.Cut(name, ".")
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, other := range h.others {
		if slices.Contains(other.namespace.Settings.Hosts, name) || strings.EqualFold(other.namespace.Name, label) {
			return id, nil
		}
	}
	return h.id, nil
}

func (*fakeControl) NamesEntity(fsm.NamespaceID, string) bool { return false }

func (*fakeControl) AwaitConfirmed(context.Context) bool { return true }

func (h *fakeControl) NamespaceName(id fsm.NamespaceID) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if id == h.id {
		return h.namespace.Name
	}
	if other, ok := h.others[id]; ok {
		return other.namespace.Name
	}
	return ""
}

// all returns the fakes by the names of their namespaces in lower case.
func (h *fakeControl) all() map[string]*fakeControl {
	list := map[string]*fakeControl{fsm.DefaultNamespaceName: h}
	for _, other := range h.others {
		list[strings.ToLower(other.namespace.Name)] = other
	}
	return list
}

func (h *fakeControl) Namespace(_ context.Context, name string) (fsm.Namespace, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if found, ok := h.all()[strings.ToLower(name)]; ok {
		return found.namespace, nil
	}
	return fsm.Namespace{}, fmt.Errorf("namespace %q: %w", name, fsm.EntityNotFound)
}

func (h *fakeControl) Namespaces(_ context.Context, after string, max int) ([]fsm.Namespace, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.all()
	var list []fsm.Namespace
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if name > strings.ToLower(after) && len(list) < max {
			list = append(list, all[name].namespace)
		}
	}
	return list, nil
}

func (h *fakeControl) CreateNamespace(_ context.Context, name string, settings fsm.NamespaceSettings, rules []fsm.AccessRule) (fsm.Namespace, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.all()[strings.ToLower(name)]; ok {
		return fsm.Namespace{}, fmt.Errorf("create namespace: %w", fsm.EntityExists)
	}
	other := newFakeControl()
	other.id = fsm.NamespaceID(len(h.others) + 2)
	other.namespace = fsm.Namespace{ID: other.id, Name: name, Settings: settings, Access: dated(rules), Version: 1, Created: 1795176000000, Updated: 1795176000000}
	h.others[other.id] = other
	return other.namespace, nil
}

func (h *fakeControl) UpdateNamespace(_ context.Context, name string, settings fsm.NamespaceSettings) (fsm.Namespace, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	found, ok := h.all()[strings.ToLower(name)]
	if !ok {
		return fsm.Namespace{}, fsm.EntityNotFound
	}
	found.namespace.Settings, found.namespace.Version = settings, found.namespace.Version+1
	return found.namespace, nil
}

func (h *fakeControl) DeleteNamespace(_ context.Context, name string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	found, ok := h.all()[strings.ToLower(name)]
	switch {
	case !ok:
		return fsm.EntityNotFound
	case found == h:
		return fsm.NotAllowed
	case len(found.entities) > 0:
		return fsm.PreconditionFails
	}
	delete(h.others, found.id)
	return nil
}

func (h *fakeControl) Describe(context.Context) (fsm.Namespace, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.namespace, h.fails
}

// shorten sets a key of a rule that the API would not accept: one that is older than the limit.
func (h *fakeControl) shorten(path, rule, secret string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	rules := h.namespace.Access
	if path != "" {
		rules = h.entities[path].Access
	}
	rules[entity.FindAccessRule(rules, rule)].Primary = secret
}

func (h *fakeControl) SetAccess(_ context.Context, name string, version uint64, rules []fsm.AccessRule) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rivals--
	if h.rivals >= 0 {
		return fmt.Errorf("set access: %w", fsm.PreconditionFails)
	}
	if name == "" {
		if version != h.namespace.Version {
			return fmt.Errorf("set access: %w", fsm.PreconditionFails)
		}
		h.namespace.Version++
		h.namespace.Access = dated(rules)
		return nil
	}
	e, err := h.find(name, fsm.QueueEntity, fsm.TopicEntity)
	if err != nil {
		return err
	}
	if version != e.AccessVersion {
		return fmt.Errorf("set access: %w", fsm.PreconditionFails)
	}
	e.AccessVersion++
	e.Access = dated(rules)
	h.entities[strings.ToLower(name)] = e
	return nil
}

func dated(rules []fsm.AccessRule) []fsm.AccessRule {
	rules = slices.Clone(rules)
	for i := range rules {
		rules[i].Created, rules[i].Updated = 1795176000000, 1795176001000
	}
	return rules
}

// Access returns the rules that the keyring requests.
func (h *fakeControl) Access(id fsm.NamespaceID, path string) (own, shared []fsm.AccessRule) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := h
	if id != h.id {
		if at = h.others[id]; at == nil {
			return nil, nil
		}
	}
	return at.entities[strings.ToLower(path)].Access, at.namespace.Access
}

// Connections returns one connection of each namespace.
func (h *fakeControl) Connections(_ context.Context, namespace fsm.NamespaceID, after string, most int) (topology.ConnectionPage, error) {
	page := topology.ConnectionPage{Connections: []topology.Connection{}}
	for _, id := range []fsm.NamespaceID{fsm.DefaultNamespace, fsm.DefaultNamespace + 1} {
		c := topology.Connection{ID: fmt.Sprintf("a-%x", id), NamespaceID: id, Links: []topology.Link{}}
		if (namespace == 0 || namespace == id) && c.ID > after && len(page.Connections) < most {
			page.Connections = append(page.Connections, c)
		}
	}
	return page, nil
}

// CloseConnection closes a connection of Connections.
func (h *fakeControl) CloseConnection(ctx context.Context, namespace fsm.NamespaceID, id string) error {
	page, err := h.Connections(ctx, namespace, "", 9)
	if err == nil && !slices.ContainsFunc(page.Connections, func(c topology.Connection) bool { return c.ID == id }) {
		return fmt.Errorf("%w: there is no connection %s", fsm.EntityNotFound, id)
	}
	return err
}
