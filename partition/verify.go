package partition

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

const (
	digestsWaitingMax = 4    // DigestAt at a time, of one replica
	verifyAheadMin    = 32   // entries between asking and the index that is compared
	verifyAheadMax    = 2048 // in a group so busy that fewer have passed before all were asked
	verifyAheadFactor = 8    //
	// verifyHeadStart is what a question has to reach the other replicas before the leader
	// fills an idle group's log up to the index.
	verifyHeadStart = 20 * time.Millisecond
)

// ErrPassed says that a replica has applied more than what was asked about.
var ErrPassed = errors.New("index is passed already")

// digestible is an image that knows its digest. Those of package fsm do.
type digestible interface{ Digest() uint64 }

// digestWait is one DigestAt; it gets the image, or nothing when the index was jumped over.
type digestWait struct {
	index uint64
	image chan fsm.Image
}

// captureDigests gives those who wait for an index below the next one the state as it is. The
// caller holds mu, between two entries.
func (g *Group) captureDigests(next uint64) {
	left := g.digestWaits[:0]
	for _, w := range g.digestWaits {
		if w.index < next {
			w.image <- g.machine.Image()
		} else {
			left = append(left, w)
		}
	}
	g.digestWaits = left
}

// failPassedWaits tells those whose index a snapshot has jumped over. The caller holds mu.
func (g *Group) failPassedWaits() {
	left := g.digestWaits[:0]
	for _, w := range g.digestWaits {
		if w.index < g.applied.Load() {
			close(w.image)
		} else {
			left = append(left, w)
		}
	}
	g.digestWaits = left
}

// DigestAt waits until this replica has applied everything up to index, and returns the
// digest of its whole state before the next entry: equal on replicas that are equal, if
// they are of one release. Apply is held up for microseconds. An idle group waits until
// something is proposed. ErrPassed when the replica has gone on already. At most four may
// wait at a time.
func (g *Group) DigestAt(ctx context.Context, index uint64) (uint64, error) {
	w := digestWait{index, make(chan fsm.Image, 1)}
	g.mu.Lock()
	switch {
	case g.applied.Load() > index:
		g.mu.Unlock()
		return 0, fmt.Errorf("digest of group %d at %d: %w", g.cfg.ID, index, ErrPassed)
	case len(g.digestWaits) >= digestsWaitingMax:
		g.mu.Unlock()
		return 0, fmt.Errorf("digest of group %d: %d are being made already: %w", g.cfg.ID, digestsWaitingMax, fsm.ServerBusy)
	}
	g.digestWaits = append(g.digestWaits, w)
	g.mu.Unlock()
	var err error
	select {
	case img := <-w.image:
		d, ok := img.(digestible)
		if ok {
			return d.Digest(), nil
		}
		if img == nil {
			return 0, fmt.Errorf("digest of group %d at %d: %w", g.cfg.ID, index, ErrPassed)
		}
		return 0, fmt.Errorf("digest of group %d: a %T has none", g.cfg.ID, img)
	case <-ctx.Done():
		err = ctx.Err()
	case <-g.haltedCh:
		err = ErrClosed
	case <-g.closed:
		err = ErrClosed
	}
	g.mu.Lock()
	for i := range g.digestWaits {
		if g.digestWaits[i].image == w.image {
			g.digestWaits = append(g.digestWaits[:i], g.digestWaits[i+1:]...)
			break
		}
	}
	g.mu.Unlock()
	return 0, fmt.Errorf("digest of group %d at %d: %w", g.cfg.ID, index, err)
}

// Verification is what Verify found.
type Verification struct {
	Index   uint64
	Digests map[string]uint64 // of the whole state at Index, by replica
	Missing map[string]error  // replicas that gave no answer, and why
}

// Agree says that all replicas have answered, and the same.
func (v *Verification) Agree() bool {
	seen := make(map[uint64]bool)
	for _, d := range v.Digests {
		seen[d] = true
	}
	return len(v.Missing) == 0 && len(seen) == 1
}

// Verify compares the whole state of all replicas, voters and others, at one index. Leader
// only. ask calls DigestAt at another member, for all of them at a time. It costs each
// replica as much as writing a snapshot, beside apply, and an idle group some pulses. Bodies
// are not read: their checksums are looked at whenever they are.
func (g *Group) Verify(ctx context.Context,
	ask func(ctx context.Context, member fsm.MemberID, index uint64) (uint64, error),
) (Verification, error) {
	for ahead := uint64(verifyAheadMin); ; ahead *= verifyAheadFactor {
		v, err := g.verify(ctx, ahead, ask)
		if err != nil {
			return v, fmt.Errorf("verify group %d: %w", g.cfg.ID, err)
		}
		passed := false
		for _, reason := range v.Missing {
			passed = passed || errors.Is(reason, ErrPassed)
		}
		if !passed || ahead >= verifyAheadMax { // who is away is so at any index
			return v, nil
		}
	}
}

func (g *Group) verify(ctx context.Context, ahead uint64,
	ask func(ctx context.Context, member fsm.MemberID, index uint64) (uint64, error),
) (Verification, error) {
	s := g.Status()
	if !s.IsLeader {
		return Verification{}, ErrNotLeader
	}
	v := Verification{Index: s.Applied + ahead, Digests: make(map[string]uint64), Missing: make(map[string]error)}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	var asking sync.WaitGroup
	for _, r := range append(s.Voters, s.Nonvoters...) {
		asking.Go(func() {
			var sum uint64
			var err error
			if r.Replica == g.cfg.Replica {
				sum, err = g.DigestAt(ctx, v.Index)
			} else {
				sum, err = ask(ctx, r.Member, v.Index)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				v.Missing[r.Replica] = err
				return
			}
			v.Digests[r.Replica] = sum
		})
	}
	pause(ctx, verifyHeadStart)
	err := g.pulsePast(ctx, v.Index)
	if err != nil {
		cancel() // nobody gets any further
	}
	asking.Wait()
	return v, err
}

// pulsePast proposes pulses until everything up to index is applied, and one more.
func (g *Group) pulsePast(ctx context.Context, index uint64) error {
	for g.applied.Load() <= index {
		done := make(chan Answer, 1)
		g.Submit(fsm.AppendCommand(nil, fsm.Header{}, fsm.Pulse{}), func(a Answer) { done <- a })
		select {
		case a := <-done:
			if a.Outcome != Done {
				return ErrNotLeader
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
