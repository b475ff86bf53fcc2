package queue

import (
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/totals"
)

// What parts of the state take in memory, in bytes, about: TestUsageIsWhatTheStateTakes compares them with the heap.
const (
	entityMemory    = 3 << 10 // with its four sub-queues, its record in the catalog and its names
	messageMemory   = 64      // a record, its bits, and its share of the capacity that its chunk has in reserve
	chunkMemory     = 768     // 1,024 sequence numbers, however few messages are left of them
	lockMemory      = 40      // a timer
	patchMemory     = 40      // the location of the patches of a message
	sessionMemory   = 512     // with its lists, and an id of average length
	ofSessionMemory = 32      // a message in the lists of its session
	duplicateMemory = 40      // a remembered id
	// A rule takes the first, and for each byte of its encoding, each byte of its texts, which are parsed to trees, and
	// each condition or parameter the others.
	ruleMemory          = 704
	ruleByteMemory      = 3
	ruleTextMemory      = 36
	ruleConditionMemory = 256
)

// What parts of the state take in an image and in the log of a member's disk, in bytes.
const (
	entityDisk    = 512
	messageDisk   = 48
	sessionDisk   = 64
	duplicateDisk = 24
)

// EachUsage calls visit with what each entity takes, by id, beginning after the id after, for at most most entities, and
// returns the id of the last one; done means that there are no more. Copies in subscriptions share the payload of
// their topic. It reads running totals, whatever the number of messages.
func (q *Machine) EachUsage(after fsm.EntityID, most int, visit func(fsm.EntityID, fsm.Usage)) (last fsm.EntityID, done bool) {
	page, done := q.entitiesAfter(after, most)
	for _, x := range page {
		visit(x.id, x.usage())
		last = x.id
	}
	return last, done
}

// EachTotals is like EachUsage for the totals of entities, which are valid during the call, and their active and dead-lettered messages.
func (q *Machine) EachTotals(after fsm.EntityID, most int, visit func(id fsm.EntityID, all *totals.Totals, active, deadLetter uint64)) (last fsm.EntityID, done bool) {
	page, done := q.entitiesAfter(after, most)
	for _, x := range page {
		main := &x.subs[fsm.MainQueue].ix
		visit(x.id, &x.totals, main.Count(fsm.Ready)+main.Count(fsm.Locked), x.subs[fsm.DeadLetterQueue].storedCount())
		last = x.id
	}
	return last, done
}

// entitiesAfter returns at most most entities, by id, from the first after an id; done means that there are no more.
func (q *Machine) entitiesAfter(after fsm.EntityID, most int) (page []*entityState, done bool) {
	i, found := q.entityIndex(after)
	if found {
		i++
	}
	page = q.entities[i:]
	if done = len(page) <= most; !done {
		page = page[:most]
	}
	return page, done
}

// usage returns what an entity takes.
func (x *entityState) usage() fsm.Usage {
	u := fsm.Usage{Entities: 1, MemoryBytes: entityMemory, DiskBytes: entityDisk}
	for i := range x.subs {
		ix := &x.subs[i].ix
		total := ix.Total()
		u.Messages += total
		patched, patchBytes := ix.Patches()
		u.MemoryBytes += total*messageMemory + uint64(ix.Chunks())*chunkMemory + ix.Count(fsm.Locked)*lockMemory + patched*patchMemory
		u.DiskBytes += total*messageDisk + patchBytes
		if x.kind != fsm.SubscriptionEntity || i > int(fsm.DeadLetterQueue) {
			u.DiskBytes += ix.Bytes()
		}
		if x.sessions != nil {
			u.MemoryBytes += total * ofSessionMemory
		}
	}
	if x.kind == fsm.TopicEntity {
		u.Messages -= x.subs[fsm.MainQueue].ix.Count(fsm.Shared) // its copies are the messages
	}
	if s := x.sessions; s != nil {
		u.Sessions = uint64(s.count)
		u.MemoryBytes += uint64(s.count) * sessionMemory
		u.DiskBytes += uint64(s.count)*sessionDisk + s.bytes
	}
	if w := x.window; w != nil {
		u.RememberedIDs = w.tail - w.head
		u.MemoryBytes += u.RememberedIDs * duplicateMemory
		u.DiskBytes += u.RememberedIDs * duplicateDisk
	}
	u.Rules = uint64(len(x.rules.list))
	u.MemoryBytes += uint64(x.rules.memory)
	u.DiskBytes += uint64(x.rules.bytes)
	return u
}

// memory returns what a rule takes in memory, in bytes, about.
func (r *rule) memory() int {
	return ruleMemory + ruleByteMemory*r.parsed.Size + ruleTextMemory*(len(r.Filter.SQL.Text)+len(r.Action.Text)) +
		ruleConditionMemory*(len(r.Filter.Conditions)+len(r.Filter.SQL.Parameters)+len(r.Action.Parameters))
}

// count adds a rule to the totals of its subscription, or removes it with sign -1.
func (b *ruleSet) count(r *rule, sign int) {
	b.bytes += sign * r.parsed.Size
	b.memory += sign * r.memory()
}
