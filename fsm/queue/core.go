package queue

import (
	"cmp"
	"slices"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/index"
	"github.com/peeklock/peeklock/fsm/totals"
)

// core is what all parts of a [Machine] share: its entities by id, times, bodies, and the order of its timers.
type core struct {
	bodies       *meteredBodies
	times        fsm.Times // of the newest entry
	arena        *index.Arena
	entities     []*entityState                // sorted by id
	byID         map[fsm.EntityID]*entityState // the same, for look-ups only: never ranged over
	settings     sharedSettings                // of entities
	readyChanged []*subqueue                   // whose ready count rose since the last Effects
}

// entityState is one entity: its main queue, its two dead-letter queues, and its transfer queue.
type entityState struct {
	id            fsm.EntityID
	version       uint64              // of settings
	settings      *fsm.EntitySettings // complete; replaced and never changed: images share it
	kind          fsm.EntityKind
	topic         *entityState       // of a subscription, else nil
	topicState    *topicState        // of a topic, else nil
	rules         ruleSet            // of a subscription
	last          fsm.SequenceNumber // highest sequence number assigned so far
	lastActivity  fsm.Instant        // time of the last activity, in serving time
	lastUse       fsm.Instant        // time of the last use, in wall time; 0 for none, see recordUse
	window        *duplicateWindow   // nil unless duplicates are detected
	sourceBatches sourceBatches      // last batches of the entities that forward to this one
	sessions      *sessionTable      // nil unless the entity requires sessions
	grants        uint64             // number of session locks so far
	fence         uint64             // round of FenceIdle in which the shard is fenced, 0 for none
	totals        totals.Totals      // of messages since the entity was created
	subs          [4]subqueue        // by SubQueue

	// Times of the timers of the whole entity, 0 for none; derived.
	sweepAt fsm.Instant // wall time
	idleAt  fsm.Instant // serving time
}

// subqueue is one queue of an entity, what a link attaches to.
type subqueue struct {
	entity       *entityState
	address      fsm.Address
	ix           index.Index
	out          *outbox // nil until something was forwarded
	readyChanged bool    // is in Machine.readyChanged
	resumed      bool    // restored with a batch in flight: the next Effects report it
	dropped      bool
}

// meteredBodies counts the bytes that are stored.
type meteredBodies struct {
	fsm.Bodies

	appended uint64 // bytes since the current pulse began
}

func (q *core) entityIndex(id fsm.EntityID) (int, bool) {
	return slices.BinarySearchFunc(q.entities, id, func(x *entityState, id fsm.EntityID) int { return cmp.Compare(x.id, id) })
}

// subqueueAt returns the sub-queue at an address, nil if there is none.
func (q *core) subqueueAt(a fsm.Address) *subqueue {
	if x := q.byID[a.Entity]; x != nil && a.Valid() {
		return &x.subs[a.Sub]
	}
	return nil
}

// findSubQueue finds a sub-queue that can contain messages for receivers.
func (q *core) findSubQueue(a fsm.Address) (*subqueue, fsm.Code) {
	sub := q.subqueueAt(a)
	switch {
	case sub == nil:
		return nil, fsm.EntityNotFound
	case sub.hasNoReceivers():
		return nil, fsm.NotAllowed
	}
	return sub, fsm.OK
}

// usableSubQueue is findSubQueue for commands that change something: ServerBusy while the entity is fenced.
func (q *core) usableSubQueue(a fsm.Address) (*subqueue, fsm.Code) {
	sub, code := q.findSubQueue(a)
	if code == fsm.OK {
		code = sub.entity.fenced()
	}
	return sub, code
}

// findSessionEntity finds an entity that has sessions.
func (q *core) findSessionEntity(id fsm.EntityID) (*entityState, fsm.Code) {
	x := q.byID[id]
	switch {
	case x == nil:
		return nil, fsm.EntityNotFound
	case x.sessions == nil:
		return nil, fsm.NotAllowed
	}
	return x, fsm.OK
}

// usableSessionEntity is findSessionEntity for commands that a fence refuses.
func (q *core) usableSessionEntity(id fsm.EntityID) (*entityState, fsm.Code) {
	x, code := q.findSessionEntity(id)
	if code == fsm.OK {
		code = x.fenced()
	}
	return x, code
}

// notifyReady records that a sub-queue has more ready messages than before, for Effects.
func (q *core) notifyReady(sub *subqueue) {
	if !sub.readyChanged {
		sub.readyChanged = true
		q.readyChanged = append(q.readyChanged, sub)
	}
}

// recordUse records that an entity was used: messages were sent to it, received from it or settled,
// or a topic got a subscription. Clients read the time; idleness has a time of its own, because
// peeks and waiting receivers count for it.
func (q *core) recordUse(x *entityState) {
	x.lastUse = q.times.Wall
}

// releaseBodies releases the bodies of a message.
func (q *core) releaseBodies(body, patch fsm.Ref) {
	q.bodies.Release(body)
	if patch != (fsm.Ref{}) {
		q.bodies.Release(patch)
	}
}

// fencedAt returns ServerBusy if there is such an entity and it has a fence.
func (q *core) fencedAt(id fsm.EntityID) fsm.Code {
	if x := q.byID[id]; x != nil {
		return x.fenced()
	}
	return fsm.OK
}

// isIdle reports whether the entity was not used for so long that it can be deleted.
func (q *core) isIdle(x *entityState) bool {
	due := x.idleDue()
	return due != 0 && due <= q.times.Serving
}

// scheduleIdle schedules the check for idleness. Activity moves its time and touches no timer.
func (q *core) scheduleIdle(x *entityState) {
	x.subs[fsm.MainQueue].ix.MoveTimer(&x.idleAt, x.idleDue(), index.IdleTimer)
}

func (q *core) scheduleSweep(x *entityState) {
	x.subs[fsm.MainQueue].ix.MoveTimer(&x.sweepAt, x.sweepDue(), index.SweepTimer)
}

// numberFor returns the number of a message that is stored: the reserved one while its time has not come, otherwise the
// next.
func (q *core) numberFor(x *entityState, m *sentMessage) fsm.SequenceNumber {
	if m.reserved != 0 && m.at > q.times.Wall {
		return m.reserved
	}
	x.last++
	return x.last
}

// forwardSource finds a sub-queue from which messages can be forwarded.
func (q *core) forwardSource(a fsm.Address) *subqueue {
	if x := q.byID[a.Entity]; x != nil && a.CanForward() {
		return &x.subs[a.Sub]
	}
	return nil
}

// notifyRedirected notifies the leader of messages whose destination has changed.
func (q *core) notifyRedirected(x *entityState, old *fsm.EntitySettings) {
	if old != nil && old.ForwardTo != x.settings.ForwardTo {
		q.notifyReady(&x.subs[fsm.MainQueue])
	}
	if old != nil && old.ForwardDeadLettersTo != x.settings.ForwardDeadLettersTo {
		q.notifyReady(&x.subs[fsm.DeadLetterQueue])
	}
}

// effectiveTimeToLive returns the time to live of a message of this entity: the sender's, 0 for
// none, limited by that of the entity (docs/requirements.md#e4).
func (x *entityState) effectiveTimeToLive(given fsm.Millis) fsm.Millis {
	if given == 0 {
		return x.settings.DefaultTimeToLive
	}
	return min(given, x.settings.DefaultTimeToLive)
}

// keepsExpired reports whether expired messages are dead-lettered instead of deleted.
func (sub *subqueue) keepsExpired() bool {
	return sub.address.Sub == fsm.MainQueue && sub.entity.settings.DeadLetterOnExpiry
}

// hasNoReceivers reports whether the sub-queue cannot be received from: those of a topic, except
// the transfer dead-letter queue.
func (sub *subqueue) hasNoReceivers() bool {
	return sub.entity.kind == fsm.TopicEntity && sub.address.Sub != fsm.TransferDeadLetterQueue
}

// destination returns the name of the entity to which the sub-queue forwards, "" for none.
func (sub *subqueue) destination() string {
	if sub.address.Sub == fsm.MainQueue {
		return sub.entity.settings.ForwardTo
	}
	if sub.address.Sub == fsm.DeadLetterQueue {
		return sub.entity.settings.ForwardDeadLettersTo
	}
	return ""
}

// forwardsReady reports whether ready messages here are forwarded.
func (sub *subqueue) forwardsReady() bool {
	return sub.address.Sub == fsm.TransferQueue || sub.destination() != ""
}

// readyToForward counts the ready messages that are forwarded.
func (sub *subqueue) readyToForward() uint64 {
	if !sub.forwardsReady() {
		return 0
	}
	return sub.ix.Count(fsm.Ready) - sub.ix.Held()
}

// readyToReceive counts the ready messages that are not forwarded.
func (sub *subqueue) readyToReceive() uint64 { return sub.ix.Count(fsm.Ready) - sub.readyToForward() }

// isShard reports whether the entity is a shard of a partitioned one. A subscription is one if its topic is.
func (x *entityState) isShard() bool {
	if x.topic != nil {
		x = x.topic
	}
	return x.settings.EnablePartitioning
}

// fenced returns ServerBusy for an entity that has a fence.
func (x *entityState) fenced() fsm.Code {
	if x.fence != 0 {
		return fsm.ServerBusy
	}
	return fsm.OK
}

// idleDue returns the time at which the entity is deleted if it stays idle; 0 for never, as while
// it forwards (docs/requirements.md#e8) or holds messages for other entities: of transactions, or
// to publish.
func (x *entityState) idleDue() fsm.Instant {
	if x.settings.ForwardTo != "" || x.settings.ForwardDeadLettersTo != "" ||
		x.subs[fsm.TransferQueue].ix.Total() > 0 || x.subs[fsm.MainQueue].ix.Count(fsm.Pending) > 0 {
		return 0
	}
	return x.lastActivity.Expiry(x.settings.AutoDeleteOnIdle)
}

// storedBytes returns the size of all payloads, in all sub-queues, and of the states of sessions.
func (x *entityState) storedBytes() uint64 {
	total := uint64(0)
	for i := range x.subs {
		total += x.subs[i].ix.Bytes()
	}
	if x.sessions != nil {
		total += x.sessions.bytes
	}
	return total
}

// quotaBytes returns what the maximum size limits: storedBytes, and the patches of messages, for a topic with those of the
// copies in its subscriptions. The patches in the transfer queue only name a destination, and do not count.
func (x *entityState) quotaBytes() uint64 {
	total := x.storedBytes()
	for i := range fsm.TransferQueue {
		_, size := x.subs[i].ix.Patches()
		total += size
	}
	if x.topicState != nil {
		total += x.topicState.copyBytes
	}
	return total
}

// hasSpaceFor reports whether more bytes of patches fit into the entity; those of a subscription count at its topic.
func (x *entityState) hasSpaceFor(size uint64) bool {
	if x.topic != nil {
		x = x.topic
	}
	return x.quotaBytes()+size <= x.settings.MaxBytes
}

// isOverfull reports whether the copies of a topic's messages take it above its maximum size: it publishes no further
// messages until some of them are gone. Admission keeps payloads alone below the maximum, so this ends.
func (x *entityState) isOverfull() bool {
	return x.topicState.copyBytes > 0 && x.quotaBytes() > x.settings.MaxBytes
}

// payloadMax returns the size of the largest payload that an entity stores.
func (x *entityState) payloadMax() uint64 {
	return uint64(x.settings.MaxMessageBytes) + fsm.PayloadOverheadMax
}

// usableNumber returns a reserved number, or 0 if the entity has not given it, as after a restore, or a message of any
// sub-queue has it: a dead letter returns to the main queue under its number.
func (x *entityState) usableNumber(n fsm.SequenceNumber) fsm.SequenceNumber {
	if n > x.last {
		return 0
	}
	for i := range x.subs {
		if _, taken := x.subs[i].ix.Seek(n); taken {
			return 0
		}
	}
	return n
}

// lockedSession finds a session by its lock. Only the epoch decides whether it is still locked.
func (x *entityState) lockedSession(l fsm.SessionLock) (slot uint32, ok bool) {
	slot, found := x.sessions.find(l.ID)
	if !found || l.Epoch == 0 {
		return slot, false
	}
	h := x.sessions.at(slot)
	return slot, h.epoch == l.Epoch
}

// sweepDue returns the time at which a pulse should remove ids; 0 if there are none.
func (x *entityState) sweepDue() fsm.Instant {
	w := x.window
	if w == nil || w.head == w.tail {
		return 0
	}
	oldest := w.at(w.head).at.After(x.settings.DuplicateWindow)
	return max(oldest, w.swept).After(sweepDelay)
}

// IsCurrent implements [index.Owner] for the timers of the whole entity and those of its sessions.
func (x *entityState) IsCurrent(a index.Timer) bool {
	switch a.Kind {
	case index.SweepTimer:
		return x.sweepAt == a.At
	case index.IdleTimer:
		return x.idleAt == a.At
	case index.SessionTimer:
		return x.sessions.isCurrent(a)
	case index.ChunkTimer, index.LockTimer:
	}
	return false
}

// outbox is the forwarding state of a sub-queue: the batch in flight. It is replaced and never
// changed, because images share it.
type outbox struct {
	serial uint64          // of the newest batch
	epoch  uint64          // of the newest batch, see BeginEpoch
	to     fsm.Destination // of the batch in flight
	name   string          // to which the settings forwarded when it was taken, "" from a transfer queue
	// numbers are the messages of the batch in flight, rising: all that are Forwarding. Empty if no
	// batch is in flight.
	numbers []fsm.SequenceNumber
}

// hasBatch reports whether a batch is in flight.
func (o *outbox) hasBatch() bool { return o != nil && len(o.numbers) > 0 }

// Append implements Bodies.
func (b *meteredBodies) Append(owner fsm.Owner, body []byte) fsm.Ref {
	b.appended += uint64(len(body))
	return b.Bodies.Append(owner, body)
}

// settingsSharedMax is the number of different settings that are remembered to be shared.
const settingsSharedMax = 256

// sharedSettings holds settings of entities, for look-ups only: entities with equal settings share one copy, which the
// processor finds in its cache. Ten thousand queues rarely have more than a few different settings.
type sharedSettings map[fsm.EntitySettings]*fsm.EntitySettings

// share returns the copy of settings that entities share.
func (s sharedSettings) share(settings *fsm.EntitySettings) *fsm.EntitySettings {
	if known := s[*settings]; known != nil {
		return known
	}
	if len(s) == settingsSharedMax {
		clear(s) // entities keep theirs
	}
	s[*settings] = settings
	return settings
}

// detectsDuplicates reports whether an entity with these settings detects duplicates. The topic of
// a subscription does that.
func (x *entityState) detectsDuplicates(s *fsm.EntitySettings) bool {
	return s.RequiresDuplicateDetection && x.kind != fsm.SubscriptionEntity
}
