package answers

import (
	"cmp"
	"slices"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/fields"
	"github.com/peeklock/peeklock/fsm/image"
)

// Limits of remembered answers.
const (
	IncarnationsMax            = 1024  // remembered incarnations of members, per partition
	answersOutstandingMax      = 16384 // remembered answers of one receiver
	ReceiversPerIncarnationMax = 65536 // receivers of one incarnation in one partition
	IncarnationIdleMax         = fsm.Millis(10 * 60 * 1000)
)

// Record is the remembered answer to one command: 32 bytes for a send, or for settlements
// that all succeeded; more only if the result cannot be derived from them.
type Record struct {
	serial  uint64
	number  uint64 // SendMessages: first sequence number; settlements: their number; catalog: entity, namespace, version or count
	Details *Details
	kind    fsm.Kind
	code    fsm.Code
}

// Details are immutable: images share them.
type Details struct {
	Address  fsm.Address          // LockMessages, FetchDeferred, FetchReady
	Deleting bool                 // the locks are of messages that are Deleting, which go with this answer
	Locks    []fsm.LockID         // LockMessages, FetchDeferred, FetchReady
	codes    []fsm.Code           // settlements, if not all are OK
	untils   []fsm.Instant        // RenewLocks, RenewSession; in serving time
	numbers  []fsm.SequenceNumber // SendMessages with duplicates; Transact
	version  uint64               // catalog
	Session  fsm.SessionLock      // AcceptSession
}

// Receiver are the answers of one receiver of an incarnation, sorted by serial. Always
//
//	low <= answers[i].serial < low + answersOutstandingMax
type Receiver struct {
	id         uint64
	low        uint64 // every serial below it is forgotten
	generation image.Generation
	answers    []Record
}

// incarnation is one start of a member.
type incarnation struct {
	id         uint64
	seen       fsm.Instant      // when its last command was applied, in serving time
	generation image.Generation // of the slice receivers
	receivers  []*Receiver      // sorted by id
}

// Table makes commands exactly-once (Raft dissertation, section 6.3): it holds the answers to
// commands that may still be repeated. It is part of the state and of the image. It is bounded by
// the numbers of incarnations, of receivers, and of answers per receiver; a pulse forgets an
// incarnation that has been silent for IncarnationIdleMax.
type Table struct {
	generation   *image.Generation
	incarnations []*incarnation // sorted by id
	// due is no later than the first time at which an incarnation has been silent for
	// IncarnationIdleMax; 0 if there are none. It decides when to look and not what is forgotten,
	// so it may differ between replicas.
	due fsm.Instant
	// forget is called with the details of every answer that is forgotten.
	forget func(*Details)
}

// Bind makes a table that was copied refer to the generation and the callback of its new owner.
func (a *Table) Bind(now *image.Generation, forget func(*Details)) {
	a.generation, a.forget = now, forget
}

// Due returns a time at which, or after which, ForgetIdle has something to do; 0 for none.
func (a *Table) Due() fsm.Instant { return a.due }

// New returns an empty table. now is the generation of the state machine, and forget is called with the details of each answer that is forgotten.
func New(now *image.Generation, forget func(*Details)) Table {
	return Table{generation: now, forget: forget}
}

func (a *Table) find(id uint64) (int, bool) {
	return slices.BinarySearchFunc(a.incarnations, id, func(o *incarnation, id uint64) int { return cmp.Compare(o.id, id) })
}

func (o *incarnation) find(id uint64) (int, bool) {
	if n := len(o.receivers); n > 0 && o.receivers[n-1].id < id {
		return n, false
	}
	return slices.BinarySearchFunc(o.receivers, id, func(l *Receiver, id uint64) int { return cmp.Compare(l.id, id) })
}

func (l *Receiver) find(serial uint64) (int, bool) {
	if n := len(l.answers); n == 0 || l.answers[n-1].serial < serial {
		return n, false
	}
	return slices.BinarySearchFunc(l.answers, serial, func(x Record, serial uint64) int { return cmp.Compare(x.serial, serial) })
}

// Skip answers a command with Internal, without performing it, and remembers that. A command that was performed before gets its
// answer. Bytes that do not decode get Internal, too, and nothing is remembered.
func (a *Table) Skip(command []byte, now fsm.Instant) fsm.Result {
	skipped := fsm.Result{Code: fsm.Internal}
	r := fields.Decoder(command)
	kind, h := fsm.ReadHeader(&r)
	if r.Err() != nil || h.Incarnation == 0 {
		return skipped
	}
	l, old, code := a.Begin(h, now)
	switch {
	case code != fsm.OK:
		return fsm.Result{Code: code}
	case old != nil:
		return old.Result()
	}
	if x, ok := NewRecord(kind, h.Serial, fsm.Address{}, skipped); ok {
		a.Remember(l, x)
	}
	return skipped
}

// Begin looks up a command before it is performed. If the code is not OK, the command is refused
// and nothing is remembered: Stale, ServerBusy if a limit is reached, InvalidArgument for an
// impossible header. If old is set, the command was performed before and old is its answer.
// Otherwise it is to be performed, and its answer is remembered in the result to.
func (a *Table) Begin(h fsm.Header, now fsm.Instant) (to *Receiver, old *Record, code fsm.Code) {
	if h.Serial == 0 || h.Low > h.Serial {
		return nil, nil, fsm.InvalidArgument
	}
	o := a.incarnation(h.Incarnation, now)
	if o == nil {
		return nil, nil, fsm.ServerBusy
	}
	o.seen = now
	l := a.receiver(o, h.Receiver)
	if l == nil {
		return nil, nil, fsm.ServerBusy
	}
	if h.Low > l.low {
		l.low = h.Low
		a.dropBelow(l)
	}
	if h.Serial < l.low {
		return nil, nil, fsm.Stale
	}
	if i, found := l.find(h.Serial); found {
		return l, &l.answers[i], fsm.OK
	}
	if h.Serial-l.low >= answersOutstandingMax {
		return nil, nil, fsm.ServerBusy
	}
	return l, nil, fsm.OK
}

// incarnation finds or adds an incarnation; nil if there are too many.
func (a *Table) incarnation(id uint64, now fsm.Instant) *incarnation {
	i, found := a.find(id)
	if found {
		return a.incarnations[i]
	}
	if len(a.incarnations) >= IncarnationsMax {
		return nil
	}
	o := &incarnation{id: id, generation: *a.generation}
	a.incarnations = slices.Insert(a.incarnations, i, o)
	if a.due == 0 {
		a.due = now.After(IncarnationIdleMax)
	}
	return o
}

// receiver finds or adds a receiver, for writing; nil if the incarnation has too many.
func (a *Table) receiver(o *incarnation, id uint64) *Receiver {
	i, found := o.find(id)
	if !found && len(o.receivers) >= ReceiversPerIncarnationMax {
		return nil
	}
	if !found {
		a.ownReceivers(o)
		o.receivers = slices.Insert(o.receivers, i, &Receiver{id: id, generation: *a.generation})
	}
	l := o.receivers[i]
	if l.generation != *a.generation {
		a.ownReceivers(o)
		l = &Receiver{id: l.id, low: l.low, generation: *a.generation, answers: slices.Clone(l.answers)}
		o.receivers[i] = l
	}
	return l
}

func (a *Table) ownReceivers(o *incarnation) {
	if o.generation != *a.generation {
		o.receivers = slices.Clone(o.receivers)
		o.generation = *a.generation
	}
}

// dropBelow forgets the answers below low.
func (a *Table) dropBelow(l *Receiver) {
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
func (a *Table) release(gone []Record) {
	for i := range gone {
		if more := gone[i].Details; more != nil {
			a.forget(more)
		}
		gone[i] = Record{}
	}
}

// Remember stores the answer to a command that began with these answers.
func (a *Table) Remember(l *Receiver, x Record) {
	i, _ := l.find(x.serial)
	l.answers = slices.Insert(l.answers, i, x)
}

// CloseReceiver forgets a receiver and its answers. An unknown receiver has been forgotten already.
func (a *Table) CloseReceiver(c fsm.CloseReceiver) {
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

// ForgetIdle forgets incarnations that have been silent for IncarnationIdleMax, at most budget
// receivers and answers; the next pulse, which is due at once, continues.
func (a *Table) ForgetIdle(now fsm.Instant, budget int) {
	if a.due == 0 || now < a.due {
		return
	}
	next := fsm.Instant(0)
	for i := 0; i < len(a.incarnations); {
		o := a.incarnations[i]
		end := o.seen.After(IncarnationIdleMax)
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
func (a *Table) shrink(o *incarnation, i, budget int) (spent int) {
	l := a.receiver(o, o.receivers[i].id)
	keep := len(l.answers)
	for keep > 0 && spent < budget {
		keep--
		spent++
		if more := l.answers[keep].Details; more != nil {
			spent += len(more.Locks)
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

// Frozen are the answers in an image.
type Frozen []frozenIncarnation

// frozenIncarnation is an incarnation in an image.
type frozenIncarnation struct {
	id        uint64
	seen      fsm.Instant
	receivers []*Receiver
}

// Freeze copies what an image cannot share; the caller then increments the generation.
func (a *Table) Freeze() Frozen {
	frozen := make(Frozen, len(a.incarnations))
	for i, o := range a.incarnations {
		frozen[i] = frozenIncarnation{id: o.id, seen: o.seen, receivers: o.receivers}
	}
	return frozen
}

// NewRecord condenses a result. ok is false if nothing is to be remembered: a lock or fetch
// that found nothing changed nothing, and may find something when it is repeated.
func NewRecord(kind fsm.Kind, serial uint64, at fsm.Address, res fsm.Result) (x Record, ok bool) {
	x = Record{serial: serial, kind: kind, code: res.Code}
	switch kind {
	case fsm.KindSendMessages, fsm.KindTransact, fsm.KindReserveNumbers:
		x.number = uint64(res.Sequence)
		if res.Sequences != nil {
			x.Details = &Details{numbers: res.Sequences}
		}
	case fsm.KindLockMessages, fsm.KindFetchDeferred, fsm.KindFetchReady:
		if len(res.Deliveries) == 0 {
			return x, res.Code != fsm.OK
		}
		more := &Details{Address: at, Deleting: res.Deliveries[0].State == fsm.Deleting}
		more.Locks = make([]fsm.LockID, len(res.Deliveries))
		for i := range res.Deliveries {
			more.Locks[i] = res.Deliveries[i].Lock
		}
		x.Details = more
	case fsm.KindSettleMessages, fsm.KindRenewLocks:
		x.number = uint64(len(res.Codes))
		if res.Untils != nil || slices.ContainsFunc(res.Codes, func(c fsm.Code) bool { return c != fsm.OK }) {
			x.Details = &Details{codes: res.Codes, untils: res.Untils}
		}
	case fsm.KindCreateEntity, fsm.KindUpdateEntity:
		x.number = uint64(res.Entity)
		if res.Version != 0 {
			x.Details = &Details{version: res.Version}
		}
	case fsm.KindCreateNamespace:
		x.number = uint64(res.Namespace)
		if res.Version != 0 {
			x.Details = &Details{version: res.Version}
		}
	case fsm.KindUpdateNamespace, fsm.KindSetAccess:
		x.number = res.Version
	case fsm.KindFenceIdle:
		x.number = res.Serial
	case fsm.KindPurgeMessages, fsm.KindRedriveMessages, fsm.KindSettleUnlocked, fsm.KindAddPartitions:
		x.number = res.Count
		if res.Sequence != 0 {
			x.Details = &Details{numbers: []fsm.SequenceNumber{res.Sequence}}
		}
	case fsm.KindForwardMessages, fsm.KindTransferMessages:
		return x, false // they are exactly-once by serials of their own
	case fsm.KindAcceptSession:
		if res.Session.Epoch == 0 {
			return x, res.Code != fsm.OK
		}
		x.Details = &Details{Address: at, Session: res.Session}
	case fsm.KindRenewSession:
		if res.Untils != nil {
			x.Details = &Details{untils: res.Untils}
		}
	case fsm.KindPulse, fsm.KindPutEntity, fsm.KindDropEntity, fsm.KindCloseReceiver, fsm.KindCancelScheduled, fsm.KindTouch, fsm.KindPutRule, fsm.KindDropRule,
		fsm.KindReleaseSession, fsm.KindSetSessionState,
		fsm.KindFoundCluster, fsm.KindPartitionFormed, fsm.KindDeleteEntity, fsm.KindForgetEntity,
		fsm.KindDeleteNamespace, fsm.KindSetMember, fsm.KindPlacePartition, fsm.KindReplaceReplica, fsm.KindPartitionPlaced, fsm.KindRaiseLevel, fsm.KindHoldLevel, fsm.KindRenameCluster, fsm.KindBeginEpoch:
		// The code is the whole answer.
	}
	return x, true
}

// Result returns the result that NewRecord condensed, without the deliveries.
func (x *Record) Result() fsm.Result {
	res := fsm.Result{Code: x.code}
	switch x.kind {
	case fsm.KindSendMessages, fsm.KindTransact, fsm.KindReserveNumbers:
		res.Sequence = fsm.SequenceNumber(x.number)
		if x.Details != nil {
			res.Sequences = slices.Clone(x.Details.numbers)
		}
	case fsm.KindSettleMessages, fsm.KindRenewLocks:
		if x.Details != nil {
			res.Codes, res.Untils = slices.Clone(x.Details.codes), slices.Clone(x.Details.untils)
		} else if x.number > 0 {
			res.Codes = make([]fsm.Code, x.number)
		}
	case fsm.KindCreateEntity, fsm.KindUpdateEntity:
		res.Entity = fsm.EntityID(x.number)
		if x.Details != nil {
			res.Version = x.Details.version
		}
	case fsm.KindLockMessages, fsm.KindFetchDeferred, fsm.KindFetchReady: // Queues adds the deliveries
	case fsm.KindCreateNamespace:
		res.Namespace = fsm.NamespaceID(x.number)
		if x.Details != nil {
			res.Version = x.Details.version
		}
	case fsm.KindUpdateNamespace, fsm.KindSetAccess:
		res.Version = x.number
	case fsm.KindFenceIdle:
		res.Serial = x.number
	case fsm.KindPurgeMessages, fsm.KindRedriveMessages, fsm.KindSettleUnlocked, fsm.KindAddPartitions:
		res.Count = x.number
		if x.Details != nil && len(x.Details.numbers) == 1 {
			res.Sequence = x.Details.numbers[0]
		}
	case fsm.KindForwardMessages, fsm.KindTransferMessages: // not remembered
	case fsm.KindAcceptSession: // Queues adds the lock as it is now
	case fsm.KindRenewSession:
		if x.Details != nil {
			res.Untils = slices.Clone(x.Details.untils)
		}
	case fsm.KindPulse, fsm.KindPutEntity, fsm.KindDropEntity, fsm.KindCloseReceiver, fsm.KindCancelScheduled, fsm.KindTouch, fsm.KindPutRule, fsm.KindDropRule,
		fsm.KindReleaseSession, fsm.KindSetSessionState,
		fsm.KindFoundCluster, fsm.KindPartitionFormed, fsm.KindDeleteEntity, fsm.KindForgetEntity,
		fsm.KindDeleteNamespace, fsm.KindSetMember, fsm.KindPlacePartition, fsm.KindReplaceReplica, fsm.KindPartitionPlaced, fsm.KindRaiseLevel, fsm.KindHoldLevel, fsm.KindRenameCluster, fsm.KindBeginEpoch:
	}
	return res
}
