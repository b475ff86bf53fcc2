package topology

// Holding is what a namespace holds of a resource that namespaces or keys share at a member.
type Holding struct {
	Resource string // "memory" or "disk" for what is stored, in bytes; otherwise a resource of requests (docs/limits.md#shares)
	Held     uint64
	// Share is the most that the namespace may hold now, and of a resource of requests the most that one of its keys may; 0 if
	// that is not limited.
	Share uint64
	// Largest is the namespace that holds the most above its share at any member, so that it is refused first; "" for none.
	Largest string
}
