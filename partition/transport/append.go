package transport

import (
	"errors"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

const heartbeatWaitMax = 500 * time.Millisecond // entries are sent again after this time, also without a heartbeat

const (
	// appendTimeMax is the time after which AppendEntries begins no further request: raft counts what the follower
	// holds, and learns of changes, when AppendEntries returns.
	appendTimeMax = 5 * time.Second
)

// AppendEntries sends the entries in requests of requestBytesMax. Raft takes args.Entries, which it reads again
// afterwards, for what the follower holds (raft 1.7.3, updateLastAppended). So AppendEntries succeeds only if the
// follower has taken all of args.Entries, or shortens args.Entries to those that it has taken; raft sends the
// others with the next call.
func (t Transport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if len(args.Entries) == 0 && args.PrevLogEntry == 0 && args.LeaderCommitIndex == 0 { // raft 1.7.3, heartbeat
		t.heartbeats.awaitBeat(id, t.cfg.BeatInterval, t.cfg.Closed)
		err := t.sendEntries(id, target, args, resp)
		if err != nil || !resp.Success {
			t.heartbeats.failures(id).Add(1)
		}
		if err == nil {
			t.heartbeats.notify(id)
		}
		return err
	}
	t.limitCommit(args)
	begun := time.Now()
	for taken := 0; ; {
		piece, next := pieceOf(args, taken)
		var answer raft.AppendEntriesResponse
		err := t.appendPiece(id, target, piece, &answer, taken == 0)
		switch {
		case err != nil && taken == 0:
			return err
		case err == nil:
			*resp = answer
			if !answer.Success || answer.Term > args.Term {
				return nil
			}
			taken = next
		}
		if err != nil || taken == len(args.Entries) || time.Since(begun) > appendTimeMax || !t.stillLeads(id, args.Term) {
			args.Entries = args.Entries[:taken]
			return nil //nolint:nilerr // what was taken is a success; raft tries the rest
		}
	}
}

// appendPiece sends entries. Raft counts the pieces that the follower has taken when AppendEntries returns, so only the
// first one waits for a peer that does not answer.
func (t Transport) appendPiece(id raft.ServerID, target raft.ServerAddress, piece *raft.AppendEntriesRequest, answer *raft.AppendEntriesResponse, first bool) error {
	if first {
		return t.appendUntilAnswered(id, target, piece, answer)
	}
	return t.sendEntries(id, target, piece, answer)
}

// errNextTerm is the error of requests of a leader that has learned of a later term and cannot store it. Raft's main goroutine waits for
// space meanwhile, but its other goroutines would go on with heartbeats, and no other replica would be elected.
var errNextTerm = errors.New("this replica has no space for the next term, and leads no more")

// waitsForTerm returns errNextTerm if it applies.
func (t Transport) waitsForTerm() error {
	if t.cfg.WaitsForTerm != nil && t.cfg.WaitsForTerm() {
		return errNextTerm
	}
	return nil
}

func (t Transport) sendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if err := t.waitsForTerm(); err != nil {
		return err
	}
	return t.send(id, target, args, resp, nil)
}

// appendUntilAnswered sends entries again that could not be sent, as soon as the peer answers a heartbeat. Raft
// would retry them with a backoff of up to ten seconds: a member that returns gets nothing meanwhile, and is
// far behind when it is needed. Heartbeats are sent at least twice a second. A request that fails although
// heartbeats are answered is left to raft.
func (t Transport) appendUntilAnswered(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	for answered := false; ; {
		beat := t.heartbeats.wait(id)
		err := t.sendEntries(id, target, args, resp)
		if err == nil || answered || !t.stillLeads(id, args.Term) {
			return err
		}
		look := time.NewTimer(heartbeatWaitMax)
		select {
		case <-beat:
			answered = true
		case <-look.C:
		case <-t.cfg.Closed:
		}
		look.Stop()
		if !t.stillLeads(id, args.Term) {
			return err
		}
	}
}

// stillLeads reports whether this replica is the leader in that term and the group contains the other.
func (t Transport) stillLeads(id raft.ServerID, term uint64) bool {
	select {
	case <-t.cfg.Closed:
		return false
	default:
	}
	r := t.raft.Load()
	return r == nil || r.State() == raft.Leader && r.CurrentTerm() == term &&
		slices.ContainsFunc(r.GetConfiguration().Configuration().Servers, func(s raft.Server) bool { return s.ID == id })
}

// AppendEntriesPipeline opens a pipeline.
func (t Transport) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	s, err := t.stream(replicaAddress(id, target))
	if err != nil {
		return nil, err
	}
	return newPipeline(t, id, s)
}
