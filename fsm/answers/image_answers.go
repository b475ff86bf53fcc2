package answers

import (
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/image"
)

// Every answer has a byte that tells whether details follow.
const (
	withoutDetails byte = 0
	withDetails    byte = 1
)

// Write writes the answers.
func (f Frozen) Write(w *image.Writer) {
	w.Count(len(f))
	for i := range f {
		o := &f[i]
		w.Fixed64(o.id)
		w.Instant(o.seen)
		w.Count(len(o.receivers))
		for _, l := range o.receivers {
			w.Uvarint(l.id)
			w.Uvarint(l.low)
			w.Count(len(l.answers))
			for j := range l.answers {
				l.answers[j].write(w)
				w.FlushIfFull()
			}
			w.FlushIfFull()
		}
	}
}

func (x *Record) write(w *image.Writer) {
	w.Uvarint(x.serial)
	w.Byte(byte(x.kind))
	w.Byte(byte(x.code))
	w.Uvarint(x.number)
	if x.Details == nil {
		w.Byte(withoutDetails)
		return
	}
	w.Byte(withDetails)
	w.Address(x.Details.Address)
	w.Bool(x.Details.Deleting)
	w.Count(len(x.Details.Locks))
	for _, l := range x.Details.Locks {
		w.LockID(l)
	}
	w.Count(len(x.Details.codes))
	for _, c := range x.Details.codes {
		w.Byte(byte(c))
	}
	w.Count(len(x.Details.untils))
	for _, t := range x.Details.untils {
		w.Instant(t)
	}
	w.Count(len(x.Details.numbers))
	for _, n := range x.Details.numbers {
		w.Uvarint(uint64(n))
	}
	w.Uvarint(x.Details.version)
	w.Uvarint(x.Details.Session.Epoch)
	w.Text(x.Details.Session.ID)
}

// Read reads the answers into an empty table.
func (a *Table) Read(r *image.Reader) {
	r.Repeat(IncarnationsMax, func() {
		o := &incarnation{id: r.Fixed64(), seen: r.Instant(), generation: *a.generation}
		n := len(a.incarnations)
		r.Require(o.id != 0 && (n == 0 || a.incarnations[n-1].id < o.id))
		r.Repeat(ReceiversPerIncarnationMax, func() { a.readReceiver(r, o) })
		a.incarnations = append(a.incarnations, o)
		if end := o.seen.After(IncarnationIdleMax); a.due == 0 || end < a.due {
			a.due = end
		}
	})
}

func (a *Table) readReceiver(r *image.Reader, o *incarnation) {
	l := &Receiver{id: r.Uvarint(), low: r.Uvarint(), generation: *a.generation}
	n := len(o.receivers)
	r.Require(n == 0 || o.receivers[n-1].id < l.id)
	r.Repeat(answersOutstandingMax, func() {
		x := readAnswer(r)
		n := len(l.answers)
		r.Require(x.serial >= l.low && x.serial-l.low < answersOutstandingMax &&
			x.serial != 0 && (n == 0 || l.answers[n-1].serial < x.serial))
		l.answers = append(l.answers, x)
	})
	o.receivers = append(o.receivers, l)
}

func readAnswer(r *image.Reader) Record {
	x := Record{serial: r.Uvarint(), kind: fsm.Kind(r.Byte()), code: fsm.Code(r.Byte()), number: r.Uvarint()}
	if x.kind == fsm.KindSettleMessages || x.kind == fsm.KindRenewLocks {
		r.Require(x.number <= fsm.CommandSettlementsMax) // a repeated answer allocates as many codes
	}
	if !r.Bool() {
		return x
	}
	m := &Details{Address: r.Address(), Deleting: r.Bool()}
	r.Repeat(fsm.CommandMessagesMax, func() { m.Locks = append(m.Locks, r.LockID()) })
	r.Repeat(fsm.CommandSettlementsMax, func() { m.codes = append(m.codes, fsm.Code(r.Byte())) })
	r.Repeat(fsm.CommandSettlementsMax, func() { m.untils = append(m.untils, r.Instant()) })
	r.Repeat(fsm.CommandSendMax, func() { m.numbers = append(m.numbers, fsm.SequenceNumber(r.Uvarint())) })
	m.version = r.Uvarint()
	m.Session = fsm.SessionLock{Epoch: r.Uvarint(), ID: r.Text(fsm.SessionIDBytesMax)}
	x.Details = m
	return x
}
