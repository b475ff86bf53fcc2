package catalog

import (
	"slices"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/fields"
)

// namespaceFields are the fields of a namespace in an image.
func namespaceFields(x *fields.Codec, n *fsm.Namespace) {
	fields.Uint32(x, &n.ID)
	fields.Text(x, &n.Name)
	n.Settings.Fields(x)
	fieldTimedAccess(x, &n.Access)
	fields.Uint64(x, &n.Version)
	fields.Int64(x, &n.Created)
	fields.Int64(x, &n.Updated)
}

// fieldTimedAccess are access rules with the times at which they were created and changed.
func fieldTimedAccess(x *fields.Codec, rules *[]fsm.AccessRule) {
	for i := range fields.Len(x, rules, fsm.AccessBytesMin) {
		a := &(*rules)[i]
		a.Fields(x)
		fields.Int64(x, &a.Created)
		fields.Int64(x, &a.Updated)
	}
}

// partitionFields are the fields of a partition in an image.
func partitionFields(x *fields.Codec, p *fsm.Partition) {
	p.Fields(x)
	fields.Uint32(x, &p.Last)
	fsm.FieldReplicas(x, &p.Target)
	fields.Bool(x, &p.Paused)
}

func (r *catalogReader) namespace(c *Machine) {
	n := &fsm.Namespace{}
	r.Fields(func(x *fields.Codec) { namespaceFields(x, n) })
	r.requireAccess(n.Access)
	before := fsm.NamespaceID(0)
	if i := len(c.namespaces); i > 0 {
		before = c.namespaces[i-1].ID
	}
	at, taken := c.nameIndex(n.Name)
	r.Require(before < n.ID && n.ID <= c.lastNamespace && fsm.ValidNamespaceName(n.Name) && !taken && n.Settings.Validate() == nil)
	r.Require(n.Version > 0 && (n.ID == fsm.DefaultNamespace) == (n.Name == fsm.DefaultNamespaceName))
	if r.Failed() {
		return
	}
	s := &namespaceState{Namespace: n, key: fsm.NameKey(n.Name)}
	c.namespaces = append(c.namespaces, s)
	c.namespacesByName = slices.Insert(c.namespacesByName, at, s)
}

// hosts sorts the host names of all namespaces and checks that no two namespaces have the same.
func (r *catalogReader) hosts(c *Machine) {
	for _, s := range c.namespaces {
		r.Require(!c.hostTaken(s.Settings.Hosts, 0))
		c.addHosts(s)
	}
}

// requireAccess checks access rules, which are sorted by name.
func (r *catalogReader) requireAccess(rules []fsm.AccessRule) {
	r.Require(len(rules) <= fsm.AccessRulesMax)
	for i := range rules {
		r.Require(rules[i].Validate() == nil && (i == 0 || rules[i-1].Name < rules[i].Name))
	}
}

func (r *catalogReader) partition(c *Machine) {
	p := &fsm.Partition{}
	r.Fields(func(x *fields.Codec) { partitionFields(x, p) })
	r.Require(int(p.ID) == len(c.partitions)+1 && fsm.ValidReplicas(p.Replicas, fsm.PartitionHeldMax))
	r.Require(p.Target == nil && !p.Paused || p.Formed && fsm.ValidReplicas(p.Target, fsm.PartitionReplicaMax))
	held := p.HeldReplicas()
	r.Require(fsm.ValidReplicas(held, fsm.PartitionHeldMax))
	for _, replica := range held {
		m, _ := c.Member(replica.Member)
		r.Require(replica.Number <= p.Last && !m.Removed)
	}
	c.partitions = append(c.partitions, p)
}

func (r *catalogReader) member(c *Machine) {
	m := &fsm.Member{}
	r.Fields(m.Fields)
	n := len(c.members)
	r.Require(m.Valid() && (n == 0 || c.members[n-1].ID < m.ID))
	c.members = append(c.members, m)
}
