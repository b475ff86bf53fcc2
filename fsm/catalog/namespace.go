package catalog

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/peeklock/peeklock/fsm"
)

const (
	lockDurationCloudMax = fsm.Millis(5 * 60 * 1000) // if the namespace does not set a limit
)

// admits checks the limits of the namespace for a new entity.
func (s *namespaceState) admits(cmd *fsm.CreateEntity) fsm.Code {
	if !s.allows(cmd.Kind, &cmd.Settings, nil) {
		return fsm.InvalidArgument
	}
	most := s.Settings.EntitiesMax
	if most > 0 && cmd.Kind != fsm.SubscriptionEntity && int64(s.queuesAndTopics()) >= int64(most) {
		return fsm.QuotaExceeded
	}
	return fsm.OK
}

// queuesAndTopics returns the number of those of the namespace.
func (s *namespaceState) queuesAndTopics() int {
	return len(s.byName[fsm.QueueEntity]) + len(s.byName[fsm.TopicEntity])
}

// allows reports whether an entity of that kind can have these settings in this namespace. A
// setting that is over a limit and does not change (old, nil for a new entity) is allowed:
// otherwise nobody could disable a queue after the limits of its namespace were lowered. Settings
// without effect for a kind are not checked.
func (s *namespaceState) allows(kind fsm.EntityKind, settings, old *fsm.EntitySettings) bool {
	size, lock := s.Settings.MessageBytesMax, cmp.Or(s.Settings.LockDurationMax, lockDurationCloudMax)
	if kind != fsm.SubscriptionEntity && size > 0 && settings.MaxMessageBytes > size &&
		(old == nil || settings.MaxMessageBytes != old.MaxMessageBytes) {
		return false
	}
	return kind == fsm.TopicEntity || settings.LockDuration <= lock || old != nil && settings.LockDuration == old.LockDuration
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
func (c *Machine) NamespaceByHost(host string) fsm.NamespaceID {
	id, _ := c.FindHost(host)
	return id
}

// FindHost is NamespaceByHost; found is false for a name that a namespace could have which does not exist yet.
func (c *Machine) FindHost(host string) (id fsm.NamespaceID, found bool) {
	host = bareHost(host)
	if host == "" || fsm.IsAddress(host) {
		return fsm.DefaultNamespace, true
	}
	if i, found := c.hostIndex(host); found {
		return c.hosts[i].namespace.ID, true
	}
	label, _, _ := strings.Cut(host, ".")
	if i, found := c.nameIndex(label); found {
		return c.namespacesByName[i].ID, true
	}
	return fsm.DefaultNamespace, strings.EqualFold(host, "localhost") // no namespace can have that name
}

// NamespaceByID finds a namespace. The caller must not write to its lists.
func (c *Machine) NamespaceByID(id fsm.NamespaceID) (fsm.Namespace, bool) {
	if s := c.namespace(id); s != nil {
		return *s.Namespace, true
	}
	return fsm.Namespace{}, false
}

// NamespaceByName finds a namespace by name, case-insensitively. The caller must not write to its
// lists.
func (c *Machine) NamespaceByName(name string) (fsm.Namespace, bool) {
	if i, found := c.nameIndex(name); found {
		return *c.namespacesByName[i].Namespace, true
	}
	return fsm.Namespace{}, false
}

// Namespaces returns up to most namespaces in the order of their names, case-insensitively,
// beginning after the name after. The caller must not write to their lists.
func (c *Machine) Namespaces(after string, most int) []fsm.Namespace {
	from, found := c.nameIndex(after)
	if found {
		from++
	}
	list := make([]fsm.Namespace, max(min(most, len(c.namespacesByName)-from), 0))
	for i := range list {
		list[i] = *c.namespacesByName[from+i].Namespace
	}
	return list
}

// applyNamespaceCommand performs the commands about namespaces and access rules.
func (c *Machine) applyNamespaceCommand(cmd fsm.Command) fsm.Result {
	switch cmd := cmd.(type) {
	case fsm.CreateNamespace:
		return c.createNamespace(cmd)
	case fsm.UpdateNamespace:
		return c.updateNamespace(cmd)
	case fsm.DeleteNamespace:
		return c.deleteNamespace(cmd.Namespace)
	case fsm.SetAccess:
		return c.setAccess(cmd)
	}
	return fsm.Result{}
}

func (c *Machine) createNamespace(cmd fsm.CreateNamespace) fsm.Result {
	if c.clusterID == "" {
		return fsm.Result{Code: fsm.PreconditionFails}
	}
	if _, taken := c.nameIndex(cmd.Name); taken || c.hostTaken(cmd.Settings.Hosts, 0) {
		return fsm.Result{Code: fsm.EntityExists}
	}
	if len(c.namespaces) >= fsm.NamespacesMax || c.lastNamespace == math.MaxUint32 {
		return fsm.Result{Code: fsm.QuotaExceeded}
	}
	s := c.addNamespace(cmd)
	return fsm.Result{Namespace: s.ID, Version: s.Version}
}

// hostTaken reports whether a namespace other than id has one of these hosts.
func (c *Machine) hostTaken(hosts []string, id fsm.NamespaceID) bool {
	return slices.ContainsFunc(hosts, func(host string) bool {
		i, found := c.hostIndex(host)
		return found && c.hosts[i].namespace.ID != id
	})
}

// addNamespace adds a namespace.
func (c *Machine) addNamespace(cmd fsm.CreateNamespace) *namespaceState {
	c.lastNamespace++
	n := &fsm.Namespace{ID: c.lastNamespace, Name: cmd.Name, Settings: cmd.Settings, Version: 1, Created: c.times.Wall, Updated: c.times.Wall}
	n.Access = mergeAccess(nil, cmd.Access, c.times.Wall)
	s := &namespaceState{Namespace: n, key: fsm.NameKey(n.Name)}
	c.namespaces = append(c.namespaces, s)
	at, _ := c.nameIndex(n.Name)
	c.namespacesByName = slices.Insert(c.namespacesByName, at, s)
	c.addHosts(s)
	return s
}

func (c *Machine) addHosts(s *namespaceState) {
	for _, host := range s.Settings.Hosts {
		at, _ := c.hostIndex(host)
		c.hosts = slices.Insert(c.hosts, at, hostEntry{host, s})
	}
}

func (c *Machine) removeHosts(s *namespaceState) {
	for _, host := range s.Settings.Hosts {
		at, _ := c.hostIndex(host)
		c.hosts = slices.Delete(c.hosts, at, at+1)
	}
}

func (c *Machine) updateNamespace(cmd fsm.UpdateNamespace) fsm.Result {
	s := c.namespace(cmd.Namespace)
	switch {
	case s == nil:
		return fsm.Result{Code: fsm.EntityNotFound}
	case c.hostTaken(cmd.Settings.Hosts, s.ID):
		return fsm.Result{Code: fsm.EntityExists}
	case !s.Settings.Equal(&cmd.Settings):
		c.removeHosts(s)
		n := *s.Namespace
		n.Settings = cmd.Settings
		s.change(&n, c.times.Wall)
		c.addHosts(s)
	}
	return fsm.Result{Version: s.Version}
}

// change replaces the namespace by a changed one.
func (s *namespaceState) change(n *fsm.Namespace, now fsm.Instant) {
	n.Version++
	n.Updated = now
	s.Namespace = n
}

func (c *Machine) deleteNamespace(id fsm.NamespaceID) fsm.Result {
	i, found := c.namespaceIndex(id)
	switch {
	case !found:
		return fsm.Result{Code: fsm.EntityNotFound}
	case id == fsm.DefaultNamespace:
		return fsm.Result{Code: fsm.NotAllowed}
	case c.namespaces[i].entityCount > 0:
		return fsm.Result{Code: fsm.PreconditionFails}
	}
	c.removeHosts(c.namespaces[i])
	at, _ := c.nameIndex(c.namespaces[i].key)
	c.namespacesByName = slices.Delete(c.namespacesByName, at, at+1)
	c.namespaces = slices.Delete(c.namespaces, i, i+1)
	return fsm.Result{}
}
