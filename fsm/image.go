package fsm

import "io"

// Image is a frozen state of a machine. Its methods may run beside Apply of the
// machine that made it, and beside each other.
type Image interface {
	// WriteTo writes the image: version, kind, state, checksum. Restore reads it back.
	WriteTo(w io.Writer) (int64, error)
	// Refs visits every body reference of the image: queues by entity, the main queue
	// before the dead-letter queue, messages by number, the message before its patches.
	Refs(visit func(Owner, Ref))
}
