package fsm

// Digest is [Queues.Digest] of the state that the image has frozen: it can be made beside
// apply.
func (img *queuesImage) Digest() uint64 { return digest(img) }

// Digest is [Catalog.Digest] of the state that the image has frozen: it can be made beside
// apply.
func (img *catalogImage) Digest() uint64 { return digest(img) }
