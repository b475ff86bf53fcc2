package fsm

import "github.com/peeklock/peeklock/fsm/fields"

// The minimum sizes of items, against which counts are checked.
const (
	MessageBytesMin = 6 // four empty texts, two numbers
	lockBytesMin    = 2 // sequence, epoch
)

func (a *Address) fields(x *fields.Codec) {
	fields.Uint64(x, &a.Entity)
	fields.Uint8(x, &a.Sub)
}

func (l *LockID) fields(x *fields.Codec) {
	fields.Uint64(x, &l.Sequence)
	fields.Uint32(x, &l.Epoch)
}

// Fields lists the fields of the record for the codec.
func (d *Destination) Fields(x *fields.Codec) {
	fields.Uint32(x, &d.Partition)
	fields.Uint64(x, &d.Entity)
}
