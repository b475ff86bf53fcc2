package queue

import (
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/answers"
	"github.com/peeklock/peeklock/fsm/fields"
	"github.com/peeklock/peeklock/fsm/index"
)

// Machine is the state machine of a message partition: entities, messages and locks. It is not safe
// for concurrent use; its images may be used concurrently with it.
type Machine struct {
	// Each part has the methods for one task, and the state that belongs to it alone. A part calls those that it contains,
	// and no others.
	*core
	*messages
	*releases
	*sessions
	*topics
	*fences
	*registry
	*idleness
	*sending
	*receiving
	*forwarding
	*transactions
	*pulses

	table      answers.Table
	level      uint32 // format level, see RaiseLevel; 0 stands for 1
	entryIndex uint64 // index of the current entry

	// Scratch space, reused from one apply to the next.
	sends       []sentMessage
	settlements []fsm.Settlement
}

// New returns an empty state machine that stores message bodies in bodies.
func New(bodies fsm.Bodies) *Machine {
	q := new(Machine)
	q.reset(&meteredBodies{Bodies: bodies})
	return q
}

// reset makes the machine an empty one.
func (q *Machine) reset(bodies *meteredBodies) {
	c := &core{bodies: bodies, arena: new(index.Arena), byID: make(map[fsm.EntityID]*entityState), settings: make(sharedSettings)}
	m := &messages{core: c}
	r := &releases{core: c}
	s := &sessions{core: c, messages: m}
	t := &topics{core: c, messages: m}
	f := &fences{core: c}
	g := &registry{core: c, releases: r, topics: t, fences: f}
	i := &idleness{core: c, fences: f, registry: g}
	in := &sending{core: c, messages: m, topics: t}
	out := &receiving{core: c, messages: m, sessions: s}
	*q = Machine{
		core: c, messages: m, releases: r, sessions: s, topics: t, fences: f, registry: g, idleness: i, sending: in, receiving: out,
		forwarding:   &forwarding{core: c, messages: m},
		transactions: &transactions{core: c, messages: m, sessions: s, fences: f, sending: in, receiving: out},
		pulses:       &pulses{core: c, messages: m, releases: r, sessions: s, topics: t, idleness: i},
	}
	q.table = answers.New(c.arena.Generation(), m.forgetAnswer)
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
		q.entryIndex, q.spent, q.setAside, q.rewritten, q.added = env.Index, 0, 0, 0, 0 // the bounds of each part are those of one entry
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

// Skip answers a command with Internal, without performing it (see answers.Table.Skip).
func (q *Machine) Skip(env fsm.Env, command []byte) fsm.Result {
	q.times = q.times.Advance(env)
	return q.table.Skip(command, q.times.Serving)
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
		q.table.ForgetIdle(q.times.Serving, max(q.pulse(), 0))
	case fsm.CancelScheduled:
		return q.cancel(c)
	case fsm.ReserveNumbers:
		return q.reserve(c)
	case fsm.PurgeMessages:
		return q.purge(c)
	case fsm.RedriveMessages:
		return q.redrive(c)
	case fsm.SettleUnlocked:
		return q.settleUnlocked(c)
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
			if held := sub.readyToReceive(); held > 0 {
				effects = append(effects, fsm.Effect{Address: sub.address, Ready: held})
			}
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
