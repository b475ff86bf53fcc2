package fsm

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/peeklock/peeklock/fsm/filter"
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
	gone   []tombstone // deleted for being idle, not dropped by command yet; sorted
	idled  []EntityID  // the same since the last Effects
	// remains are messages of queues that are gone whose bodies are not released yet. They
	// are a matter of this replica and no part of its state.
	remains []remains
	table   answers

	// Taken apart commands, reused from one apply to the next.
	sends       []sent
	settlements []Settlement
	ripe        []ripe // of the chunk at hand
	subject     subject
	matches     []match
	numbers     []uint64 // of correlation rules that match
	runner      filter.Runner

	level    uint32   // of formats and behaviour, see RaiseLevel; 0 is 1
	pending  []*queue // topics with Pending messages, sorted by id; derived
	served   EntityID // the topic whose Pending messages were published last
	entry    uint64   // index of the entry at hand
	spent    uint64   // steps that it took so far
	exceeded uint64   // rules that were over their budget, on this replica
}

// queue is one entity: its main queue, its two dead-letter queues, and its transfer queue.
type queue struct {
	id       EntityID
	version  uint64          // of settings
	settings *EntitySettings // complete; replaced and never changed: images share it
	kind     EntityKind
	topic    *queue         // of a subscription, else nil
	hub      *hub           // of a topic, else nil
	rules    rulebook       // of a subscription
	last     SequenceNumber // given to the newest message
	active   Instant        // when somebody used it last
	window   *window        // nil unless duplicates are detected
	arrivals arrivals       // what other entities forwarded here
	sessions *sessions      // nil unless every message belongs to one
	grants   uint64         // session locks given so far
	subs     [4]subqueue    // by SubQueue

	// When the alarms that stand for the queue ring, 0 for none; derived.
	sweepAt, idleAt Instant
}

// subqueue is what a link attaches to.
type subqueue struct {
	of      *queue
	address Address
	ix      index
	alarms  alarms
	out     *outbox // nil until something was forwarded
	turn    int     // place in the schedule, -1 when it has no alarms
	raised  bool    // is in raised
	resumed bool    // restored with a batch out: the next Effects say so
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
	if env.Index != q.entry || env.Index == 0 {
		q.entry, q.spent = env.Index, 0
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
	switch {
	case more == nil:
		return res
	case more.session.Epoch != 0:
		return q.accepted(more.address, more.session)
	case len(more.locks) == 0:
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
	case KindTransferMessages:
		var c TransferMessages
		c, q.sends = r.transfers(q.sends)
		decoded(env, kind, r)
		res := q.transfer(&c, q.sends)
		clear(q.sends)
		return res, Address{}
	case KindTransact:
		c := r.transaction()
		decoded(env, kind, r)
		return q.transact(&c), Address{}
	case KindAcceptSession:
		c := r.acceptSession()
		decoded(env, kind, r)
		return q.accept(c), Address{Entity: c.Entity}
	case KindRenewSession, KindReleaseSession, KindSetSessionState,
		KindPulse, KindPutEntity, KindDropEntity, KindCloseLane, KindForwardMessages,
		KindCancelScheduled, KindPurgeMessages, KindRedriveMessages, KindTouch, KindPutRule, KindDropRule,
		KindFoundCluster, KindPartitionFormed, KindCreateEntity, KindUpdateEntity, KindDeleteEntity, KindForgetEntity,
		KindCreateNamespace, KindUpdateNamespace, KindDeleteNamespace, KindSetAccess,
		KindSetMember, KindPlacePartition, KindPartitionPlaced, KindAddPartitions, KindRaiseLevel:
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
	case PutEntity:
		return q.put(c)
	case DropEntity:
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
func (q *Queues) put(c PutEntity) Result {
	if code := Check(c); code != OK {
		return Result{Code: code}
	}
	settings := c.Settings.WithDefaults()
	x := q.byID[c.Entity]
	switch {
	case x == nil:
		var code Code
		if x, code = q.make(&c); code != OK {
			return Result{Code: code}
		}
		if x.detects(&settings) {
			x.window = &window{era: q.arena.era}
		}
		if settings.RequiresSession {
			q.group(x)
		}
	case c.Version <= x.version:
		return Result{}
	case !x.settings.allows(&settings) || x.kind != c.Kind || x.kind == SubscriptionEntity && x.topic.id != c.Topic:
		return Result{Code: InvalidArgument}
	case x.window != nil:
		x.window.forgotten(q.clock, x.settings.DuplicateWindow)
	}
	old := x.settings
	x.version, x.settings, x.active = c.Version, &settings, q.clock
	q.redirected(x, old)
	q.expectIdle(x)
	q.expectSweep(x)
	q.tidy(&x.subs[MainQueue])
	return Result{}
}

// make makes an empty entity.
func (q *Queues) make(c *PutEntity) (*queue, Code) {
	topic, first := q.byID[c.Topic], c.Rule
	if first == nil {
		first = defaultRule()
	}
	switch _, gone := q.grave(c.Entity); {
	case gone:
		return nil, EntityNotFound
	case c.Kind != SubscriptionEntity:
		return q.add(c.Entity, c.Kind), OK
	case topic == nil || topic.kind != TopicEntity:
		return nil, EntityNotFound
	}
	ready, _ := parseRule(first) // was checked
	if topic.hub.full(first.Filter.Kind, ready.size, nil) {
		return nil, QuotaExceeded
	}
	x := q.add(c.Entity, c.Kind)
	q.subscribe(x, topic, &rule{Rule: *first, parsed: ready, of: x, filed: filter.ByFewest})
	return x, OK
}

// detects says whether an entity with these settings detects duplicates. A subscription
// leaves that to its topic.
func (x *queue) detects(s *EntitySettings) bool {
	return s.RequiresDuplicateDetection && x.kind != SubscriptionEntity
}

// add makes an empty entity; a subscription has no topic yet.
func (q *Queues) add(id EntityID, kind EntityKind) *queue {
	x := &queue{id: id, kind: kind}
	if kind == TopicEntity {
		x.hub = newHub()
	}
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

// remove takes an entity out, a topic with its subscriptions. Bodies are let go little by
// little, but not those that a subscription shares with a topic that stays.
func (q *Queues) remove(x *queue) {
	switch x.kind {
	case TopicEntity:
		for _, y := range x.hub.subscriptions {
			q.takeOut(y)
		}
	case SubscriptionEntity:
		q.unsubscribe(x)
	case QueueEntity:
	}
	q.takeOut(x)
	q.letGo(releasesPerApply)
}

func (q *Queues) takeOut(x *queue) {
	for i := range x.subs {
		sub := &x.subs[i]
		if len(sub.ix.entries) > 0 {
			q.remains = append(q.remains, remains{entries: sub.ix.entries})
		}
		sub.dropped = true
		q.due.remove(sub)
	}
	if s := x.sessions; s != nil && s.count > 0 {
		q.remains = append(q.remains, remains{states: s.pages})
	}
	if x.hub != nil {
		q.published(x)
	}
	at, _ := q.position(x.id)
	q.queues = slices.Delete(q.queues, at, at+1)
	delete(q.byID, x.id)
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
	if patch := sub.ix.patch(at); rec.flags&shared == 0 {
		q.release(rec.body, patch)
	} else {
		q.unshare(sub.of.topic, rec.original())
		if patch != (Ref{}) {
			q.bodies.Release(patch)
		}
	}
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
// one entry for every address whose ready count rose and is not zero now, of another kind
// where messages are forwarded, and one for every queue that deleted itself.
func (q *Queues) Effects() []Effect {
	var effects []Effect
	for i, sub := range q.raised {
		q.raised[i], sub.raised = nil, false
		switch n := sub.ix.counts[Ready]; {
		case sub.dropped:
		case sub.forwards():
			effects = sub.urge(effects)
		case sub.ix.main && sub.ix.sessions != nil:
			effects = sub.groupEffects(effects)
		case n > 0:
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
