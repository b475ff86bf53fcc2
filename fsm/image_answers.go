package fsm

// Every answer carries a byte that says whether details follow.
const (
	withoutDetails byte = 0
	withDetails    byte = 1
)

func (w *imageWriter) answers(origins []frozenOrigin) {
	w.count(len(origins))
	for i := range origins {
		o := &origins[i]
		w.fixed64(o.id)
		w.instant(o.seen)
		w.count(len(o.lanes))
		for _, l := range o.lanes {
			w.uvarint(l.id)
			w.uvarint(l.low)
			w.count(len(l.answers))
			for j := range l.answers {
				w.answer(&l.answers[j])
				w.spill()
			}
			w.spill()
		}
	}
}

func (w *imageWriter) answer(x *answer) {
	w.uvarint(x.serial)
	w.byte(byte(x.kind))
	w.byte(byte(x.code))
	w.uvarint(x.number)
	if x.more == nil {
		w.byte(withoutDetails)
		return
	}
	w.byte(withDetails)
	w.address(x.more.address)
	w.bool(x.more.taken)
	w.count(len(x.more.locks))
	for _, l := range x.more.locks {
		w.lockID(l)
	}
	w.count(len(x.more.codes))
	for _, c := range x.more.codes {
		w.byte(byte(c))
	}
	w.count(len(x.more.untils))
	for _, t := range x.more.untils {
		w.instant(t)
	}
	w.count(len(x.more.numbers))
	for _, n := range x.more.numbers {
		w.uvarint(uint64(n))
	}
	w.uvarint(x.more.version)
	w.uvarint(x.more.session.Epoch)
	w.string(x.more.session.ID)
}

// answers reads the table back into an empty one.
func (r *imageReader) answers(a *answers) {
	r.more(originsMax, func() {
		o := &origin{id: r.fixed64(), seen: r.instant(), era: *a.era}
		n := len(a.origins)
		r.want(o.id != 0 && (n == 0 || a.origins[n-1].id < o.id))
		r.more(lanesPerOriginMax, func() { r.lane(a, o) })
		a.origins = append(a.origins, o)
		if end := o.seen.After(originIdleMax); a.due == 0 || end < a.due {
			a.due = end
		}
	})
}

func (r *imageReader) lane(a *answers, o *origin) {
	l := &lane{id: r.uvarint(), low: r.uvarint(), era: *a.era}
	n := len(o.lanes)
	r.want(n == 0 || o.lanes[n-1].id < l.id)
	r.more(answersOutstandingMax, func() {
		x := r.answer()
		n := len(l.answers)
		r.want(x.serial >= l.low && x.serial-l.low < answersOutstandingMax &&
			x.serial != 0 && (n == 0 || l.answers[n-1].serial < x.serial))
		l.answers = append(l.answers, x)
	})
	o.lanes = append(o.lanes, l)
}

func (r *imageReader) answer() answer {
	x := answer{serial: r.uvarint(), kind: Kind(r.byte()), code: Code(r.byte()), number: r.uvarint()}
	if x.kind == KindSettleMessages || x.kind == KindRenewLocks {
		r.want(x.number <= commandSettlementsMax) // a repeated answer allocates as many codes
	}
	if !r.bool() {
		return x
	}
	m := &details{address: r.address(), taken: r.bool()}
	r.more(commandMessagesMax, func() { m.locks = append(m.locks, r.lockID()) })
	r.more(commandSettlementsMax, func() { m.codes = append(m.codes, Code(r.byte())) })
	r.more(commandSettlementsMax, func() { m.untils = append(m.untils, r.instant()) })
	r.more(commandMessagesMax, func() { m.numbers = append(m.numbers, SequenceNumber(r.uvarint())) })
	m.version = r.uvarint()
	m.session = SessionLock{Epoch: r.uvarint(), ID: r.string(sessionIDBytesMax)}
	x.more = m
	return x
}
