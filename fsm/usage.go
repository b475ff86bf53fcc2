package fsm

// Usage is what stored data takes: that of one entity, or of all entities of a namespace.
type Usage struct {
	Entities uint64 `json:"entities"` // shards count one each
	Messages uint64 `json:"messages"` // in all states and sub-queues; each copy in a subscription is one
	Rules    uint64 `json:"rules"`
	// MemoryBytes is what every replica holds in memory, estimated: records of messages, patches, sessions, remembered ids,
	// and parsed rules, but no bodies.
	MemoryBytes uint64 `json:"memoryBytes"`
	// DiskBytes is what every replica holds on disk: payloads, changes of messages by settlements and actions, states of
	// sessions, and the part of its image. Logs and space to be reclaimed are not in it.
	DiskBytes uint64 `json:"diskBytes"`
}

// Add adds other to u.
func (u *Usage) Add(other Usage) {
	u.Entities += other.Entities
	u.Messages += other.Messages
	u.Rules += other.Rules
	u.MemoryBytes += other.MemoryBytes
	u.DiskBytes += other.DiskBytes
}
