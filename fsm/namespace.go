package fsm

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

const (
	lockDurationCloudMax = Millis(5 * 60 * 1000) // if the namespace does not set a limit
)

// namespaceState is a namespace and the entities in it.
type namespaceState struct {
	*Namespace  // never changed in place: images share it
	key         string
	byName      [3][]nameEntry // by kind: entities that are not being deleted, sorted by key
	entityCount int            // entities, those being deleted and subscriptions included
}

// hostEntry maps a host name to the namespace that has it in its settings.
type hostEntry struct {
	host      string
	namespace *namespaceState
}

func (s *namespaceState) nameIndex(kind EntityKind, name string) (int, bool) {
	return slices.BinarySearchFunc(s.byName[kind], name, func(n nameEntry, name string) int { return compareKey(n.key, name) })
}

// lookup finds an entity by name or path, nil if there is none.
func (s *namespaceState) lookup(name string) *Entity {
	for kind := range s.byName {
		if i, found := s.nameIndex(EntityKind(kind), name); found {
			return s.byName[kind][i].entity
		}
	}
	return nil
}

// admits checks the limits of the namespace for a new entity.
func (s *namespaceState) admits(cmd *CreateEntity) Code {
	if !s.allows(cmd.Kind, &cmd.Settings, nil) {
		return InvalidArgument
	}
	most := s.Settings.EntitiesMax
	if most > 0 && cmd.Kind != SubscriptionEntity && int64(len(s.byName[QueueEntity])+len(s.byName[TopicEntity])) >= int64(most) {
		return QuotaExceeded
	}
	return OK
}

// allows reports whether an entity of that kind can have these settings in this namespace. A
// setting that is over a limit and does not change (old, nil for a new entity) is allowed:
// otherwise nobody could disable a queue after the limits of its namespace were lowered. Settings
// without effect for a kind are not checked.
func (s *namespaceState) allows(kind EntityKind, settings, old *EntitySettings) bool {
	size, lock := s.Settings.MessageBytesMax, cmp.Or(s.Settings.LockDurationMax, lockDurationCloudMax)
	if kind != SubscriptionEntity && size > 0 && settings.MaxMessageBytes > size &&
		(old == nil || settings.MaxMessageBytes != old.MaxMessageBytes) {
		return false
	}
	return kind == TopicEntity || settings.LockDuration <= lock || old != nil && settings.LockDuration == old.LockDuration
}

// bareHost removes the port and the trailing dot from a host; "" for an IPv6 address.
func bareHost(host string) string {
	if colon := strings.IndexByte(host, ':'); colon >= 0 {
		if strings.IndexByte(host[colon+1:], ':') >= 0 { // with brackets or without
			return ""
		}
		host = host[:colon]
	}
	return strings.TrimSuffix(host, ".")
}

// NamespaceByHost returns the namespace that a host name selects: the one that has it in its Hosts,
// or whose Name is its first label; otherwise, and for addresses, the default namespace. Port, case
// and trailing dot are ignored. It makes two searches and allocates nothing.
func (c *Catalog) NamespaceByHost(host string) NamespaceID {
	host = bareHost(host)
	if host == "" || isAddress(host) {
		return DefaultNamespace
	}
	if i, found := c.hostIndex(host); found {
		return c.hosts[i].namespace.ID
	}
	label, _, _ := strings.Cut(host, ".")
	if i, found := c.nameIndex(label); found {
		return c.namespacesByName[i].ID
	}
	return DefaultNamespace
}

// NamespaceByID finds a namespace. The caller must not write to its lists.
func (c *Catalog) NamespaceByID(id NamespaceID) (Namespace, bool) {
	if s := c.namespace(id); s != nil {
		return *s.Namespace, true
	}
	return Namespace{}, false
}

// NamespaceByName finds a namespace by name, case-insensitively. The caller must not write to its
// lists.
func (c *Catalog) NamespaceByName(name string) (Namespace, bool) {
	if i, found := c.nameIndex(name); found {
		return *c.namespacesByName[i].Namespace, true
	}
	return Namespace{}, false
}

// Namespaces returns up to most namespaces in the order of their names, case-insensitively,
// beginning after the name after. The caller must not write to their lists.
func (c *Catalog) Namespaces(after string, most int) []Namespace {
	from, found := c.nameIndex(after)
	if found {
		from++
	}
	list := make([]Namespace, max(min(most, len(c.namespacesByName)-from), 0))
	for i := range list {
		list[i] = *c.namespacesByName[from+i].Namespace
	}
	return list
}

func (c *Catalog) namespaceIndex(id NamespaceID) (int, bool) {
	return slices.BinarySearchFunc(c.namespaces, id, func(s *namespaceState, id NamespaceID) int { return cmp.Compare(s.ID, id) })
}

// namespace finds a namespace, nil if there is none.
func (c *Catalog) namespace(id NamespaceID) *namespaceState {
	if i, found := c.namespaceIndex(id); found {
		return c.namespaces[i]
	}
	return nil
}

func (c *Catalog) nameIndex(name string) (int, bool) {
	return slices.BinarySearchFunc(c.namespacesByName, name, func(s *namespaceState, name string) int { return compareKey(s.key, name) })
}

func (c *Catalog) hostIndex(name string) (int, bool) {
	return slices.BinarySearchFunc(c.hosts, name, func(h hostEntry, name string) int { return compareKey(h.host, name) })
}

// applyNamespaceCommand performs the commands about namespaces and access rules.
func (c *Catalog) applyNamespaceCommand(cmd Command) Result {
	switch cmd := cmd.(type) {
	case CreateNamespace:
		return c.createNamespace(cmd)
	case UpdateNamespace:
		return c.updateNamespace(cmd)
	case DeleteNamespace:
		return c.deleteNamespace(cmd.Namespace)
	case SetAccess:
		return c.setAccess(cmd)
	}
	return Result{}
}

func (c *Catalog) createNamespace(cmd CreateNamespace) Result {
	if c.clusterID == "" {
		return Result{Code: PreconditionFails}
	}
	if _, taken := c.nameIndex(cmd.Name); taken || c.hostTaken(cmd.Settings.Hosts, 0) {
		return Result{Code: EntityExists}
	}
	if len(c.namespaces) >= namespacesMax || c.lastNamespace == math.MaxUint32 {
		return Result{Code: QuotaExceeded}
	}
	s := c.addNamespace(cmd)
	return Result{Namespace: s.ID, Version: s.Version}
}

// hostTaken reports whether a namespace other than id has one of these hosts.
func (c *Catalog) hostTaken(hosts []string, id NamespaceID) bool {
	return slices.ContainsFunc(hosts, func(host string) bool {
		i, found := c.hostIndex(host)
		return found && c.hosts[i].namespace.ID != id
	})
}

// addNamespace adds a namespace.
func (c *Catalog) addNamespace(cmd CreateNamespace) *namespaceState {
	c.lastNamespace++
	n := &Namespace{ID: c.lastNamespace, Name: cmd.Name, Settings: cmd.Settings, Version: 1, Created: c.times.Wall, Updated: c.times.Wall}
	n.Access = mergeAccess(nil, cmd.Access, c.times.Wall)
	s := &namespaceState{Namespace: n, key: nameKey(n.Name)}
	c.namespaces = append(c.namespaces, s)
	at, _ := c.nameIndex(n.Name)
	c.namespacesByName = slices.Insert(c.namespacesByName, at, s)
	c.addHosts(s)
	return s
}

func (c *Catalog) addHosts(s *namespaceState) {
	for _, host := range s.Settings.Hosts {
		at, _ := c.hostIndex(host)
		c.hosts = slices.Insert(c.hosts, at, hostEntry{host, s})
	}
}

func (c *Catalog) removeHosts(s *namespaceState) {
	for _, host := range s.Settings.Hosts {
		at, _ := c.hostIndex(host)
		c.hosts = slices.Delete(c.hosts, at, at+1)
	}
}

func (c *Catalog) updateNamespace(cmd UpdateNamespace) Result {
	s := c.namespace(cmd.Namespace)
	switch {
	case s == nil:
		return Result{Code: EntityNotFound}
	case c.hostTaken(cmd.Settings.Hosts, s.ID):
		return Result{Code: EntityExists}
	case !s.Settings.equal(&cmd.Settings):
		c.removeHosts(s)
		n := *s.Namespace
		n.Settings = cmd.Settings
		s.change(&n, c.times.Wall)
		c.addHosts(s)
	}
	return Result{Version: s.Version}
}

// change replaces the namespace by a changed one.
func (s *namespaceState) change(n *Namespace, now Instant) {
	n.Version++
	n.Updated = now
	s.Namespace = n
}

func (c *Catalog) deleteNamespace(id NamespaceID) Result {
	i, found := c.namespaceIndex(id)
	switch {
	case !found:
		return Result{Code: EntityNotFound}
	case id == DefaultNamespace:
		return Result{Code: NotAllowed}
	case c.namespaces[i].entityCount > 0:
		return Result{Code: PreconditionFails}
	}
	c.removeHosts(c.namespaces[i])
	at, _ := c.nameIndex(c.namespaces[i].key)
	c.namespacesByName = slices.Delete(c.namespacesByName, at, at+1)
	c.namespaces = slices.Delete(c.namespaces, i, i+1)
	return Result{}
}
