package auth

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

func clientAt(ip string) Client {
	return Client{Namespace: fsm.DefaultNamespace, Peer: &net.TCPAddr{IP: net.ParseIP(ip), Port: 1000}}
}

// login tries a password of the key app and returns how long the answer took.
func login(t testing.TB, k *Keyring, ip, secret string) (time.Duration, error) {
	t.Helper()
	began := time.Now()
	_, err := k.Password(context.Background(), clientAt(ip), "app", secret)
	return time.Since(began), err
}

// wantTooMany checks that an error says when to retry, and has a code on which clients retry.
func wantTooMany(t testing.TB, err error) time.Duration {
	t.Helper()
	var tooMany *TooManyFailuresError
	if !errors.As(err, &tooMany) || !errors.Is(err, fsm.ServerBusy) {
		t.Fatalf("got %v, want too many failures", err)
	}
	return tooMany.After
}

// Failures are counted by client and key name, including those from loopback. A valid credential is accepted
// at once, regardless of earlier failures.
func TestFailuresRefuseNoValidKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limits := DefaultLimits()
		k, _ := newKeyringWithRules(t, func(c *Config) {
			c.Now, c.Limits = time.Now, &Limits{limits.FailuresMax, limits.FailuresPerMinute, 0, limits.VerificationsMax}
		})
		for _, bad := range []string{"192.0.2.1", "2001:db8::1", "127.0.0.1", "::1"} {
			for range limits.FailuresMax {
				_, err := login(t, k, bad, "wrong")
				check(t, err, fsm.Unauthorized)
			}
			for range 3 {
				_, err := login(t, k, bad, "wrong")
				if after := wantTooMany(t, err); after <= 0 || after > time.Minute/time.Duration(limits.FailuresPerMinute) {
					t.Errorf("%s: come back after %s", bad, after)
				}
			}
			if took, err := login(t, k, bad, "one"); err != nil || took != 0 {
				t.Errorf("%s: a valid key after %s: %v", bad, took, err)
			}
		}
		for other, want := range map[string]bool{"192.0.2.2": false, "2001:db8:0:1::1": false, "2001:db8::2": true, "::ffff:192.0.2.1": true, "127.0.0.2": false} {
			_, err := login(t, k, other, "wrong")
			if errors.Is(err, fsm.ServerBusy) != want {
				t.Errorf("%s: %v", other, err)
			}
		}
		// Other keys of the same client, and the same name in another namespace.
		for _, c := range []struct {
			from Client
			name string
		}{{clientAt("192.0.2.1"), "root"}, {Client{Namespace: other, Peer: clientAt("192.0.2.1").Peer}, "app"}} {
			_, err := k.Password(t.Context(), c.from, c.name, "wrong")
			check(t, err, fsm.Unauthorized)
		}
		time.Sleep(time.Minute / time.Duration(limits.FailuresPerMinute)) //nolint:forbidigo // in a bubble
		_, err := login(t, k, "192.0.2.1", "wrong")
		check(t, err, fsm.Unauthorized)
	})
}

// Each failure is answered later than the previous one, up to the limit; expired tokens, and failures long
// ago, do not count as guesses.
func TestFailuresAreAnsweredWithDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k, _ := newKeyringWithRules(t, func(c *Config) { c.Now = time.Now })
		var total time.Duration
		for i, want := range []time.Duration{delayMin, 2 * delayMin, 4 * delayMin, 8 * delayMin} {
			took, err := login(t, k, "192.0.2.1", "wrong")
			check(t, err, fsm.Unauthorized)
			if took > want || took < want/2 { // the time that passes meanwhile reduces the count
				t.Errorf("failure %d after %s, want about %s", i, took, want)
			}
			total += took
		}
		if total < 5*delayMin {
			t.Errorf("four failures in %s", total)
		}
		var all sync.WaitGroup
		for range DefaultLimits().FailuresMax {
			all.Go(func() { _, _ = login(t, k, "192.0.2.1", "wrong") })
		}
		all.Wait()
		if took, err := login(t, k, "192.0.2.1", "wrong"); took != DefaultLimits().DelayMax {
			t.Errorf("answered after %s: %v", took, err)
		}
		late := Sign("sb://host/", "app", "one", time.Now().Add(-time.Hour))
		began := time.Now()
		_, err := k.Token(t.Context(), clientAt("192.0.2.1"), KindSAS, late, "sb://host/a")
		check(t, err, fsm.Unauthorized)
		if time.Since(began) != 0 {
			t.Error("an expired token was answered late")
		}
		time.Sleep(time.Hour) //nolint:forbidigo // in a bubble
		if took, _ := login(t, k, "192.0.2.1", "wrong"); took != delayMin {
			t.Errorf("an hour later after %s", took)
		}
	})
}

// Delayed answers do not occupy verification slots: a valid key is accepted immediately during a thousand
// failures of the same client, of which only a few are delayed.
func TestValidKeyWaitsForNoFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k, _ := newKeyringWithRules(t, func(c *Config) { c.Now = time.Now })
		var all sync.WaitGroup
		var mu sync.Mutex
		atOnce, late := 0, 0
		for range 1000 {
			all.Go(func() {
				took, err := login(t, k, "192.0.2.1", "wrong")
				mu.Lock()
				defer mu.Unlock()
				if took > 0 {
					late++
					return
				}
				atOnce++
				wantTooMany(t, err)
			})
		}
		synctest.Wait() // all are answered or delayed
		if late != 0 || atOnce != 1000-delayedPerClientMax {
			t.Errorf("%d were answered at once", atOnce)
		}
		for range 100 {
			if took, err := login(t, k, "192.0.2.1", "one"); err != nil || took != 0 {
				t.Fatalf("after %s: %v", took, err)
			}
		}
		all.Wait()
		if late != delayedPerClientMax {
			t.Errorf("%d were answered late", late)
		}
		if k.limiter.waiting[delayedAnswer] != 0 {
			t.Errorf("%d answers still count as held back", k.limiter.waiting[delayedAnswer])
		}
	})
}

// A delayed request releases its slot before the delay, and a cancelled one stops waiting.
func TestSlotIsReleasedBeforeTheDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k, _ := newKeyringWithRules(t, func(c *Config) { c.Now = time.Now })
		began, released := time.Now(), 0
		from := clientAt("192.0.2.1")
		from.Release = func() {
			released++
			if time.Since(began) != 0 {
				t.Error("released after the delay")
			}
		}
		_, err := k.Password(t.Context(), from, "app", "one")
		check(t, err, fsm.OK)
		if released != 0 {
			t.Error("a valid key was kept waiting")
		}
		_, err = k.Password(t.Context(), from, "app", "wrong")
		check(t, err, fsm.Unauthorized)
		if released != 1 || time.Since(began) != delayMin {
			t.Errorf("released %d times, answered after %s", released, time.Since(began))
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		began = time.Now()
		_, err = k.Password(gone, from, "app", "wrong")
		check(t, err, fsm.Unauthorized)
		if time.Since(began) != 0 {
			t.Error("it waited for a client that was gone")
		}
	})
}

// The number of waiting requests is limited per client and in total, for failures and tokens separately.
func TestDelayedAnswersAreBounded(t *testing.T) {
	t.Parallel()
	l := newLimiter(DefaultLimits(), noon)
	for kind := range waitKinds {
		perClient, all := kind.max()
		var releases []func()
		for i := range all {
			release, ok := l.acquireWait(&net.TCPAddr{IP: net.IPv4(10, 0, 0, byte(i/perClient))}, kind)
			if !ok {
				t.Fatalf("place %d refused", i)
			}
			releases = append(releases, release)
		}
		if _, ok := l.acquireWait(&net.TCPAddr{IP: net.IPv4(10, 1, 0, 1)}, kind); ok {
			t.Error("one more than the process may hold")
		}
		if _, ok := l.acquireWait(nil, kind); ok {
			t.Error("one more without an address")
		}
		for _, release := range releases {
			release()
		}
		for range perClient {
			if _, ok := l.acquireWait(&net.TCPAddr{IP: net.IPv4(10, 1, 0, 1)}, kind); !ok {
				t.Error("places that were given back are not to be had")
			}
		}
		if _, ok := l.acquireWait(&net.TCPAddr{IP: net.IPv4(10, 1, 0, 1)}, kind); ok {
			t.Error("one more than a client may hold")
		}
	}
}

// The number of concurrent verifications per client is limited. Further ones wait in order, for a limited time
// and in limited number. Other clients are not affected.
func TestVerificationsOfOneClientAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(DefaultLimits(), time.Now)
		busy, quiet := clientAt("192.0.2.1").Peer, clientAt("192.0.2.2").Peer
		var releases []func()
		for range DefaultLimits().VerificationsMax {
			release, err := l.acquireVerification(t.Context(), busy)
			check(t, err, fsm.OK)
			releases = append(releases, release)
		}
		results := make(chan error, verificationQueueMax)
		for range verificationQueueMax {
			go func() {
				release, err := l.acquireVerification(t.Context(), busy)
				if err == nil {
					release()
				}
				results <- err
			}()
		}
		synctest.Wait()
		if _, err := l.acquireVerification(t.Context(), busy); !errors.Is(err, fsm.ServerBusy) || !strings.Contains(err.Error(), "wait to be verified") {
			t.Errorf("one more in the queue: %v", err)
		}
		if release, err := l.acquireVerification(t.Context(), quiet); err != nil {
			t.Errorf("another client: %v", err)
		} else {
			release()
		}
		releases[0]()
		for range verificationQueueMax {
			check(t, <-results, fsm.OK)
		}
		release, err := l.acquireVerification(t.Context(), busy)
		check(t, err, fsm.OK)
		began := time.Now()
		_, err = l.acquireVerification(t.Context(), busy)
		check(t, err, fsm.ServerBusy)
		if time.Since(began) != verificationWaitTimeMax {
			t.Errorf("refused after %s", time.Since(began))
		}
		for _, release := range append(releases[1:], release) {
			release()
		}
	})
}

// The number of remembered clients is limited, and so is the number of key names of each.
func TestLimiterForgetsFailuresAndClients(t *testing.T) {
	t.Parallel()
	limits := DefaultLimits()
	now := noon()
	l := newLimiter(limits, func() time.Time { return now })
	fail := func(peer net.Addr, name string) bool {
		_, tooMany := l.recordFailure(peer, fsm.DefaultNamespace, name)
		return tooMany != nil
	}
	first := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}
	for range limits.FailuresMax {
		fail(first, "app")
	}
	if !fail(first, "app") {
		t.Fatal("not refused after too many failures")
	}
	for i := range 100 {
		fail(first, fmt.Sprint(i))
	}
	if o := l.client(first); len(o.failures) != namesPerClientMax+1 {
		t.Errorf("%d names are told apart", len(o.failures))
	}
	if !fail(first, "yet another") {
		t.Error("further names do not count together")
	}
	now = now.Add(time.Hour)
	if fail(first, "yet another") {
		t.Error("refused an hour later")
	}
	if o := l.client(first); len(o.failures) != 1 {
		t.Errorf("an hour later %d names are told apart", len(o.failures))
	}
	for i := range clientsMax {
		fail(&net.TCPAddr{IP: net.IPv4(11, byte(i>>16), byte(i>>8), byte(i))}, "app")
	}
	if l.clients.Len() != clientsMax {
		t.Errorf("%d clients are remembered", l.clients.Len())
	}
	if _, tooMany := l.recordFailure(&net.UnixAddr{Name: "socket"}, fsm.DefaultNamespace, "app"); tooMany != nil {
		t.Error("a Unix socket is counted")
	}
}

func TestLimitsAreValidated(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Limits){
		"failures: 1":            func(l *Limits) { l.FailuresMax = 0 },
		"failures: 1 to":         func(l *Limits) { l.FailuresMax = failuresMaxMax + 1 },
		"failures per minute":    func(l *Limits) { l.FailuresPerMinute = 0 },
		"failures per minute: 1": func(l *Limits) { l.FailuresPerMinute = failuresPerMinuteMax + 1 },
		"delay":                  func(l *Limits) { l.DelayMax = -1 },
		"delay: 0 to":            func(l *Limits) { l.DelayMax = delayMaxMax + 1 },
		"verifications":          func(l *Limits) { l.VerificationsMax = 0 },
		"verifications: 1":       func(l *Limits) { l.VerificationsMax = verificationsPerClientMax + 1 },
	} {
		limits := DefaultLimits()
		change(&limits)
		if _, err := New(Config{Keys: []Key{{Name: "a", Primary: "x", Rights: fsm.Send}}, Limits: &limits}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	largest := Limits{failuresMaxMax, failuresPerMinuteMax, delayMaxMax, verificationsPerClientMax}
	if err := largest.Validate(); err != nil {
		t.Error(err)
	}
}

// A client that retries a refused token, as .NET 7.21.0 does three times with 11.2 s of its own pauses, waits less than a
// second for the answers together.
func TestRetriesOfARefusedTokenWaitLessThanASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k, _ := newKeyringWithRules(t, func(c *Config) { c.Now = time.Now })
		expires := time.Now().Add(time.Hour).Unix()
		token := fmt.Sprintf("SharedAccessSignature sr=sb%%3a%%2f%%2fhost%%2forders&sig=AAAA&se=%d&skn=app", expires)
		var waited time.Duration
		for _, pause := range []time.Duration{0, 1600 * time.Millisecond, 3200 * time.Millisecond, 6400 * time.Millisecond} {
			<-time.After(pause)
			began := time.Now()
			_, err := k.Token(t.Context(), clientAt("192.0.2.1"), "servicebus.windows.net:sastoken", token, "sb://host/orders")
			check(t, err, fsm.Unauthorized)
			waited += time.Since(began)
		}
		if waited <= 0 || waited >= time.Second {
			t.Errorf("the answers took %v together", waited)
		}
	})
}
