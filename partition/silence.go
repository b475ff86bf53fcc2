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
	silenceAsked       = 0xf0
	goneAsked          = 0xf1
	silenceHeard       = 0 // there is a leader, or this replica cannot say
	silenceShared      = 1
	silenceGoesFirst   = 2 // shared, and who answers is the better successor
	silenceLed         = 3 // only to goneAsked: there is a leader, and its process lives
	silenceMeritBytes  = 8 + 8 + 4
	silenceAnswerBytes = 1
)

const (
	silenceAnswerWithin = 250 * time.Millisecond // dialling included
	silenceLookWithin   = 50 * time.Millisecond  // for raft to show that it is not busy
	silenceLookApart    = 20 * time.Millisecond  // between two looks: what waited in line gets its turn
	silenceSecondAfter  = 300 * time.Millisecond // who goes first has stood by then
	goneLookWithin      = 100 * time.Millisecond // for the leader that one knows to answer
)

// silenceAllowed is how long a leader may be silent before its followers talk about it: long
// enough for a leader that reaches no quorum to have stepped down by itself, and longer than
// three heartbeats, which come a tenth to a fifth of the timeout apart.
func (t Timing) silenceAllowed() time.Duration { return max(t.Lease, t.Heartbeat/2) + t.Heartbeat/10 }

// quiet says whether this replica has heard a leader once, and nothing for too long. To vote
// for somebody is to hear, too. A candidate that nobody has elected hears nothing either.
func (g *Group) quiet(r *raft.Raft) bool {
	last, state := r.LastContact(), r.State()
	return (state == raft.Follower || state == raft.Candidate) &&
		!last.IsZero() && time.Since(last) > g.cfg.Timing.silenceAllowed()
}

// silent is quiet where it is certain that raft is not to blame: a heartbeat that waits
// behind a slow write is heard only when raft's main goroutine comes to it.
func (g *Group) silent(ctx context.Context) bool {
	inst := g.inst.Load()
	if inst == nil || !g.quiet(inst.raft) {
		return false
	}
	for range 2 {
		look, cancel := context.WithTimeout(ctx, silenceLookWithin)
		// A follower answers that it does not lead, which only its main goroutine can do.
		_ = await(look, func() raft.Future { return inst.raft.VerifyLeader() })
		late := look.Err() != nil
		cancel()
		if late {
			return false
		}
		pause(ctx, silenceLookApart)
	}
	return g.quiet(inst.raft)
}

// untilQuiet is when it makes sense to look again.
func (g *Group) untilQuiet() time.Duration {
	again := g.cfg.Timing.Heartbeat / 10
	inst := g.inst.Load()
	if inst == nil || inst.raft.State() == raft.Leader {
		return g.cfg.Timing.silenceAllowed()
	}
	return max(again, g.cfg.Timing.silenceAllowed()-time.Since(inst.raft.LastContact()))
}

// replaceSilent stands for election when a quorum hears nothing from a leader. Who is not
// the best successor lets the other go first.
func (g *Group) replaceSilent(ctx context.Context) {
	if !g.silent(ctx) {
		return
	}
	inst := g.inst.Load()
	switch g.askAround(ctx, inst.raft, silenceAsked) {
	case silenceShared:
	case silenceGoesFirst:
		pause(ctx, silenceSecondAfter)
	default:
		return
	}
	if ctx.Err() == nil && g.quiet(inst.raft) {
		g.stand(ctx, inst, "a quorum hears nothing from the leader")
	}
}

// askAround says what a quorum of the voters, this one among them, answers to a question. If
// all of a quorum share the silence, no leader can have confirmed anything for longer than it
// may lead without a quorum, and to replace it takes nothing from anybody.
func (g *Group) askAround(ctx context.Context, r *raft.Raft, asked byte) byte {
	_, leader := r.LeaderWithID()
	var others []fsm.MemberID
	voters, votes := 0, false
	for _, s := range r.GetConfiguration().Configuration().Servers {
		switch {
		case s.Suffrage != raft.Voter:
			continue
		case s.ID == raft.ServerID(g.cfg.Replica):
			votes = true
		case s.ID != leader:
			others = append(others, fsm.MemberID(s.Address))
		}
		voters++
	}
	if !votes {
		return silenceHeard
	}
	ctx, cancel := context.WithTimeout(ctx, silenceAnswerWithin)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	question := append([]byte{asked}, g.merit(r)...)
	answers := make(chan byte, len(others))
	for _, member := range others {
		asking.Go(func() { answers <- g.askSilence(ctx, member, question) })
	}
	verdict, missing := byte(silenceShared), voters/2 // beside ourselves
	for range others {
		answer := <-answers
		switch answer {
		case silenceHeard:
			continue
		case silenceLed:
			return answer
		}
		verdict = max(verdict, answer)
		if missing--; missing <= 0 {
			return verdict
		}
	}
	return silenceHeard
}

// merit is greater for a better successor: a longer log, by the rule by which raft grants
// votes, and for equal ones a number that is another in each group. 0 bytes are the least.
func (g *Group) merit(r *raft.Raft) []byte {
	term, index, err := lastEntry(r)
	if err != nil {
		return make([]byte, silenceMeritBytes)
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

// askSilence asks another replica. Who cannot be asked, or knows no such question, has heard.
func (g *Group) askSilence(ctx context.Context, member fsm.MemberID, question []byte) byte {
	conn, err := g.cfg.Dial(ctx, member, g.cfg.ID)
	if err != nil {
		return silenceHeard
	}
	// A close that fails leaves nothing to do; with ctx it ends the read.
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer func() {
		if stop() {
			_ = conn.Close()
		}
	}()
	if _, err := conn.Write(question); err != nil {
		return silenceHeard
	}
	answer := make([]byte, silenceAnswerBytes)
	if _, err := io.ReadFull(conn, answer); err != nil || answer[0] > silenceLed {
		return silenceHeard
	}
	return answer[0]
}

// answer is the answer to a peer of that merit.
func (g *Group) answer(ctx context.Context, asked byte, merit []byte) byte {
	if asked == goneAsked {
		return g.answerGone(ctx, merit)
	}
	return g.answerSilence(ctx, merit)
}

// answerSilence is the answer to silenceAsked. Who goes first looks around at once.
func (g *Group) answerSilence(ctx context.Context, merit []byte) byte {
	if !g.silent(ctx) {
		return silenceHeard
	}
	if bytes.Compare(g.merit(g.inst.Load().raft), merit) <= 0 {
		return silenceShared
	}
	poke(g.hush)
	return silenceGoesFirst
}

// answerGone is the answer to goneAsked: the peer is certain about the leader that it knew,
// and we may know a later one. Who goes first looks at once whether its leader is gone.
func (g *Group) answerGone(ctx context.Context, merit []byte) byte {
	inst := g.inst.Load()
	if inst == nil {
		return silenceHeard
	}
	address, _ := inst.raft.LeaderWithID()
	if address != "" && g.lives(ctx, fsm.MemberID(address)) {
		return silenceLed
	}
	if bytes.Compare(g.merit(inst.raft), merit) <= 0 {
		return silenceShared
	}
	poke(g.broken)
	return silenceGoesFirst
}

// lives says whether it is certain that a member's process is there. It may be this one.
func (g *Group) lives(ctx context.Context, member fsm.MemberID) bool {
	if member == g.cfg.Member {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, goneLookWithin)
	defer cancel()
	conn, err := g.cfg.Dial(ctx, member, g.cfg.ID)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// converse reads the rest of a question, of which some bytes have come, and answers it.
func (s *streams) converse(conn net.Conn, asked byte, come []byte) {
	_ = conn.SetDeadline(time.Now().Add(silenceAnswerWithin)) // an error shows when it is read
	merit := make([]byte, silenceMeritBytes)
	n := copy(merit, come)
	if _, err := io.ReadFull(conn, merit[n:]); err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), silenceAnswerWithin)
	defer cancel()
	_, _ = conn.Write([]byte{s.answer(ctx, asked, merit)}) // who asked may be gone
}
