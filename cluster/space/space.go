package space

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/peeklock/peeklock/cluster/gossip"
	"github.com/peeklock/peeklock/cluster/move"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// The intervals of the checks of disk space.
const (
	checkInterval = 100 * time.Millisecond // between two checks, which read memory only
	// transferTimeout is how long a leader without free space tries to transfer its leadership before it
	// refuses the requests of its clients; until then they wait.
	transferTimeout = 2 * time.Second
	retryInterval   = 200 * time.Millisecond // between two attempts to transfer
	// recoverDelay is how long a quorum must have free space before a group accepts messages again.
	recoverDelay = time.Second
)

// groupSpace is the state of Run for a group that is led here.
type groupSpace struct {
	isReadOnly    bool      // the group refuses commands that grow its state, and the refusal is final
	spaceSince    time.Time // when a quorum had free space again, while isReadOnly
	transferSince time.Time // when Run began to look for another leader; zero: it does not
	lastTransfer  time.Time // the last attempt to transfer
	transferring  bool      // an attempt is in progress
}

// Config is what a Monitor needs.
type Config struct {
	Self   fsm.MemberID
	Log    *partition.Log
	Gossip Gossip
	Mover  *move.Mover
	// Groups returns the open replicas of this member.
	Groups func() map[fsm.PartitionID]*partition.Group
	Go     func(task func(ctx context.Context)) bool // runs a task until the member closes, false while it closes
	// Changed is called when this member has become low on space, or has space again. It must not block.
	Changed func()
	Logger  *slog.Logger
}

// Gossip is what members announce about their space. A *gossip.Membership implements it.
type Gossip interface {
	Lookup(id fsm.MemberID) (gossip.Member, bool)
	All() []gossip.Member
	// SetReadOnly announces the state that the function returns, and waits until other members know it.
	SetReadOnly(current func() bool)
}

// Monitor limits the effect of full disks on the groups that this member leads. Has and IsLow may be called concurrently.
type Monitor struct {
	Config

	mu     sync.Mutex // guards transferring of all groups; Run owns the rest
	groups map[fsm.PartitionID]*groupSpace
}

// New returns a Monitor. Run runs it.
func New(config *Config) *Monitor {
	return &Monitor{Config: *config, groups: make(map[fsm.PartitionID]*groupSpace)}
}

// Has reports whether a member has announced neither that its disk nor that its memory is nearly full.
func (k *Monitor) Has(id fsm.MemberID) bool {
	if id == k.Self {
		return !k.IsLow()
	}
	m, _ := k.Gossip.Lookup(id)
	return !m.ReadOnly
}

// IsLow reports whether the disk or the memory of this member is nearly full.
func (k *Monitor) IsLow() bool {
	space := k.Log.DiskSpace()
	return space.RefusesGrowth()
}

// Run announces when this member is low on space, and then transfers its leaderships to voters that have
// space. It makes a group read-only when that cannot help: too few voters have space to commit anything, or
// none of those can lead. It returns when ctx ends.
func (k *Monitor) Run(ctx context.Context) {
	told := false
	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			if short := k.IsLow(); short != told {
				told = short
				k.Go(func(context.Context) { k.Gossip.SetReadOnly(k.IsLow) }) // waits until others know
				k.Changed()
			}
			k.checkAll(ctx, now)
		}
	}
}

func (k *Monitor) checkAll(ctx context.Context, now time.Time) {
	if len(k.groups) == 0 && !k.IsLow() && !slices.ContainsFunc(k.Gossip.All(), func(m gossip.Member) bool { return m.ReadOnly }) {
		return // the usual case: no member is low on space
	}
	groups := k.Groups()
	for id, group := range groups {
		k.checkGroup(ctx, now, id, group)
	}
	for id := range k.groups {
		if groups[id] == nil {
			delete(k.groups, id)
		}
	}
}

// checkGroup checks one group and acts on the result.
func (k *Monitor) checkGroup(ctx context.Context, now time.Time, id fsm.PartitionID, group *partition.Group) {
	status := group.Status()
	of := k.groups[id]
	if !status.IsLeader {
		if of != nil && of.isReadOnly {
			group.SetReadOnly(false) // the next leader decides
		}
		delete(k.groups, id)
		return
	}
	full, isLow := k.hasNoQuorum(status.Voters), k.IsLow()
	if of == nil {
		if !full && !isLow {
			return
		}
		of = &groupSpace{}
		k.groups[id] = of
	}
	switch {
	case full:
		of.spaceSince = time.Time{}
		k.setReadOnly(ctx, id, group, of)
	case isLow:
		of.spaceSince = time.Time{}
		if of.transferSince.IsZero() {
			of.transferSince = now
		}
		if now.Sub(of.transferSince) > transferTimeout {
			k.setReadOnly(ctx, id, group, of)
		}
		k.transferAway(now, id, group, of)
	case !of.isReadOnly:
		delete(k.groups, id)
	case of.spaceSince.IsZero():
		of.spaceSince = now
	case now.Sub(of.spaceSince) > recoverDelay:
		group.SetReadOnly(false)
		delete(k.groups, id)
		k.Logger.InfoContext(ctx, "partition resumed accepting messages: enough members have free space", "partition", id)
	}
}

// hasNoQuorum reports whether too few voters have free space to commit anything. It returns false if no voter
// is low on space, because absent members alone must not make a group read-only.
func (k *Monitor) hasNoQuorum(voters []partition.Voter) bool {
	withSpace, lowOnSpace := 0, 0
	for _, v := range voters {
		switch {
		case !k.Has(v.Member):
			lowOnSpace++
		case v.Member == k.Self || k.isAlive(v.Member):
			withSpace++
		}
	}
	return lowOnSpace > 0 && withSpace < len(voters)/2+1
}

func (k *Monitor) isAlive(id fsm.MemberID) bool {
	m, ok := k.Gossip.Lookup(id)
	return ok && m.Alive
}

// setReadOnly makes the group refuse commands that grow its state, so that clients learn of it at once.
func (k *Monitor) setReadOnly(ctx context.Context, id fsm.PartitionID, group *partition.Group, of *groupSpace) {
	if of.isReadOnly {
		return
	}
	of.isReadOnly = true
	group.SetReadOnly(true)
	k.Logger.ErrorContext(ctx, "partition was made read-only: too few of its members have free disk space and memory; "+
		"receive, purge or delete messages, make volumes or memory larger, or move the partition to other members",
		"partition", id)
}

// transferAway transfers the leadership of a group to a voter with free space, in the background.
func (k *Monitor) transferAway(now time.Time, id fsm.PartitionID, group *partition.Group, of *groupSpace) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if of.transferring || now.Sub(of.lastTransfer) < retryInterval {
		return
	}
	of.transferring, of.lastTransfer = true, now
	if !k.Go(func(ctx context.Context) {
		if err := k.Mover.TransferAway(ctx, id, group); err != nil {
			k.Logger.DebugContext(ctx, "failed to transfer a leadership to a member with free space, will retry", "partition", id, "error", err)
		}
		k.mu.Lock()
		of.transferring = false
		k.mu.Unlock()
	}) {
		of.transferring = false
	}
}
