package fsm

import (
	"slices"
)

// imageFields of a namespace.
func (n *Namespace) imageFields(x *codec) {
	field32(x, &n.ID)
	fieldText(x, &n.Name)
	n.Settings.fields(x)
	fieldTimedAccess(x, &n.Access)
	field64(x, &n.Version)
	fieldTime(x, &n.Created)
	fieldTime(x, &n.Updated)
}

// fieldTimedAccess are access rules with the times at which they were created and changed.
func fieldTimedAccess(x *codec, rules *[]AccessRule) {
	for i := range fieldLen(x, rules, accessBytesMin) {
		a := &(*rules)[i]
		a.fields(x)
		fieldTime(x, &a.Created)
		fieldTime(x, &a.Updated)
	}
}

// imageFields of a partition.
func (p *Partition) imageFields(x *codec) {
	p.fields(x)
	field32(x, &p.Last)
	fieldReplicas(x, &p.Target)
	fieldBool(x, &p.Paused)
}

func (r *imageReader) namespace(c *Catalog) {
	n := &Namespace{}
	r.fields(n.imageFields)
	r.requireAccess(n.Access)
	before := NamespaceID(0)
	if i := len(c.namespaces); i > 0 {
		before = c.namespaces[i-1].ID
	}
	at, taken := c.nameIndex(n.Name)
	r.require(before < n.ID && n.ID <= c.lastNamespace && validNamespaceName(n.Name) && !taken && n.Settings.Validate() == nil)
	r.require(n.Version > 0 && (n.ID == DefaultNamespace) == (n.Name == DefaultNamespaceName))
	if r.err != nil {
		return
	}
	s := &namespaceState{Namespace: n, key: nameKey(n.Name)}
	c.namespaces = append(c.namespaces, s)
	c.namespacesByName = slices.Insert(c.namespacesByName, at, s)
}

// hosts sorts the host names of all namespaces and checks that no two namespaces have the same.
func (r *imageReader) hosts(c *Catalog) {
	for _, s := range c.namespaces {
		r.require(!c.hostTaken(s.Settings.Hosts, 0))
		c.addHosts(s)
	}
}

// requireAccess checks access rules, which are sorted by name.
func (r *imageReader) requireAccess(rules []AccessRule) {
	r.require(len(rules) <= accessRulesMax)
	for i := range rules {
		r.require(rules[i].Validate() == nil && (i == 0 || rules[i-1].Name < rules[i].Name))
	}
}

func (r *imageReader) partition(c *Catalog) {
	p := &Partition{}
	r.fields(p.imageFields)
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

func (r *imageReader) member(c *Catalog) {
	m := &Member{}
	r.fields(m.fields)
	n := len(c.members)
	r.require(m.valid() && (n == 0 || c.members[n-1].ID < m.ID))
	c.members = append(c.members, m)
}
