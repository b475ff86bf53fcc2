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
	digestsWaitingMax = 4    // concurrent calls of DigestAt of one replica
	verifyAheadMin    = 32   // entries between the request and the index that is compared
	verifyAheadMax    = 2048 // in a group so busy that smaller distances are passed before all replicas were asked
	verifyAheadFactor = 8    //
	// verifyHeadStart is the time for the requests to reach the other replicas before the leader fills an
	// idle group's log up to the index.
	verifyHeadStart = 20 * time.Millisecond
)

// ErrDiverged means that a replica has applied other entries than the majority, or that the same entries had
// other results.
var ErrDiverged = errors.New("replica differs from the majority")

// ErrPassed means that a replica has already applied entries behind the requested index.
var ErrPassed = errors.New("index is passed already")

// digestWait is one call of DigestAt; its channel gets the image, or is closed when a snapshot skipped the
// index.
type digestWait struct {
	index uint64
	image chan fsm.Image
}

// captureDigests sends the current image to the calls that wait for an index below next. The caller holds mu,
// between two entries.
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

// failPassedWaits ends the calls whose index a snapshot has skipped. The caller holds mu.
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

// DigestAt waits until this replica has applied everything up to index, and returns the digest of its whole
// state before the next entry. Replicas of one release with equal states have equal digests. Apply is delayed
// for microseconds. In an idle group DigestAt waits until a command is proposed. It returns ErrPassed when
// the replica is behind index already. At most four calls may wait at a time.
func (g *Group) DigestAt(ctx context.Context, index uint64) (uint64, error) {
	w := digestWait{index, make(chan fsm.Image, 1)}
	g.mu.Lock()
	switch {
	case g.applied.Load() > index:
		g.mu.Unlock()
		return 0, fmt.Errorf("digest of group %d at %d: %w", g.cfg.ID, index, ErrPassed)
	case len(g.digestWaits) >= digestsWaitingMax:
		g.mu.Unlock()
		return 0, fmt.Errorf("digest of group %d: %d calls are waiting already: %w", g.cfg.ID, digestsWaitingMax, fsm.ServerBusy)
	}
	g.digestWaits = append(g.digestWaits, w)
	g.mu.Unlock()
	var err error
	select {
	case img := <-w.image:
		d, ok := img.(interface{ Digest() uint64 })
		if ok {
			return d.Digest(), nil
		}
		if img == nil {
			return 0, fmt.Errorf("digest of group %d at %d: %w", g.cfg.ID, index, ErrPassed)
		}
		return 0, fmt.Errorf("digest of group %d: %T has no digest", g.cfg.ID, img)
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

// Checkpoints returns the newest checkpoints of this replica, oldest first: one every 4096 entries, at most
// 64. After an upgrade from a release with another digest version there are none for a while.
func (g *Group) Checkpoints() []Checkpoint {
	return g.rolling.Newest()
}

// HaltDiverged stops this replica because a majority has another checkpoint. It returns an error and does
// nothing unless this replica has a checkpoint at that index that differs; a replica that has stopped already
// is no error. The caller has compared (Difference.Outliers), at the leader or elsewhere: the leader itself
// can be the outlier.
func (g *Group) HaltDiverged(majority Checkpoint) error {
	for _, own := range g.Checkpoints() {
		switch {
		case own.Index != majority.Index:
		case own.Version != majority.Version:
			return fmt.Errorf("halt diverged replica %s: its digests have version %d and not %d", g.cfg.Replica, own.Version, majority.Version)
		case own == majority:
			return fmt.Errorf("halt diverged replica %s: it has the same checkpoint at %d", g.cfg.Replica, own.Index)
		default:
			g.halt(fmt.Errorf("digest at index %d is %016x of term %d, that of the majority %016x of term %d: %w",
				own.Index, own.Digest, own.Term, majority.Digest, majority.Term, ErrDiverged))
			return nil
		}
	}
	return fmt.Errorf("halt diverged replica %s: it has no checkpoint at %d", g.cfg.Replica, majority.Index)
}

// Verification is the result of Verify.
type Verification struct {
	Index   uint64
	Digests map[string]uint64 // of the whole state at Index, by replica
	Missing map[string]error  // replicas that returned no digest, with the reason
}

// Verify compares the whole state of all replicas, voters and non-voters, at one index. Leader only. ask
// calls DigestAt at another member; it is called concurrently for all of them. Verify costs each replica as
// much as writing a snapshot, beside apply, and an idle group some pulses. It does not read bodies, whose
// checksums are verified on every read.
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
		if !passed || ahead >= verifyAheadMax { // a replica that cannot be reached cannot be reached at any index
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
		cancel() // no replica will reach the index
	}
	asking.Wait()
	return v, err
}

// pulsePast proposes pulses until the applied index is behind index.
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
