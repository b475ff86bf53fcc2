package fsm

import (
	"fmt"

	"github.com/peeklock/peeklock/fsm/fields"
	"github.com/peeklock/peeklock/fsm/filter"
)

// Queues is the state machine of a message partition: entities, messages and locks. It is not safe
// for concurrent use; its images may be used concurrently with it.
type Queues struct {
	bodies       *meteredBodies
	times        Times // of the newest entry
	arena        arena
	entities     []*entityState            // sorted by id
	byID         map[EntityID]*entityState // the same, for look-ups only: never ranged over
	settings     sharedSettings            // of entities
	timers       [2]timerQueue             // by timeline
	readyChanged []*subqueue               // whose ready count rose since the last Effects
	tombstones   []tombstone               // of entities deleted because they were idle and not dropped by command since; sorted
	deletedIdle  []EntityID                // those since the last Effects
	idleShards   []EntityID                // shards that were found idle since the last Effects
	fences       []EntityID                // shards that are fenced; sorted, derived
	// pendingReleases are the bodies of deleted entities that are not released yet. They are local
	// to this replica and no part of its state.
	pendingReleases []pendingRelease
	table           answerTable

	// Scratch space, reused from one apply to the next.
	sends       []sentMessage
	settlements []Settlement
	dueMessages []dueMessage // of the current chunk
	evaluated   evaluatedMessage
	matched     []*entityState // subscriptions with rules that match
	correlated  correlatedMatches
	actionPatch []byte // patches of a copy that an action changed
	runner      filter.Runner

	level         uint32         // format level, see RaiseLevel; 0 stands for 1
	epoch         uint64         // of the batches that are taken from now on, see BeginEpoch; 0 until the first
	pending       []*entityState // topics with Pending messages, sorted by id; derived
	lastPublished EntityID       // the topic whose Pending messages were published last
	entryIndex    uint64         // index of the current entry
	spent         uint64         // steps of the current entry so far
	setAside      uint64         // bytes that the current entry stored of messages that could not be forwarded
	rewritten     uint64         // bytes of patches that settlements of the current entry rewrote
	added         uint64         // bytes of properties and reasons that they added
	exceeded      uint64         // rules that exceeded their budget, on this replica
}

// entityState is one entity: its main queue, its two dead-letter queues, and its transfer queue.
type entityState struct {
	id            EntityID
	version       uint64          // of settings
	settings      *EntitySettings // complete; replaced and never changed: images share it
	kind          EntityKind
	topic         *entityState     // of a subscription, else nil
	topicState    *topicState      // of a topic, else nil
	rules         ruleSet          // of a subscription
	last          SequenceNumber   // highest sequence number assigned so far
	lastActivity  Instant          // time of the last activity, in serving time
	lastUse       Instant          // time of the last use, in wall time; 0 for none, see recordUse
	window        *duplicateWindow // nil unless duplicates are detected
	sourceBatches sourceBatches    // last batches of the entities that forward to this one
	sessions      *sessionTable    // nil unless the entity requires sessions
	grants        uint64           // number of session locks so far
	fence         uint64           // round of FenceIdle in which the shard is fenced, 0 for none
	subs          [4]subqueue      // by SubQueue

	// Times of the timers of the whole entity, 0 for none; derived.
	sweepAt Instant // wall time
	idleAt  Instant // serving time
}

// subqueue is one queue of an entity, what a link attaches to.
type subqueue struct {
	entity       *entityState
	address      Address
	ix           index
	timers       [2]timers // by timeline
	out          *outbox   // nil until something was forwarded
	readyChanged bool      // is in Queues.readyChanged
	resumed      bool      // restored with a batch in flight: the next Effects report it
	dropped      bool
}

// NewQueues returns an empty state machine that stores message bodies in bodies.
func NewQueues(bodies Bodies) *Queues {
	q := &Queues{bodies: &meteredBodies{Bodies: bodies}}
	q.reset()
	return q
}

// meteredBodies counts the bytes that are stored.
type meteredBodies struct {
	Bodies

	appended uint64 // bytes since the current pulse began
}

// Append implements Bodies.
func (b *meteredBodies) Append(owner Owner, body []byte) Ref {
	b.appended += uint64(len(body))
	return b.Bodies.Append(owner, body)
}

func (q *Queues) reset() {
	bodies := q.bodies
	*q = Queues{bodies: bodies, byID: make(map[EntityID]*entityState), settings: make(sharedSettings)}
	q.table = newAnswerTable(&q.arena.generation, q.forgetAnswer)
}

// Apply performs one command and returns its result. A refused command changes nothing. A repeated
// command is answered from memory.
//
// Apply panics, with the index and the reason, if the bytes do not decode or the kind is not one of
// this state machine: they come from a newer release, and a replica that skipped them would diverge
// from the others.
func (q *Queues) Apply(env Env, command []byte) Result {
	q.times = q.times.advance(env)
	r := fields.Decoder(command)
	kind, h := readHeader(&r)
	if r.Err() == nil && !kind.IsFor(1) {
		r.Fail(errKind)
	}
	if r.Err() != nil {
		panic(undecodable(env, kind, r.Err()))
	}
	if env.Index != q.entryIndex || env.Index == 0 {
		q.entryIndex, q.spent, q.setAside, q.rewritten, q.added = env.Index, 0, 0, 0, 0
	}
	if len(q.pendingReleases) > 0 {
		q.releasePending(releasesPerApply)
	}
	if h.Incarnation == 0 {
		res, _ := q.perform(env, kind, h, &r)
		return q.withUntils(res)
	}
	l, old, code := q.table.begin(h, q.times.Serving)
	switch {
	case code != OK:
		return Result{Code: code}
	case old != nil:
		return q.withUntils(q.repeatAnswer(old))
	}
	res, at := q.perform(env, kind, h, &r)
	if x, ok := newAnswerRecord(kind, h.Serial, at, res); ok {
		q.table.remember(l, x)
	}
	return q.withUntils(res)
}

// withUntils returns a result with the ends of locks as clients see them. Remembered answers keep the
// serving times, so the slice is copied.
func (q *Queues) withUntils(res Result) Result {
	if q.times.Wall == q.times.Serving || res.Untils == nil {
		return res
	}
	untils := make([]Instant, len(res.Untils))
	for i, at := range res.Untils {
		untils[i] = q.times.onWall(at)
	}
	res.Untils = untils
	return res
}

func undecodable(env Env, kind Kind, err error) string {
	return fmt.Sprintf("fsm: command of kind %d at index %d: %v", kind, env.Index, err)
}

// repeatAnswer answers a command that was performed before. Its messages are returned in their
// current state; a message whose lock has ended is left out.
func (q *Queues) repeatAnswer(old *answerRecord) Result {
	res := old.result()
	more := old.details
	switch {
	case more == nil:
		return res
	case more.session.Epoch != 0:
		return q.repeatAccept(more.address, more.session)
	case len(more.locks) == 0:
		return res
	}
	sub := q.subqueueAt(more.address)
	if sub == nil {
		return res
	}
	for _, l := range more.locks {
		at, found := sub.ix.seek(l.Sequence)
		if !found {
			continue
		}
		rec := sub.ix.get(at)
		if rec.epoch == l.Epoch && (rec.state == Locked || rec.state == Deleting) {
			res.Deliveries = append(res.Deliveries, q.delivery(sub, at, &rec))
		}
	}
	return res
}

// forgetAnswer deletes the messages of a receive-and-delete whose answer is known to have arrived,
// or will not be asked for again.
func (q *Queues) forgetAnswer(more *answerDetails) {
	if !more.deleting {
		return
	}
	sub := q.subqueueAt(more.address)
	if sub == nil {
		return
	}
	for _, l := range more.locks {
		if at, found := sub.ix.seek(l.Sequence); found {
			if rec := sub.ix.get(at); rec.state == Deleting && rec.epoch == l.Epoch {
				q.deleteMessage(sub, at, &rec)
			}
		}
	}
}

// perform decodes the payload and performs the command. The address is that of a lock, fetch or
// accept.
func (q *Queues) perform(env Env, kind Kind, h Header, r *fields.Codec) (Result, Address) {
	switch kind { //nolint:exhaustive // the others are rare, or stopped by Apply
	case KindSendMessages:
		var entity EntityID
		entity, q.sends = readSends(r, q.sends)
		mustDecode(env, kind, r)
		res := q.send(entity, q.sends)
		clear(q.sends) // they alias the entry
		return res, Address{}
	case KindLockMessages:
		var c LockMessages
		c.fields(r)
		mustDecode(env, kind, r)
		return q.lock(c, h.Incarnation != 0), c.Address
	case KindSettleMessages:
		c := SettleMessages{Settlements: q.settlements[:0]}
		c.fields(r)
		q.settlements = c.Settlements
		mustDecode(env, kind, r)
		res := q.settle(c)
		clear(q.settlements)
		return res, Address{}
	case KindRenewLocks:
		var c RenewLocks
		c.fields(r)
		mustDecode(env, kind, r)
		return q.renew(c), Address{}
	case KindFetchDeferred:
		var c FetchDeferred
		c.fields(r)
		mustDecode(env, kind, r)
		return q.fetch(c, h.Incarnation != 0), c.Address
	case KindFetchReady:
		var c FetchReady
		c.fields(r)
		mustDecode(env, kind, r)
		return q.fetchReady(c, h.Incarnation != 0), c.Address
	case KindTransferMessages:
		var c TransferMessages
		c, q.sends = readTransfers(r, q.sends)
		mustDecode(env, kind, r)
		res := q.transfer(&c, q.sends)
		clear(q.sends)
		return res, Address{}
	case KindTransact:
		c := readTransaction(r)
		mustDecode(env, kind, r)
		return q.transact(&c), Address{}
	case KindAcceptSession:
		var c AcceptSession
		c.fields(r)
		mustDecode(env, kind, r)
		return q.accept(c), Address{Entity: c.Entity}
	}
	cmd, err := readPayload(*r, kind)
	if err != nil {
		panic(undecodable(env, kind, err))
	}
	if c, ok := cmd.(FenceIdle); ok {
		return q.applyFence(c, env.Index), Address{}
	}
	return q.applyRareCommand(cmd), Address{}
}

// mustDecode stops the replica, before anything is changed, unless the whole command was decoded.
func mustDecode(env Env, kind Kind, r *fields.Codec) {
	if err := r.End(); err != nil {
		panic(undecodable(env, kind, err))
	}
}

// applyRareCommand performs the commands that are rare.
func (q *Queues) applyRareCommand(cmd Command) Result {
	switch c := cmd.(type) {
	case PutEntity:
		return q.putEntity(c)
	case DropEntity:
		q.dropEntity(c.Entity)
	case CloseReceiver:
		q.table.closeReceiver(c)
	case Pulse:
		q.pulse()
	case CancelScheduled:
		return q.cancel(c)
	case ReserveNumbers:
		return q.reserve(c)
	case PurgeMessages:
		return q.purge(c)
	case RedriveMessages:
		return q.redrive(c)
	case Touch:
		return q.recordActivity(c)
	case PutRule:
		return q.putRule(c)
	case DropRule:
		return q.dropRule(c)
	case ForwardMessages:
		return q.forward(&c)
	case RenewSession:
		return q.renewSession(c)
	case ReleaseSession:
		return q.releaseSession(c)
	case SetSessionState:
		return q.setState(c)
	case RaiseLevel:
		return Result{Code: q.raiseLevel(c.Level)}
	case BeginEpoch:
		return Result{Code: q.beginEpoch(&c)}
	}
	return Result{}
}

// notifyReady records that a sub-queue has more ready messages than before, for Effects.
func (q *Queues) notifyReady(sub *subqueue) {
	if !sub.readyChanged {
		sub.readyChanged = true
		q.readyChanged = append(q.readyChanged, sub)
	}
}

// Effects returns and clears the effects of the applies since the last call: one for every address
// whose ready count rose and is not zero now, of another kind if messages are forwarded, and one
// for every entity that was deleted automatically, or every shard that is idle.
func (q *Queues) Effects() []Effect {
	var effects []Effect
	for i, sub := range q.readyChanged {
		q.readyChanged[i], sub.readyChanged = nil, false
		switch n := sub.ix.counts[Ready]; {
		case sub.dropped:
		case sub.reportsForwarding():
			effects = sub.notifyForward(effects)
		case sub.ix.main && sub.ix.sessions != nil:
			effects = sub.sessionEffects(effects)
		case n > 0:
			effects = append(effects, Effect{Address: sub.address, Ready: n})
		}
	}
	q.readyChanged = q.readyChanged[:0]
	for _, id := range q.deletedIdle {
		effects = append(effects, Effect{Address: Address{Entity: id}, Kind: EffectIdle})
	}
	for _, id := range q.idleShards {
		effects = append(effects, Effect{Address: Address{Entity: id}, Kind: EffectIdleShard})
	}
	q.deletedIdle, q.idleShards = q.deletedIdle[:0], q.idleShards[:0]
	return effects
}

// FormatLevel returns the level of the state machine, 1 or more, which decides its behaviour.
func (q *Queues) FormatLevel() uint32 { return max(1, q.level) }

// raiseLevel sets the level of the state machine.
func (q *Queues) raiseLevel(level uint32) Code {
	if level == 0 {
		return InvalidArgument
	}
	if level < q.FormatLevel() {
		return PreconditionFails
	}
	q.level = level
	return OK
}
