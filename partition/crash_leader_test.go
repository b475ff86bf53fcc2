package partition

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/raftlog"
	"github.com/peeklock/peeklock/test/kit"
	"github.com/peeklock/peeklock/test/sim/simfs"
)

// A leader writes its log while its followers write. It loses power at any point of that, or its disk is full, while one follower is
// cut off. Then the other follower, which has all that the leader sent, is cut off instead: what was confirmed must be on the
// disk of the leader, and what the follower has applied must not differ from what the others decide without it.
// In real time, as TestPowerLossKeepsWhatWasConfirmed.
func TestLeaderHasWhatItConfirmed(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		kind, full := []raftlog.Kind{raftlog.Bolt, raftlog.Journal}[seed%2], seed%4 >= 2
		t.Run(fmt.Sprint(kind, ", full ", full, ", seed ", seed), func(t *testing.T) {
			t.Parallel()
			if seed >= 4 {
				kit.Long(t)
			}
			random, disks := rand.New(rand.NewPCG(seed, 1)), make(map[fsm.MemberID]*simfs.Disk)
			var stores sync.Map
			ms := newMembers(t, 3, func(c *Config) {
				c.Sizes = Sizes{Segment: 1 << 20, Snapshot: 1 << 20, Trailing: 1 << 20, Reserve: 1, Ballast: -1}
				c.MeasureDisk = disks[c.Member].Space
				withFailingStores(&stores)(c)
			})
			for i, m := range ms {
				disks[m.id] = simfs.New(rand.New(rand.NewPCG(seed, uint64(i)+2)))
				m.dir, m.kind = "/data", kind
				mountOn(t, m, disks[m.id])
			}
			a, confirmed := startThree(t, ms), make(map[string]bool)
			for round := range 5 {
				lm, g := leader(t, ms, 1)
				others := slices.DeleteFunc(slices.Clone(ms), func(m *member) bool { return m == lm })
				has, lags := others[0], others[1]
				waitCaughtUp(t, ms, has)
				lags.net.isolate(lags.id, true)
				own := disks[lm.id]
				own.SetDelay(10 * time.Millisecond)
				found, _ := stores.Load(lm.id)
				log, _ := found.(*failingStore)
				filled := make(chan struct{})
				var filling *time.Timer
				if full {
					filling = time.AfterFunc(time.Duration(random.IntN(60))*time.Millisecond, func() {
						log.set(errDiskFull)
						close(filled)
					})
				} else {
					own.CrashAfter(random.IntN(12))
				}
				sendUntilRefused(t, g, a, fmt.Sprint("round ", round), confirmed)
				if full && !filling.Stop() { // else the disk could become full when there is to be space again
					<-filled
				}
				if !full {
					losePower(lm, own)
				}
				lags.net.isolate(lags.id, false)
				has.net.isolate(has.id, true)
				own.SetDelay(0)
				log.set(nil)
				if !full {
					mountOn(t, lm, own)
					lm.start(1)
				}
				two := []*member{lm, lags}
				mustEventually(t, two, a.next(), send(1, fmt.Append(nil, "after round ", round)))
				there := image(t, currentLeader(t, two))
				for text := range confirmed {
					if !hasBody(there, text) {
						t.Errorf("round %d: lost: %s", round, text)
					}
				}
				has.net.isolate(has.id, false)
				sameEverywhere(t, ms)
			}
			t.Logf("%d sends were confirmed", len(confirmed))
		})
	}
}

// sendUntilRefused sends until the leader confirms no more, and adds what was confirmed.
func sendUntilRefused(t *testing.T, g *Group, a *asker, round string, confirmed map[string]bool) {
	t.Helper()
	var mu sync.Mutex
	var open sync.WaitGroup
	over := false
	for i := 0; ; i++ {
		mu.Lock()
		end := over
		mu.Unlock()
		if end || i == 1000 {
			break
		}
		text := fmt.Sprint(round, ", message ", i)
		open.Add(1)
		answered := make(chan struct{})
		g.Submit(fsm.AppendCommand(nil, a.next(), send(1, []byte(text))), func(x Answer) {
			defer open.Done()
			defer close(answered)
			mu.Lock()
			defer mu.Unlock()
			if x.Outcome == Done && x.Result.Code == fsm.OK {
				confirmed[text] = true
			} else {
				over = true
			}
		})
		if i%3 == 2 { // some are alone in their entry, others are not
			<-answered
		}
	}
	open.Wait()
}

func hasBody(image map[fsm.Owner]string, text string) bool {
	for _, b := range image {
		if b == text {
			return true
		}
	}
	return false
}
