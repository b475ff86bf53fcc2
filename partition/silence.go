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
// hear nothing from a leader either? Behind it stands how good a successor the asker is. The
// answer is one byte, and the stream ends.
const (
	silenceAsked       = 0xf0
	silenceHeard       = 0 // there is a leader, or this replica cannot say
	silenceShared      = 1
	silenceGoesFirst   = 2 // shared, and who answers is the better successor
	silenceMeritBytes  = 8 + 8 + 4
	silenceAnswerBytes = 1
)

const (
	silenceAnswerWithin = 250 * time.Millisecond // dialling included
	silenceLookWithin   = 50 * time.Millisecond  // for raft to show that it is not busy
	silenceLookApart    = 20 * time.Millisecond  // between two looks: what waited in line gets its turn
	silenceSecondAfter  = 300 * time.Millisecond // who goes first has stood by then
)

// silenceAllowed is how long a leader may be silent before its followers talk about it: long
// enough for a leader that reaches no quorum to have stepped down by itself, and longer than
// three heartbeats, which come a tenth to a fifth of the timeout apart.
func (t Timing) silenceAllowed() time.Duration { return max(t.Lease, t.Heartbeat/2) + t.Heartbeat/10 }

// quiet says whether this replica has heard a leader once, and nothing for too long. To vote
// for somebody is to hear, too.
func (g *Group) quiet(r *raft.Raft) bool {
	last := r.LastContact()
	return r.State() == raft.Follower && !last.IsZero() && time.Since(last) > g.cfg.Timing.silenceAllowed()
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
	if inst == nil || inst.raft.State() != raft.Follower {
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
	switch g.askAround(ctx, inst.raft) {
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

// askAround says what a quorum of the voters, this one among them, knows of the silence. If
// all of a quorum share it, no leader can have confirmed anything for longer than it may lead
// without a quorum, and to replace it takes nothing from anybody.
func (g *Group) askAround(ctx context.Context, r *raft.Raft) byte {
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
	question := append([]byte{silenceAsked}, g.merit(r)...)
	answers := make(chan byte, len(others))
	for _, member := range others {
		asking.Go(func() { answers <- g.askSilence(ctx, member, question) })
	}
	verdict, missing := byte(silenceShared), voters/2 // beside ourselves
	for range others {
		answer := <-answers
		if answer == silenceHeard {
			continue
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
	stats := r.Stats()
	term, err := strconv.ParseUint(stats["last_log_term"], 10, 64)
	if err != nil {
		return make([]byte, silenceMeritBytes)
	}
	index, err := strconv.ParseUint(stats["last_log_index"], 10, 64)
	if err != nil {
		return make([]byte, silenceMeritBytes)
	}
	m := binary.BigEndian.AppendUint64(nil, term)
	m = binary.BigEndian.AppendUint64(m, index)
	lot := strconv.AppendUint([]byte(g.cfg.Replica+" "), uint64(g.cfg.ID), 10)
	return binary.BigEndian.AppendUint32(m, crc32.ChecksumIEEE(lot))
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
	if _, err := io.ReadFull(conn, answer); err != nil || answer[0] > silenceGoesFirst {
		return silenceHeard
	}
	return answer[0]
}

// answerSilence is the answer to a peer of that merit. Who goes first looks around at once.
func (g *Group) answerSilence(ctx context.Context, merit []byte) byte {
	if !g.silent(ctx) {
		return silenceHeard
	}
	if bytes.Compare(g.merit(g.inst.Load().raft), merit) <= 0 {
		return silenceShared
	}
	select {
	case g.hush <- struct{}{}:
	default:
	}
	return silenceGoesFirst
}

// converse reads the rest of a question, of which some bytes have come, and answers it.
func (s *streams) converse(conn net.Conn, come []byte) {
	_ = conn.SetDeadline(time.Now().Add(silenceAnswerWithin)) // an error shows when it is read
	merit := make([]byte, silenceMeritBytes)
	n := copy(merit, come)
	if _, err := io.ReadFull(conn, merit[n:]); err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), silenceAnswerWithin)
	defer cancel()
	_, _ = conn.Write([]byte{s.silence(ctx, merit)}) // who asked may be gone
}
