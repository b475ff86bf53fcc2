package fsm

import (
	"cmp"
	"slices"
)

// Limits of remembered answers.
const (
	incarnationsMax            = 1024  // remembered incarnations of members, per partition
	answersOutstandingMax      = 16384 // remembered answers of one receiver
	receiversPerIncarnationMax = 65536 // receivers of one incarnation in one partition
	incarnationIdleMax         = Millis(10 * 60 * 1000)
)

// answerRecord is the remembered answer to one command: 32 bytes for a send, or for settlements
// that all succeeded; more only if the result cannot be derived from them.
type answerRecord struct {
	serial  uint64
	number  uint64 // SendMessages: first sequence number; settlements: their number; catalog: entity, namespace, version or count
	details *answerDetails
	kind    Kind
	code    Code
}

// answerDetails are immutable: images share them.
type answerDetails struct {
	address  Address          // LockMessages, FetchDeferred, FetchReady
	deleting bool             // the locks are of messages that are Deleting, which go with this answer
	locks    []LockID         // LockMessages, FetchDeferred, FetchReady
	codes    []Code           // settlements, if not all are OK
	untils   []Instant        // RenewLocks, RenewSession; in serving time
	numbers  []SequenceNumber // SendMessages with duplicates; Transact
	version  uint64           // catalog
	session  SessionLock      // AcceptSession
}

// receiverAnswers are the answers of one receiver of an incarnation, sorted by serial. Always
//
//	low <= answers[i].serial < low + answersOutstandingMax
type receiverAnswers struct {
	id         uint64
	low        uint64 // every serial below it is forgotten
	generation generation
	answers    []answerRecord
}

// incarnation is one start of a member.
type incarnation struct {
	id         uint64
	seen       Instant            // when its last command was applied, in serving time
	generation generation         // of the slice receivers
	receivers  []*receiverAnswers // sorted by id
}

// answerTable makes commands exactly-once (Raft dissertation, section 6.3): it holds the answers to
// commands that may still be repeated. It is part of the state and of the image. It is bounded by
// the numbers of incarnations, of receivers, and of answers per receiver; a pulse forgets an
// incarnation that has been silent for incarnationIdleMax.
type answerTable struct {
	generation   *generation
	incarnations []*incarnation // sorted by id
	// due is no later than the first time at which an incarnation has been silent for
	// incarnationIdleMax; 0 if there are none. It decides when to look and not what is forgotten,
	// so it may differ between replicas.
	due Instant
	// forget is called with the details of every answer that is forgotten.
	forget func(*answerDetails)
}

func newAnswerTable(now *generation, forget func(*answerDetails)) answerTable {
	return answerTable{generation: now, forget: forget}
}

func (a *answerTable) find(id uint64) (int, bool) {
	return slices.BinarySearchFunc(a.incarnations, id, func(o *incarnation, id uint64) int { return cmp.Compare(o.id, id) })
}

func (o *incarnation) find(id uint64) (int, bool) {
	if n := len(o.receivers); n > 0 && o.receivers[n-1].id < id {
		return n, false
	}
	return slices.BinarySearchFunc(o.receivers, id, func(l *receiverAnswers, id uint64) int { return cmp.Compare(l.id, id) })
}

func (l *receiverAnswers) find(serial uint64) (int, bool) {
	if n := len(l.answers); n == 0 || l.answers[n-1].serial < serial {
		return n, false
	}
	return slices.BinarySearchFunc(l.answers, serial, func(x answerRecord, serial uint64) int { return cmp.Compare(x.serial, serial) })
}

// begin looks up a command before it is performed. If the code is not OK, the command is refused
// and nothing is remembered: Stale, ServerBusy if a limit is reached, InvalidArgument for an
// impossible header. If old is set, the command was performed before and old is its answer.
// Otherwise it is to be performed, and its answer is remembered in the result to.
func (a *answerTable) begin(h Header, now Instant) (to *receiverAnswers, old *answerRecord, code Code) {
	if h.Serial == 0 || h.Low > h.Serial {
		return nil, nil, InvalidArgument
	}
	o := a.incarnation(h.Incarnation, now)
	if o == nil {
		return nil, nil, ServerBusy
	}
	o.seen = now
	l := a.receiver(o, h.Receiver)
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

// incarnation finds or adds an incarnation; nil if there are too many.
func (a *answerTable) incarnation(id uint64, now Instant) *incarnation {
	i, found := a.find(id)
	if found {
		return a.incarnations[i]
	}
	if len(a.incarnations) >= incarnationsMax {
		return nil
	}
	o := &incarnation{id: id, generation: *a.generation}
	a.incarnations = slices.Insert(a.incarnations, i, o)
	if a.due == 0 {
		a.due = now.After(incarnationIdleMax)
	}
	return o
}

// receiver finds or adds a receiver, for writing; nil if the incarnation has too many.
func (a *answerTable) receiver(o *incarnation, id uint64) *receiverAnswers {
	i, found := o.find(id)
	if !found && len(o.receivers) >= receiversPerIncarnationMax {
		return nil
	}
	if !found {
		a.ownReceivers(o)
		o.receivers = slices.Insert(o.receivers, i, &receiverAnswers{id: id, generation: *a.generation})
	}
	l := o.receivers[i]
	if l.generation != *a.generation {
		a.ownReceivers(o)
		l = &receiverAnswers{id: l.id, low: l.low, generation: *a.generation, answers: slices.Clone(l.answers)}
		o.receivers[i] = l
	}
	return l
}

func (a *answerTable) ownReceivers(o *incarnation) {
	if o.generation != *a.generation {
		o.receivers = slices.Clone(o.receivers)
		o.generation = *a.generation
	}
}

// dropBelow forgets the answers below low.
func (a *answerTable) dropBelow(l *receiverAnswers) {
	n, _ := l.find(l.low)
	a.release(l.answers[:n])
	if left := len(l.answers) - n; left > n {
		l.answers = l.answers[n:]
	} else { // few are left: reuse the start of the array
		copy(l.answers, l.answers[n:])
		clear(l.answers[left:])
		l.answers = l.answers[:left]
	}
}

// release forgets answers; the caller owns them.
func (a *answerTable) release(gone []answerRecord) {
	for i := range gone {
		if more := gone[i].details; more != nil {
			a.forget(more)
		}
		gone[i] = answerRecord{}
	}
}

// remember stores the answer to a command that began with these answers.
func (a *answerTable) remember(l *receiverAnswers, x answerRecord) {
	i, _ := l.find(x.serial)
	l.answers = slices.Insert(l.answers, i, x)
}

// closeReceiver forgets a receiver and its answers. An unknown receiver has been forgotten already.
func (a *answerTable) closeReceiver(c CloseReceiver) {
	i, found := a.find(c.Incarnation)
	if !found {
		return
	}
	o := a.incarnations[i]
	if j, found := o.find(c.Receiver); found {
		l := a.receiver(o, c.Receiver)
		a.release(l.answers)
		l.answers = nil
		a.ownReceivers(o)
		o.receivers = slices.Delete(o.receivers, j, j+1)
	}
}

// forgetIdle forgets incarnations that have been silent for incarnationIdleMax, at most budget
// receivers and answers; the next pulse, which is due at once, continues.
func (a *answerTable) forgetIdle(now Instant, budget int) {
	if a.due == 0 || now < a.due {
		return
	}
	next := Instant(0)
	for i := 0; i < len(a.incarnations); {
		o := a.incarnations[i]
		end := o.seen.After(incarnationIdleMax)
		if end > now {
			if next == 0 || end < next {
				next = end
			}
			i++
			continue
		}
		for n := len(o.receivers); n > 0; n = len(o.receivers) {
			if budget <= 0 {
				return // due stays in the past
			}
			budget -= 1 + a.shrink(o, n-1, budget)
		}
		a.incarnations = slices.Delete(a.incarnations, i, i+1)
	}
	a.due = next
}

// shrink forgets up to budget answers of a receiver, newest first, and the receiver if none is
// left.
func (a *answerTable) shrink(o *incarnation, i, budget int) (spent int) {
	l := a.receiver(o, o.receivers[i].id)
	keep := len(l.answers)
	for keep > 0 && spent < budget {
		keep--
		spent++
		if more := l.answers[keep].details; more != nil {
			spent += len(more.locks)
		}
	}
	a.release(l.answers[keep:])
	l.answers = l.answers[:keep]
	if keep == 0 {
		a.ownReceivers(o)
		o.receivers = slices.Delete(o.receivers, i, i+1)
	}
	return spent
}

// frozenAnswers are the answers in an image.
type frozenAnswers []frozenIncarnation

// frozenIncarnation is an incarnation in an image.
type frozenIncarnation struct {
	id        uint64
	seen      Instant
	receivers []*receiverAnswers
}

// freeze copies what an image cannot share; the caller then increments the generation.
func (a *answerTable) freeze() frozenAnswers {
	frozen := make(frozenAnswers, len(a.incarnations))
	for i, o := range a.incarnations {
		frozen[i] = frozenIncarnation{id: o.id, seen: o.seen, receivers: o.receivers}
	}
	return frozen
}

// newAnswerRecord condenses a result. ok is false if nothing is to be remembered: a lock or fetch
// that found nothing changed nothing, and may find something when it is repeated.
func newAnswerRecord(kind Kind, serial uint64, at Address, res Result) (x answerRecord, ok bool) {
	x = answerRecord{serial: serial, kind: kind, code: res.Code}
	switch kind {
	case KindSendMessages, KindTransact, KindReserveNumbers:
		x.number = uint64(res.Sequence)
		if res.Sequences != nil {
			x.details = &answerDetails{numbers: res.Sequences}
		}
	case KindLockMessages, KindFetchDeferred, KindFetchReady:
		if len(res.Deliveries) == 0 {
			return x, res.Code != OK
		}
		more := &answerDetails{address: at, deleting: res.Deliveries[0].State == Deleting}
		more.locks = make([]LockID, len(res.Deliveries))
		for i := range res.Deliveries {
			more.locks[i] = res.Deliveries[i].Lock
		}
		x.details = more
	case KindSettleMessages, KindRenewLocks:
		x.number = uint64(len(res.Codes))
		if res.Untils != nil || slices.ContainsFunc(res.Codes, func(c Code) bool { return c != OK }) {
			x.details = &answerDetails{codes: res.Codes, untils: res.Untils}
		}
	case KindCreateEntity, KindUpdateEntity:
		x.number = uint64(res.Entity)
		if res.Version != 0 {
			x.details = &answerDetails{version: res.Version}
		}
	case KindCreateNamespace:
		x.number = uint64(res.Namespace)
		if res.Version != 0 {
			x.details = &answerDetails{version: res.Version}
		}
	case KindUpdateNamespace, KindSetAccess:
		x.number = res.Version
	case KindFenceIdle:
		x.number = res.Serial
	case KindPurgeMessages, KindRedriveMessages, KindAddPartitions:
		x.number = res.Count
		if res.Sequence != 0 {
			x.details = &answerDetails{numbers: []SequenceNumber{res.Sequence}}
		}
	case KindForwardMessages, KindTransferMessages:
		return x, false // they are exactly-once by serials of their own
	case KindAcceptSession:
		if res.Session.Epoch == 0 {
			return x, res.Code != OK
		}
		x.details = &answerDetails{address: at, session: res.Session}
	case KindRenewSession:
		if res.Untils != nil {
			x.details = &answerDetails{untils: res.Untils}
		}
	case KindPulse, KindPutEntity, KindDropEntity, KindCloseReceiver, KindCancelScheduled, KindTouch, KindPutRule, KindDropRule,
		KindReleaseSession, KindSetSessionState,
		KindFoundCluster, KindPartitionFormed, KindDeleteEntity, KindForgetEntity,
		KindDeleteNamespace, KindSetMember, KindPlacePartition, KindReplaceReplica, KindPartitionPlaced, KindRaiseLevel, KindHoldLevel, KindRenameCluster, KindBeginEpoch:
		// The code is the whole answer.
	}
	return x, true
}

// result returns the result that newAnswerRecord condensed, without the deliveries.
func (x *answerRecord) result() Result {
	res := Result{Code: x.code}
	switch x.kind {
	case KindSendMessages, KindTransact, KindReserveNumbers:
		res.Sequence = SequenceNumber(x.number)
		if x.details != nil {
			res.Sequences = slices.Clone(x.details.numbers)
		}
	case KindSettleMessages, KindRenewLocks:
		if x.details != nil {
			res.Codes, res.Untils = slices.Clone(x.details.codes), slices.Clone(x.details.untils)
		} else if x.number > 0 {
			res.Codes = make([]Code, x.number)
		}
	case KindCreateEntity, KindUpdateEntity:
		res.Entity = EntityID(x.number)
		if x.details != nil {
			res.Version = x.details.version
		}
	case KindLockMessages, KindFetchDeferred, KindFetchReady: // Queues adds the deliveries
	case KindCreateNamespace:
		res.Namespace = NamespaceID(x.number)
		if x.details != nil {
			res.Version = x.details.version
		}
	case KindUpdateNamespace, KindSetAccess:
		res.Version = x.number
	case KindFenceIdle:
		res.Serial = x.number
	case KindPurgeMessages, KindRedriveMessages, KindAddPartitions:
		res.Count = x.number
		if x.details != nil && len(x.details.numbers) == 1 {
			res.Sequence = x.details.numbers[0]
		}
	case KindForwardMessages, KindTransferMessages: // not remembered
	case KindAcceptSession: // Queues adds the lock as it is now
	case KindRenewSession:
		if x.details != nil {
			res.Untils = slices.Clone(x.details.untils)
		}
	case KindPulse, KindPutEntity, KindDropEntity, KindCloseReceiver, KindCancelScheduled, KindTouch, KindPutRule, KindDropRule,
		KindReleaseSession, KindSetSessionState,
		KindFoundCluster, KindPartitionFormed, KindDeleteEntity, KindForgetEntity,
		KindDeleteNamespace, KindSetMember, KindPlacePartition, KindReplaceReplica, KindPartitionPlaced, KindRaiseLevel, KindHoldLevel, KindRenameCluster, KindBeginEpoch:
	}
	return res
}
