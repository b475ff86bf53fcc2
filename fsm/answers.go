package fsm

import (
	"cmp"
	"slices"
)

// answer is what is remembered of one command: 32 bytes for a send or for settlements
// that all succeeded, with more only where the result cannot be told from them.
type answer struct {
	serial uint64
	number uint64 // SendMessages: first sequence; settlements: how many; catalog: entity, namespace, version or count
	more   *details
	kind   Kind
	code   Code
}

// details are written once and then only read, so images share them.
type details struct {
	address Address          // LockMessages, FetchDeferred
	taken   bool             // the locks are of messages given for good, which go when this is forgotten
	locks   []LockID         // LockMessages, FetchDeferred
	codes   []Code           // settlements, when they are not all OK
	untils  []Instant        // RenewLocks
	numbers []SequenceNumber // SendMessages, when there were duplicates; Transact
	version uint64           // catalog
	session SessionLock      // AcceptSession
}

// lane is one row of requests of an origin: its answers, sorted by serial. Always
//
//	low <= answers[i].serial < low + answersOutstandingMax
type lane struct {
	id      uint64
	low     uint64 // every serial below it is forgotten
	era     era
	answers []answer
}

// origin is one incarnation of a member.
type origin struct {
	id    uint64
	seen  Instant // when its last command was applied
	era   era     // of the slice lanes
	lanes []*lane // sorted by id
}

// answers makes commands exactly-once (Raft dissertation, 6.3): what a machine
// remembers of the commands whose askers may still ask again. It is part of the state
// and of the image. It is bounded by origins, lanes and answers per lane; an origin
// that is not heard of for originIdleMax is forgotten by a Pulse.
type answers struct {
	era     *era
	origins []*origin // sorted by id
	// due is no later than the first moment at which an origin has been idle for
	// originIdleMax; 0 when there are none. It decides when to look and not what goes,
	// so it may differ between replicas.
	due Instant
	// forget is called with the details of every answer that goes.
	forget func(*details)
}

func newAnswers(now *era, forget func(*details)) answers {
	return answers{era: now, forget: forget}
}

func (a *answers) find(id uint64) (int, bool) {
	return slices.BinarySearchFunc(a.origins, id, func(o *origin, id uint64) int { return cmp.Compare(o.id, id) })
}

func (o *origin) find(id uint64) (int, bool) {
	if n := len(o.lanes); n > 0 && o.lanes[n-1].id < id {
		return n, false
	}
	return slices.BinarySearchFunc(o.lanes, id, func(l *lane, id uint64) int { return cmp.Compare(l.id, id) })
}

func (l *lane) find(serial uint64) (int, bool) {
	if n := len(l.answers); n == 0 || l.answers[n-1].serial < serial {
		return n, false
	}
	return slices.BinarySearchFunc(l.answers, serial, func(x answer, serial uint64) int { return cmp.Compare(x.serial, serial) })
}

// begin opens the turn of a command. When the code is not OK, the command is refused
// and nothing remembered: Stale, ServerBusy when a limit is reached, InvalidArgument
// for a header that cannot be. When old is set, the command was performed before and
// old is what is remembered. Else it is to be performed, and its answer goes to lane.
func (a *answers) begin(h Header, now Instant) (to *lane, old *answer, code Code) {
	if h.Serial == 0 || h.Low > h.Serial {
		return nil, nil, InvalidArgument
	}
	o := a.origin(h.Origin, now)
	if o == nil {
		return nil, nil, ServerBusy
	}
	o.seen = now
	l := a.lane(o, h.Lane)
	if l == nil {
		return nil, nil, ServerBusy
	}
	if h.Low > l.low {
		l.low = h.Low
		a.dropBelow(l)
	}
	if h.Serial < l.low {
		return nil, nil, Stale
	}
	if i, found := l.find(h.Serial); found {
		return l, &l.answers[i], OK
	}
	if h.Serial-l.low >= answersOutstandingMax {
		return nil, nil, ServerBusy
	}
	return l, nil, OK
}

// origin finds or makes an origin; nil when there are too many.
func (a *answers) origin(id uint64, now Instant) *origin {
	i, found := a.find(id)
	if found {
		return a.origins[i]
	}
	if len(a.origins) >= originsMax {
		return nil
	}
	o := &origin{id: id, era: *a.era}
	a.origins = slices.Insert(a.origins, i, o)
	if a.due == 0 {
		a.due = now.After(originIdleMax)
	}
	return o
}

// lane finds or makes a lane, for writing; nil when the origin has too many.
func (a *answers) lane(o *origin, id uint64) *lane {
	i, found := o.find(id)
	if !found && len(o.lanes) >= lanesPerOriginMax {
		return nil
	}
	if !found {
		a.ownLanes(o)
		o.lanes = slices.Insert(o.lanes, i, &lane{id: id, era: *a.era})
	}
	l := o.lanes[i]
	if l.era != *a.era {
		a.ownLanes(o)
		l = &lane{id: l.id, low: l.low, era: *a.era, answers: slices.Clone(l.answers)}
		o.lanes[i] = l
	}
	return l
}

func (a *answers) ownLanes(o *origin) {
	if o.era != *a.era {
		o.lanes = slices.Clone(o.lanes)
		o.era = *a.era
	}
}

// dropBelow forgets the answers below low.
func (a *answers) dropBelow(l *lane) {
	n, _ := l.find(l.low)
	a.release(l.answers[:n])
	if left := len(l.answers) - n; left > n {
		l.answers = l.answers[n:]
	} else { // few are left: reuse the array from its start
		copy(l.answers, l.answers[n:])
		clear(l.answers[left:])
		l.answers = l.answers[:left]
	}
}

// release lets answers go; the caller owns them.
func (a *answers) release(gone []answer) {
	for i := range gone {
		if more := gone[i].more; more != nil {
			a.forget(more)
		}
		gone[i] = answer{}
	}
}

// remember keeps the answer of a command that began in lane l.
func (a *answers) remember(l *lane, x answer) {
	i, _ := l.find(x.serial)
	l.answers = slices.Insert(l.answers, i, x)
}

// closeLane forgets a lane and all its answers. An unknown one is forgotten already.
func (a *answers) closeLane(c CloseLane) {
	i, found := a.find(c.Origin)
	if !found {
		return
	}
	o := a.origins[i]
	if j, found := o.find(c.Lane); found {
		l := a.lane(o, c.Lane)
		a.release(l.answers)
		l.answers = nil
		a.ownLanes(o)
		o.lanes = slices.Delete(o.lanes, j, j+1)
	}
}

// forgetIdle forgets origins that were idle for originIdleMax, at most budget lanes
// and answers; the rest follows with the next pulse, which is due at once.
func (a *answers) forgetIdle(now Instant, budget int) {
	if a.due == 0 || now < a.due {
		return
	}
	next := Instant(0)
	for i := 0; i < len(a.origins); {
		o := a.origins[i]
		end := o.seen.After(originIdleMax)
		if end > now {
			if next == 0 || end < next {
				next = end
			}
			i++
			continue
		}
		for n := len(o.lanes); n > 0; n = len(o.lanes) {
			if budget <= 0 {
				return // due stays in the past
			}
			budget -= 1 + a.shrink(o, n-1, budget)
		}
		a.origins = slices.Delete(a.origins, i, i+1)
	}
	a.due = next
}

// shrink forgets up to budget answers of a lane, newest first, and the lane when none
// is left.
func (a *answers) shrink(o *origin, i, budget int) (spent int) {
	l := a.lane(o, o.lanes[i].id)
	keep := len(l.answers)
	for keep > 0 && spent < budget {
		keep--
		spent++
		if more := l.answers[keep].more; more != nil {
			spent += len(more.locks)
		}
	}
	a.release(l.answers[keep:])
	l.answers = l.answers[:keep]
	if keep == 0 {
		a.ownLanes(o)
		o.lanes = slices.Delete(o.lanes, i, i+1)
	}
	return spent
}

// frozenOrigin is an origin in an image.
type frozenOrigin struct {
	id    uint64
	seen  Instant
	lanes []*lane
}

// freeze copies what must be copied for an image; the caller raises the era.
func (a *answers) freeze() []frozenOrigin {
	frozen := make([]frozenOrigin, len(a.origins))
	for i, o := range a.origins {
		frozen[i] = frozenOrigin{id: o.id, seen: o.seen, lanes: o.lanes}
	}
	return frozen
}

// newAnswer condenses a result. It is not ok when there is nothing to remember: a lock
// or fetch that found nothing gave nothing away, and asked again it may find something.
func newAnswer(kind Kind, serial uint64, at Address, res Result) (x answer, ok bool) {
	x = answer{serial: serial, kind: kind, code: res.Code}
	switch kind {
	case KindSendMessages, KindTransact:
		x.number = uint64(res.Sequence)
		if res.Sequences != nil {
			x.more = &details{numbers: res.Sequences}
		}
	case KindLockMessages, KindFetchDeferred:
		if len(res.Deliveries) == 0 {
			return x, res.Code != OK
		}
		more := &details{address: at, taken: res.Deliveries[0].State == Taken}
		more.locks = make([]LockID, len(res.Deliveries))
		for i := range res.Deliveries {
			more.locks[i] = res.Deliveries[i].Lock
		}
		x.more = more
	case KindSettleMessages, KindRenewLocks:
		x.number = uint64(len(res.Codes))
		if res.Untils != nil || slices.ContainsFunc(res.Codes, func(c Code) bool { return c != OK }) {
			x.more = &details{codes: res.Codes, untils: res.Untils}
		}
	case KindCreateEntity, KindUpdateEntity:
		x.number = uint64(res.Entity)
		if res.Version != 0 {
			x.more = &details{version: res.Version}
		}
	case KindCreateNamespace:
		x.number = uint64(res.Namespace)
		if res.Version != 0 {
			x.more = &details{version: res.Version}
		}
	case KindUpdateNamespace, KindSetAccess:
		x.number = res.Version
	case KindPurgeMessages, KindRedriveMessages, KindAddPartitions:
		x.number = res.Count
	case KindForwardMessages, KindTransferMessages:
		return x, false // they are exactly-once by their own serials
	case KindAcceptSession:
		if res.Session.Epoch == 0 {
			return x, res.Code != OK
		}
		x.more = &details{address: at, session: res.Session}
	case KindRenewSession:
		if res.Untils != nil {
			x.more = &details{untils: res.Untils}
		}
	case KindPulse, KindPutEntity, KindDropEntity, KindCloseLane, KindCancelScheduled, KindTouch, KindPutRule, KindDropRule,
		KindReleaseSession, KindSetSessionState,
		KindFoundCluster, KindPartitionFormed, KindDeleteEntity, KindForgetEntity,
		KindDeleteNamespace, KindSetMember, KindPlacePartition, KindPartitionPlaced, KindRaiseLevel:
		// The code says it all.
	}
	return x, true
}

// result is the result that newAnswer condensed, without the deliveries.
func (x *answer) result() Result {
	res := Result{Code: x.code}
	switch x.kind {
	case KindSendMessages, KindTransact:
		res.Sequence = SequenceNumber(x.number)
		if x.more != nil {
			res.Sequences = slices.Clone(x.more.numbers)
		}
	case KindSettleMessages, KindRenewLocks:
		if x.more != nil {
			res.Codes, res.Untils = slices.Clone(x.more.codes), slices.Clone(x.more.untils)
		} else if x.number > 0 {
			res.Codes = make([]Code, x.number)
		}
	case KindCreateEntity, KindUpdateEntity:
		res.Entity = EntityID(x.number)
		if x.more != nil {
			res.Version = x.more.version
		}
	case KindLockMessages, KindFetchDeferred: // the machine of queues adds deliveries
	case KindCreateNamespace:
		res.Namespace = NamespaceID(x.number)
		if x.more != nil {
			res.Version = x.more.version
		}
	case KindUpdateNamespace, KindSetAccess:
		res.Version = x.number
	case KindPurgeMessages, KindRedriveMessages, KindAddPartitions:
		res.Count = x.number
	case KindForwardMessages, KindTransferMessages: // not remembered
	case KindAcceptSession: // the machine of queues shows the grant as it stands
	case KindRenewSession:
		if x.more != nil {
			res.Untils = slices.Clone(x.more.untils)
		}
	case KindPulse, KindPutEntity, KindDropEntity, KindCloseLane, KindCancelScheduled, KindTouch, KindPutRule, KindDropRule,
		KindReleaseSession, KindSetSessionState,
		KindFoundCluster, KindPartitionFormed, KindDeleteEntity, KindForgetEntity,
		KindDeleteNamespace, KindSetMember, KindPlacePartition, KindPartitionPlaced, KindRaiseLevel:
	}
	return res
}
