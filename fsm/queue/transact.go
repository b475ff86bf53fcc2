package queue

import (
	"fmt"
	"slices"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/index"
)

// transactions performs all of a transaction or nothing.
type transactions struct {
	*core
	*messages
	*sessions
	*fences
	*sending
	*receiving
}

// transact performs all of a transaction, or nothing.
func (q *transactions) transact(c *transaction) fsm.Result {
	if code := q.checkTransaction(c); code != fsm.OK {
		return fsm.Result{Code: code}
	}
	for i := range c.settles {
		q.settleAll(&c.settles[i])
	}
	for i := range c.cancels {
		q.removeScheduled(q.byID[c.cancels[i].Entity], c.cancels[i].Sequences)
	}
	for i := range c.states {
		if res := q.setState(c.states[i]); res.Code != fsm.OK {
			panic(fmt.Sprintf("fsm: a session state of a transaction that was tried is refused: %v", res.Code))
		}
	}
	var res fsm.Result
	for i := range c.sends {
		x := q.byID[c.sends[i].entity]
		for j := range c.sends[i].messages {
			n, m := fsm.SequenceNumber(0), &c.sends[i].messages[j]
			if m.only != 0 || !q.checkDuplicate(x, m.id) {
				n = q.storeOrPublish(x, m)
			}
			res.Sequences = append(res.Sequences, n)
		}
		q.finishStore(x, len(c.sends[i].messages))
	}
	for i := range c.transfers {
		q.addTransfer(&c.transfers[i])
	}
	return res
}

// settleAll performs settlements that were checked.
func (q *transactions) settleAll(c *fsm.SettleMessages) {
	sub := q.subqueueAt(c.Address)
	for i := range c.Settlements {
		if code := q.settleOne(sub, &c.Settlements[i], true); code != fsm.OK {
			panic(fmt.Sprintf("fsm: a settlement of a transaction that was tried is refused: %v", code))
		}
	}
	sub.ix.RemoveStaleTimers()
	sub.entity.lastActivity = q.times.Serving
	q.recordUse(sub.entity)
}

// addTransfer stores messages for another partition in the transfer queue of the entity that they
// go through. They get numbers of that entity, like all messages of its sub-queues, and no expiry:
// time to live begins at the destination.
func (q *transactions) addTransfer(p *transactionTransfer) {
	x := q.byID[p.via]
	sub, session := &x.subs[fsm.TransferQueue], index.NoSession
	if x.sessions != nil {
		session = index.Sessionless
	}
	plain := fsm.AppendPatches(nil, []fsm.Patch{{To: p.to, ToName: string(p.name)}})
	for i := range p.messages {
		x.last++
		m, patches := &p.messages[i], plain
		rec := index.Enqueued(q.bodies.Append(fsm.Owner{Address: sub.address, Sequence: x.last}, m.payload), q.times.Wall, 0)
		if m.reserved != 0 || m.at > q.times.Wall { // it is scheduled at the destination
			patches = fsm.AppendPatches(nil, []fsm.Patch{{To: p.to, ToName: string(p.name), ToNumber: m.reserved, ToTime: m.at}})
		}
		at := sub.ix.Insert(x.last, rec, session)
		q.storePatches(sub, at, patches)
		x.totals.Transferred++
	}
	q.notifyReady(sub) // the activity is recorded when they have left: until then the entity is not idle
}

// dryRun checks the operations of a transaction one after the other, with the effects of the
// earlier ones in mind. It changes nothing but Machine.rewritten and added: what was tried counts, also if the
// transaction is refused. The list of entities is as short as transactions are, so it is searched linearly.
type dryRun struct {
	q       *transactions
	settled map[messageRef]struct{} // messages whose locks were ended
	copies  map[messageRef]uint32   // number of copies that were completed, by the message of the topic that they share
	changes []*entityChanges
}

// messageRef identifies a message.
type messageRef struct {
	fsm.Address
	number fsm.SequenceNumber
}

// entityChanges are the effects of the operations so far on one entity.
type entityChanges struct {
	entity *entityState
	freed  uint64   // bytes of completed messages
	moved  uint64   // bytes of transferred messages, and of states of sessions
	states []uint32 // slots of the sessions whose states are set
	sends  []sentMessage
}

// checkTransaction checks whether a transaction can be performed as a whole, and returns the code
// of the first operation that cannot be performed after those before it.
func (q *transactions) checkTransaction(c *transaction) fsm.Code {
	if settlements, sends := c.operations(); !fsm.WithinLimits(settlements, sends) {
		return fsm.InvalidArgument
	}
	if q.usesFenced(c) {
		return fsm.ServerBusy
	}
	t, before := dryRun{q: q, settled: make(map[messageRef]struct{}), copies: make(map[messageRef]uint32)}, q.rewritten+q.added
	for i := range c.settles {
		code := t.settle(&c.settles[i])
		if code == fsm.ServerBusy && before == 0 {
			return fsm.InvalidArgument // it is too much for an entry of its own, too
		}
		if code != fsm.OK {
			return code
		}
	}
	if code := t.endAll(c); code != fsm.OK {
		return code
	}
	for i := range c.sends {
		if code := t.send(&c.sends[i]); code != fsm.OK {
			return code
		}
	}
	for i := range c.transfers {
		if code := t.transfer(&c.transfers[i]); code != fsm.OK {
			return code
		}
	}
	return fsm.OK
}

// usesFenced reports whether a transaction uses a fenced entity.
func (q *transactions) usesFenced(c *transaction) bool {
	if len(q.fenced) == 0 {
		return false
	}
	code := fsm.OK
	for i := range c.settles {
		code = max(code, q.fencedAt(c.settles[i].Address.Entity))
	}
	for i := range c.cancels {
		code = max(code, q.fencedAt(c.cancels[i].Entity))
	}
	for i := range c.states {
		code = max(code, q.fencedAt(c.states[i].Entity))
	}
	for i := range c.sends {
		code = max(code, q.fencedAt(c.sends[i].entity))
	}
	for i := range c.transfers {
		code = max(code, q.fencedAt(c.transfers[i].via))
	}
	return code != fsm.OK
}

func (t *dryRun) changesOf(x *entityState) *entityChanges {
	for _, s := range t.changes {
		if s.entity == x {
			return s
		}
	}
	s := &entityChanges{entity: x}
	t.changes = append(t.changes, s)
	return s
}

func (t *dryRun) settle(c *fsm.SettleMessages) fsm.Code {
	if len(c.Settlements) == 0 || !c.Address.Valid() {
		return fsm.InvalidArgument
	}
	sub, code := t.q.findSubQueue(c.Address)
	if code != fsm.OK {
		return code
	}
	for i := range c.Settlements {
		if code := t.settleOne(sub, &c.Settlements[i]); code != fsm.OK {
			return code
		}
	}
	return fsm.OK
}

// settleOne checks one settlement. A second one of the same lock finds the lock lost.
func (t *dryRun) settleOne(sub *subqueue, s *fsm.Settlement) fsm.Code {
	if s.Verb == fsm.Release {
		return fsm.InvalidArgument
	}
	at, rec, code := t.q.settleable(sub, s, false)
	if code == fsm.MessageLockLost {
		return sub.lostCode(s.Lock)
	}
	if code != fsm.OK {
		return code
	}
	id := messageRef{sub.address, sub.ix.Number(at)}
	if _, twice := t.settled[id]; twice {
		return fsm.MessageLockLost
	}
	t.settled[id] = struct{}{}
	if s.Verb == fsm.Complete {
		t.free(sub, &rec)
	}
	return fsm.OK
}

// endAll checks the cancellations and the states of sessions.
func (t *dryRun) endAll(c *transaction) fsm.Code {
	for i := range c.cancels {
		if code := t.cancel(&c.cancels[i]); code != fsm.OK {
			return code
		}
	}
	for i := range c.states {
		if code := t.setState(&c.states[i]); code != fsm.OK {
			return code
		}
	}
	return fsm.OK
}

// cancel checks a cancellation. A number may be named twice.
func (t *dryRun) cancel(c *fsm.CancelScheduled) fsm.Code {
	x, code := t.q.scheduledMessages(c)
	if code != fsm.OK {
		return code
	}
	sub := &x.subs[fsm.MainQueue]
	for _, n := range c.Sequences {
		id := messageRef{sub.address, n}
		if _, twice := t.settled[id]; !twice {
			t.settled[id] = struct{}{}
			at, _ := sub.ix.Seek(n)
			rec := sub.ix.Get(at)
			t.free(sub, &rec)
		}
	}
	return fsm.OK
}

// setState checks the state of a session, of which the transaction sets one. The state that it replaces counts until
// then.
func (t *dryRun) setState(c *fsm.SetSessionState) fsm.Code {
	x, slot, code := t.q.settableState(c)
	if code != fsm.OK {
		return code
	}
	s := t.changesOf(x)
	if slices.Contains(s.states, slot) {
		return fsm.InvalidArgument
	}
	s.states = append(s.states, slot)
	s.moved += uint64(len(c.State))
	return t.checkQuota(s, 0)
}

// reserve checks the reserved numbers of messages: each is one that the entity has given, and that no message has.
func (t *dryRun) reserve(x *entityState, messages []sentMessage) fsm.Code {
	for i := range messages {
		m := &messages[i]
		if m.reserved == 0 {
			continue
		}
		id := messageRef{x.subs[fsm.MainQueue].address, m.reserved}
		if _, twice := t.settled[id]; twice || m.at == 0 || x.usableNumber(m.reserved) == 0 {
			return fsm.InvalidArgument
		}
		t.settled[id] = struct{}{}
	}
	return fsm.OK
}

// only checks the messages that only one subscription gets.
func (t *dryRun) only(x *entityState, messages []sentMessage) fsm.Code {
	for i := range messages {
		m := &messages[i]
		to := t.q.byID[m.only]
		switch {
		case m.only == 0:
		case x.kind != fsm.TopicEntity, m.at != 0:
			return fsm.InvalidArgument
		case to == nil, to.kind != fsm.SubscriptionEntity, to.topic != x:
			return fsm.EntityNotFound
		case to.fenced() != fsm.OK:
			return to.fenced()
		}
	}
	return fsm.OK
}

// free counts the bytes of a completed message. The last copy frees those of the message of the
// topic.
func (t *dryRun) free(sub *subqueue, rec *index.Record) {
	if !rec.IsCopy() {
		t.changesOf(sub.entity).freed += rec.Size()
		return
	}
	main := &sub.entity.topic.subs[fsm.MainQueue]
	id := messageRef{main.address, rec.OriginalNumber()}
	t.copies[id]++
	at, _ := main.ix.Seek(id.number)
	if whole := main.ix.Get(at); whole.Copies() == t.copies[id] {
		t.changesOf(sub.entity.topic).freed += whole.Size()
	}
}

func (t *dryRun) send(c *transactionSend) fsm.Code {
	if len(c.messages) == 0 {
		return fsm.InvalidArgument
	}
	x, code := t.q.sendable(c.entity)
	if code != fsm.OK {
		return code
	}
	if _, code = t.q.checkMessages(x, c.messages); code != fsm.OK {
		return code
	}
	if code = t.reserve(x, c.messages); code != fsm.OK {
		return code
	}
	if code = t.only(x, c.messages); code != fsm.OK {
		return code
	}
	s := t.changesOf(x)
	s.sends = append(s.sends, c.messages...)
	return t.checkQuota(s, 0)
}

// checkQuota checks whether an entity can store all messages so far, and more bytes.
func (t *dryRun) checkQuota(s *entityChanges, more uint64) fsm.Code {
	size := uint64(0)
	for i := range s.sends {
		size += uint64(len(s.sends[i].payload))
	}
	return t.q.checkQuota(s.entity, s.entity.quotaBytes()-s.freed+s.moved+more, size, s.sends)
}

// transfer checks messages for another partition. They count in the bytes of the entity that they
// go through, whose status and largest message do not apply to them.
func (t *dryRun) transfer(p *transactionTransfer) fsm.Code {
	if !fsm.ValidTransferOut(p.via, p.to, len(p.name), len(p.messages)) {
		return fsm.InvalidArgument
	}
	x := t.q.byID[p.via]
	if x == nil {
		return fsm.EntityNotFound
	}
	s := t.changesOf(x)
	for i := range p.messages {
		m := &p.messages[i]
		if !validSent(m) || m.reserved != 0 && m.at == 0 {
			return fsm.InvalidArgument
		}
		if len(m.payload) > fsm.MessageBytesMax {
			return fsm.MessageTooLarge
		}
		s.moved += uint64(len(m.payload))
	}
	if x.kind != fsm.SubscriptionEntity {
		return t.checkQuota(s, 0)
	}
	// The quota of a subscription is that of its topic.
	own := x.subs[fsm.TransferQueue].ix.Bytes() + x.subs[fsm.TransferDeadLetterQueue].ix.Bytes()
	return t.checkQuota(t.changesOf(x.topic), own+s.moved)
}

// lostCode returns the code of a transaction that settles a lock that has ended.
func (sub *subqueue) lostCode(l fsm.LockID) fsm.Code {
	if _, found := sub.ix.Seek(l.Sequence); found && sub.ix.DeliversBySession() {
		return fsm.SessionLockLost // the message still exists: it was returned with its session
	}
	return fsm.MessageLockLost
}

// CheckLocks returns for each lock OK if it is held, otherwise the code with which a transaction that settles it
// would be refused. It changes nothing.
func (q *receiving) CheckLocks(a fsm.Address, locks []fsm.LockID) []fsm.Code {
	sub, code := q.findSubQueue(a)
	codes := make([]fsm.Code, len(locks))
	for i, l := range locks {
		if codes[i] = code; code != fsm.OK {
			continue
		}
		if _, _, held := sub.ix.FindLocked(l); !held {
			codes[i] = sub.lostCode(l)
		}
	}
	return codes
}
