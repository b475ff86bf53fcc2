package partition

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
)

// A replica asks another one a question on a stream of its own, which begins with a byte with which no request of raft
// begins. askSilent: do you hear no leader either? askGone: the leader's process has ended; may I campaign? The rank of
// the replica that asks (logRank) follows. The answer is one byte, and then the stream ends.
const (
	askSilent       = 0xf0
	askGone         = 0xf1
	answerHeard     = 0 // there is a leader, or this replica cannot tell
	answerAgree     = 1 // there is no leader, and the replica that asks may go first
	answerBetter    = 2 // there is no leader, and the replica that answers is the better successor
	answerHasLeader = 3 // only to askGone: there is a leader, and its process is alive
	rankBytes       = 8 + 8 + 4
	answerBytes     = 1
)

const (
	answerTimeout    = 250 * time.Millisecond // dialling included
	busyTimeout      = 50 * time.Millisecond  // for raft to show that it is not busy
	busyPollInterval = 20 * time.Millisecond  // between two checks, in which raft processes what waited
	betterWait       = 300 * time.Millisecond // for the better successor to campaign
	aliveTimeout     = 100 * time.Millisecond // for the known leader to accept a connection
)

// silenceMax is how long a leader may be silent before its followers ask each other: long enough for a leader that
// reaches no quorum to have stepped down, and longer than three heartbeats, which are a tenth to a fifth of the timeout
// apart.
func (t Timing) silenceMax() time.Duration { return max(t.Lease, t.Heartbeat/2) + t.Heartbeat/10 }

// hearsNoLeader reports whether this replica has heard a leader before, and none for silenceMax. Voting for a candidate
// counts as hearing a leader. A candidate that was not elected hears none either.
func (g *Group) hearsNoLeader(r *raft.Raft) bool {
	last, state := r.LastContact(), r.State()
	return (state == raft.Follower || state == raft.Candidate) &&
		!last.IsZero() && time.Since(last) > g.cfg.Timing.silenceMax()
}

// isLeaderSilent reports whether the leader is silent and raft on this replica is not the cause: a heartbeat that waits
// behind a slow write counts only when raft's main goroutine processes it.
func (g *Group) isLeaderSilent(ctx context.Context) bool {
	inst := g.instance.Load()
	if inst == nil || !g.hearsNoLeader(inst.raft) {
		return false
	}
	for range 2 {
		look, cancel := context.WithTimeout(ctx, busyTimeout)
		// A follower answers that it does not lead, which only its main goroutine can do.
		_ = await(look, func() raft.Future { return inst.raft.VerifyLeader() })
		late := look.Err() != nil
		cancel()
		if late {
			return false
		}
		pause(ctx, busyPollInterval)
	}
	return g.hearsNoLeader(inst.raft)
}

// silenceCheckDelay returns the time until the next check for silence.
func (g *Group) silenceCheckDelay() time.Duration {
	again := g.cfg.Timing.Heartbeat / 10
	inst := g.instance.Load()
	if inst == nil || inst.raft.State() == raft.Leader {
		return g.cfg.Timing.silenceMax()
	}
	return max(again, g.cfg.Timing.silenceMax()-time.Since(inst.raft.LastContact()))
}

// replaceSilentLeader campaigns if no replica of a quorum hears a leader. It lets a better successor go first.
func (g *Group) replaceSilentLeader(ctx context.Context) {
	if !g.isLeaderSilent(ctx) {
		return
	}
	inst := g.instance.Load()
	switch g.pollVoters(ctx, inst.raft, askSilent) {
	case answerAgree:
	case answerBetter:
		pause(ctx, betterWait)
	default:
		return
	}
	if ctx.Err() == nil && g.hearsNoLeader(inst.raft) {
		g.campaign(ctx, inst, "a quorum hears nothing from the leader")
	}
}

// pollVoters asks the other voters a question and returns the answer of a quorum, this replica included. If a quorum
// hears no leader, the leader has confirmed nothing for longer than its lease, so an election deposes no leader that
// works.
func (g *Group) pollVoters(ctx context.Context, r *raft.Raft, kind byte) byte {
	_, leader := r.LeaderWithID()
	var others []raft.Server
	voters, votes := 0, false
	for _, s := range r.GetConfiguration().Configuration().Servers {
		switch {
		case s.Suffrage != raft.Voter:
			continue
		case s.ID == raft.ServerID(g.cfg.Replica):
			votes = true
		case s.ID != leader:
			others = append(others, s)
		}
		voters++
	}
	if !votes {
		return answerHeard
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	question := append([]byte{kind}, g.logRank(r)...)
	answers := make(chan byte, len(others))
	for _, voter := range others {
		asking.Go(func() { answers <- g.askVoter(ctx, voter, question) })
	}
	verdict, missing := byte(answerAgree), voters/2 // the answers that a quorum needs besides this replica
	for range others {
		answer := <-answers
		switch answer {
		case answerHeard:
			continue
		case answerHasLeader:
			return answer
		}
		verdict = max(verdict, answer)
		if missing--; missing <= 0 {
			return verdict
		}
	}
	return answerHeard
}

// logRank returns the rank of this replica as a successor: the end of its log, in the order in which raft grants votes,
// and for equal logs a hash that orders the replicas differently in each group. The greater one, as bytes, goes first.
func (g *Group) logRank(r *raft.Raft) []byte {
	term, index, err := lastEntry(r)
	if err != nil {
		return make([]byte, rankBytes)
	}
	m := binary.BigEndian.AppendUint64(nil, term)
	m = binary.BigEndian.AppendUint64(m, index)
	lot := strconv.AppendUint([]byte(g.cfg.Replica+" "), uint64(g.cfg.ID), 10)
	return binary.BigEndian.AppendUint32(m, crc32.ChecksumIEEE(lot))
}

// lastEntry returns term and index of the end of the log, or of the snapshot that replaces it.
func lastEntry(r *raft.Raft) (term, index uint64, err error) {
	var read [4]uint64
	stats := r.Stats()
	for i, name := range []string{"last_log_term", "last_log_index", "last_snapshot_term", "last_snapshot_index"} {
		if read[i], err = strconv.ParseUint(stats[name], 10, 64); err != nil {
			return 0, 0, err
		}
	}
	if read[3] > read[1] {
		return read[2], read[3], nil
	}
	return read[0], read[1], nil
}

// askVoter asks another replica. A replica that cannot be reached or does not know the question counts as answerHeard.
func (g *Group) askVoter(ctx context.Context, voter raft.Server, question []byte) byte {
	conn, err := g.cfg.Dial(ctx, fsm.MemberID(voter.Address), g.cfg.ID, string(voter.ID))
	if err != nil {
		return answerHeard
	}
	// Closing the stream ends a read when ctx ends. A close that fails needs no reaction.
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer func() {
		if stop() {
			_ = conn.Close()
		}
	}()
	if _, err := conn.Write(question); err != nil {
		return answerHeard
	}
	answer := make([]byte, answerBytes)
	if _, err := io.ReadFull(conn, answer); err != nil || answer[0] > answerHasLeader {
		return answerHeard
	}
	return answer[0]
}

// answerQuestion answers a question of a peer with that rank.
func (g *Group) answerQuestion(ctx context.Context, kind byte, rank []byte) byte {
	if kind == askGone {
		return g.answerGone(ctx, rank)
	}
	return g.answerSilence(ctx, rank)
}

// answerSilence answers askSilent. If this replica is the better successor, it checks for silence at once.
func (g *Group) answerSilence(ctx context.Context, rank []byte) byte {
	if !g.isLeaderSilent(ctx) {
		return answerHeard
	}
	if bytes.Compare(g.logRank(g.instance.Load().raft), rank) <= 0 {
		return answerAgree
	}
	notify(g.leaderSilent)
	return answerBetter
}

// answerGone answers askGone: the peer is certain about the leader that it knew, but this replica may know a later one.
// If this replica is the better successor, it checks at once whether its leader is gone.
func (g *Group) answerGone(ctx context.Context, rank []byte) byte {
	inst := g.instance.Load()
	if inst == nil {
		return answerHeard
	}
	address, _ := inst.raft.LeaderWithID()
	if address != "" && g.isAlive(ctx, fsm.MemberID(address)) {
		return answerHasLeader
	}
	if bytes.Compare(g.logRank(inst.raft), rank) <= 0 {
		return answerAgree
	}
	notify(g.streamBroken)
	return answerBetter
}

// isAlive reports whether it is certain that the process of a member is alive. The member may be this one.
func (g *Group) isAlive(ctx context.Context, member fsm.MemberID) bool {
	if member == g.cfg.Member {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, aliveTimeout)
	defer cancel()
	conn, err := g.cfg.Dial(ctx, member, g.cfg.ID, "")
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// serveQuestion answers the question on a stream of a peer, of which the bytes begin were read already. It returns false
// if the stream does not begin with a question.
func (g *Group) serveQuestion(conn net.Conn, begin []byte) bool {
	kind := begin[0]
	if kind != askSilent && kind != askGone {
		return false
	}
	_ = conn.SetDeadline(time.Now().Add(answerTimeout)) // the next read reports an error
	rank := make([]byte, rankBytes)
	n := copy(rank, begin[1:])
	if _, err := io.ReadFull(conn, rank[n:]); err != nil {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	_, _ = conn.Write([]byte{g.answerQuestion(ctx, kind, rank)}) // the peer may be gone
	return true
}
