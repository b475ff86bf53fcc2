package fsm_test

import (
	"cmp"
	"slices"
	"strings"

	"github.com/peeklock/peeklock/fsm"
)

// catalogModel is the catalog as a reader would write it down: maps, everything searched,
// nothing counted ahead. It knows no limits but those of namespaces.
type catalogModel struct {
	now        fsm.Instant
	spaces     map[fsm.NamespaceID]fsm.Namespace
	spaceLast  fsm.NamespaceID
	entities   map[fsm.EntityID]fsm.Entity
	entityLast fsm.EntityID
	members    map[fsm.MemberID]fsm.Member
	partitions []fsm.Partition
	level      uint32
	levelMax   uint32
}

func newCatalogModel(founded fsm.FoundCluster, now fsm.Instant) *catalogModel {
	m := &catalogModel{
		now: now, spaces: map[fsm.NamespaceID]fsm.Namespace{}, entities: map[fsm.EntityID]fsm.Entity{}, members: map[fsm.MemberID]fsm.Member{},
		level: 1,
	}
	for _, p := range founded.Partitions {
		p.Last = uint32(len(p.Replicas))
		m.partitions = append(m.partitions, p)
	}
	m.open(fsm.CreateNamespace{Name: "default"})
	return m
}

func (m *catalogModel) apply(now fsm.Instant, c fsm.Command) fsm.Result {
	m.now = max(m.now, now)
	switch c := c.(type) {
	case fsm.CreateNamespace:
		return m.open(c)
	case fsm.UpdateNamespace:
		return m.limit(c)
	case fsm.DeleteNamespace:
		return m.shut(c.Namespace)
	case fsm.SetAccess:
		return m.allow(c)
	case fsm.CreateEntity:
		return m.create(c)
	case fsm.UpdateEntity:
		return m.update(c)
	case fsm.DeleteEntity:
		return m.delete(c.Entity)
	case fsm.ForgetEntity:
		return m.forget(c.Entity)
	case fsm.SetMember:
		return fsm.Result{Code: m.describe(c.Member)}
	case fsm.PlacePartition:
		return fsm.Result{Code: m.place(c)}
	case fsm.ReplaceReplica:
		return fsm.Result{Code: m.replace(c)}
	case fsm.PartitionPlaced:
		return fsm.Result{Code: m.placed(c)}
	case fsm.RaiseLevel:
		if c.Level < m.level || m.levelMax != 0 && c.Level > m.levelMax {
			return fsm.Result{Code: fsm.PreconditionFails}
		}
		m.level = c.Level
	case fsm.HoldLevel:
		if c.Max != 0 && c.Max < m.level {
			return fsm.Result{Code: fsm.PreconditionFails}
		}
		m.levelMax = c.Max
	case fsm.PartitionFormed:
		m.partitions[c.Partition-1].Formed = true
	}
	return fsm.Result{}
}

func (m *catalogModel) titleTaken(name string) bool {
	for _, n := range m.spaces {
		if strings.EqualFold(n.Name, name) {
			return true
		}
	}
	return false
}

func (m *catalogModel) hostTaken(hosts []string, but fsm.NamespaceID) bool {
	for id, n := range m.spaces {
		for _, host := range hosts {
			if id != but && slices.Contains(n.Settings.Hosts, host) {
				return true
			}
		}
	}
	return false
}

func (m *catalogModel) open(c fsm.CreateNamespace) fsm.Result {
	if m.titleTaken(c.Name) || m.hostTaken(c.Settings.Hosts, 0) {
		return fsm.Result{Code: fsm.EntityExists}
	}
	m.spaceLast++
	m.spaces[m.spaceLast] = fsm.Namespace{
		ID: m.spaceLast, Name: c.Name, Settings: c.Settings, Access: m.merged(nil, c.Access), Version: 1, Created: m.now, Updated: m.now,
	}
	return fsm.Result{Namespace: m.spaceLast, Version: 1}
}

func sameSpace(a, b fsm.NamespaceSettings) bool {
	x, y := a, b
	x.Hosts, y.Hosts = nil, nil
	return slices.Equal(a.Hosts, b.Hosts) && x.EntitiesMax == y.EntitiesMax && x.LockDurationMax == y.LockDurationMax &&
		x.MessageBytesMax == y.MessageBytesMax && x.BytesMax == y.BytesMax && x.MessagesMax == y.MessagesMax && x.RulesMax == y.RulesMax && x.UserMetadata == y.UserMetadata
}

func (m *catalogModel) limit(c fsm.UpdateNamespace) fsm.Result {
	n, found := m.spaces[c.Namespace]
	switch {
	case !found:
		return fsm.Result{Code: fsm.EntityNotFound}
	case m.hostTaken(c.Settings.Hosts, c.Namespace):
		return fsm.Result{Code: fsm.EntityExists}
	case !sameSpace(n.Settings, c.Settings):
		n.Settings, n.Updated = c.Settings, m.now
		n.Version++
		m.spaces[n.ID] = n
	}
	return fsm.Result{Version: n.Version}
}

func (m *catalogModel) shut(id fsm.NamespaceID) fsm.Result {
	if _, found := m.spaces[id]; !found {
		return fsm.Result{Code: fsm.EntityNotFound}
	}
	if id == 1 {
		return fsm.Result{Code: fsm.NotAllowed}
	}
	for _, e := range m.entities {
		if e.Namespace == id {
			return fsm.Result{Code: fsm.PreconditionFails}
		}
	}
	delete(m.spaces, id)
	return fsm.Result{}
}

// merged returns the rules with the times of the old ones.
func (m *catalogModel) merged(old, rules []fsm.AccessRule) []fsm.AccessRule {
	var list []fsm.AccessRule
	for _, a := range rules {
		a.Created, a.Updated = m.now, m.now
		for _, b := range old {
			if a.Name != b.Name {
				continue
			}
			a.Created = b.Created
			if a.Primary == b.Primary && a.Secondary == b.Secondary && a.Rights == b.Rights {
				a.Updated = b.Updated
			}
		}
		list = append(list, a)
	}
	slices.SortFunc(list, func(a, b fsm.AccessRule) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

func (m *catalogModel) allow(c fsm.SetAccess) fsm.Result {
	n, found := m.spaces[c.Namespace]
	e, is := m.entities[c.Entity]
	switch {
	case !found || c.Entity != 0 && (!is || e.Namespace != c.Namespace || e.Dropping):
		return fsm.Result{Code: fsm.EntityNotFound}
	case e.Kind == fsm.SubscriptionEntity:
		return fsm.Result{Code: fsm.InvalidArgument}
	case c.Version != 0 && (c.Entity == 0 && c.Version != n.Version || c.Entity != 0 && c.Version != e.AccessVersion):
		return fsm.Result{Code: fsm.PreconditionFails}
	}
	if c.Entity == 0 {
		if rules := m.merged(n.Access, c.Rules); !slices.Equal(rules, n.Access) {
			n.Access, n.Updated = rules, m.now
			n.Version++
			m.spaces[n.ID] = n
		}
		return fsm.Result{Version: n.Version}
	}
	if rules := m.merged(e.Access, c.Rules); !slices.Equal(rules, e.Access) {
		e.Access, e.Updated = rules, m.now
		e.AccessVersion++
		m.entities[e.ID] = e
	}
	return fsm.Result{Version: e.AccessVersion}
}

// find finds an entity that is not dropping.
func (m *catalogModel) find(namespace fsm.NamespaceID, name string) (fsm.Entity, bool) {
	for _, e := range m.entities {
		if e.Namespace == namespace && !e.Dropping && strings.EqualFold(e.Name, name) {
			return e, true
		}
	}
	return fsm.Entity{}, false
}

func (m *catalogModel) create(c fsm.CreateEntity) fsm.Result {
	if c.Kind == fsm.SubscriptionEntity {
		topic, found := m.entities[c.Topic]
		if !found || topic.Dropping || topic.Kind != fsm.TopicEntity || c.Namespace != 0 && c.Namespace != topic.Namespace {
			return fsm.Result{Code: fsm.EntityNotFound}
		}
		of, name, _ := fsm.SplitSubscriptionPath(c.Name)
		if !strings.EqualFold(of, topic.Name) {
			return fsm.Result{Code: fsm.InvalidArgument}
		}
		c.Namespace, c.Partition, c.Name = topic.Namespace, topic.Partition, topic.Name+"/Subscriptions/"+name
	}
	n, found := m.spaces[c.Namespace]
	if !found {
		return fsm.Result{Code: fsm.EntityNotFound}
	}
	if _, found := m.find(c.Namespace, c.Name); found {
		return fsm.Result{Code: fsm.EntityExists}
	}
	if !fits(n.Settings, c.Kind, c.Settings, fsm.EntitySettings{}) {
		return fsm.Result{Code: fsm.InvalidArgument}
	}
	count := uint32(0)
	for _, e := range m.entities {
		if e.Namespace == n.ID && !e.Dropping && e.Kind != fsm.SubscriptionEntity {
			count++
		}
	}
	if most := n.Settings.EntitiesMax; most > 0 && count >= most && c.Kind != fsm.SubscriptionEntity {
		return fsm.Result{Code: fsm.QuotaExceeded}
	}
	m.entityLast++
	e := fsm.Entity{
		ID: m.entityLast, Namespace: c.Namespace, Kind: c.Kind, Topic: c.Topic, Name: c.Name, Partition: c.Partition, Version: 1,
		Settings: c.Settings.WithDefaults(), Created: m.now, Updated: m.now,
	}
	if c.Kind != fsm.SubscriptionEntity {
		e.Access, e.AccessVersion = m.merged(nil, c.Access), 1
	}
	m.entities[e.ID] = e
	return fsm.Result{Entity: e.ID, Version: 1}
}

// fits says whether settings are within the limits of a namespace, or over them as before.
func fits(n fsm.NamespaceSettings, kind fsm.EntityKind, s, old fsm.EntitySettings) bool {
	lock := n.LockDurationMax
	if lock == 0 {
		lock = 5 * 60 * 1000
	}
	if kind != fsm.TopicEntity && s.LockDuration > lock && s.LockDuration != old.LockDuration {
		return false
	}
	return kind == fsm.SubscriptionEntity || n.MessageBytesMax == 0 || s.MaxMessageBytes <= n.MessageBytesMax || s.MaxMessageBytes == old.MaxMessageBytes
}

func (m *catalogModel) update(c fsm.UpdateEntity) fsm.Result {
	e, found := m.entities[c.Entity]
	settings := c.Settings.WithDefaults()
	switch {
	case !found || e.Dropping:
		return fsm.Result{Code: fsm.EntityNotFound}
	case !fits(m.spaces[e.Namespace].Settings, e.Kind, settings, e.Settings):
		return fsm.Result{Code: fsm.InvalidArgument}
	case e.Settings != settings:
		e.Settings, e.Updated = settings, m.now
		e.Version++
		m.entities[e.ID] = e
	}
	return fsm.Result{Entity: e.ID, Version: e.Version}
}

func (m *catalogModel) delete(id fsm.EntityID) fsm.Result {
	e, found := m.entities[id]
	if !found || e.Dropping {
		return fsm.Result{Code: fsm.EntityNotFound}
	}
	e.Dropping, e.Updated = true, m.now
	m.entities[id] = e
	for of, x := range m.entities {
		if x.Topic == id && !x.Dropping {
			delete(m.entities, of)
		}
	}
	return fsm.Result{}
}

func (m *catalogModel) forget(id fsm.EntityID) fsm.Result {
	e, found := m.entities[id]
	switch {
	case !found:
		return fsm.Result{Code: fsm.EntityNotFound}
	case !e.Dropping:
		return fsm.Result{Code: fsm.PreconditionFails}
	}
	delete(m.entities, id)
	return fsm.Result{}
}

// byHost is how the gateway tells the namespace of a host without port.
func (m *catalogModel) byHost(host string) fsm.NamespaceID {
	for id, n := range m.spaces {
		if slices.Contains(n.Settings.Hosts, strings.ToLower(host)) {
			return id
		}
	}
	label, _, _ := strings.Cut(host, ".")
	for id, n := range m.spaces {
		if strings.EqualFold(n.Name, label) {
			return id
		}
	}
	return 1
}

func (m *catalogModel) list(namespace fsm.NamespaceID, kind fsm.EntityKind) []fsm.Entity {
	var list []fsm.Entity
	for _, e := range m.entities {
		if e.Namespace == namespace && e.Kind == kind && !e.Dropping {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b fsm.Entity) int { return cmp.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name)) })
	return list
}

// holders maps the members that hold a replica of a partition, or are to, to their numbers.
func holders(p fsm.Partition) map[fsm.MemberID]uint32 {
	held := map[fsm.MemberID]uint32{}
	for _, r := range append(slices.Clone(p.Replicas), p.Target...) {
		held[r.Member] = r.Number
	}
	return held
}

func (m *catalogModel) describe(member fsm.Member) fsm.Code {
	if m.members[member.ID].Removed && !member.Removed {
		return fsm.InvalidArgument
	}
	for _, p := range m.partitions {
		if _, holds := holders(p)[member.ID]; holds && member.Removed {
			return fsm.PreconditionFails
		}
	}
	m.members[member.ID] = member
	return fsm.OK
}

func (m *catalogModel) place(c fsm.PlacePartition) fsm.Code {
	p := m.partitions[c.Partition-1]
	switch {
	case c.Seen != 0 && c.Seen != p.PlacementHash():
		return fsm.Stale
	case !p.Formed:
		return fsm.PreconditionFails
	}
	held := holders(p)
	var target []fsm.Replica
	for _, member := range c.Members {
		number, has := held[member]
		if !has {
			if m.members[member].Drained || m.members[member].Removed {
				return fsm.InvalidArgument
			}
			p.Last++
			number = p.Last
		}
		target = append(target, fsm.Replica{Member: member, Number: number})
	}
	same := func(with []fsm.Replica) bool {
		a, b := map[fsm.Replica]bool{}, map[fsm.Replica]bool{}
		for _, r := range target {
			a[r] = true
		}
		for _, r := range with {
			b[r] = true
			delete(a, r)
		}
		return len(a) == 0 && len(b) == len(target)
	}
	if p.Target == nil && same(p.Replicas) {
		p.Replicas = target
	} else {
		if p.Target != nil && !same(p.Target) {
			old := slices.Clone(p.Replicas)
			for _, r := range p.Target {
				if !slices.Contains(old, r) {
					old = append(old, r)
				}
			}
			p.Replicas = old
		}
		p.Target, p.Paused = target, c.Paused
		if len(holders(p)) > 32 {
			return fsm.QuotaExceeded
		}
	}
	m.partitions[c.Partition-1] = p
	return fsm.OK
}

func (m *catalogModel) replace(c fsm.ReplaceReplica) fsm.Code {
	p := m.partitions[c.Partition-1]
	without := func(all []fsm.Replica) (rest []fsm.Replica) {
		for _, r := range all {
			if r != c.Replica {
				rest = append(rest, r)
			}
		}
		return rest
	}
	replicas := without(p.Replicas)
	switch {
	case !p.Formed:
		return fsm.PreconditionFails
	case holders(p)[c.Replica.Member] != c.Replica.Number:
		return fsm.OK
	case len(replicas) == 0:
		return fsm.PreconditionFails
	}
	if p.Target == nil {
		p.Target = p.Replicas
	}
	if len(without(p.Target)) < len(p.Target) {
		p.Last++
		target := slices.Clone(p.Target)
		for i := range target {
			if target[i] == c.Replica {
				target[i].Number = p.Last
			}
		}
		p.Target = target
	}
	p.Replicas = replicas
	m.partitions[c.Partition-1] = p
	return fsm.OK
}

func (m *catalogModel) placed(c fsm.PartitionPlaced) fsm.Code {
	p := &m.partitions[c.Partition-1]
	if p.Target == nil && slices.Equal(p.Replicas, c.Replicas) {
		return fsm.OK
	}
	if p.Target == nil || !slices.Equal(p.Target, c.Replicas) {
		return fsm.PreconditionFails
	}
	p.Replicas, p.Target, p.Paused = c.Replicas, nil, false
	return fsm.OK
}
