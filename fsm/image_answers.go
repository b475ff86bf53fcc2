package fsm

import "github.com/peeklock/peeklock/fsm/planted"

// Every answer has a byte that tells whether details follow.
const (
	withoutDetails byte = 0
	withDetails    byte = 1
)

// write writes the answers.
func (f frozenAnswers) write(w *streamWriter) {
	w.count(len(f))
	for i := range f {
		o := &f[i]
		w.fixed64(o.id)
		w.instant(o.seen)
		w.count(len(o.receivers))
		for _, l := range o.receivers {
			w.uvarint(l.id)
			w.uvarint(l.low)
			w.count(len(l.answers))
			for j := range l.answers {
				l.answers[j].write(w)
				w.flushIfFull()
			}
			w.flushIfFull()
		}
	}
}

func (x *answerRecord) write(w *streamWriter) {
	w.uvarint(x.serial)
	w.byte(byte(x.kind))
	w.byte(byte(x.code))
	w.uvarint(x.number)
	if x.details == nil {
		w.byte(withoutDetails)
		return
	}
	w.byte(withDetails)
	w.address(x.details.address)
	w.bool(x.details.deleting)
	w.count(len(x.details.locks))
	for _, l := range x.details.locks {
		w.lockID(l)
	}
	w.count(len(x.details.codes))
	for _, c := range x.details.codes {
		w.byte(byte(c))
	}
	w.count(len(x.details.untils))
	for _, t := range x.details.untils {
		w.instant(t)
	}
	w.count(len(x.details.numbers))
	for _, n := range x.details.numbers {
		w.uvarint(uint64(n))
	}
	w.uvarint(x.details.version)
	w.uvarint(x.details.session.Epoch)
	w.string(x.details.session.ID)
}

// read reads the answers into an empty table.
func (a *answerTable) read(r *streamReader) {
	r.repeat(incarnationsMax, func() {
		o := &incarnation{id: r.fixed64(), seen: r.instant(), generation: *a.generation}
		n := len(a.incarnations)
		r.require(o.id != 0 && (n == 0 || a.incarnations[n-1].id < o.id))
		r.repeat(receiversPerIncarnationMax, func() { a.readReceiver(r, o) })
		a.incarnations = append(a.incarnations, o)
		if end := o.seen.After(incarnationIdleMax); a.due == 0 || end < a.due {
			a.due = end
		}
	})
}

func (a *answerTable) readReceiver(r *streamReader, o *incarnation) {
	l := &receiverAnswers{id: r.uvarint(), low: r.uvarint(), generation: *a.generation}
	n := len(o.receivers)
	r.require(n == 0 || o.receivers[n-1].id < l.id)
	r.repeat(answersOutstandingMax, func() {
		x := readAnswer(r)
		n := len(l.answers)
		r.require(x.serial >= l.low && x.serial-l.low < answersOutstandingMax &&
			x.serial != 0 && (n == 0 || l.answers[n-1].serial < x.serial))
		if !planted.Active(planted.ForgetAnswers) {
			l.answers = append(l.answers, x)
		}
	})
	o.receivers = append(o.receivers, l)
}

func readAnswer(r *streamReader) answerRecord {
	x := answerRecord{serial: r.uvarint(), kind: Kind(r.byte()), code: Code(r.byte()), number: r.uvarint()}
	if x.kind == KindSettleMessages || x.kind == KindRenewLocks {
		r.require(x.number <= commandSettlementsMax) // a repeated answer allocates as many codes
	}
	if !r.bool() {
		return x
	}
	m := &answerDetails{address: r.address(), deleting: r.bool()}
	r.repeat(commandMessagesMax, func() { m.locks = append(m.locks, r.lockID()) })
	r.repeat(commandSettlementsMax, func() { m.codes = append(m.codes, Code(r.byte())) })
	r.repeat(commandSettlementsMax, func() { m.untils = append(m.untils, r.instant()) })
	r.repeat(commandSendMax, func() { m.numbers = append(m.numbers, SequenceNumber(r.uvarint())) })
	m.version = r.uvarint()
	m.session = SessionLock{Epoch: r.uvarint(), ID: r.string(sessionIDBytesMax)}
	x.details = m
	return x
}
