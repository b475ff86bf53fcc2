package partition

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/partition/raftlog"
	"github.com/peeklock/peeklock/test/kit"
	"github.com/peeklock/peeklock/test/sim/simfs"
)

// crashing is a replica on a disk that loses power, and what its clients know.
type crashing struct {
	*member

	t       *testing.T
	disk    *simfs.Disk
	rand    *rand.Rand
	sender  asker
	locker  asker
	sent    map[string]bool // confirmed
	unknown map[string]bool // sent, without an answer
	// completed by a confirmed settlement, or perhaps completed by one without an answer.
	completed, perhapsCompleted map[string]bool
}

// boot starts the process on what the disk has kept.
func (c *crashing) boot() *Group {
	mountOn(c.t, c.member, c.disk)
	c.start(1)
	_, g := leader(c.t, []*member{c.member}, 1)
	return g
}

// mountOn gives a member what a simulated disk has kept.
func mountOn(t *testing.T, m *member, d *simfs.Disk) {
	t.Helper()
	files := d.Mount()
	for _, dir := range []string{"/data/raftlog", "/data/groups"} { // as package datadir does
		kit.OK(t, files.MkdirAll(dir, disk.FolderMode))
	}
	kit.OK(t, errors.Join(files.SyncFolder("/"), files.SyncFolder("/data")))
	m.files, m.store = files, files.OpenLog
}

func (c *crashing) lose() { losePower(c.member, c.disk) }

// losePower loses the power of a member, and ends what is left of its process.
func losePower(m *member, d *simfs.Disk) {
	d.Crash()
	m.mu.Lock()
	log, groups := m.log, m.groups
	m.log, m.groups = nil, nil
	m.mu.Unlock()
	_ = groups[1].Close(context.Background()) // its disk is gone
	_ = log.Close()
}

// submit returns the answer, or none when power is lost first.
func (c *crashing) submit(g *Group, h fsm.Header, command fsm.Command, lost bool) (fsm.Result, bool) {
	got := make(chan Answer, 1)
	g.Submit(fsm.AppendCommand(nil, h, command), func(a Answer) { got <- a })
	if lost {
		c.lose()
	}
	a := await1(c.t, got)
	return a.Result, a.Outcome == Done && a.Result.Code == fsm.OK
}

// live sends and completes until power is lost, which is in the middle of the last operation and often of a
// snapshot.
func (c *crashing) live(g *Group, operations int) {
	var snapshots sync.WaitGroup
	defer snapshots.Wait()
	for i := range operations {
		last := i == operations-1
		if c.rand.IntN(8) == 0 || last {
			snapshots.Go(func() { _ = g.Snapshot(context.Background()) })
		}
		if c.rand.IntN(3) > 0 || last {
			text := fmt.Sprintf("%d %0*d", c.sender.serial, c.rand.IntN(3000), 0)
			if _, ok := c.submit(g, c.sender.next(), send(1, []byte(text)), last); ok {
				c.sent[text] = true
			} else {
				c.unknown[text] = true
			}
			continue
		}
		got := lock(c.t, g, c.locker.next(), lockOf(1, 1), 0)
		for _, d := range got.Result.Deliveries {
			text := string(d.Payload)
			settle := fsm.SettleMessages{Address: fsm.Address{Entity: 1}, Settlements: []fsm.Settlement{{Lock: d.Lock, Verb: fsm.Complete}}}
			if _, ok := c.submit(g, c.sender.next(), settle, false); ok {
				c.completed[text] = true
			} else {
				c.perhapsCompleted[text] = true
			}
		}
	}
}

// check compares what is stored with what was confirmed.
func (c *crashing) check(g *Group) {
	c.t.Helper()
	left := make(map[string]bool)
	for _, text := range image(c.t, g) {
		if left[text] || c.completed[text] || !c.sent[text] && !c.unknown[text] {
			c.t.Errorf("there, although it was completed or never sent: %.20s", text)
		}
		left[text] = true
	}
	for text := range c.sent {
		if !left[text] && !c.completed[text] && !c.perhapsCompleted[text] {
			c.t.Errorf("lost: %.20s", text)
		}
	}
}

// A replica loses power again and again, mostly while it writes a snapshot. What it has confirmed is there at its
// next start, and what was completed is not. In real time: an instance that is closed twice waits in a mutex for the disk.
func TestPowerLossKeepsWhatWasConfirmed(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		kind := []raftlog.Kind{raftlog.Bolt, raftlog.Journal}[seed%2]
		t.Run(fmt.Sprint(kind, ", seed ", seed), func(t *testing.T) {
			t.Parallel()
			if seed >= 12 {
				kit.Long(t)
			}
			random := rand.New(rand.NewPCG(seed, 2))
			c := &crashing{
				member: newMembers(t, 1, func(c *Config) {
					c.Sizes = Sizes{Segment: 8 << 10, Snapshot: 16 << 10, Trailing: 0, Reserve: -1, Ballast: -1}
				})[0],
				t: t, disk: simfs.New(rand.New(rand.NewPCG(seed, 1))), rand: random,
				sender: asker{origin: 7}, locker: asker{origin: 7, receiver: 1},
				sent: map[string]bool{}, unknown: map[string]bool{}, completed: map[string]bool{}, perhapsCompleted: map[string]bool{},
			}
			c.dir, c.kind = "/data", kind
			c.disk.SetDelay(200 * time.Microsecond)
			g := c.boot()
			must(t, g, c.sender.next(), fsm.PutEntity{Entity: 1, Version: 1, Settings: settings()})
			for range 6 {
				c.live(g, 5+random.IntN(60))
				g = c.boot()
				c.check(g)
			}
		})
	}
}
