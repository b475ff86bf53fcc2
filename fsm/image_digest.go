package fsm

// Digest is [Queues.Digest] of the frozen state. It may run concurrently with Apply.
func (img *queuesImage) Digest() uint64 { return digest(img) }

// Digest is [Catalog.Digest] of the frozen state. It may run concurrently with Apply.
func (img *catalogImage) Digest() uint64 { return digest(img) }
