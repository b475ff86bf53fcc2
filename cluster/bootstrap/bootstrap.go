package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/peeklock/peeklock/cluster/datadir"
	"github.com/peeklock/peeklock/cluster/notify"
	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/fsm"
)

// VotersMax is the most voters that a catalog has, and so the most initial members of a cluster.
const VotersMax = 5

// The limits of a bootstrap.
const (
	waitLogInterval = 10 * time.Second // between two log lines that say what a member waits for
	requestTimeout  = time.Second      // of one request to another member
	// A member waits for a tenth of the interval after a change, so that it asks once when many members appear together,
	// and so that a decision that follows its pledge is on disk.
	changePauseDivisor = 10
)

// ErrOutdated says that this binary can read less than its cluster needs (fsm.Level). Nothing on disk
// is damaged: a newer release continues where this one stops.
var ErrOutdated = errors.New("this binary is older than the cluster")

// OutdatedError returns an error that wraps ErrOutdated: the required level is above the readable one.
func OutdatedError(required, readable uint32) error {
	return fmt.Errorf("%w: level %d is needed and it knows %d: start a newer release", ErrOutdated, required, readable)
}

// Hello is what a member reports about itself when it is asked directly. What gossip says about
// a member is never used to decide a bootstrap.
type Hello struct {
	Member          fsm.MemberID   `json:"Member"`
	HasData         bool           `json:"Holds"`     // has a catalog replica, or has decided to open one
	Cluster         string         `json:"Cluster"`   // cluster id, when known
	InitialMembers  []fsm.MemberID `json:"Founders"`  // of the decided bootstrap that it takes part in
	ProposedMembers []fsm.MemberID `json:"Candidate"` // with which it is trying to bootstrap
	Removed         bool           `json:"Removed"`   // the member that asks was removed from the cluster
	ReadableLevel   uint32         `json:"Knows"`     // the highest format level that its binary can read
	RequiredLevel   uint32         `json:"Needs"`     // the format level of the cluster, 0 when there is none yet
	// CatalogReplica is the number of its replica of the catalog; 0 means raftgroup.CatalogReplica.
	CatalogReplica uint32 `json:"CatalogReplica,omitempty"`
}

// CatalogName returns the name of the replica of the catalog of the member that has answered.
func (h *Hello) CatalogName() string {
	return raftgroup.ReplicaID(h.Member, max(raftgroup.CatalogReplica, h.CatalogReplica))
}

// HelloRequest asks a member for its Hello.
type HelloRequest struct {
	// From is the member that asks, so that it hears whether it was removed; may be empty.
	From fsm.MemberID `json:"From"`
}

// PledgeRequest asks for the pledge to bootstrap with these members, the first of which asks.
type PledgeRequest struct {
	InitialMembers []fsm.MemberID `json:"Founders"`
}

// Peers is the access of a Bootstrapper to the other members.
type Peers interface {
	// Alive lists the living members by gossip, this member included.
	Alive() []fsm.MemberID
	// Changed returns a channel that is closed when that list may have changed.
	Changed() <-chan struct{}
	// Hello and Pledge ask one other member.
	Hello(ctx context.Context, member fsm.MemberID, request HelloRequest) (Hello, error)
	Pledge(ctx context.Context, member fsm.MemberID, request PledgeRequest) (granted bool, err error)
}

// Config is what a Bootstrapper needs.
type Config struct {
	Self fsm.MemberID
	// Expect is how many members must be seen, none of them with data, before they bootstrap a
	// cluster; 0: this member only joins.
	Expect        int
	ReadableLevel uint32 // the highest format level that this binary can read
	HasData       bool   // this member has a catalog replica, or has decided to open one
	Dir           *datadir.Dir
	Peers         Peers
	Logger        *slog.Logger
}

// Bootstrapper finds or makes the cluster of a member without data. Its methods may be called
// concurrently.
type Bootstrapper struct {
	config  Config
	log     *slog.Logger
	pledged chan struct{} // buffer of one: a pledge was granted

	mu                sync.Mutex // held while what follows is compared with the identity in Dir
	hasData           bool
	proposed          []fsm.MemberID // the initial members that are tried now
	collectingPledges bool
	pledges           uint64 // pledges granted so far
}

// New returns a Bootstrapper.
func New(config Config) *Bootstrapper {
	return &Bootstrapper{config: config, log: config.Logger, pledged: make(chan struct{}, 1), hasData: config.HasData}
}

// HasData reports whether the member has a catalog replica, or has decided to open one.
func (b *Bootstrapper) HasData() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.hasData
}

// Hello answers a HelloRequest, without the fields that the cluster has to fill: Removed and levels.
func (b *Bootstrapper) Hello() Hello {
	b.mu.Lock()
	defer b.mu.Unlock()
	identity := b.config.Dir.Identity()
	hello := Hello{Member: b.config.Self, HasData: b.hasData, Cluster: identity.Cluster, ProposedMembers: b.proposed, CatalogReplica: identity.CatalogReplica}
	if identity.Bootstrapping {
		hello.InitialMembers = identity.Pledge
	}
	return hello
}

// Pledge answers a PledgeRequest. A granted pledge is on disk.
func (b *Bootstrapper) Pledge(request PledgeRequest) (granted bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	initial := request.InitialMembers
	if len(initial) > VotersMax || !slices.Contains(initial, b.config.Self) || initial[0] == b.config.Self {
		return false, fsm.InvalidArgument
	}
	if b.hasData || b.collectingPledges {
		return false, nil
	}
	pledge := b.config.Dir.Identity().Pledge
	if pledge != nil && !slices.Equal(pledge, initial) {
		return false, nil
	}
	if pledge == nil {
		if err := b.config.Dir.Update(func(id *datadir.Identity) { id.Pledge = initial }); err != nil {
			return false, err
		}
		b.log.Info("pledged to bootstrap a cluster", "initial_members", initial)
	}
	b.pledges++ // also for one that is granted again: answers asked for before must not release it
	notify.WakeUp(b.pledged)
	return true, nil
}

// Run looks for a cluster every interval, and soon after a member has appeared or a pledge was granted, until this member
// may open its replica of the catalog: with the initial members as voters, or empty (nil) for a cluster that will add the
// member.
func (b *Bootstrapper) Run(ctx context.Context, interval time.Duration) (initial []fsm.MemberID, err error) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	var logged time.Time
	for {
		changed := b.config.Peers.Changed()
		initial, ready, waitingFor, err := b.tryOnce(ctx)
		if err != nil || ready {
			return initial, err
		}
		if now := time.Now(); now.Sub(logged) > waitLogInterval {
			logged = now
			b.log.InfoContext(ctx, "member has no data and found no cluster yet", "waiting_for", waitingFor, "seen", len(b.config.Peers.Alive()), "expect", b.config.Expect)
		}
		select {
		case <-ticker.C:
		case <-changed:
			notify.Pause(ctx, interval/changePauseDivisor)
		case <-b.pledged:
			notify.Pause(ctx, interval/changePauseDivisor)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// tryOnce asks every member once. waitingFor says, for the log, what is missing.
func (b *Bootstrapper) tryOnce(ctx context.Context) (initial []fsm.MemberID, ready bool, waitingFor string, err error) {
	alive := b.config.Peers.Alive()
	b.mu.Lock()
	pledges := b.pledges
	b.mu.Unlock()
	answers := b.AskAll(ctx, alive)
	for _, hello := range answers {
		if hello.RequiredLevel > b.config.ReadableLevel { // no member would add it
			return nil, false, "", OutdatedError(hello.RequiredLevel, b.config.ReadableLevel)
		}
	}
	if initial, join, clash := findCluster(b.config.Self, answers); clash {
		return nil, false, "members of two clusters are seen: correct the names to join", nil
	} else if join {
		return initial, true, "", b.recordDecision(initial)
	}
	if b.config.Expect == 0 {
		return nil, false, "a cluster to join", nil
	}
	if len(answers)+1 < len(alive) || len(alive) < b.config.Expect {
		return nil, false, "more members", b.setProposal(nil, answers, pledges)
	}
	all := slices.Sorted(slices.Values(alive))
	chosen := all[:min(b.config.Expect, VotersMax)]
	if chosen[0] != b.config.Self {
		return nil, false, "the member with the lowest id to bootstrap the cluster", b.setProposal(nil, answers, pledges)
	}
	if err := b.setProposal(chosen, answers, pledges); err != nil {
		return nil, false, "", err
	}
	if !b.collectPledges(ctx, chosen) {
		return nil, false, "the pledges of all initial members", nil
	}
	b.log.InfoContext(ctx, "bootstrap of a cluster decided", "initial_members", chosen)
	return chosen, true, "", b.recordDecision(chosen)
}

// AskAll asks the other members concurrently and returns the answers.
func (b *Bootstrapper) AskAll(ctx context.Context, members []fsm.MemberID) []Hello {
	var mu sync.Mutex
	var answers []Hello
	var asking sync.WaitGroup
	for _, member := range members {
		if member == b.config.Self {
			continue
		}
		asking.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, requestTimeout)
			defer cancel()
			hello, err := b.config.Peers.Hello(ctx, member, HelloRequest{From: b.config.Self})
			if err != nil || hello.Member != member {
				b.log.DebugContext(ctx, "failed to ask a member for its state", "peer", member, "error", err)
				return
			}
			mu.Lock()
			answers = append(answers, hello)
			mu.Unlock()
		})
	}
	asking.Wait()
	return answers
}

// findCluster reports whether some member has data, and the initial members with which this member
// opens the catalog, if it is one of them. clash: the members belong to different clusters.
func findCluster(self fsm.MemberID, answers []Hello) (initial []fsm.MemberID, join, clash bool) {
	cluster := ""
	for _, hello := range answers {
		if !hello.HasData {
			continue
		}
		join = true
		if hello.Cluster != "" {
			clash = clash || (cluster != "" && cluster != hello.Cluster)
			cluster = hello.Cluster
		}
		if slices.Contains(hello.InitialMembers, self) {
			initial = hello.InitialMembers
		}
	}
	return initial, join, clash
}

// setProposal sets the members with which this one tries to bootstrap (nil: none) and takes back a
// pledge that no longer binds: that of our own earlier attempt, or one to a member that tries something else.
// pledges is how many had been granted when the members were asked: an answer from before a pledge cannot release
// it, since the member may have begun to rely on it after it answered.
func (b *Bootstrapper) setProposal(chosen []fsm.MemberID, answers []Hello, pledges uint64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.proposed = chosen
	pledge := b.config.Dir.Identity().Pledge
	if pledge == nil || slices.Equal(pledge, chosen) {
		return nil
	}
	released := pledge[0] == b.config.Self
	for _, hello := range answers {
		if b.pledges == pledges && hello.Member == pledge[0] && !hello.HasData && !slices.Equal(hello.ProposedMembers, pledge) {
			released = true
		}
	}
	if !released {
		return nil
	}
	return b.config.Dir.Update(func(id *datadir.Identity) { id.Pledge = nil })
}

// collectPledges asks all chosen members for their pledge. While it runs, this member grants none.
func (b *Bootstrapper) collectPledges(ctx context.Context, chosen []fsm.MemberID) bool {
	b.mu.Lock()
	if pledge := b.config.Dir.Identity().Pledge; pledge != nil && !slices.Equal(pledge, chosen) {
		b.mu.Unlock()
		return false // bound to others
	}
	b.collectingPledges = true
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		b.collectingPledges = false
		b.mu.Unlock()
	}()
	for _, member := range chosen {
		if member == b.config.Self {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		granted, err := b.config.Peers.Pledge(ctx, member, PledgeRequest{InitialMembers: chosen})
		cancel()
		if err != nil || !granted {
			b.log.DebugContext(ctx, "failed to get the pledge of a member", "peer", member, "error", err)
			return false
		}
	}
	return true
}

// recordDecision makes the result durable before anything is opened: the initial members, or
// nil for a replica that starts empty.
func (b *Bootstrapper) recordDecision(initial []fsm.MemberID) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	// Not before: others join a cluster that a member reports, and without the decision nobody creates it.
	if err := b.config.Dir.Update(func(id *datadir.Identity) { id.Pledge, id.Bootstrapping = initial, initial != nil }); err != nil {
		return err
	}
	b.hasData = true
	return nil
}

// RecordCluster records the cluster that the data belongs to. The pledge has then served its purpose.
func (b *Bootstrapper) RecordCluster(cluster string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.config.Dir.Identity().Cluster == cluster {
		return nil
	}
	return b.config.Dir.Update(func(id *datadir.Identity) { id.Cluster, id.Pledge, id.Bootstrapping = cluster, nil, false })
}
