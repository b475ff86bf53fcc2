package fsm

import (
	"math"
	"slices"
)

func (w *imageWriter) namespace(n *Namespace) {
	w.uvarint(uint64(n.ID))
	w.string(n.Name)
	w.buf = appendNamespaceSettings(w.buf, &n.Settings)
	w.access(n.Access)
	w.uvarint(n.Version)
	w.instant(n.Created)
	w.instant(n.Updated)
}

func (w *imageWriter) access(rules []AccessRule) {
	w.count(len(rules))
	for i := range rules {
		w.string(rules[i].Name)
		w.string(rules[i].Primary)
		w.string(rules[i].Secondary)
		w.byte(byte(rules[i].Rights))
		w.instant(rules[i].Created)
		w.instant(rules[i].Updated)
	}
}

func (r *imageReader) namespace(c *Catalog) {
	n := &Namespace{ID: NamespaceID(r.uint32()), Name: r.string(namespaceNameBytesMax), Settings: r.namespaceSettings()}
	n.Access, n.Version, n.Created, n.Updated = r.access(), r.uvarint(), r.instant(), r.instant()
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

func (r *imageReader) namespaceSettings() NamespaceSettings {
	var s NamespaceSettings
	r.repeat(namespaceHostsMax, func() { s.Hosts = append(s.Hosts, r.string(hostBytesMax)) })
	s.MessageBytesMax, s.LockDurationMax = r.uint32(), Millis(r.instant())
	s.EntitiesMax, s.UserMetadata = r.uint32(), r.string(userMetadataBytesMax)
	return s
}

// access reads rules, which are sorted by name.
func (r *imageReader) access() []AccessRule {
	var rules []AccessRule
	r.repeat(accessRulesMax, func() {
		a := AccessRule{
			Name: r.string(accessNameBytesMax), Primary: r.string(accessSecretBytesMax), Secondary: r.string(accessSecretBytesMax),
			Rights: Rights(r.byte()), Created: r.instant(), Updated: r.instant(),
		}
		r.require(a.Validate() == nil && (len(rules) == 0 || rules[len(rules)-1].Name < a.Name))
		rules = append(rules, a)
	})
	return rules
}

func (w *imageWriter) partition(p *Partition) {
	w.buf = appendPartition(w.buf, p)
	w.uvarint(uint64(p.Last))
	w.buf = appendReplicas(w.buf, p.Target)
	w.bool(p.Paused)
}

func (r *imageReader) partition(c *Catalog) {
	p := &Partition{ID: PartitionID(r.uvarintMax(math.MaxUint32)), Formed: r.bool()}
	p.Replicas = r.replicas(partitionHeldMax)
	p.Last = r.uint32()
	p.Target = r.replicas(partitionReplicaMax)
	p.Paused = r.bool()
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

func (r *imageReader) replicas(most uint64) []Replica {
	var list []Replica
	r.repeat(most, func() {
		list = append(list, Replica{Member: MemberID(r.string(memberIDBytesMax)), Number: r.uint32()})
	})
	return list
}

func (r *imageReader) member(c *Catalog) {
	m := &Member{ID: MemberID(r.string(memberIDBytesMax)), Name: r.string(memberTextBytesMax), Zone: r.string(memberTextBytesMax), Weight: r.uint32()}
	flags := r.byte()
	m.Drained, m.Removed = flags&memberDrained != 0, flags&memberRemoved != 0
	n := len(c.members)
	r.require(flags&^memberFlagsKnown == 0 && m.valid() && (n == 0 || c.members[n-1].ID < m.ID))
	c.members = append(c.members, m)
}
