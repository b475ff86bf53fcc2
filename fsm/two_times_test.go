package fsm_test

import (
	"testing"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/catalog"
)

// twoTimes is a state machine whose times the test moves.
type twoTimes struct {
	*replica
	t   *testing.T
	env fsm.Env
}

const testStart fsm.Instant = 1_700_000_000_000

func newTwoTimes(t *testing.T) *twoTimes {
	return &twoTimes{replica: newReplica(t), t: t, env: fsm.Env{Now: testStart, Serving: testStart}}
}

func (m *twoTimes) do(c fsm.Command) fsm.Result {
	m.t.Helper()
	m.env.Index++
	res := m.q.Apply(m.env, fsm.AppendCommand(nil, fsm.Header{Incarnation: 1, Serial: m.env.Index, Low: 1}, c))
	if res.Code != fsm.OK {
		m.t.Fatalf("%T: %v", c, res.Code)
	}
	return res
}

// pass moves the times and applies pulses until nothing is due.
func (m *twoTimes) pass(wall, serving fsm.Millis) {
	m.t.Helper()
	m.env.Now, m.env.Serving = m.env.Now.After(wall), m.env.Serving.After(serving)
	m.do(fsm.Pulse{})
	for range 100 {
		if rest, ok := m.q.Times().Until(m.q.NextDeadline()); !ok || rest > 0 {
			return
		}
		m.do(fsm.Pulse{})
	}
	m.t.Fatal("something stays due")
}

// TestOutageEndsNoLockAndDeletesNothing: while only wall time passes, no lock of a message or a session
// ends, no failed delivery is counted, no idle entity is deleted and no answer is forgotten; scheduled
// messages become active, delays and times to live end, ids of duplicates are forgotten. With serving
// time all of the former happens.
func TestOutageEndsNoLockAndDeletesNothing(t *testing.T) {
	t.Parallel()
	const minute = fsm.Millis(60_000)
	m := newTwoTimes(t)
	idle := fsm.DefaultSettings()
	idle.AutoDeleteOnIdle = 5 * minute
	m.do(fsm.PutEntity{Entity: 1, Version: 1, Settings: idle})
	m.do(fsm.SendMessages{Entity: 1, Messages: make([]fsm.Message, 3)})
	other := fsm.DefaultSettings()
	other.LockDuration, other.RequiresDuplicateDetection, other.DuplicateWindow = minute, true, minute
	m.do(fsm.PutEntity{Entity: 2, Version: 1, Settings: other})
	m.do(fsm.SendMessages{Entity: 2, Messages: []fsm.Message{
		{}, {TimeToLive: minute}, {EnqueueAt: m.env.Now.After(minute)}, {ID: "twice"},
	}})
	held := m.do(fsm.LockMessages{Address: fsm.Address{Entity: 2}, Max: 1, MaxBytes: 1}).Deliveries[0]
	put := m.do(fsm.LockMessages{Address: fsm.Address{Entity: 1}, Max: 1, MaxBytes: 1}).Deliveries[0]
	m.do(fsm.SettleMessages{Address: fsm.Address{Entity: 1}, Settlements: []fsm.Settlement{
		{Lock: put.Lock, Verb: fsm.Abandon, Until: m.env.Now.After(minute)},
	}})
	grouped := other
	grouped.RequiresDuplicateDetection, grouped.RequiresSession = false, true
	m.do(fsm.PutEntity{Entity: 3, Version: 1, Settings: grouped})
	session := m.do(fsm.AcceptSession{Entity: 3, Named: true, ID: "s"}).Session

	m.pass(20*minute, 0)
	if _, found := m.q.Counts(1); !found {
		t.Fatal("an outage deleted an idle queue with its messages")
	}
	if n := m.q.Ready(fsm.Address{Entity: 1}); n != 3 {
		t.Errorf("%d of 3 messages are ready: the delay of one did not end", n)
	}
	counts, _ := m.q.Counts(2)
	if counts.Locked != 1 || counts.Scheduled != 0 || counts.Active != 3 {
		t.Errorf("the lock ended, a message still waits, or the expired one is there: %+v", counts)
	}
	seen := m.q.Peek(fsm.Address{Entity: 2}, held.Lock.Sequence, 1)[0]
	if seen.Lock != held.Lock || seen.FailedDeliveries != 0 || seen.LockedUntil != m.env.Now.After(minute) {
		t.Errorf("locked %+v, after the outage it is %+v", held, seen)
	}
	if sessions, _ := m.q.Sessions(3, 0, 0, 1); len(sessions) != 0 {
		t.Errorf("sessions %+v", sessions) // it has neither messages nor a state
	}
	if res := m.do(fsm.RenewSession{Entity: 3, Lock: session}); res.Untils[0] != m.env.Now.After(minute) {
		t.Errorf("the session is locked until %d at %d", res.Untils[0], m.env.Now)
	}
	if res := m.do(fsm.SendMessages{Entity: 2, Messages: []fsm.Message{{ID: "twice"}}}); res.Sequence == 0 {
		t.Error("an id is a duplicate after its window")
	}
	if first := m.q.Apply(m.env, fsm.AppendCommand(nil, fsm.Header{Incarnation: 1, Serial: 2, Low: 1},
		fsm.SendMessages{Entity: 1, Messages: make([]fsm.Message, 3)})); first.Sequence != 1 {
		t.Errorf("a command was performed twice: %+v", first)
	}

	m.pass(0, 2*minute)
	seen = m.q.Peek(fsm.Address{Entity: 2}, held.Lock.Sequence, 1)[0]
	if seen.State != fsm.Ready || seen.FailedDeliveries != 1 {
		t.Errorf("the lock has not ended in serving time: %+v", seen)
	}
	m.pass(0, 5*minute)
	if _, found := m.q.Counts(1); found {
		t.Error("the idle queue is still there")
	}
}

// TestTimesNeverGoBack: an entry with an earlier time of either kind does not move that time, also at a replica that
// was restored.
func TestTimesNeverGoBack(t *testing.T) {
	t.Parallel()
	m := newTwoTimes(t)
	m.env.Now, m.env.Serving = testStart+7000, testStart+6000
	m.do(fsm.Pulse{})
	m.env.Now, m.env.Serving = testStart+1000, 0
	m.do(fsm.Pulse{})
	want := fsm.Times{Wall: testStart + 7000, Serving: testStart + 6000}
	if got := m.restored().q.Times(); m.q.Times() != want || got != want {
		t.Errorf("got %+v, restored %+v, want %+v", m.q.Times(), got, want)
	}
}

// TestCatalogForgetsAnswersByServingTime: outages, in which only wall time passes, make the catalog forget nothing, and
// a pulse that is due finds something to forget.
func TestCatalogForgetsAnswersByServingTime(t *testing.T) {
	t.Parallel()
	const hour = fsm.Millis(3_600_000)
	c, env := catalog.New(), fsm.Env{Now: testStart, Serving: testStart}
	do := func(h fsm.Header, command fsm.Command) fsm.Code {
		env.Index++
		return c.Apply(env, fsm.AppendCommand(nil, h, command)).Code
	}
	found := fsm.FoundCluster{ClusterID: "c", Partitions: []fsm.Partition{{ID: 1, Replicas: []fsm.Replica{{Member: "m", Number: 1}}}}}
	first := fsm.Header{Incarnation: 1, Serial: 1, Low: 1}
	if code := do(first, found); code != fsm.OK {
		t.Fatal(code)
	}
	if code := do(fsm.Header{Incarnation: 1, Serial: 2, Low: 1}, fsm.RaiseLevel{Level: 3}); code != fsm.OK {
		t.Fatal(code)
	}
	env.Now = env.Now.After(hour)
	if code := do(fsm.Header{}, fsm.Pulse{}); code != fsm.OK {
		t.Fatal(code)
	}
	if code := do(first, found); code != fsm.OK {
		t.Errorf("after an outage, a repeated command is answered %v", code)
	}
	env.Now, env.Serving = env.Now.After(-hour), env.Serving.After(hour)
	if code := do(fsm.Header{}, fsm.Pulse{}); code != fsm.OK {
		t.Fatal(code)
	}
	if rest, ok := c.Times().Until(c.NextDeadline()); ok && rest <= 0 {
		t.Error("a pulse stays due")
	}
}
