package fsm_test

import (
	"fmt"
	"slices"
	"sort"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/totals"
)

// model is a simple implementation of the state machine: maps and slices, everything copied,
// nothing fast. If the two disagree, one of them is wrong. It leaves out limits that the random
// histories do not reach.
type model struct {
	now       fsm.Instant // wall time
	serving   fsm.Instant
	queues    map[fsm.EntityID]*modelQueue
	receivers map[[2]uint64]*modelReceiver
	seen      map[uint64]fsm.Instant
	gone      []fsm.EntityID
	under     map[fsm.EntityID]fsm.EntityID // topics of those that are gone
}

type modelQueue struct {
	version  uint64
	settings fsm.EntitySettings
	last     fsm.SequenceNumber
	active   fsm.Instant
	ids      map[string]fsm.Instant
	subs     [2][]*modelMessage
	totals   totals.Totals

	kind    fsm.EntityKind
	topic   fsm.EntityID
	rules   []fsm.Rule // in order
	numbers []uint64   // of rules
	newest  uint64     // number of the newest rule of a topic
}

type modelMessage struct {
	lock     fsm.LockID
	state    fsm.MessageState
	byNumber bool
	attempts uint32
	enqueued fsm.Instant
	until    fsm.Instant // end of the lock, in serving time, or when it is due, in wall time
	waits    bool        // not enqueued yet
	life     fsm.Millis  // of a message that waits
	expires  fsm.Instant // in the main queue
	rots     fsm.Instant // in the dead-letter queue
	payload  string
	patches  []fsm.Patch

	topic      fsm.SequenceNumber // number at the topic
	properties []byte             // of a message that waits at a topic
}

type modelReceiver struct {
	low     uint64
	answers map[uint64]modelAnswer
}

type modelAnswer struct {
	res   modelResult
	at    fsm.Address
	locks []fsm.LockID
}

// modelResult is a result with everything in readable form.
type modelResult struct {
	Code       fsm.Code
	Sequence   fsm.SequenceNumber
	Count      uint64
	Sequences  []fsm.SequenceNumber
	Codes      []fsm.Code
	Untils     []fsm.Instant
	Deliveries []string
}

func newModel() *model {
	return &model{
		queues: map[fsm.EntityID]*modelQueue{}, receivers: map[[2]uint64]*modelReceiver{}, seen: map[uint64]fsm.Instant{},
		under: map[fsm.EntityID]fsm.EntityID{},
	}
}

// shown is what a client sees of a message.
type shown struct {
	lock                     fsm.LockID
	state                    fsm.MessageState
	attempts                 uint32
	enqueued, until, expires fsm.Instant
	payload                  string
	patches                  []fsm.Patch
	topic                    fsm.SequenceNumber
}

func (x shown) String() string {
	return fmt.Sprintf("%d/%d state %d attempts %d enqueued %d until %d expires %d %q %v topic %d",
		x.lock.Sequence, x.lock.Epoch, x.state, x.attempts, x.enqueued, x.until, x.expires, x.payload, x.patches, x.topic)
}

func (m *model) show(q *modelQueue, sub fsm.SubQueue, x *modelMessage) string {
	return m.shownOf(q, sub, x).String()
}

func (m *model) shownOf(q *modelQueue, sub fsm.SubQueue, x *modelMessage) shown {
	s := shown{
		lock: x.lock, state: x.state, attempts: x.attempts, enqueued: x.enqueued,
		payload: x.payload, patches: x.patches, topic: x.topic,
	}
	if x.state == fsm.Locked {
		s.until = m.onWall(x.until)
	}
	switch {
	case sub == fsm.DeadLetterQueue:
	case x.waits:
		s.expires = q.end(x.until, x.life)
	default:
		s.expires = x.expires
	}
	return s
}

// end returns the expiry of a message that is enqueued at a time.
func (q *modelQueue) end(from fsm.Instant, given fsm.Millis) fsm.Instant {
	life := q.settings.DefaultTimeToLive
	if given != 0 && given < life {
		life = given
	}
	if life == fsm.Forever {
		return 0
	}
	return from + fsm.Instant(life)
}

// onWall returns a serving time as clients see it.
func (m *model) onWall(at fsm.Instant) fsm.Instant { return at + m.now - m.serving }

func (m *model) apply(env fsm.Env, h fsm.Header, c fsm.Command) modelResult {
	m.now, m.serving = max(m.now, env.Now), max(m.serving, env.Serving)
	res := m.answer(h, c)
	res.Untils = slices.Clone(res.Untils)
	for i, until := range res.Untils {
		if until != 0 {
			res.Untils[i] = m.onWall(until)
		}
	}
	return res
}

func (m *model) answer(h fsm.Header, c fsm.Command) modelResult {
	if h.Incarnation == 0 {
		res, _ := m.perform(h, c)
		return res
	}
	m.seen[h.Incarnation] = m.serving
	key := [2]uint64{h.Incarnation, h.Receiver}
	l := m.receivers[key]
	if l == nil {
		l = &modelReceiver{answers: map[uint64]modelAnswer{}}
		m.receivers[key] = l
	}
	l.low = max(l.low, h.Low)
	for serial, a := range l.answers {
		if serial < l.low {
			m.forget(a)
			delete(l.answers, serial)
		}
	}
	if h.Serial < l.low {
		return modelResult{Code: fsm.Stale}
	}
	if a, ok := l.answers[h.Serial]; ok {
		return m.again(a)
	}
	res, a := m.perform(h, c)
	a.res = res
	a.res.Deliveries = nil
	switch c.(type) {
	case fsm.LockMessages, fsm.FetchDeferred, fsm.FetchReady:
		if res.Code == fsm.OK && len(res.Deliveries) == 0 {
			return res
		}
	}
	l.answers[h.Serial] = a
	return res
}

// forget deletes the messages of a receive-and-delete.
func (m *model) forget(a modelAnswer) {
	q := m.queues[a.at.Entity]
	if q == nil {
		return
	}
	sub := &q.subs[a.at.Sub]
	before := len(*sub)
	*sub = slices.DeleteFunc(*sub, func(x *modelMessage) bool {
		return x.state == fsm.Deleting && slices.Contains(a.locks, x.lock)
	})
	q.totals.Completed += uint64(before - len(*sub))
}

func (m *model) again(a modelAnswer) modelResult {
	res := a.res
	if q := m.queues[a.at.Entity]; q != nil {
		for _, l := range a.locks {
			for _, x := range q.subs[a.at.Sub] {
				if x.lock == l && (x.state == fsm.Locked || x.state == fsm.Deleting) {
					res.Deliveries = append(res.Deliveries, m.show(q, a.at.Sub, x))
				}
			}
		}
	}
	return res
}

func (m *model) perform(h fsm.Header, c fsm.Command) (modelResult, modelAnswer) {
	var a modelAnswer
	switch c := c.(type) {
	case fsm.PutEntity:
		return m.put(c), a
	case fsm.DropEntity:
		m.remove(c.Entity)
		m.gone = slices.DeleteFunc(m.gone, func(id fsm.EntityID) bool { return id == c.Entity || m.under[id] == c.Entity })
	case fsm.SendMessages:
		return m.send(c), a
	case fsm.LockMessages:
		a.at = c.Address
		return m.lock(c, &a), a
	case fsm.FetchDeferred:
		a.at = c.Address
		return m.fetch(c, &a), a
	case fsm.FetchReady:
		a.at = c.Address
		return m.fetchReady(c, &a), a
	case fsm.SettleMessages:
		return m.settle(c), a
	case fsm.RenewLocks:
		return m.renew(c), a
	case fsm.CancelScheduled:
		return m.cancel(c), a
	case fsm.PurgeMessages:
		return m.purge(c), a
	case fsm.RedriveMessages:
		return m.redrive(c), a
	case fsm.SettleUnlocked:
		return m.settleUnlocked(c), a
	case fsm.Touch:
		q := m.queues[c.Entity]
		if q == nil {
			return modelResult{Code: fsm.EntityNotFound}, a
		}
		q.active = m.serving
	case fsm.PutRule:
		return m.putRule(c), a
	case fsm.DropRule:
		return m.dropRule(c), a
	case fsm.CloseReceiver:
		if l := m.receivers[[2]uint64{c.Incarnation, c.Receiver}]; l != nil {
			for _, old := range l.answers {
				m.forget(old)
			}
			delete(m.receivers, [2]uint64{c.Incarnation, c.Receiver})
		}
	case fsm.Pulse:
		m.pulse()
	}
	return modelResult{}, a
}

func (m *model) put(c fsm.PutEntity) modelResult {
	q := m.queues[c.Entity]
	switch {
	case q == nil && slices.Contains(m.gone, c.Entity):
		return modelResult{Code: fsm.EntityNotFound}
	case q == nil:
		if c.Kind == fsm.SubscriptionEntity && !m.isTopic(c.Topic) {
			return modelResult{Code: fsm.EntityNotFound}
		}
		q = &modelQueue{ids: map[string]fsm.Instant{}, kind: c.Kind, topic: c.Topic}
		m.queues[c.Entity] = q
		m.firstRule(q, c.Rule)
	case c.Version <= q.version:
		return modelResult{}
	case c.Settings.RequiresDuplicateDetection != q.settings.RequiresDuplicateDetection:
		return modelResult{Code: fsm.InvalidArgument}
	}
	for id, at := range q.ids { // by the old window
		if at.After(q.settings.DuplicateWindow) <= m.now {
			delete(q.ids, id)
		}
	}
	q.version, q.settings, q.active = c.Version, c.Settings.WithDefaults(), m.serving
	return modelResult{}
}

// dead says whether time has ended a message that was enqueued.
func (m *model) dead(sub fsm.SubQueue, x *modelMessage) bool {
	end := x.expires
	if sub == fsm.DeadLetterQueue {
		end = x.rots
	}
	return end != 0 && end <= m.now
}

func (m *model) expire(q *modelQueue, sub fsm.SubQueue, x *modelMessage, p fsm.Patch) {
	if sub == fsm.DeadLetterQueue || !q.settings.DeadLetterOnExpiry {
		q.remove(sub, x)
		q.totals.Expired++
		return
	}
	p.DeadLetter, p.Reason = true, "TTLExpiredException"
	p.Description = "The message expired and was dead lettered."
	m.deadLetter(q, x, p, totals.TimeToLive)
}

func (m *model) lock(c fsm.LockMessages, a *modelAnswer) modelResult {
	q := m.queues[c.Address.Entity]
	if q == nil {
		return modelResult{Code: fsm.EntityNotFound}
	}
	if q.kind == fsm.TopicEntity {
		return modelResult{Code: fsm.NotAllowed}
	}
	if s := q.settings.Status; s == fsm.Disabled || s == fsm.ReceiveDisabled {
		return modelResult{Code: fsm.EntityDisabled}
	}
	var picked []*modelMessage
	size := 0
	for _, x := range slices.Clone(q.subs[c.Address.Sub]) {
		if x.state != fsm.Ready {
			continue
		}
		if len(picked) == int(c.Max) {
			break
		}
		if m.dead(c.Address.Sub, x) {
			m.expire(q, c.Address.Sub, x, fsm.Patch{})
			continue
		}
		if size += len(x.payload); len(picked) > 0 && size > int(c.MaxBytes) {
			break
		}
		picked = append(picked, x)
	}
	if len(picked) > 0 {
		q.active = m.serving
	}
	return m.grant(q, picked, c.Delete, a)
}

func (q *modelQueue) find(sub fsm.SubQueue, n fsm.SequenceNumber) *modelMessage {
	for _, x := range q.subs[sub] {
		if x.lock.Sequence == n {
			return x
		}
	}
	return nil
}

func (m *model) send(c fsm.SendMessages) modelResult {
	q := m.queues[c.Entity]
	if q == nil {
		return modelResult{Code: fsm.EntityNotFound}
	}
	if q.kind == fsm.SubscriptionEntity {
		return modelResult{Code: fsm.NotAllowed}
	}
	if s := q.settings.Status; s == fsm.Disabled || s == fsm.SendDisabled {
		return modelResult{Code: fsm.EntityDisabled}
	}
	for _, x := range c.Messages {
		if most := int(q.settings.MaxMessageBytes); len(x.Payload) > most+256 {
			return modelResult{Code: fsm.MessageTooLarge}
		}
	}
	q.active = m.serving
	var res modelResult
	var numbers []fsm.SequenceNumber
	twice := false
	for _, x := range c.Messages {
		if at, known := q.ids[x.ID]; q.settings.RequiresDuplicateDetection && x.ID != "" {
			if known && at.After(q.settings.DuplicateWindow) > m.now {
				n := fsm.SequenceNumber(0)
				if x.EnqueueAt != 0 {
					q.last++
					n = q.last
				}
				numbers, twice = append(numbers, n), true
				q.totals.Duplicates++
				continue
			}
			q.ids[x.ID] = m.now
		}
		q.last++
		q.totals.Incoming++
		numbers = append(numbers, q.last)
		if res.Sequence == 0 {
			res.Sequence = q.last
		}
		y := &modelMessage{lock: fsm.LockID{Sequence: q.last}, state: fsm.Ready, enqueued: m.now, payload: string(x.Payload)}
		if x.EnqueueAt > m.now {
			y.state, y.waits, y.until, y.life = fsm.Scheduled, true, x.EnqueueAt, x.TimeToLive
		} else {
			y.expires = q.end(m.now, x.TimeToLive)
		}
		if q.kind == fsm.TopicEntity {
			if y.properties = x.Properties; !y.waits {
				m.publish(c.Entity, q.last, y, x.TimeToLive)
				continue
			}
		}
		q.subs[0] = append(q.subs[0], y)
	}
	if twice {
		res.Sequences = numbers
	}
	return res
}

func (m *model) cancel(c fsm.CancelScheduled) modelResult {
	q := m.queues[c.Entity]
	if q == nil {
		return modelResult{Code: fsm.EntityNotFound}
	}
	for _, n := range c.Sequences {
		if x := q.find(fsm.MainQueue, n); x == nil || !x.waits {
			return modelResult{Code: fsm.MessageNotFound}
		}
	}
	for _, n := range c.Sequences {
		if x := q.find(fsm.MainQueue, n); x != nil {
			q.remove(fsm.MainQueue, x)
			q.totals.Removed++
		}
	}
	q.active = m.serving
	return modelResult{}
}

func (m *model) purge(c fsm.PurgeMessages) modelResult {
	q := m.queues[c.Address.Entity]
	if q == nil {
		return modelResult{Code: fsm.EntityNotFound}
	}
	if q.kind == fsm.TopicEntity {
		return modelResult{Code: fsm.NotAllowed}
	}
	q.active = m.serving
	var res modelResult
	for _, x := range slices.Clone(q.subs[c.Address.Sub]) {
		if x.state != fsm.Ready || res.Count == uint64(c.Max) || c.Before != 0 && x.enqueued >= c.Before {
			continue
		}
		if m.dead(c.Address.Sub, x) {
			m.expire(q, c.Address.Sub, x, fsm.Patch{})
			continue
		}
		q.remove(c.Address.Sub, x)
		q.totals.Removed++
		res.Count++
	}
	return res
}

func (m *model) settleUnlocked(c fsm.SettleUnlocked) modelResult {
	q := m.queues[c.Address.Entity]
	switch {
	case q == nil:
		return modelResult{Code: fsm.EntityNotFound}
	case q.kind == fsm.TopicEntity && c.Address.Sub != fsm.TransferDeadLetterQueue:
		return modelResult{Code: fsm.NotAllowed}
	}
	q.active = m.serving
	var res modelResult
	for _, n := range c.Sequences {
		x := q.find(c.Address.Sub, n)
		if x == nil || !c.States.Has(x.state) || x.state != fsm.Scheduled && m.dead(c.Address.Sub, x) {
			continue
		}
		if c.Verb == fsm.Complete {
			q.remove(c.Address.Sub, x)
			q.totals.Removed++
		} else {
			x.state = fsm.Ready
		}
		res.Count++
	}
	return res
}

func (m *model) redrive(c fsm.RedriveMessages) modelResult {
	q := m.queues[c.Entity]
	if q == nil {
		return modelResult{Code: fsm.EntityNotFound}
	}
	if q.kind == fsm.TopicEntity {
		return modelResult{Code: fsm.NotAllowed}
	}
	q.active = m.serving
	var res modelResult
	for _, n := range c.Sequences {
		x := q.find(fsm.DeadLetterQueue, n)
		if x == nil || x.state != fsm.Ready {
			continue
		}
		q.remove(fsm.DeadLetterQueue, x)
		if m.dead(fsm.DeadLetterQueue, x) {
			q.totals.Expired++
			continue
		}
		q.totals.Redriven++
		if x.expires != 0 {
			x.expires += m.now - x.enqueued
		}
		x.enqueued, x.rots, x.attempts = m.now, 0, 0
		old := x.patches
		x.patches = nil
		for _, p := range old {
			x.patch(fsm.Patch{Properties: p.Properties, Changes: p.Changes})
		}
		q.put(fsm.MainQueue, x)
		res.Count++
	}
	return res
}

// put adds a message at its place.
func (q *modelQueue) put(sub fsm.SubQueue, x *modelMessage) {
	q.subs[sub] = append(q.subs[sub], x)
	list := q.subs[sub]
	sort.Slice(list, func(i, j int) bool { return list[i].lock.Sequence < list[j].lock.Sequence })
}

func (m *model) grant(q *modelQueue, picked []*modelMessage, forGood bool, a *modelAnswer) modelResult {
	var res modelResult
	q.totals.Outgoing += uint64(len(picked))
	for _, x := range picked {
		x.lock.Epoch++
		x.state = fsm.Deleting
		if !forGood {
			x.state, x.until = fsm.Locked, m.serving.After(q.settings.LockDuration)
		}
		a.locks = append(a.locks, x.lock)
		res.Deliveries = append(res.Deliveries, m.show(q, a.at.Sub, x))
	}
	return res
}

func (m *model) counts(id fsm.EntityID) fsm.Counts {
	var c fsm.Counts
	q := m.queues[id]
	if q == nil {
		return c
	}
	for sub := range q.subs {
		for _, x := range q.subs[sub] {
			switch {
			case x.state == fsm.Deleting:
				continue
			case sub == 1:
				c.DeadLetter++
			case x.state == fsm.Deferred:
				c.Deferred++
			case x.state == fsm.Scheduled:
				c.Scheduled++
			case x.state == fsm.Locked:
				c.Locked++
				c.Active++
			default:
				c.Active++
			}
			c.Bytes += uint64(len(x.payload))
		}
	}
	if q.kind == fsm.TopicEntity {
		m.share(id, &c)
	}
	return c
}
