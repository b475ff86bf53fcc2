package fsm

import (
	"cmp"
	"fmt"
	"slices"
)

// Queues is the machine of a message partition: queues, messages and locks. It is not
// safe for concurrent use: whoever owns it calls one method at a time. Images made by
// it may be used beside it.
type Queues struct {
	bodies Bodies
	clock  Instant // of the newest entry; never goes back
	arena  arena
	queues []*queue            // sorted by id
	byID   map[EntityID]*queue // the same, for lookups only: never ranged over
	due    schedule
	raised []*subqueue // whose ready count rose since the last Effects
	gone   []EntityID  // deleted for being idle, not dropped by command yet; sorted
	idled  []EntityID  // the same since the last Effects
	// remains are messages of queues that are gone whose bodies are not released yet. They
	// are a matter of this replica and no part of its state.
	remains []remains
	table   answers

	// Taken apart commands, reused from one apply to the next.
	sends       []sent
	settlements []Settlement
	ripe        []ripe // of the chunk at hand
}

// queue is one entity: its main queue and its dead-letter queue.
type queue struct {
	id       EntityID
	version  uint64         // of settings
	settings *QueueSettings // complete; replaced and never changed: images share it
	last     SequenceNumber // given to the newest message
	active   Instant        // when somebody used it last
	window   *window        // nil unless duplicates are detected
	subs     [2]subqueue    // by SubQueue

	// When the alarms that stand for the queue ring, 0 for none; derived.
	sweepAt, idleAt Instant
}

// subqueue is what a link attaches to.
type subqueue struct {
	of      *queue
	address Address
	ix      index
	alarms  alarms
	turn    int  // place in the schedule, -1 when it has no alarms
	raised  bool // is in raised
	dropped bool
}

// NewQueues makes an empty machine that keeps message bodies in bodies.
func NewQueues(bodies Bodies) *Queues {
	q := &Queues{bodies: bodies}
	q.reset()
	return q
}

func (q *Queues) reset() {
	bodies := q.bodies
	*q = Queues{bodies: bodies, byID: make(map[EntityID]*queue)}
	q.table = newAnswers(&q.arena.era, q.forget)
}

// Apply performs one command at env and reports what came of it. A refused command
// changes nothing. A command seen before is answered from memory.
//
// It panics, with the index and the reason, on bytes that do not decode and on kinds
// that are not of this machine: they come from a newer release, and a replica that
// skipped them would no longer be like the others.
func (q *Queues) Apply(env Env, command []byte) Result {
	q.clock = max(q.clock, env.Now)
	r := reader{b: command}
	kind, h := r.header()
	if r.err == nil && !kind.IsFor(1) {
		r.fail(errKind)
	}
	if r.err != nil {
		panic(undecodable(env, kind, r.err))
	}
	if len(q.remains) > 0 {
		q.letGo(releasesPerApply)
	}
	if h.Origin == 0 {
		res, _ := q.perform(env, kind, h, &r)
		return res
	}
	l, old, code := q.table.begin(h, q.clock)
	switch {
	case code != OK:
		return Result{Code: code}
	case old != nil:
		return q.again(old)
	}
	res, at := q.perform(env, kind, h, &r)
	if x, ok := newAnswer(kind, h.Serial, at, res); ok {
		q.table.remember(l, x)
	}
	return res
}

func undecodable(env Env, kind Kind, err error) string {
	return fmt.Sprintf("fsm: command of kind %d at index %d: %v", kind, env.Index, err)
}

// again answers a command that was performed before. Messages locked or taken then
// are given as they stand now; one whose lock has ended meanwhile is left out.
func (q *Queues) again(old *answer) Result {
	res := old.result()
	more := old.more
	if more == nil || len(more.locks) == 0 {
		return res
	}
	sub := q.find(more.address)
	if sub == nil {
		return res
	}
	for _, l := range more.locks {
		at, found := sub.ix.seek(l.Sequence)
		if !found {
			continue
		}
		rec := sub.ix.get(at)
		if rec.epoch == l.Epoch && (rec.state == Locked || rec.state == Taken) {
			res.Deliveries = append(res.Deliveries, sub.delivery(at, &rec))
		}
	}
	return res
}

// forget ends what an answer was remembered for: messages given for good go now that
// they are known to have arrived, or that nobody is left to ask for them.
func (q *Queues) forget(more *details) {
	if !more.taken {
		return
	}
	sub := q.find(more.address)
	if sub == nil {
		return
	}
	for _, l := range more.locks {
		if at, found := sub.ix.seek(l.Sequence); found {
			if rec := sub.ix.get(at); rec.state == Taken && rec.epoch == l.Epoch {
				q.discard(sub, at, &rec)
			}
		}
	}
}

// perform takes the payload apart and does it. The address is that of a lock or fetch.
func (q *Queues) perform(env Env, kind Kind, h Header, r *reader) (Result, Address) {
	switch kind {
	case KindSendMessages:
		var entity EntityID
		entity, q.sends = r.sends(q.sends)
		decoded(env, kind, r)
		res := q.send(entity, q.sends)
		clear(q.sends) // they alias the entry
		return res, Address{}
	case KindLockMessages:
		c := r.lockMessages()
		decoded(env, kind, r)
		return q.lock(c, h.Origin != 0), c.Address
	case KindSettleMessages:
		c := r.settleMessages(q.settlements)
		q.settlements = c.Settlements
		decoded(env, kind, r)
		res := q.settle(c)
		clear(q.settlements)
		return res, Address{}
	case KindRenewLocks:
		c := r.renewLocks()
		decoded(env, kind, r)
		return q.renew(c), Address{}
	case KindFetchDeferred:
		c := r.fetchDeferred()
		decoded(env, kind, r)
		return q.fetch(c, h.Origin != 0), c.Address
	case KindPulse, KindPutQueue, KindDropQueue, KindCloseLane,
		KindCancelScheduled, KindPurgeMessages, KindRedriveMessages, KindTouch,
		KindFoundCluster, KindPartitionFormed, KindCreateEntity, KindUpdateEntity, KindDeleteEntity, KindForgetEntity:
		// Rare, or of the other machine and stopped by Apply.
	}
	cmd := r.payload(kind)
	decoded(env, kind, r)
	return q.manage(cmd), Address{}
}

// decoded stops the replica, before anything is changed, unless the whole command was
// understood.
func decoded(env Env, kind Kind, r *reader) {
	if err := r.end(); err != nil {
		panic(undecodable(env, kind, err))
	}
}

// manage performs the commands that are rare.
func (q *Queues) manage(cmd Command) Result {
	switch c := cmd.(type) {
	case PutQueue:
		return q.put(c)
	case DropQueue:
		q.drop(c.Entity)
	case CloseLane:
		q.table.closeLane(c)
	case Pulse:
		q.pulse()
	case CancelScheduled:
		return q.cancel(c)
	case PurgeMessages:
		return q.purge(c)
	case RedriveMessages:
		return q.redrive(c)
	case Touch:
		return q.touch(c)
	}
	return Result{}
}

func (q *Queues) position(id EntityID) (int, bool) {
	return slices.BinarySearchFunc(q.queues, id, func(x *queue, id EntityID) int { return cmp.Compare(x.id, id) })
}

// find returns the sub-queue at an address, nil when there is none.
func (q *Queues) find(a Address) *subqueue {
	if x := q.byID[a.Entity]; x != nil && a.valid() {
		return &x.subs[a.Sub]
	}
	return nil
}

// put makes a queue or changes its settings. Locks and lives keep their end.
func (q *Queues) put(c PutQueue) Result {
	if code := Check(c); code != OK {
		return Result{Code: code}
	}
	settings := c.Settings.WithDefaults()
	x := q.byID[c.Entity]
	switch {
	case x == nil:
		if _, gone := slices.BinarySearch(q.gone, c.Entity); gone {
			return Result{Code: EntityNotFound}
		}
		x = q.add(c.Entity)
		if settings.RequiresDuplicateDetection {
			x.window = &window{era: q.arena.era}
		}
	case c.Version <= x.version:
		return Result{}
	case settings.RequiresDuplicateDetection != (x.window != nil):
		return Result{Code: InvalidArgument}
	case x.window != nil:
		x.window.forgotten(q.clock, x.settings.DuplicateWindow)
	}
	x.version, x.settings, x.active = c.Version, &settings, q.clock
	q.expectIdle(x)
	q.expectSweep(x)
	q.tidy(&x.subs[MainQueue])
	return Result{}
}

// add makes an empty queue.
func (q *Queues) add(id EntityID) *queue {
	x := &queue{id: id}
	for i := range x.subs {
		x.subs[i] = subqueue{
			of:      x,
			address: Address{Entity: id, Sub: SubQueue(i)},
			ix:      index{arena: &q.arena, era: q.arena.era},
			turn:    -1,
		}
	}
	i, _ := q.position(id)
	q.queues = slices.Insert(q.queues, i, x)
	q.byID[id] = x
	return x
}

// drop removes a queue for good, also one that went by itself.
func (q *Queues) drop(id EntityID) {
	q.bury(id)
	if x := q.byID[id]; x != nil {
		q.remove(x)
	}
}

// remove takes a queue out. Its bodies are let go little by little.
func (q *Queues) remove(x *queue) {
	for i := range x.subs {
		sub := &x.subs[i]
		if len(sub.ix.entries) > 0 {
			q.remains = append(q.remains, remains{entries: sub.ix.entries})
		}
		sub.dropped = true
		q.due.remove(sub)
	}
	at, _ := q.position(x.id)
	q.queues = slices.Delete(q.queues, at, at+1)
	delete(q.byID, x.id)
	q.letGo(releasesPerApply)
}

// release lets the bodies of a message go.
func (q *Queues) release(body, patch Ref) {
	q.bodies.Release(body)
	if patch != (Ref{}) {
		q.bodies.Release(patch)
	}
}

// discard removes a message for good. A lock on it is ended by the caller.
func (q *Queues) discard(sub *subqueue, at cursor, rec *record) {
	q.release(rec.body, sub.ix.patch(at))
	sub.ix.remove(at)
}

// raise notes that more messages are ready than before.
func (q *Queues) raise(sub *subqueue) {
	if !sub.raised {
		sub.raised = true
		q.raised = append(q.raised, sub)
	}
}

// Effects returns and clears what the applies since the last call ask of the leader:
// one entry for every address whose ready count rose and is not zero now, and one for
// every queue that deleted itself.
func (q *Queues) Effects() []Effect {
	var effects []Effect
	for i, sub := range q.raised {
		q.raised[i], sub.raised = nil, false
		if n := sub.ix.counts[Ready]; n > 0 && !sub.dropped {
			effects = append(effects, Effect{Address: sub.address, Ready: n})
		}
	}
	q.raised = q.raised[:0]
	for _, id := range q.idled {
		effects = append(effects, Effect{Address: Address{Entity: id}, Kind: EffectIdle})
	}
	q.idled = q.idled[:0]
	return effects
}
