package cluster

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
)

// bootstrapLogInterval is how often a member that waits says for what.
const bootstrapLogInterval = 10 * time.Second

// helloReply is what a member says of itself when asked directly. Gossip alone is never
// believed in matters of founding.
type helloReply struct {
	Member          fsm.MemberID   `json:"Member"`
	HasData         bool           `json:"Holds"`     // holds data, or has decided to found
	Cluster         string         `json:"Cluster"`   // cluster id, when known
	InitialMembers  []fsm.MemberID `json:"Founders"`  // of the founding that it takes part in
	ProposedMembers []fsm.MemberID `json:"Candidate"` // with whom it is trying to found
	Removed         bool           `json:"Removed"`   // who asks was removed from the cluster
	ReadableLevel   uint32         `json:"Knows"`     // the highest level that its binary knows
	RequiredLevel   uint32         `json:"Needs"`     // the level of the cluster, 0 when there is none yet
}

// pledgeQuery asks for the promise to found with these members, the first of whom asks.
type pledgeQuery struct {
	InitialMembers []fsm.MemberID `json:"Founders"`
}

// bootstrapper brings a member without data into a cluster: into one that exists, or, when
// Expect members without data see each other, into one that they found together.
//
// Founding is decided by one member alone, the lowest of the founders, and only after
// all of them have promised, durably, to found with nobody else:
//
//	lowest                           each other founder
//	  pledge [A B C]  ------------->   writes the pledge, says yes
//	  writes "founding"                 asks A every round: holds data now?
//	  opens partition 0 with [A B C]    yes: opens partition 0 with [A B C]
//
// A pledge binds until the lowest itself says that it is trying something else. So two
// foundings that are both decided share no member, whatever gossip shows to whom, and
// with Expect members in the first place there is no room for two.
type bootstrapper struct {
	self          fsm.MemberID
	expect        int
	readableLevel uint32 // the highest level
	dataDir       *dataDir
	log           *slog.Logger
	alive         func() []fsm.MemberID // by gossip, this member included
	query         func(ctx context.Context, member fsm.MemberID, kind rpc.QueryKind, arguments []byte) (rpc.Reply, error)

	mu                sync.Mutex // guards folder.id too
	hasData           bool       // a replica of the catalog is open, or about to be
	proposed          []fsm.MemberID
	collectingPledges bool
}

// hello answers rpc.QueryHello.
func (b *bootstrapper) hello() helloReply {
	b.mu.Lock()
	defer b.mu.Unlock()
	reply := helloReply{Member: b.self, HasData: b.hasData, Cluster: b.dataDir.identity.Cluster, ProposedMembers: b.proposed}
	if b.dataDir.identity.Bootstrapping {
		reply.InitialMembers = b.dataDir.identity.Pledge
	}
	return reply
}

// handlePledge answers rpc.QueryPledge: true is a promise.
func (b *bootstrapper) handlePledge(q pledgeQuery) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(q.InitialMembers) > catalogVotersMax || !slices.Contains(q.InitialMembers, b.self) || q.InitialMembers[0] == b.self {
		return false, fsm.InvalidArgument
	}
	if b.hasData || b.collectingPledges {
		return false, nil
	}
	if slices.Equal(b.dataDir.identity.Pledge, q.InitialMembers) {
		return true, nil
	}
	if b.dataDir.identity.Pledge != nil {
		return false, nil
	}
	b.log.Info("promises to found a cluster", "founders", q.InitialMembers)
	if err := b.dataDir.update(func(id *identity) { id.Pledge = q.InitialMembers }); err != nil {
		return false, err
	}
	return true, nil
}

// run goes round until this member may open its replica of the catalog: with the
// founders as voters, or empty (nil) for a cluster that will take it in.
func (b *bootstrapper) run(ctx context.Context, every time.Duration) (initial []fsm.MemberID, err error) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	var logged time.Time
	for {
		initial, ready, waitingFor, err := b.tryOnce(ctx)
		if err != nil || ready {
			return initial, err
		}
		if now := time.Now(); now.Sub(logged) > bootstrapLogInterval {
			logged = now
			b.log.InfoContext(ctx, "has no data and waits", "for", waitingFor, "seen", len(b.alive()), "expect", b.expect)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// tryOnce looks at everybody once. waits says, for people, what is missing.
func (b *bootstrapper) tryOnce(ctx context.Context) (initial []fsm.MemberID, ready bool, waitingFor string, err error) {
	alive := b.alive()
	answers := b.helloAll(ctx, alive)
	for _, hello := range answers {
		if hello.RequiredLevel > b.readableLevel { // it would be taken in by nobody
			return nil, false, "", outdatedError(hello.RequiredLevel, b.readableLevel)
		}
	}
	if initial, join, clash := findCluster(b.self, answers); clash {
		return nil, false, "members of two clusters are seen: correct the names to join", nil
	} else if join {
		return initial, true, "", b.recordDecision(initial)
	}
	if b.expect == 0 {
		return nil, false, "a cluster to join", nil
	}
	if len(answers)+1 < len(alive) || len(alive) < b.expect {
		return nil, false, "more members", b.setProposal(nil, answers)
	}
	all := slices.Sorted(slices.Values(alive))
	chosen := all[:min(b.expect, catalogVotersMax)]
	if chosen[0] != b.self {
		return nil, false, "the member with the lowest id to found", b.setProposal(nil, answers)
	}
	if err := b.setProposal(chosen, answers); err != nil {
		return nil, false, "", err
	}
	if !b.collectPledges(ctx, chosen) {
		return nil, false, "all founders to promise", nil
	}
	b.log.InfoContext(ctx, "founds a cluster", "founders", chosen)
	return chosen, true, "", b.recordDecision(chosen)
}

// helloAll asks the others, at once, and returns what those said who answered.
func (b *bootstrapper) helloAll(ctx context.Context, members []fsm.MemberID) []helloReply {
	var mu sync.Mutex
	var answers []helloReply
	arguments, err := json.Marshal(helloQuery{From: b.self})
	if err != nil {
		return nil
	}
	var asking sync.WaitGroup
	for _, member := range members {
		if member == b.self {
			continue
		}
		asking.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			var hello helloReply
			reply, err := b.query(ctx, member, rpc.QueryHello, arguments)
			if err == nil {
				err = reply.Decode(&hello)
			}
			if err != nil || hello.Member != member {
				b.log.DebugContext(ctx, "ask for data", "peer", member, "error", err)
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

// findCluster says whether somebody holds data, and with which founders we begin, if we
// are one of them. clash: they belong to different clusters.
func findCluster(self fsm.MemberID, answers []helloReply) (initial []fsm.MemberID, join, clash bool) {
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

// setProposal sets whom we try to found with (nil: nobody) and takes back a pledge that
// binds no more: our own earlier try, or one whose lowest member tries something else.
func (b *bootstrapper) setProposal(chosen []fsm.MemberID, answers []helloReply) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.proposed = chosen
	pledge := b.dataDir.identity.Pledge
	if pledge == nil || slices.Equal(pledge, chosen) {
		return nil
	}
	free := pledge[0] == b.self
	for _, hello := range answers {
		if hello.Member == pledge[0] && !hello.HasData && !slices.Equal(hello.ProposedMembers, pledge) {
			free = true
		}
	}
	if !free {
		return nil
	}
	return b.dataDir.update(func(id *identity) { id.Pledge = nil })
}

// collectPledges asks all founders for their promise and gives our own.
func (b *bootstrapper) collectPledges(ctx context.Context, chosen []fsm.MemberID) bool {
	b.mu.Lock()
	if b.dataDir.identity.Pledge != nil && !slices.Equal(b.dataDir.identity.Pledge, chosen) {
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
	arguments, err := json.Marshal(pledgeQuery{InitialMembers: chosen})
	if err != nil {
		return false
	}
	for _, member := range chosen {
		if member == b.self {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		promised := false
		reply, err := b.query(ctx, member, rpc.QueryPledge, arguments)
		if err == nil {
			err = reply.Decode(&promised)
		}
		cancel()
		if err != nil || !promised {
			b.log.DebugContext(ctx, "ask for a promise", "peer", member, "error", err)
			return false
		}
	}
	return true
}

// recordDecision makes the end of the search durable before anything is opened: founders, or
// nil for a replica that starts empty.
func (b *bootstrapper) recordDecision(initial []fsm.MemberID) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hasData = true
	return b.dataDir.update(func(id *identity) { id.Pledge, id.Bootstrapping = initial, initial != nil })
}

// recordCluster records the cluster that the data belongs to; from now on a pledge is history.
func (b *bootstrapper) recordCluster(cluster string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dataDir.identity.Cluster == cluster {
		return nil
	}
	return b.dataDir.update(func(id *identity) { id.Cluster, id.Pledge, id.Bootstrapping = cluster, nil, false })
}
