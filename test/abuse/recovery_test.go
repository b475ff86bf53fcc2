package abuse

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/test/harness"
	"github.com/peeklock/peeklock/test/kit"
	"github.com/peeklock/peeklock/test/rawamqp"
)

// Attacks on what happens next: elections, restarts, full disks. Each has a cluster of its own.

const (
	silentPeers     = 400              // connections to the peer port of each member
	recoveryMax     = 20 * time.Second // after two of three members were killed and started again; 1.3 s on an idle machine
	storedRules     = 300              // of 64 conditions; 3,000 in full, until the namespace is refused
	storedRulesFull = 3000
)

// sendOnce sends a message of an honest client.
func sendOnce(ctx context.Context, m *harness.Member) error {
	return withSession(ctx, m, func(s *amqp.Session) error {
		link, err := s.NewSender(ctx, honestQueue, nil)
		if err != nil {
			return fmt.Errorf("attach: %w", err)
		}
		return link.Send(ctx, amqp.NewMessage([]byte("honest")), nil)
	})
}

// newAttacked starts a cluster with a queue of honest clients and the namespace of the attackers.
func newAttacked(t *testing.T, o harness.Options) *abuseRun {
	t.Helper()
	if testing.Short() {
		t.Skip("starts three processes: -short leaves it out")
	}
	o.Partitions = 1
	a := &abuseRun{t: t, full: isFull(), Cluster: harness.Start(t, o)}
	a.CreateQueue(t, honestQueue, harness.Settings{})
	a.createNamespace()
	return a
}

// TestSilentPeersDelayNoRecovery: connections to the peer ports that say nothing, from another address than those of members and from
// the same one, as behind a NAT, do not keep two killed members from joining again.
func TestSilentPeersDelayNoRecovery(t *testing.T) {
	kit.Long(t)
	a := newAttacked(t, harness.Options{Args: harness.PeerArgs(t)})
	recoverOnce := func() time.Duration {
		for _, m := range a.Members[1:] {
			m.Kill()
		}
		begun := time.Now()
		for _, m := range a.Members[1:] {
			m.Start()
		}
		harness.Eventually(t, progressWithin, "an honest send succeeds", func(ctx context.Context) error { return sendOnce(ctx, a.Members[0]) })
		took := time.Since(begun)
		for _, m := range a.Members[1:] {
			m.WaitReady()
		}
		return took
	}
	t.Logf("without attackers: %v", recoverOnce())
	for _, from := range []struct {
		name string
		dial func(ctx context.Context, address string) (*rawamqp.Conn, error)
	}{
		{"another address", func(ctx context.Context, address string) (*rawamqp.Conn, error) {
			conn, err := new(target).dial(ctx, address)
			if err != nil {
				return nil, err
			}
			return rawamqp.New(ctx, conn), nil
		}},
		{"the address of members", rawamqp.Dial},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		var attacking sync.WaitGroup
		for i := range silentPeers * len(a.Members) {
			attacking.Go(func() {
				for ctx.Err() == nil {
					if c, err := from.dial(ctx, a.Members[i%len(a.Members)].Peer); err == nil {
						discard(c) // until it is closed
						_ = c.Close()
					}
					sleep(ctx, redialDelay)
				}
			})
		}
		sleep(ctx, shortAttack)
		took := recoverOnce()
		cancel()
		attacking.Wait()
		if t.Logf("with %d silent connections to each peer port from %s: %v", silentPeers, from.name, took); took > recoveryMax {
			t.Errorf("the recovery took %v with silent connections from %s, want at most %v", took, from.name, recoveryMax)
		}
	}
}

// TestRulesLeaveMemoryForARestart: a namespace stores rules until it is refused. Members start again within the same memory limit,
// which they set as GOMEMLIMIT and which their resident memory does not exceed, and honest clients are never refused.
func TestRulesLeaveMemoryForARestart(t *testing.T) {
	kit.Long(t)
	a := newAttacked(t, harness.Options{Profile: true, Args: []string{"--memory-limit", strconv.Itoa(residentBytesMax) + "B"}})
	a.callOwn(http.MethodPut, ownPath("topics/"+ruleTopic), nil)
	a.callOwn(http.MethodPut, ownPath("subscriptions/"+subscriptionOf(ruleTopic)), nil)
	resident := int64(0)
	check := func(when string) {
		t.Helper()
		for _, m := range a.Members {
			if !m.Running() {
				t.Fatalf("%s: %s ended", when, m.Name)
			}
			resident = max(resident, m.MemoryBytes())
			if err := sendOnce(t.Context(), m); err != nil {
				t.Errorf("%s: an honest send at %s: %v", when, m.Name, err)
			}
		}
	}
	var adding sync.WaitGroup
	var mu sync.Mutex
	stored, most, refused := 0, a.sized(storedRules, storedRulesFull), error(nil)
	for range 8 {
		adding.Go(func() {
			for {
				mu.Lock()
				n, ended := stored, refused != nil || stored >= most
				stored++
				mu.Unlock()
				if ended {
					return
				}
				path := ownPath(fmt.Sprintf("rules/%s?name=rule-%d", subscriptionOf(ruleTopic), n))
				if err := a.Members[n%len(a.Members)].Call(t.Context(), http.MethodPut, path, longRule(n), nil); err != nil {
					mu.Lock()
					refused = err
					mu.Unlock()
				}
			}
		})
	}
	finished := make(chan struct{})
	go func() { adding.Wait(); close(finished) }()
	for busy := true; busy; {
		select {
		case <-finished:
			busy = false
		case <-time.After(sampleEvery):
			check("while rules are stored")
		}
	}
	check("with all rules")
	for _, m := range a.Members {
		m.Stop()
	}
	for _, m := range a.Members {
		m.Start()
	}
	for _, m := range a.Members {
		m.WaitReady()
	}
	a.WaitLed(t)
	check("after the restart")
	deleteTopic(ruleTopic)(a)
	check("after the deletion")
	t.Logf("%d rules, then %v; RSS max %d MiB", stored, refused, resident>>20)
	if resident > residentBytesMax {
		t.Errorf("a member took %d MiB of memory, %d MiB are allowed", resident>>20, residentBytesMax>>20)
	}
}
