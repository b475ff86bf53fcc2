package cluster

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// bootstrapLogEvery is how often a member that waits says for what.
const bootstrapLogEvery = 10 * time.Second

// helloReply is what a member says of itself when asked directly. Gossip alone is never
// believed in matters of founding.
type helloReply struct {
	Member    fsm.MemberID   `json:"Member"`
	Holds     bool           `json:"Holds"`     // holds data, or has decided to found
	Cluster   string         `json:"Cluster"`   // cluster id, when known
	Founders  []fsm.MemberID `json:"Founders"`  // of the founding that it takes part in
	Candidate []fsm.MemberID `json:"Candidate"` // with whom it is trying to found
	Removed   bool           `json:"Removed"`   // who asks was removed from the cluster
	Knows     uint32         `json:"Knows"`     // the highest level that its binary knows
	Needs     uint32         `json:"Needs"`     // the level of the cluster, 0 when there is none yet
}

// pledgeQuery asks for the promise to found with these members, the first of whom asks.
type pledgeQuery struct {
	Founders []fsm.MemberID `json:"Founders"`
}

// founder brings a member without data into a cluster: into one that exists, or, when
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
type founder struct {
	self   fsm.MemberID
	expect int
	knows  uint32 // the highest level
	folder *folder
	log    *slog.Logger
	alive  func() []fsm.MemberID // by gossip, this member included
	query  func(ctx context.Context, member fsm.MemberID, kind queryKind, arguments []byte) (queryReply, error)

	mu         sync.Mutex // guards folder.id too
	holds      bool       // a replica of the catalog is open, or about to be
	candidate  []fsm.MemberID
	collecting bool
}

// hello answers queryHello.
func (f *founder) hello() helloReply {
	f.mu.Lock()
	defer f.mu.Unlock()
	reply := helloReply{Member: f.self, Holds: f.holds, Cluster: f.folder.id.Cluster, Candidate: f.candidate}
	if f.folder.id.Founding {
		reply.Founders = f.folder.id.Pledge
	}
	return reply
}

// pledge answers queryPledge: true is a promise.
func (f *founder) pledge(q pledgeQuery) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(q.Founders) > catalogVotersMax || !slices.Contains(q.Founders, f.self) || q.Founders[0] == f.self {
		return false, fsm.InvalidArgument
	}
	if f.holds || f.collecting {
		return false, nil
	}
	if slices.Equal(f.folder.id.Pledge, q.Founders) {
		return true, nil
	}
	if f.folder.id.Pledge != nil {
		return false, nil
	}
	f.log.Info("promises to found a cluster", "founders", q.Founders)
	if err := f.folder.change(func(id *identity) { id.Pledge = q.Founders }); err != nil {
		return false, err
	}
	return true, nil
}

// run goes round until this member may open its replica of the catalog: with the
// founders as voters, or empty (nil) for a cluster that will take it in.
func (f *founder) run(ctx context.Context, every time.Duration) (founders []fsm.MemberID, err error) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	var logged time.Time
	for {
		founders, ready, waits, err := f.round(ctx)
		if err != nil || ready {
			return founders, err
		}
		if now := time.Now(); now.Sub(logged) > bootstrapLogEvery {
			logged = now
			f.log.InfoContext(ctx, "has no data and waits", "for", waits, "seen", len(f.alive()), "expect", f.expect)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// round looks at everybody once. waits says, for people, what is missing.
func (f *founder) round(ctx context.Context) (founders []fsm.MemberID, ready bool, waits string, err error) {
	alive := f.alive()
	answers := f.askAll(ctx, alive)
	for _, hello := range answers {
		if hello.Needs > f.knows { // it would be taken in by nobody
			return nil, false, "", outdated(hello.Needs, f.knows)
		}
	}
	if founders, join, clash := joinable(f.self, answers); clash {
		return nil, false, "members of two clusters are seen: correct the names to join", nil
	} else if join {
		return founders, true, "", f.commit(founders)
	}
	if f.expect == 0 {
		return nil, false, "a cluster to join", nil
	}
	if len(answers)+1 < len(alive) || len(alive) < f.expect {
		return nil, false, "more members", f.propose(nil, answers)
	}
	all := slices.Sorted(slices.Values(alive))
	chosen := all[:min(f.expect, catalogVotersMax)]
	if chosen[0] != f.self {
		return nil, false, "the member with the lowest id to found", f.propose(nil, answers)
	}
	if err := f.propose(chosen, answers); err != nil {
		return nil, false, "", err
	}
	if !f.collect(ctx, chosen) {
		return nil, false, "all founders to promise", nil
	}
	f.log.InfoContext(ctx, "founds a cluster", "founders", chosen)
	return chosen, true, "", f.commit(chosen)
}

// askAll asks the others, at once, and returns what those said who answered.
func (f *founder) askAll(ctx context.Context, members []fsm.MemberID) []helloReply {
	var mu sync.Mutex
	var answers []helloReply
	arguments, err := json.Marshal(helloQuery{From: f.self})
	if err != nil {
		return nil
	}
	var asking sync.WaitGroup
	for _, member := range members {
		if member == f.self {
			continue
		}
		asking.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			var hello helloReply
			reply, err := f.query(ctx, member, queryHello, arguments)
			if err == nil {
				err = reply.decode(&hello)
			}
			if err != nil || hello.Member != member {
				f.log.DebugContext(ctx, "ask for data", "peer", member, "error", err)
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

// joinable says whether somebody holds data, and with which founders we begin, if we
// are one of them. clash: they belong to different clusters.
func joinable(self fsm.MemberID, answers []helloReply) (founders []fsm.MemberID, join, clash bool) {
	cluster := ""
	for _, hello := range answers {
		if !hello.Holds {
			continue
		}
		join = true
		if hello.Cluster != "" {
			clash = clash || (cluster != "" && cluster != hello.Cluster)
			cluster = hello.Cluster
		}
		if slices.Contains(hello.Founders, self) {
			founders = hello.Founders
		}
	}
	return founders, join, clash
}

// propose sets whom we try to found with (nil: nobody) and takes back a pledge that
// binds no more: our own earlier try, or one whose lowest member tries something else.
func (f *founder) propose(chosen []fsm.MemberID, answers []helloReply) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.candidate = chosen
	pledge := f.folder.id.Pledge
	if pledge == nil || slices.Equal(pledge, chosen) {
		return nil
	}
	free := pledge[0] == f.self
	for _, hello := range answers {
		if hello.Member == pledge[0] && !hello.Holds && !slices.Equal(hello.Candidate, pledge) {
			free = true
		}
	}
	if !free {
		return nil
	}
	return f.folder.change(func(id *identity) { id.Pledge = nil })
}

// collect asks all founders for their promise and gives our own.
func (f *founder) collect(ctx context.Context, chosen []fsm.MemberID) bool {
	f.mu.Lock()
	if f.folder.id.Pledge != nil && !slices.Equal(f.folder.id.Pledge, chosen) {
		f.mu.Unlock()
		return false // bound to others
	}
	f.collecting = true
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.collecting = false
		f.mu.Unlock()
	}()
	arguments, err := json.Marshal(pledgeQuery{Founders: chosen})
	if err != nil {
		return false
	}
	for _, member := range chosen {
		if member == f.self {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		promised := false
		reply, err := f.query(ctx, member, queryPledge, arguments)
		if err == nil {
			err = reply.decode(&promised)
		}
		cancel()
		if err != nil || !promised {
			f.log.DebugContext(ctx, "ask for a promise", "peer", member, "error", err)
			return false
		}
	}
	return true
}

// commit makes the end of the search durable before anything is opened: founders, or
// nil for a replica that starts empty.
func (f *founder) commit(founders []fsm.MemberID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.holds = true
	return f.folder.change(func(id *identity) { id.Pledge, id.Founding = founders, founders != nil })
}

// settled records the cluster that the data belongs to; from now on a pledge is history.
func (f *founder) settled(cluster string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.folder.id.Cluster == cluster {
		return nil
	}
	return f.folder.change(func(id *identity) { id.Cluster, id.Pledge, id.Founding = cluster, nil, false })
}
