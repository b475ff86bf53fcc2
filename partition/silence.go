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

// A question on a stream of its own, in a byte with which no request of raft begins: do you
// hear nothing from a leader either? Or: the leader's process is gone, may I stand? Behind it
// stands how good a successor the asker is. The answer is one byte, and the stream ends.
const (
	askSilent       = 0xf0
	askGone         = 0xf1
	answerHeard     = 0 // there is a leader, or this replica cannot say
	answerAgree     = 1
	answerBetter    = 2 // shared, and who answers is the better successor
	answerHasLeader = 3 // only to askGone: there is a leader, and its process lives
	rankBytes       = 8 + 8 + 4
	answerBytes     = 1
)

const (
	answerTimeout    = 250 * time.Millisecond // dialling included
	busyTimeout      = 50 * time.Millisecond  // for raft to show that it is not busy
	busyPollInterval = 20 * time.Millisecond  // between two looks: what waited in line gets its turn
	betterWait       = 300 * time.Millisecond // who goes first has stood by then
	aliveTimeout     = 100 * time.Millisecond // for the leader that one knows to answer
)

// silenceMax is how long a leader may be silent before its followers talk about it: long
// enough for a leader that reaches no quorum to have stepped down by itself, and longer than
// three heartbeats, which come a tenth to a fifth of the timeout apart.
func (t Timing) silenceMax() time.Duration { return max(t.Lease, t.Heartbeat/2) + t.Heartbeat/10 }

// hearsNoLeader says whether this replica has heard a leader once, and nothing for too long. To vote
// for somebody is to hear, too. A candidate that nobody has elected hears nothing either.
func (g *Group) hearsNoLeader(r *raft.Raft) bool {
	last, state := r.LastContact(), r.State()
	return (state == raft.Follower || state == raft.Candidate) &&
		!last.IsZero() && time.Since(last) > g.cfg.Timing.silenceMax()
}

// isLeaderSilent is quiet where it is certain that raft is not to blame: a heartbeat that waits
// behind a slow write is heard only when raft's main goroutine comes to it.
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

// silenceCheckDelay is when it makes sense to look again.
func (g *Group) silenceCheckDelay() time.Duration {
	again := g.cfg.Timing.Heartbeat / 10
	inst := g.instance.Load()
	if inst == nil || inst.raft.State() == raft.Leader {
		return g.cfg.Timing.silenceMax()
	}
	return max(again, g.cfg.Timing.silenceMax()-time.Since(inst.raft.LastContact()))
}

// replaceSilentLeader stands for election when a quorum hears nothing from a leader. Who is not
// the best successor lets the other go first.
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

// pollVoters says what a quorum of the voters, this one among them, answers to a question. If
// all of a quorum share the silence, no leader can have confirmed anything for longer than it
// may lead without a quorum, and to replace it takes nothing from anybody.
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
	verdict, missing := byte(answerAgree), voters/2 // beside ourselves
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

// logRank is greater for a better successor: a longer log, by the rule by which raft grants
// votes, and for equal ones a number that is another in each group. 0 bytes are the least.
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

// lastEntry is the end of the log, or the snapshot that stands for it.
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

// askVoter asks another replica. Who cannot be asked, or knows no such question, has heard.
func (g *Group) askVoter(ctx context.Context, voter raft.Server, question []byte) byte {
	conn, err := g.cfg.Dial(ctx, fsm.MemberID(voter.Address), g.cfg.ID, string(voter.ID))
	if err != nil {
		return answerHeard
	}
	// A close that fails leaves nothing to do; with ctx it ends the read.
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

// answerQuestion is the answer to a peer of that merit.
func (g *Group) answerQuestion(ctx context.Context, kind byte, rank []byte) byte {
	if kind == askGone {
		return g.answerGone(ctx, rank)
	}
	return g.answerSilence(ctx, rank)
}

// answerSilence is the answer to askSilent. Who goes first looks around at once.
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

// answerGone is the answer to askGone: the peer is certain about the leader that it knew,
// and we may know a later one. Who goes first looks at once whether its leader is gone.
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

// isAlive says whether it is certain that a member's process is there. It may be this one.
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

// serveQuestion answers a question of a peer, of whose stream some bytes have come; false if the stream does
// not begin with a question.
func (g *Group) serveQuestion(conn net.Conn, begin []byte) bool {
	kind := begin[0]
	if kind != askSilent && kind != askGone {
		return false
	}
	_ = conn.SetDeadline(time.Now().Add(answerTimeout)) // an error shows when it is read
	rank := make([]byte, rankBytes)
	n := copy(rank, begin[1:])
	if _, err := io.ReadFull(conn, rank[n:]); err != nil {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	_, _ = conn.Write([]byte{g.answerQuestion(ctx, kind, rank)}) // who asked may be gone
	return true
}
