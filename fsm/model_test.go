package fsm_test

import (
	"fmt"
	"slices"
	"sort"

	"github.com/peeklock/peeklock/fsm"
)

// model is the machine as a reader would write it down: maps and slices, everything
// copied, nothing fast. Where the two disagree, one of them is wrong. It leaves out
// limits that the random histories do not reach.
type model struct {
	now    fsm.Instant
	queues map[fsm.EntityID]*modelQueue
	lanes  map[[2]uint64]*modelLane
	seen   map[uint64]fsm.Instant
}

type modelQueue struct {
	version  uint64
	settings fsm.QueueSettings
	last     fsm.SequenceNumber
	subs     [2][]*modelMessage
}

type modelMessage struct {
	lock     fsm.LockID
	state    fsm.MessageState
	byNumber bool
	attempts uint32
	enqueued fsm.Instant
	until    fsm.Instant
	payload  string
	patches  []fsm.Patch
}

type modelLane struct {
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
	Codes      []fsm.Code
	Untils     []fsm.Instant
	Deliveries []string
}

func newModel() *model {
	return &model{
		queues: map[fsm.EntityID]*modelQueue{}, lanes: map[[2]uint64]*modelLane{}, seen: map[uint64]fsm.Instant{},
	}
}

func (x *modelMessage) String() string {
	return fmt.Sprintf("%d/%d state %d attempts %d enqueued %d until %d %q %v",
		x.lock.Sequence, x.lock.Epoch, x.state, x.attempts, x.enqueued, x.until, x.payload, x.patches)
}

func (m *model) apply(now fsm.Instant, h fsm.Header, c fsm.Command) modelResult {
	m.now = max(m.now, now)
	if h.Origin == 0 {
		res, _ := m.perform(h, c)
		return res
	}
	m.seen[h.Origin] = m.now
	key := [2]uint64{h.Origin, h.Lane}
	l := m.lanes[key]
	if l == nil {
		l = &modelLane{answers: map[uint64]modelAnswer{}}
		m.lanes[key] = l
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
	case fsm.LockMessages, fsm.FetchDeferred:
		if res.Code == fsm.OK && len(res.Deliveries) == 0 {
			return res
		}
	}
	l.answers[h.Serial] = a
	return res
}

// forget lets messages given for good go.
func (m *model) forget(a modelAnswer) {
	q := m.queues[a.at.Entity]
	if q == nil {
		return
	}
	sub := &q.subs[a.at.Sub]
	*sub = slices.DeleteFunc(*sub, func(x *modelMessage) bool {
		return x.state == fsm.Taken && slices.Contains(a.locks, x.lock)
	})
}

func (m *model) again(a modelAnswer) modelResult {
	res := a.res
	if q := m.queues[a.at.Entity]; q != nil {
		for _, l := range a.locks {
			for _, x := range q.subs[a.at.Sub] {
				if x.lock == l && (x.state == fsm.Locked || x.state == fsm.Taken) {
					res.Deliveries = append(res.Deliveries, x.String())
				}
			}
		}
	}
	return res
}

func (m *model) perform(h fsm.Header, c fsm.Command) (modelResult, modelAnswer) {
	var a modelAnswer
	switch c := c.(type) {
	case fsm.PutQueue:
		q := m.queues[c.Entity]
		if q == nil {
			q = &modelQueue{}
			m.queues[c.Entity] = q
		} else if c.Version <= q.version {
			break
		}
		q.version, q.settings = c.Version, c.Settings
	case fsm.DropQueue:
		delete(m.queues, c.Entity)
	case fsm.SendMessages:
		return m.send(c), a
	case fsm.LockMessages:
		a.at = c.Address
		q := m.queues[c.Address.Entity]
		if q == nil {
			return modelResult{Code: fsm.EntityNotFound}, a
		}
		var picked []*modelMessage
		size := 0
		for _, x := range q.subs[c.Address.Sub] {
			if x.state != fsm.Ready || len(picked) == int(c.Max) {
				continue
			}
			if size += len(x.payload); len(picked) > 0 && size > int(c.MaxBytes) {
				break
			}
			picked = append(picked, x)
		}
		return m.grant(q, picked, c.Delete, &a), a
	case fsm.FetchDeferred:
		a.at = c.Address
		q := m.queues[c.Address.Entity]
		if q == nil {
			return modelResult{Code: fsm.EntityNotFound}, a
		}
		var picked []*modelMessage
		for _, n := range c.Sequences {
			for _, x := range q.subs[c.Address.Sub] {
				if x.lock.Sequence == n && x.state == fsm.Deferred && !slices.Contains(picked, x) {
					x.byNumber = true
					picked = append(picked, x)
				}
			}
		}
		return m.grant(q, picked, c.Delete, &a), a
	case fsm.SettleMessages:
		return m.settle(c), a
	case fsm.RenewLocks:
		return m.renew(c), a
	case fsm.CloseLane:
		if l := m.lanes[[2]uint64{c.Origin, c.Lane}]; l != nil {
			for _, old := range l.answers {
				m.forget(old)
			}
			delete(m.lanes, [2]uint64{c.Origin, c.Lane})
		}
	case fsm.Pulse:
		m.pulse()
	}
	return modelResult{}, a
}

func (m *model) send(c fsm.SendMessages) modelResult {
	q := m.queues[c.Entity]
	if q == nil {
		return modelResult{Code: fsm.EntityNotFound}
	}
	for _, x := range c.Messages {
		if len(x.Payload) > int(q.settings.MaxMessageBytes) {
			return modelResult{Code: fsm.MessageTooLarge}
		}
	}
	res := modelResult{Sequence: q.last + 1}
	for _, x := range c.Messages {
		q.last++
		q.subs[0] = append(q.subs[0], &modelMessage{
			lock: fsm.LockID{Sequence: q.last}, state: fsm.Ready, enqueued: m.now, payload: string(x.Payload),
		})
	}
	return res
}

func (m *model) grant(q *modelQueue, picked []*modelMessage, forGood bool, a *modelAnswer) modelResult {
	var res modelResult
	for _, x := range picked {
		x.lock.Epoch++
		x.state = fsm.Taken
		if !forGood {
			x.state, x.until = fsm.Locked, m.now.After(q.settings.LockDuration)
		}
		a.locks = append(a.locks, x.lock)
		res.Deliveries = append(res.Deliveries, x.String())
	}
	return res
}

func (m *model) held(a fsm.Address, l fsm.LockID) *modelMessage {
	for _, x := range m.queues[a.Entity].subs[a.Sub] {
		if x.lock == l && x.state == fsm.Locked {
			return x
		}
	}
	return nil
}

func (m *model) settle(c fsm.SettleMessages) modelResult {
	q := m.queues[c.Address.Entity]
	if q == nil {
		return modelResult{Code: fsm.EntityNotFound}
	}
	var res modelResult
	for _, s := range c.Settlements {
		res.Codes = append(res.Codes, m.settleOne(q, c.Address, s))
	}
	return res
}

func (m *model) settleOne(q *modelQueue, a fsm.Address, s fsm.Settlement) fsm.Code {
	x := m.held(a, s.Lock)
	switch {
	case x == nil:
		return fsm.MessageLockLost
	case s.Verb == fsm.DeadLetter && a.Sub == fsm.DeadLetterQueue:
		return fsm.NotAllowed
	}
	p := fsm.Patch{Properties: s.Properties}
	switch s.Verb {
	case fsm.Complete:
		q.remove(a.Sub, x)
	case fsm.Abandon:
		m.back(q, a.Sub, x, true, p)
	case fsm.Release:
		m.back(q, a.Sub, x, false, p)
	case fsm.Defer:
		x.patch(p)
		x.state, x.until, x.byNumber = fsm.Deferred, 0, false
	case fsm.DeadLetter:
		p.Reason, p.Description, p.DeadLetter = s.Reason, s.Description, s.Reason+s.Description != ""
		q.bury(x, p)
	}
	return fsm.OK
}

func (q *modelQueue) remove(sub fsm.SubQueue, x *modelMessage) {
	q.subs[sub] = slices.DeleteFunc(q.subs[sub], func(y *modelMessage) bool { return y == x })
}

func (x *modelMessage) patch(p fsm.Patch) {
	if p.DeadLetter || len(p.Properties) > 0 {
		x.patches = append(slices.Clone(x.patches), p)
	}
}

func (q *modelQueue) bury(x *modelMessage, p fsm.Patch) {
	q.remove(fsm.MainQueue, x)
	x.patch(p)
	x.state, x.until, x.byNumber = fsm.Ready, 0, false
	q.subs[1] = append(q.subs[1], x)
	sort.Slice(q.subs[1], func(i, j int) bool { return q.subs[1][i].lock.Sequence < q.subs[1][j].lock.Sequence })
}

func (m *model) back(q *modelQueue, sub fsm.SubQueue, x *modelMessage, failed bool, p fsm.Patch) {
	if failed {
		x.attempts++
	}
	if failed && sub == fsm.MainQueue && x.attempts >= q.settings.MaxDeliveryCount {
		p.DeadLetter, p.Reason = true, "MaxDeliveryCountExceeded"
		p.Description = fmt.Sprintf("Message could not be consumed after %d delivery attempts.", x.attempts)
		q.bury(x, p)
		return
	}
	x.patch(p)
	x.state, x.until = fsm.Ready, 0
	if x.byNumber {
		x.state, x.byNumber = fsm.Deferred, false
	}
}

func (m *model) renew(c fsm.RenewLocks) modelResult {
	q := m.queues[c.Address.Entity]
	if q == nil {
		return modelResult{Code: fsm.EntityNotFound}
	}
	var res modelResult
	for _, l := range c.Locks {
		x := m.held(c.Address, l)
		if x == nil {
			res.Codes, res.Untils = append(res.Codes, fsm.MessageLockLost), append(res.Untils, 0)
			continue
		}
		x.until = m.now.After(q.settings.LockDuration)
		res.Codes, res.Untils = append(res.Codes, fsm.OK), append(res.Untils, x.until)
	}
	return res
}

// pulse ends locks in whatever order: what comes of it is the same.
func (m *model) pulse() {
	for _, q := range m.queues {
		for sub := range q.subs {
			for _, x := range slices.Clone(q.subs[sub]) {
				if x.state == fsm.Locked && x.until <= m.now {
					m.back(q, fsm.SubQueue(sub), x, true, fsm.Patch{})
				}
			}
		}
	}
	for id, at := range m.seen {
		if at+10*60*1000 > m.now {
			continue
		}
		delete(m.seen, id)
		for key, l := range m.lanes {
			if key[0] == id {
				for _, a := range l.answers {
					m.forget(a)
				}
				delete(m.lanes, key)
			}
		}
	}
}

// due is when the earliest lock ends or origin is forgotten, 0 when nothing is due.
func (m *model) due() fsm.Instant {
	first := fsm.Instant(0)
	note := func(at fsm.Instant) {
		if first == 0 || at < first {
			first = at
		}
	}
	for _, q := range m.queues {
		for sub := range q.subs {
			for _, x := range q.subs[sub] {
				if x.state == fsm.Locked {
					note(x.until)
				}
			}
		}
	}
	for _, at := range m.seen {
		note(at + 10*60*1000)
	}
	return first
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
			case x.state == fsm.Taken:
				continue
			case sub == 1:
				c.DeadLetter++
			case x.state == fsm.Deferred:
				c.Deferred++
			case x.state == fsm.Locked:
				c.Locked++
				c.Active++
			default:
				c.Active++
			}
			c.Bytes += uint64(len(x.payload))
		}
	}
	return c
}

// peek shows what Peek should.
func (m *model) peek(a fsm.Address) []string {
	var list []string
	if q := m.queues[a.Entity]; q != nil {
		for _, x := range q.subs[a.Sub] {
			if x.state != fsm.Taken {
				list = append(list, x.String())
			}
		}
	}
	return list
}
