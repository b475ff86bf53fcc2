package abuse

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/peeklock/peeklock/test/harness"
	"github.com/peeklock/peeklock/test/kit"
)

const (
	fullVariable = "PEEKLOCK_ABUSE" // set by `make abuse`

	// residentBytesMax is the resident memory that no member may exceed under any attack: its memory limit,
	// the smallest one that is allowed.
	residentBytesMax = 256 << 20

	shortAttack    = time.Second     // at least
	fullAttack     = 6 * time.Second // and half of it at the sink
	fullRounds     = 3               // of an attack that exceeds the bound in the first; the medians count
	shortSends     = 100             // of honest clients during an attack, at least
	shortNewcomers = 6               // newcomers during an attack, at least

	// Honest clients may wait so many times as long as with the attackers aimed at a sink. Times below the floor are
	// insignificant: two members differ by as much.
	waitFactor = 2
	waitFloor  = 20 * time.Millisecond
	// promisedWait is promised for sends while the worst filters evaluate, and while others guess keys.
	promisedWait = 100 * time.Millisecond

	// How much more a member may hold after an attack than before the first one.
	goroutinesMore = 50
	filesMore      = 30
	linksMore      = 15 // connections, sessions and links together
	heapBytesMore  = 64 << 20
	recoverWithin  = 150 * time.Second

	sampleEvery = 50 * time.Millisecond
)

func TestMain(m *testing.M) {
	if n, err := strconv.Atoi(os.Getenv(sinkVariable)); err == nil {
		if err := sink(n); err != nil { // the test fails without its addresses
			fmt.Fprintln(os.Stderr, err)
		}
		return
	}
	harness.Main(m)
}

// TestAbuse makes every attack on one cluster, one after the other. Without PEEKLOCK_LONG or PEEKLOCK_ABUSE it makes few.
func TestAbuse(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three processes: -short leaves it out")
	}
	a := newAbuseRun(t)
	for _, k := range attacks() {
		t.Run(strings.ReplaceAll(k.name, " ", "-"), func(t *testing.T) {
			if !k.always && !a.full {
				kit.Long(t)
			}
			a.runAttack(t, k)
		})
	}
	a.honest.finish()
	a.printTable()
}

// abuseRun is the members, their honest clients, and the results.
type abuseRun struct {
	*harness.Cluster
	t        *testing.T
	honest   *honest
	full     bool
	sink     []string // addresses; only with full
	baseline []resourceUse
	results  []attackResult
}

// attackResult is a row of the table.
type attackResult struct {
	name           string
	sink, attacked time.Duration // 99th percentile of honest sends; sink is without attackers where sinkAnswersSooner
	middle         time.Duration // median with the attack
	newcomers      time.Duration // 99th percentile with the attack
	refused        int           // honest requests that failed
	resident       int64         // maximum of a member, in bytes
	after          time.Duration // until everything was released
	promised       time.Duration // see attack
}

// isFull reports whether attacks have their full size.
func isFull() bool { return os.Getenv(fullVariable) != "" }

func newAbuseRun(t *testing.T) *abuseRun {
	t.Helper()
	a := &abuseRun{t: t, full: isFull()}
	// With one partition, all clients share one lock and one log.
	a.Cluster = harness.Start(t, harness.Options{Partitions: 1, Profile: true, Args: append(harness.ServerTLSArgs(t),
		"--allow-remote-plain", "--memory-limit", strconv.Itoa(residentBytesMax)+"B")})
	a.createNamespace()
	a.honest = newHonest(t, a.Cluster)
	if a.full {
		a.sink = startSink(t, 2*len(a.Members))
	}
	a.honest.waitProgress(shortSends, shortNewcomers)
	for _, m := range a.Members {
		print, err := resourceUseOf(t.Context(), m, true)
		if err != nil {
			t.Fatal(err)
		}
		a.baseline = append(a.baseline, print)
	}
	return a
}

// members is the target of an attack.
func (a *abuseRun) members() *target {
	members := &target{full: a.full}
	for _, m := range a.Members {
		members.amqp, members.admin = append(members.amqp, m.AMQP), append(members.admin, m.Admin)
		members.gossip, members.peer = append(members.gossip, m.Gossip), append(members.peer, m.Peer)
	}
	return members
}

// sized returns the size of an attack.
func (a *abuseRun) sized(short, full int) int {
	if a.full {
		return full
	}
	return short
}

// runAttack makes one attack, and checks its effects.
func (a *abuseRun) runAttack(t *testing.T, k attack) {
	r := attackResult{name: k.name, promised: k.promised}
	members := a.members()
	var sink, attacked []time.Duration
	for round := range fullRounds {
		if k.prepare != nil {
			if round > 0 { // the round before may have used up what was prepared
				k.clean(a)
			}
			k.prepare(a)
		}
		if a.full {
			sink = append(sink, a.measureWithoutAttack(t, k))
		}
		a.honest.latencies()
		r.resident = max(r.resident, a.attackTarget(t, k, members, fullAttack))
		of := a.honest.latencies()
		attacked, r.middle, r.newcomers = append(attacked, of.sends), of.median, of.newcomers
		r.sink, r.attacked = median(sink), median(attacked)
		if !a.full || len(attacked) == 1 && r.attacked <= r.allowed() {
			break // otherwise a pause of the machine may be the cause
		}
	}
	for _, failure := range a.honest.takeFailures() {
		r.refused++
		t.Errorf("honest client: %s", failure)
	}
	if r.resident > residentBytesMax {
		t.Errorf("a member took %d MiB of memory, %d MiB are allowed", r.resident>>20, residentBytesMax>>20)
	}
	if a.full && r.attacked > r.allowed() {
		t.Errorf("honest sends took %v with the attack, %v without it or with the same attackers at a sink (99th percentile; medians of %v and %v)", r.attacked, r.sink, attacked, sink)
	}
	if k.clean != nil {
		k.clean(a)
	}
	r.after = a.waitRecovered(t)
	t.Logf("%d hits, RSS max %d MiB, sends p99 %v, newcomers p99 %v, released after %v",
		members.hits.Load(), r.resident>>20, r.attacked, r.newcomers, r.after)
	a.results = append(a.results, r)
}

// measureWithoutAttack returns the 99th percentile of honest sends with the attackers aimed at the sink, or without them.
func (a *abuseRun) measureWithoutAttack(t *testing.T, k attack) time.Duration {
	t.Helper()
	a.honest.latencies()
	if n := len(a.Members); k.sinkAnswersSooner {
		sleep(t.Context(), fullAttack/2)
	} else {
		a.attackTarget(t, k, &target{amqp: a.sink[:n], admin: a.sink[n:], gossip: a.sink[:n], peer: a.sink[n:], sink: true, full: true}, fullAttack/2)
	}
	return a.honest.latencies().sends
}

// allowed is how long honest sends may take with the attack.
func (r *attackResult) allowed() time.Duration { return max(waitFactor*r.sink, waitFloor, r.promised) }

// median returns the middle of some times, the lower one of two; 0 of none.
func median(times []time.Duration) time.Duration {
	if len(times) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(times))[(len(times)-1)/2]
}

// attackTarget attacks a target for a while, shortAttack without full, and until honest clients have made progress,
// and returns the maximum memory of a member meanwhile.
func (a *abuseRun) attackTarget(t *testing.T, k attack, at *target, length time.Duration) (resident int64) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var attacking, watching sync.WaitGroup
	var failed error
	attacking.Go(func() { failed = k.run(ctx, at) })
	watching.Go(func() {
		_ = every(ctx, sampleEvery, func() error {
			for _, m := range a.Members {
				resident = max(resident, m.MemoryBytes())
			}
			return nil
		})
	})
	if !a.full {
		length = shortAttack
	}
	sleep(ctx, length)
	a.honest.waitProgress(shortSends, shortNewcomers)
	cancel()
	attacking.Wait()
	watching.Wait()
	if failed != nil {
		t.Errorf("the attack could not be made: %v", failed)
	}
	if at.hits.Load() == 0 {
		t.Error("the attack did nothing")
	}
	for _, m := range a.Members {
		if !m.Running() {
			t.Fatalf("%s ended", m.Name)
		}
	}
	return resident
}

// resourceUse is the resources that a member holds.
type resourceUse struct{ goroutines, files, links, heap float64 }

// resourceUseOf reads them; collect runs the garbage collector before.
func resourceUseOf(ctx context.Context, m *harness.Member, collect bool) (resourceUse, error) {
	if collect {
		if err := m.Collect(ctx); err != nil {
			return resourceUse{}, err
		}
	}
	const goroutines, files, heap = "go_goroutines", "process_open_fds", "go_memstats_heap_inuse_bytes"
	const connections, sessions, links = "peeklock_amqp_connections", "peeklock_amqp_sessions", "peeklock_amqp_links"
	found, err := m.Metrics(ctx, goroutines, files, heap, connections, sessions, links)
	return resourceUse{found[goroutines], found[files], found[connections] + found[sessions] + found[links], found[heap]}, err
}

func (f resourceUse) String() string {
	return fmt.Sprintf("%.0f goroutines, %.0f open files, %.0f connections, sessions and links, and %.0f MiB of heap", f.goroutines, f.files, f.links, f.heap/(1<<20))
}

// isNear reports whether a member holds little more than the baseline.
func (f resourceUse) isNear(baseline resourceUse) bool {
	return f.goroutines <= baseline.goroutines+goroutinesMore && f.files <= baseline.files+filesMore &&
		f.links <= baseline.links+linksMore && f.heap <= baseline.heap+heapBytesMore
}

// waitRecovered waits until every member has released the resources of the attackers.
func (a *abuseRun) waitRecovered(t *testing.T) time.Duration {
	t.Helper()
	begun, collect := time.Now(), false
	harness.Eventually(t, recoverWithin, "the members release the resources of the attackers", func(ctx context.Context) error {
		for i, m := range a.Members {
			now, err := resourceUseOf(ctx, m, collect)
			if err != nil {
				return err
			}
			collect = true // what the collector would find in two minutes at the latest
			if calm := a.baseline[i]; !now.isNear(calm) {
				return fmt.Errorf("%s had %v; it has %v", m.Name, calm, now)
			}
		}
		return nil
	})
	return time.Since(begun)
}

// printTable prints the table, as Markdown.
func (a *abuseRun) printTable() {
	if !a.full {
		return
	}
	table := "| attack | what stops it | p99 at a sink | p50 | p99 | refused | memory | released |\n|---|---|---|---|---|---|---|---|\n"
	limits := make(map[string]string)
	for _, k := range attacks() {
		limits[k.name] = k.limit
	}
	for _, r := range a.results {
		table += fmt.Sprintf("| %s | %s | %.1f ms | %.1f ms | %.1f ms | %d | %d MiB | %.1f s |\n",
			r.name, limits[r.name], millis(r.sink), millis(r.middle), millis(r.attacked), r.refused, r.resident>>20, r.after.Seconds())
	}
	fmt.Printf("Sends of honest clients with each attack:\n\n%s\n", table) //nolint:forbidigo // for RESULTS.md, without the prefix of a log
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
