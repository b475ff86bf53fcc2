package fsm

import (
	"slices"

	"github.com/peeklock/peeklock/fsm/fields"
)

// namespaceFields are the fields of a namespace in an image.
func namespaceFields(x *fields.Codec, n *Namespace) {
	fields.Uint32(x, &n.ID)
	fields.Text(x, &n.Name)
	n.Settings.fields(x)
	fieldTimedAccess(x, &n.Access)
	fields.Uint64(x, &n.Version)
	fields.Int64(x, &n.Created)
	fields.Int64(x, &n.Updated)
}

// fieldTimedAccess are access rules with the times at which they were created and changed.
func fieldTimedAccess(x *fields.Codec, rules *[]AccessRule) {
	for i := range fields.Len(x, rules, accessBytesMin) {
		a := &(*rules)[i]
		a.fields(x)
		fields.Int64(x, &a.Created)
		fields.Int64(x, &a.Updated)
	}
}

// partitionFields are the fields of a partition in an image.
func partitionFields(x *fields.Codec, p *Partition) {
	p.fields(x)
	fields.Uint32(x, &p.Last)
	fieldReplicas(x, &p.Target)
	fields.Bool(x, &p.Paused)
}

func (r *catalogReader) namespace(c *Catalog) {
	n := &Namespace{}
	r.fields(func(x *fields.Codec) { namespaceFields(x, n) })
	r.requireAccess(n.Access)
	before := NamespaceID(0)
	if i := len(c.namespaces); i > 0 {
		before = c.namespaces[i-1].ID
	}
	at, taken := c.nameIndex(n.Name)
	r.require(before < n.ID && n.ID <= c.lastNamespace && validNamespaceName(n.Name) && !taken && n.Settings.Validate() == nil)
	r.require(n.Version > 0 && (n.ID == DefaultNamespace) == (n.Name == DefaultNamespaceName))
	if r.failed() {
		return
	}
	s := &namespaceState{Namespace: n, key: nameKey(n.Name)}
	c.namespaces = append(c.namespaces, s)
	c.namespacesByName = slices.Insert(c.namespacesByName, at, s)
}

// hosts sorts the host names of all namespaces and checks that no two namespaces have the same.
func (r *catalogReader) hosts(c *Catalog) {
	for _, s := range c.namespaces {
		r.require(!c.hostTaken(s.Settings.Hosts, 0))
		c.addHosts(s)
	}
}

// requireAccess checks access rules, which are sorted by name.
func (r *catalogReader) requireAccess(rules []AccessRule) {
	r.require(len(rules) <= accessRulesMax)
	for i := range rules {
		r.require(rules[i].Validate() == nil && (i == 0 || rules[i-1].Name < rules[i].Name))
	}
}

func (r *catalogReader) partition(c *Catalog) {
	p := &Partition{}
	r.fields(func(x *fields.Codec) { partitionFields(x, p) })
	r.require(int(p.ID) == len(c.partitions)+1 && validReplicas(p.Replicas, partitionHeldMax))
	r.require(p.Target == nil && !p.Paused || p.Formed && validReplicas(p.Target, partitionReplicaMax))
	held := p.heldReplicas()
	r.require(validReplicas(held, partitionHeldMax))
	for _, replica := range held {
		m, _ := c.Member(replica.Member)
		r.require(replica.Number <= p.Last && !m.Removed)
	}
	c.partitions = append(c.partitions, p)
}

func (r *catalogReader) member(c *Catalog) {
	m := &Member{}
	r.fields(m.fields)
	n := len(c.members)
	r.require(m.valid() && (n == 0 || c.members[n-1].ID < m.ID))
	c.members = append(c.members, m)
}
