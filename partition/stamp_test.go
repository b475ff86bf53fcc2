package partition

import (
	"sync"
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/queue"
	"github.com/peeklock/peeklock/partition/stamp"
	"github.com/peeklock/peeklock/test/kit"
)

// testClock is the clock of a member as the test sets it: time passes by itself, and the test moves it on.
type testClock struct {
	mu        sync.Mutex
	wall      time.Duration // ahead of the clock of this host
	monotonic time.Duration // ahead of that of this process
	agreed    time.Duration // the members' median, ahead of the clock of this host
	alone     bool          // no quorum confirms a time
}

func (c *testClock) move(wall, monotonic, agreed time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall, c.monotonic, c.agreed = c.wall+wall, c.monotonic+monotonic, c.agreed+agreed
}

func (c *testClock) setAlone(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.alone = on
}

// use makes a group read this clock.
func (c *testClock) use(cfg *Config) {
	start := time.Now()
	cfg.Now = func() time.Time {
		c.mu.Lock()
		defer c.mu.Unlock()
		return time.Now().Add(c.wall)
	}
	cfg.Monotonic = func() time.Duration {
		c.mu.Lock()
		defer c.mu.Unlock()
		return time.Since(start) + c.monotonic
	}
	cfg.AgreedTime = func() (time.Time, bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		return time.Now().Add(c.agreed), !c.alone
	}
}

// openTwoTimes opens a single replica with a clock of the test.
func openTwoTimes(t *testing.T) (*member, *Group, *asker, *testClock) {
	t.Helper()
	clock := &testClock{}
	m, g, a := openSingle(t, clock.use)
	return m, g, a, clock
}

// TestOutageOfAllMembersKeepsQueuesAndLocks: a queue with idle deletion after five minutes keeps its messages
// through an outage of five and a half, a locked message stays locked without a failed delivery, a scheduled
// message becomes active and a time to live ends; then the queue lives for its five minutes.
func TestOutageOfAllMembersKeepsQueuesAndLocks(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const outage = 330 * time.Second
		m, g, a, clock := openTwoTimes(t)
		idle := settings()
		idle.AutoDeleteOnIdle = 300_000
		must(t, g, a.next(), fsm.PutEntity{Entity: 2, Version: 1, Settings: idle})
		must(t, g, a.next(), send(2, body(1), body(2), body(3)))
		now := fsm.Instant(time.Now().UnixMilli())
		must(t, g, a.next(), fsm.SendMessages{Entity: 2, Messages: []fsm.Message{
			{Payload: body(4), EnqueueAt: now.After(60_000)}, {Payload: body(5), TimeToLive: 60_000},
		}})
		held := lock(t, g, a.next(), lockOf(2, 1), time.Minute).Result.Deliveries[0]
		m.stop()
		clock.move(outage, outage, outage)
		m.start(1)
		_, g = leader(t, []*member{m}, 1)
		inspect := func() (c fsm.Counts, found bool, first fsm.Delivery) {
			g.View(func(m Machine) {
				q := m.(*queue.Machine)
				c, found = q.Counts(2)
				if list := q.Peek(fsm.Address{Entity: 2}, 0, 1); len(list) > 0 {
					first = list[0]
				}
			})
			return c, found, first
		}
		kit.Eventually(t, "wall time passes", func() bool {
			c, found, _ := inspect()
			if !found {
				t.Fatal("the outage deleted the queue with its messages")
			}
			return c.Scheduled == 0 && c.Active == 4
		})
		_, _, first := inspect()
		if first.Lock != held.Lock || first.State != fsm.Locked || first.FailedDeliveries != 0 {
			t.Errorf("locked as %+v, after the outage it is %+v", held, first)
		}
		if rest := first.LockedUntil - fsm.Instant(time.Now().Add(outage).UnixMilli()); rest < 0 || rest > 31_000 {
			t.Errorf("the lock is shown to end in %d ms", rest)
		}
		clock.move(15*time.Second, 15*time.Second, 15*time.Second)
		must(t, g, a.next(), fsm.Pulse{})
		if _, _, first = inspect(); first.State != fsm.Locked {
			t.Error("the lock ended before its serving time")
		}
		clock.move(16*time.Second, 16*time.Second, 16*time.Second)
		kit.Eventually(t, "the lock ends", func() bool {
			_, _, first := inspect()
			return first.State == fsm.Ready && first.FailedDeliveries == 1
		})
		clock.move(5*time.Minute, 5*time.Minute, 5*time.Minute)
		kit.Eventually(t, "the idle queue is deleted", func() bool { _, found, _ := inspect(); return !found })
	})
}

// TestLeaderWithAWrongClockEndsNothing: a leader whose clock is an hour ahead ends no lock and no message,
// and time does not stand still afterwards.
func TestLeaderWithAWrongClockEndsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, g, a, clock := openTwoTimes(t)
		must(t, g, a.next(), fsm.SendMessages{Entity: 1, Messages: []fsm.Message{{Payload: body(1)}, {Payload: body(2), TimeToLive: 600_000}}})
		held := lock(t, g, a.next(), lockOf(1, 1), time.Minute).Result.Deliveries[0]
		times := func() (at fsm.Times) {
			must(t, g, a.next(), fsm.Pulse{})
			g.View(func(m Machine) { at = m.Times() })
			return at
		}
		before := times()
		clock.move(time.Hour, 0, 0)
		wrong := times()
		clock.move(-time.Hour, 0, 0)
		if wrong.Wall > before.Wall+30_000 || wrong.Serving > before.Serving+30_000 {
			t.Fatalf("times jumped from %+v to %+v", before, wrong)
		}
		if c, _ := counts(g, 1); c.Active != 2 || c.Locked != 1 {
			t.Errorf("something ended: %+v", c)
		}
		clock.move(20*time.Second, 20*time.Second, 20*time.Second)
		if right := times(); right.Wall < before.Wall+20_000-stamp.WallLagMax || right.Serving < before.Serving+20_000 {
			t.Errorf("20 s later times went from %+v to %+v", before, right)
		}
		clock.move(20*time.Second, 20*time.Second, 20*time.Second)
		kit.Eventually(t, "the lock ends", func() bool { c, _ := counts(g, 1); return c.Locked == 0 })
		r := lock(t, g, a.next(), lockOf(1, 1), time.Minute).Result.Deliveries[0]
		if r.Lock.Sequence != held.Lock.Sequence || r.FailedDeliveries != 1 {
			t.Errorf("first %+v, then %+v", held, r)
		}
	})
}

// TestWallTimeCatchesUpWhenAQuorumConfirms: without a quorum wall time goes on by the monotonic clock alone, and
// when one confirms the time, a scheduled message that is due becomes active although nobody sends anything.
func TestWallTimeCatchesUpWhenAQuorumConfirms(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, g, a, clock := openTwoTimes(t)
		clock.setAlone(true)
		clock.move(time.Hour, 0, time.Hour) // as a suspension of the host: the monotonic clock stood still
		must(t, g, a.next(), fsm.SendMessages{Entity: 1, Messages: []fsm.Message{
			{Payload: body(1), EnqueueAt: fsm.Instant(time.Now().Add(30 * time.Minute).UnixMilli())},
		}})
		if c, _ := counts(g, 1); c.Scheduled != 1 {
			t.Fatalf("the clock of the leader alone moved wall time: %+v", c)
		}
		clock.setAlone(false)
		kit.Eventually(t, "the message becomes active", func() bool { c, _ := counts(g, 1); return c.Scheduled == 0 })
	})
}

// TestNoMessageIsDeliveredBeforeItsTimeIsConfirmed: after an outage in which a time to live ended, a leader grants
// nothing until a quorum confirms the time, or stamp.UnconfirmedMax has passed.
func TestNoMessageIsDeliveredBeforeItsTimeIsConfirmed(t *testing.T) {
	t.Parallel()
	for name, confirmed := range map[string]bool{"a quorum confirms the time": true, "no quorum does": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				m, g, a, clock := openTwoTimes(t)
				must(t, g, a.next(), fsm.SendMessages{Entity: 1, Messages: []fsm.Message{{Payload: body(1), TimeToLive: 60_000}, {Payload: body(2)}}})
				m.stop()
				clock.move(time.Hour, time.Hour, time.Hour)
				clock.setAlone(true)
				m.start(1)
				_, g = leader(t, []*member{m}, 1)
				got := make(chan Answer, 1)
				g.Lock(LockRequest{Header: (&asker{origin: 8}).next(), Lock: lockOf(1, 1), Until: time.Now().Add(time.Minute), Done: func(a Answer) { got <- a }})
				for range 2 { // the second entry was composed after the request had come
					must(t, g, a.next(), send(1, body(3)))
				}
				if waiting := g.Status().Waiting; waiting != 1 {
					t.Fatalf("%d requests wait", waiting)
				}
				want := body(1)
				if confirmed {
					clock.setAlone(false)
					want = body(2)
				} else {
					clock.move(stamp.UnconfirmedMax, stamp.UnconfirmedMax, stamp.UnconfirmedMax)
				}
				if d := await1(t, got).Result.Deliveries; len(d) != 1 || string(d[0].Payload) != string(want) {
					t.Errorf("%d messages are delivered, want %q: %+v", len(d), want, d)
				}
			})
		})
	}
}

// TestNothingIsTakenBeforeTheTimeIsConfirmed: after an outage in which times to live ended, a leader refuses to receive by
// number and to take batches to forward until a quorum confirms the time, or stamp.UnconfirmedMax has passed. A leader whose
// clock is not ahead refuses nothing.
func TestNothingIsTakenBeforeTheTimeIsConfirmed(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		outage    time.Duration // of its clock
		confirmed bool
		refused   bool
		taken     int
	}{
		"a quorum confirms the time": {time.Hour, true, true, 0},
		"no quorum does":             {time.Hour, false, true, 1},
		"its clock is not ahead":     {-10 * time.Second, false, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				m, g, a, clock := openTwoTimes(t)
				onward := settings()
				onward.ForwardTo = "elsewhere"
				must(t, g, a.next(), fsm.PutEntity{Entity: 2, Version: 1, Settings: onward})
				mortal := fsm.Message{Payload: body(1), TimeToLive: 60_000}
				must(t, g, a.next(), fsm.SendMessages{Entity: 1, Messages: []fsm.Message{mortal}})
				must(t, g, a.next(), fsm.SendMessages{Entity: 2, Messages: []fsm.Message{mortal}})
				must(t, g, a.next(), fsm.PutEntity{Entity: 3, Version: 1, Settings: settings()})
				must(t, g, a.next(), fsm.SendMessages{Entity: 3, Messages: []fsm.Message{mortal}})
				ready := fsm.FetchReady{Address: fsm.Address{Entity: 3}, Seen: []fsm.LockID{{Sequence: 1}}}
				held := lock(t, g, a.next(), lockOf(1, 1), time.Minute).Result.Deliveries
				must(t, g, a.next(), fsm.SettleMessages{Address: fsm.Address{Entity: 1}, Settlements: fsm.SettleAll(held, fsm.Defer)})
				clock.setAlone(true)
				m.stop()
				clock.move(row.outage, max(row.outage, 0), row.outage)
				m.start(1)
				_, g = leader(t, []*member{m}, 1)
				for _, c := range []fsm.Command{
					fsm.FetchDeferred{Address: fsm.Address{Entity: 1}, Sequences: []fsm.SequenceNumber{held[0].Lock.Sequence}},
					fsm.ForwardMessages{Address: fsm.Address{Entity: 2}, To: fsm.Destination{Partition: 1, Entity: 1}, Max: 9, MaxBytes: 1 << 20},
					ready,
				} {
					if row.refused {
						if r := ask(t, g, a.next(), c); r.Outcome != Refused || r.Final || r.Result.Code != fsm.ServerBusy {
							t.Fatalf("%T: %+v", c, r)
						}
					}
				}
				clock.setAlone(!row.confirmed)
				if !row.confirmed && row.refused {
					clock.move(stamp.UnconfirmedMax, stamp.UnconfirmedMax, stamp.UnconfirmedMax)
				}
				fetch := fsm.FetchDeferred{Address: fsm.Address{Entity: 1}, Sequences: []fsm.SequenceNumber{held[0].Lock.Sequence}}
				if n := len(must(t, g, a.next(), fetch).Deliveries); n != row.taken {
					t.Errorf("%d messages are received by number, want %d", n, row.taken)
				}
				if n := len(must(t, g, a.next(), ready).Deliveries); n != row.taken {
					t.Errorf("%d ready messages are received by number, want %d", n, row.taken)
				}
				batch := fsm.ForwardMessages{Address: fsm.Address{Entity: 2}, To: fsm.Destination{Partition: 1, Entity: 1}, Max: 9, MaxBytes: 1 << 20}
				if n := len(must(t, g, fsm.Header{}, batch).Deliveries); n != row.taken {
					t.Errorf("%d messages are forwarded, want %d", n, row.taken)
				}
			})
		})
	}
}

func counts(g *Group, id fsm.EntityID) (c fsm.Counts, found bool) {
	g.View(func(m Machine) { c, found = m.(*queue.Machine).Counts(id) })
	return c, found
}

// TestIdleLeaderRecordsServingTime: while a lock is held and nobody sends anything, the leader writes serving
// time into the log, so that a next leader does not take minutes of service for an outage.
func TestIdleLeaderRecordsServingTime(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, g, a, clock := openTwoTimes(t)
		must(t, g, a.next(), send(1, body(1)))
		lock(t, g, a.next(), lockOf(1, 1), time.Minute)
		before := g.appliedTimes().Serving
		clock.move(servingRecordInterval, servingRecordInterval, servingRecordInterval)
		kit.Eventually(t, "serving time is recorded", func() bool {
			return g.appliedTimes().Serving >= before.After(fsm.Millis(servingRecordInterval/time.Millisecond))
		})
		if c, _ := counts(g, 1); c.Locked != 1 {
			t.Error("the lock ended")
		}
	})
}

// TestServingTimeForgetsEntriesThatNobodyHas: the times of entries that a replica composed in an earlier leadership, and that were never
// committed, do not count in the next one: the locks that another leader granted meanwhile would end early.
func TestServingTimeForgetsEntriesThatNobodyHas(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, g, a := openSingle(t, nil)
		must(t, g, a.next(), send(1, body(1)))
		p := &g.proposer
		p.mu.Lock()
		p.lastStamp.Serving += 15_000
		p.mu.Unlock()
		term := g.Status().Term
		g.loseLeadership()
		p.becomeLeader(term+1, g.applied.Load())
		p.mu.Lock()
		next, _ := p.nextTimes()
		p.mu.Unlock()
		if most := g.appliedTimes().Serving + 2000; next.Serving > most {
			t.Errorf("the first entry of a leadership has serving time %d, want at most %d", next.Serving, most)
		}
	})
}
