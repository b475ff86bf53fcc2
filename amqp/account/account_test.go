package account

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func fill(a *Account, r Resource) (n int64) {
	for a.Take(r, 1) {
		n++
	}
	return n
}

// One owner alone holds a half, two hold a third each, and the owner that comes next always finds as much as each
// of the others holds.
func TestSharesDependOnTheNumberOfOwners(t *testing.T) {
	t.Parallel()
	const capacity = 1200
	for n := int64(1); n <= 5; n++ {
		s := New(Capacities{Requests: capacity})
		accounts := make([]*Account, n)
		for i := range accounts {
			accounts[i] = s.Open(Owner{Namespace: 1, Key: fmt.Sprint(i)})
		}
		for more := true; more; { // in turns
			more = false
			for _, a := range accounts {
				more = a.Take(Requests, 1) || more
			}
		}
		for i, a := range accounts {
			if want := capacity / (n + 1); a.Held(Requests) < want-1 || a.Held(Requests) > want+1 {
				t.Errorf("owner %d of %d holds %d, want %d", i, n, a.Held(Requests), want)
			}
		}
		next := s.Open(Owner{Namespace: 2})
		if got := fill(next, Requests); got < capacity/(n+1)/2-1 {
			t.Errorf("the next owner after %d gets %d", n, got)
		}
	}
}

// The first owner that is refused is the one that holds the most, whatever others hold.
func TestOnlyTheLargestOwnerIsRefused(t *testing.T) {
	t.Parallel()
	s := New(Capacities{HTTPRequests: 100})
	greedy, honest := s.Open(Owner{Namespace: 1, Key: "a"}), s.Open(Owner{Namespace: 1, Key: "b"})
	if got := fill(greedy, HTTPRequests); got != 50 {
		t.Errorf("alone it gets %d of 100", got)
	}
	for range 1000 {
		if !honest.Take(HTTPRequests, 1) {
			t.Fatal("the other owner is refused")
		}
		honest.Release(HTTPRequests, 1)
		if greedy.Take(HTTPRequests, 1) {
			t.Fatal("the largest owner gets more")
		}
	}
	greedy.Release(HTTPRequests, 50)
	greedy.Close()
	honest.Close()
	if s.Used(HTTPRequests) != 0 || len(s.accounts) != 0 {
		t.Errorf("%d used, %d accounts at the end", s.Used(HTTPRequests), len(s.accounts))
	}
}

// No request is too large for an owner that holds nothing, but one at a time; and accounts of one owner are one.
func TestOneLargeRequestAtATime(t *testing.T) {
	t.Parallel()
	s := New(Capacities{AnswerBytes: 100})
	a, same := s.Open(Owner{Key: "a"}), s.Open(Owner{Key: "a"})
	if a != same {
		t.Fatal("two accounts of one owner")
	}
	if !a.Take(AnswerBytes, 300) || a.Take(AnswerBytes, 1) {
		t.Error("a large request was refused, or another one passed")
	}
	a.Release(AnswerBytes, 300)
	if !same.Take(AnswerBytes, 300) {
		t.Error("refused after the release")
	}
	if other := s.Open(Owner{Key: "b"}); other.Take(AnswerBytes, 1) {
		t.Error("taken although nothing is free")
	}
	var none *Account
	if !none.Take(AnswerBytes, 1<<40) || none.Held(AnswerBytes) != 0 || none.Refusal(AnswerBytes) != "" {
		t.Error("an account that does not exist counts")
	}
}

// Wait gets what is released meanwhile, and gives up in time.
func TestWaitUntilReleased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := New(Capacities{Requests: 2}).Open(Owner{})
		a.Take(Requests, 1)
		began := time.Now()
		if a.Wait(t.Context(), Requests, 1, time.Second) || time.Since(began) != time.Second {
			t.Errorf("waited %s", time.Since(began))
		}
		time.AfterFunc(100*time.Millisecond, func() { a.Release(Requests, 1) })
		if !a.Wait(context.Background(), Requests, 1, time.Second) {
			t.Error("did not get what was released")
		}
	})
}

// Concurrent use counts exactly.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	s := New(Capacities{Requests: 64})
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			a := s.Open(Owner{Key: fmt.Sprint(i % 3)})
			defer a.Close()
			for range 1000 {
				if a.Take(Requests, 3) {
					a.Release(Requests, 3)
				}
			}
		})
	}
	group.Wait()
	if s.Used(Requests) != 0 || len(s.accounts) != 0 {
		t.Errorf("%d used, %d accounts", s.Used(Requests), len(s.accounts))
	}
}

// What a message costs in an account takes no lock and allocates nothing: with the lock of all accounts held, it goes on.
//
//nolint:paralleltest // it counts allocations
func TestTakingNeedsNoLockAndNoMemory(t *testing.T) {
	s := New(For(1 << 30))
	a := s.Open(Owner{Namespace: 1, Key: "key"})
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := testing.AllocsPerRun(1000, func() {
		if !a.Take(SettledBytes, 1024) || !a.Wait(context.Background(), Requests, 1, time.Second) {
			t.Fatal("refused")
		}
		a.Add(AnswerBytes, 10)
		a.Add(AnswerBytes, -10)
		a.Release(Requests, 1)
		a.Release(SettledBytes, 1024)
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
	if a.Held(SettledBytes) != 0 || s.Used(Requests) != 0 {
		t.Errorf("%d and %d are held at the end", a.Held(SettledBytes), s.Used(Requests))
	}
}

// BenchmarkTake is what a request costs: no allocation and less than 100 ns.
func BenchmarkTake(b *testing.B) {
	a := New(For(1 << 30)).Open(Owner{Namespace: 1, Key: "key"})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if a.Take(SettledBytes, 1024) {
				a.Release(SettledBytes, 1024)
			}
		}
	})
}
