package queue

import (
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/answers"
	"github.com/peeklock/peeklock/fsm/evaluate"
	"github.com/peeklock/peeklock/fsm/fields"
	"github.com/peeklock/peeklock/fsm/filter"
	"github.com/peeklock/peeklock/fsm/index"
)

// Machine is the state machine of a message partition: entities, messages and locks. It is not safe
// for concurrent use; its images may be used concurrently with it.
type Machine struct {
	bodies       *meteredBodies
	times        fsm.Times // of the newest entry
	arena        *index.Arena
	entities     []*entityState                // sorted by id
	byID         map[fsm.EntityID]*entityState // the same, for look-ups only: never ranged over
	settings     sharedSettings                // of entities
	readyChanged []*subqueue                   // whose ready count rose since the last Effects
	tombstones   []tombstone                   // of entities deleted because they were idle and not dropped by command since; sorted
	deletedIdle  []fsm.EntityID                // those since the last Effects
	idleShards   []fsm.EntityID                // shards that were found idle since the last Effects
	fences       []fsm.EntityID                // shards that are fenced; sorted, derived
	// pendingReleases are the bodies of deleted entities that are not released yet. They are local
	// to this replica and no part of its state.
	pendingReleases []pendingRelease
	table           answers.Table

	// Scratch space, reused from one apply to the next.
	sends       []sentMessage
	settlements []fsm.Settlement
	evaluated   evaluate.Message
	matched     []*entityState // subscriptions with rules that match
	correlated  correlatedMatches
	actionPatch []byte // patches of a copy that an action changed
	runner      filter.Runner

	level         uint32         // format level, see RaiseLevel; 0 stands for 1
	epoch         uint64         // of the batches that are taken from now on, see BeginEpoch; 0 until the first
	pending       []*entityState // topics with Pending messages, sorted by id; derived
	lastPublished fsm.EntityID   // the topic whose Pending messages were published last
	entryIndex    uint64         // index of the current entry
	spent         uint64         // steps of the current entry so far
	setAside      uint64         // bytes that the current entry stored of messages that could not be forwarded
	rewritten     uint64         // bytes of patches that settlements of the current entry rewrote
	added         uint64         // bytes of properties and reasons that they added
	exceeded      uint64         // rules that exceeded their budget, on this replica
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

// New returns an empty state machine that stores message bodies in bodies.
func New(bodies fsm.Bodies) *Machine {
	q := &Machine{bodies: &meteredBodies{Bodies: bodies}}
	q.reset()
	return q
}

// meteredBodies counts the bytes that are stored.
type meteredBodies struct {
	fsm.Bodies

	appended uint64 // bytes since the current pulse began
}

// Append implements Bodies.
func (b *meteredBodies) Append(owner fsm.Owner, body []byte) fsm.Ref {
	b.appended += uint64(len(body))
	return b.Bodies.Append(owner, body)
}

func (q *Machine) reset() {
	bodies := q.bodies
	*q = Machine{bodies: bodies, arena: new(index.Arena), byID: make(map[fsm.EntityID]*entityState), settings: make(sharedSettings)}
	q.table = answers.New(q.arena.Generation(), q.forgetAnswer)
}

// Apply performs one command and returns its result. A refused command changes nothing. A repeated
// command is answered from memory.
//
// Apply panics, with the index and the reason, if the bytes do not decode or the kind is not one of
// this state machine: they come from a newer release, and a replica that skipped them would diverge
// from the others.
func (q *Machine) Apply(env fsm.Env, command []byte) fsm.Result {
	q.times = q.times.Advance(env)
	r := fields.Decoder(command)
	kind, h := fsm.ReadHeader(&r)
	if r.Err() == nil && !kind.IsFor(1) {
		r.Fail(fsm.ErrKind)
	}
	if r.Err() != nil {
		panic(fsm.Undecodable(env, kind, r.Err()))
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
	l, old, code := q.table.Begin(h, q.times.Serving)
	switch {
	case code != fsm.OK:
		return fsm.Result{Code: code}
	case old != nil:
		return q.withUntils(q.repeatAnswer(old))
	}
	res, at := q.perform(env, kind, h, &r)
	if x, ok := answers.NewRecord(kind, h.Serial, at, res); ok {
		q.table.Remember(l, x)
	}
	return q.withUntils(res)
}

// withUntils returns a result with the ends of locks as clients see them. Remembered answers keep the
// serving times, so the slice is copied.
func (q *Machine) withUntils(res fsm.Result) fsm.Result {
	if q.times.Wall == q.times.Serving || res.Untils == nil {
		return res
	}
	untils := make([]fsm.Instant, len(res.Untils))
	for i, at := range res.Untils {
		untils[i] = q.times.OnWall(at)
	}
	res.Untils = untils
	return res
}

// repeatAnswer answers a command that was performed before. Its messages are returned in their
// current state; a message whose lock has ended is left out.
func (q *Machine) repeatAnswer(old *answers.Record) fsm.Result {
	res := old.Result()
	more := old.Details
	switch {
	case more == nil:
		return res
	case more.Session.Epoch != 0:
		return q.repeatAccept(more.Address, more.Session)
	case len(more.Locks) == 0:
		return res
	}
	sub := q.subqueueAt(more.Address)
	if sub == nil {
		return res
	}
	for _, l := range more.Locks {
		at, found := sub.ix.Seek(l.Sequence)
		if !found {
			continue
		}
		rec := sub.ix.Get(at)
		if rec.Epoch() == l.Epoch && (rec.State() == fsm.Locked || rec.State() == fsm.Deleting) {
			res.Deliveries = append(res.Deliveries, q.delivery(sub, at, &rec))
		}
	}
	return res
}

// forgetAnswer deletes the messages of a receive-and-delete whose answer is known to have arrived,
// or will not be asked for again.
func (q *Machine) forgetAnswer(more *answers.Details) {
	if !more.Deleting {
		return
	}
	sub := q.subqueueAt(more.Address)
	if sub == nil {
		return
	}
	for _, l := range more.Locks {
		if at, found := sub.ix.Seek(l.Sequence); found {
			if rec := sub.ix.Get(at); rec.State() == fsm.Deleting && rec.Epoch() == l.Epoch {
				q.deleteMessage(sub, at, &rec)
			}
		}
	}
}

// perform decodes the payload and performs the command. The address is that of a lock, fetch or
// accept.
func (q *Machine) perform(env fsm.Env, kind fsm.Kind, h fsm.Header, r *fields.Codec) (fsm.Result, fsm.Address) {
	switch kind { //nolint:exhaustive // the others are rare, or stopped by Apply
	case fsm.KindSendMessages:
		var entity fsm.EntityID
		entity, q.sends = readSends(r, q.sends)
		mustDecode(env, kind, r)
		res := q.send(entity, q.sends)
		clear(q.sends) // they alias the entry
		return res, fsm.Address{}
	case fsm.KindLockMessages:
		var c fsm.LockMessages
		c.Fields(r)
		mustDecode(env, kind, r)
		return q.lock(c, h.Incarnation != 0), c.Address
	case fsm.KindSettleMessages:
		c := fsm.SettleMessages{Settlements: q.settlements[:0]}
		c.Fields(r)
		q.settlements = c.Settlements
		mustDecode(env, kind, r)
		res := q.settle(c)
		clear(q.settlements)
		return res, fsm.Address{}
	case fsm.KindRenewLocks:
		var c fsm.RenewLocks
		c.Fields(r)
		mustDecode(env, kind, r)
		return q.renew(c), fsm.Address{}
	case fsm.KindFetchDeferred:
		var c fsm.FetchDeferred
		c.Fields(r)
		mustDecode(env, kind, r)
		return q.fetch(c, h.Incarnation != 0), c.Address
	case fsm.KindFetchReady:
		var c fsm.FetchReady
		c.Fields(r)
		mustDecode(env, kind, r)
		return q.fetchReady(c, h.Incarnation != 0), c.Address
	case fsm.KindTransferMessages:
		var c fsm.TransferMessages
		c, q.sends = readTransfers(r, q.sends)
		mustDecode(env, kind, r)
		res := q.transfer(&c, q.sends)
		clear(q.sends)
		return res, fsm.Address{}
	case fsm.KindTransact:
		c := readTransaction(r)
		mustDecode(env, kind, r)
		return q.transact(&c), fsm.Address{}
	case fsm.KindAcceptSession:
		var c fsm.AcceptSession
		c.Fields(r)
		mustDecode(env, kind, r)
		return q.accept(c), fsm.Address{Entity: c.Entity}
	}
	cmd, err := fsm.ReadPayload(*r, kind)
	if err != nil {
		panic(fsm.Undecodable(env, kind, err))
	}
	if c, ok := cmd.(fsm.FenceIdle); ok {
		return q.applyFence(c, env.Index), fsm.Address{}
	}
	return q.applyRareCommand(cmd), fsm.Address{}
}

// mustDecode stops the replica, before anything is changed, unless the whole command was decoded.
func mustDecode(env fsm.Env, kind fsm.Kind, r *fields.Codec) {
	if err := r.End(); err != nil {
		panic(fsm.Undecodable(env, kind, err))
	}
}

// applyRareCommand performs the commands that are rare.
func (q *Machine) applyRareCommand(cmd fsm.Command) fsm.Result {
	switch c := cmd.(type) {
	case fsm.PutEntity:
		return q.putEntity(c)
	case fsm.DropEntity:
		q.dropEntity(c.Entity)
	case fsm.CloseReceiver:
		q.table.CloseReceiver(c)
	case fsm.Pulse:
		q.pulse()
	case fsm.CancelScheduled:
		return q.cancel(c)
	case fsm.ReserveNumbers:
		return q.reserve(c)
	case fsm.PurgeMessages:
		return q.purge(c)
	case fsm.RedriveMessages:
		return q.redrive(c)
	case fsm.Touch:
		return q.recordActivity(c)
	case fsm.PutRule:
		return q.putRule(c)
	case fsm.DropRule:
		return q.dropRule(c)
	case fsm.ForwardMessages:
		return q.forward(&c)
	case fsm.RenewSession:
		return q.renewSession(c)
	case fsm.ReleaseSession:
		return q.releaseSession(c)
	case fsm.SetSessionState:
		return q.setState(c)
	case fsm.RaiseLevel:
		return fsm.Result{Code: q.raiseLevel(c.Level)}
	case fsm.BeginEpoch:
		return fsm.Result{Code: q.beginEpoch(&c)}
	}
	return fsm.Result{}
}

// notifyReady records that a sub-queue has more ready messages than before, for Effects.
func (q *Machine) notifyReady(sub *subqueue) {
	if !sub.readyChanged {
		sub.readyChanged = true
		q.readyChanged = append(q.readyChanged, sub)
	}
}

// Effects returns and clears the effects of the applies since the last call: one for every address
// whose ready count rose and is not zero now, of another kind if messages are forwarded, and one
// for every entity that was deleted automatically, or every shard that is idle.
func (q *Machine) Effects() []fsm.Effect {
	var effects []fsm.Effect
	for i, sub := range q.readyChanged {
		q.readyChanged[i], sub.readyChanged = nil, false
		switch n := sub.ix.Count(fsm.Ready); {
		case sub.dropped:
		case sub.reportsForwarding():
			effects = sub.notifyForward(effects)
		case sub.ix.DeliversBySession():
			effects = sub.sessionEffects(effects)
		case n > 0:
			effects = append(effects, fsm.Effect{Address: sub.address, Ready: n})
		}
	}
	q.readyChanged = q.readyChanged[:0]
	for _, id := range q.deletedIdle {
		effects = append(effects, fsm.Effect{Address: fsm.Address{Entity: id}, Kind: fsm.EffectIdle})
	}
	for _, id := range q.idleShards {
		effects = append(effects, fsm.Effect{Address: fsm.Address{Entity: id}, Kind: fsm.EffectIdleShard})
	}
	q.deletedIdle, q.idleShards = q.deletedIdle[:0], q.idleShards[:0]
	return effects
}

// FormatLevel returns the level of the state machine, 1 or more, which decides its behaviour.
func (q *Machine) FormatLevel() uint32 { return max(1, q.level) }

// raiseLevel sets the level of the state machine.
func (q *Machine) raiseLevel(level uint32) fsm.Code {
	if level == 0 {
		return fsm.InvalidArgument
	}
	if level < q.FormatLevel() {
		return fsm.PreconditionFails
	}
	q.level = level
	return fsm.OK
}
