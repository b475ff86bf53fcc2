package partition

import (
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// patient makes raft's own timers useless for a test: what happens within minutes happens
// for another reason.
func patient(c *Config) {
	c.Timing.Heartbeat, c.Timing.Election, c.Timing.Lease = 10*time.Minute, 10*time.Minute, 10*time.Minute
}

// formPatient makes three members of which the second leads.
func formPatient(t *testing.T) []*member { return form(t, patient) }

func form(t *testing.T, tune func(*Config)) []*member {
	t.Helper()
	ms := newMembers(t, 3, tune)
	voters := slices.Clone(ms[0].voters)
	voters[0], voters[1] = voters[1], voters[0] // the first goes first
	for _, m := range ms {
		m.voters = voters
		m.start(1)
	}
	kit.Eventually(t, "the second leads", func() bool { return ms[1].group(1).Status().IsLeader })
	for _, m := range ms {
		kit.Eventually(t, "everybody knows the leader", func() bool { return m.group(1).Status().Leader == "m1" })
	}
	return ms
}

// A leader whose process is gone has a successor at once: nobody waits for a timer.
func TestCampaignWhenTheLeaderIsGone(t *testing.T) {
	t.Parallel()
	ms := formPatient(t)
	a := &asker{origin: 7}
	must(t, ms[1].group(1), a.next(), fsm.PutEntity{Entity: 5, Version: 1, Settings: settings()})
	sent := must(t, ms[1].group(1), a.next(), send(5, body(1)))
	ms[1].stop()
	m, g := leader(t, ms, 1)
	if m == ms[1] {
		t.Fatal("the leader is still there")
	}
	next := must(t, g, a.next(), send(5, body(2)))
	if next.Sequence != sent.Sequence+1 {
		t.Fatalf("got number %d behind %d", next.Sequence, sent.Sequence)
	}
}

// A follower reports that it follows another leader, although no connection to the old one has ended: requests that
// wait for the old one are sent to the new one.
func TestFollowerReportsItsNewLeader(t *testing.T) {
	t.Parallel()
	found := make(chan struct{}, 8)
	ms := form(t, func(c *Config) {
		patient(c)
		if c.Member == "m2" {
			c.LeaderFound = func() { found <- struct{}{} }
		}
	})
	next := ms[0].group(1)
	if err := next.instance.Load().campaign(next.cfg.Replica, next.cfg.Member); err != nil {
		t.Fatal(err)
	}
	for ms[2].group(1).Status().Leader != "m0" {
		<-found
	}
}

// lag makes a member get nothing from another, and has the others confirm something without it.
func lag(t *testing.T, ms []*member, from, to *member) {
	t.Helper()
	n := from.net
	n.mu.Lock()
	link := [2]fsm.MemberID{from.id, to.id}
	n.cut[link] = true
	for c, ends := range n.conns {
		if ends == link {
			_ = c.Close()
			delete(n.conns, c)
		}
	}
	n.mu.Unlock()
	must(t, from.group(1), (&asker{origin: 7}).next(), fsm.PutEntity{Entity: 5, Version: 1, Settings: settings()})
	for _, m := range ms {
		if m != to {
			waitCaughtUp(t, ms, m)
		}
	}
}

// Who stands first may be behind and lose: then the next one stands.
func TestCampaignAfterALostOne(t *testing.T) {
	t.Parallel()
	ms := formPatient(t)
	lag(t, ms, ms[1], ms[2])
	ms[1].stop()
	behind := ms[2].group(1)
	if err := behind.instance.Load().campaign(behind.cfg.Replica, behind.cfg.Member); err != nil {
		t.Fatal(err)
	}
	m, _ := leader(t, ms, 1)
	if m != ms[0] {
		t.Errorf("%s leads", m.id)
	}
	// A late vote request of the one that lost can cost the leader its term.
	mustEventually(t, []*member{ms[0], ms[2]}, (&asker{origin: 8}).next(), send(5, body(1)))
}

// Who refuses its vote to one that is behind stands itself, although it knows nothing else of
// the leader: here the leader is cut off, which no connection tells. The candidate
// would wait for raft's timer, and lose again.
func TestReplicaThatRefusedItsVoteCampaigns(t *testing.T) {
	t.Parallel()
	ms := formPatient(t)
	lag(t, ms, ms[1], ms[2])
	ms[1].net.isolate("m1", true)
	behind := ms[2].group(1)
	if err := behind.instance.Load().campaign(behind.cfg.Replica, behind.cfg.Member); err != nil {
		t.Fatal(err)
	}
	kit.Eventually(t, "the one that refused leads", func() bool { return ms[0].group(1).Status().IsLeader })
}

// Only a candidate that is behind, in a term in which nobody has our vote, makes us stand:
// else we would take the office of one that is about to win.
func TestUninformativeRefusalsStartNoCampaign(t *testing.T) {
	t.Parallel()
	ms := formPatient(t)
	must(t, ms[1].group(1), (&asker{origin: 7}).next(), fsm.PutEntity{Entity: 5, Version: 1, Settings: settings()})
	g := ms[1].group(1) // it has its own vote in this term
	term := g.Status().Term
	ours, index, err := lastEntry(g.instance.Load().raft)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		vote raft.RequestVoteRequest
		want int
	}{
		"behind":            {raft.RequestVoteRequest{Term: term + 1, LastLogTerm: ours, LastLogIndex: index - 1}, 1},
		"an older log term": {raft.RequestVoteRequest{Term: term + 1, LastLogTerm: ours - 1, LastLogIndex: index + 9}, 1},
		"as good":           {raft.RequestVoteRequest{Term: term + 1, LastLogTerm: ours, LastLogIndex: index}, 0},
		"a former term":     {raft.RequestVoteRequest{Term: term - 1}, 0},
		"our vote is given": {raft.RequestVoteRequest{Term: term}, 0},
	} {
		alone := &Group{log: g.log, voteRefused: make(chan struct{}, 1)} // nobody listens
		alone.instance.Store(g.instance.Load())
		alone.noteRefusedVote(&c.vote)
		if got := len(alone.voteRefused); got != c.want {
			t.Errorf("%s: told %d times, want %d", name, got, c.want)
		}
	}
}

// The better successor goes first. While a leader's process lives nobody does.
func TestBetterSuccessorGoesFirst(t *testing.T) {
	t.Parallel()
	ms := formPatient(t)
	lag(t, ms, ms[1], ms[2])
	better, behind := ms[0].group(1), ms[2].group(1)
	asks := func(g *Group) byte { return g.pollVoters(t.Context(), g.instance.Load().raft, askGone) }
	if got := asks(behind); got != answerHasLeader {
		t.Errorf("the leader lives: answer %d, want %d", got, answerHasLeader)
	}
	ms[1].net.isolate("m1", true)
	if got := asks(better); got != answerAgree {
		t.Errorf("to the better one: answer %d, want %d", got, answerAgree)
	}
	if got := asks(behind); got != answerBetter {
		t.Errorf("to the one that is behind: answer %d, want %d", got, answerBetter)
	}
	ms[1].net.cutLink("m0", "m2")
	if got := asks(behind); got != answerHeard {
		t.Errorf("nobody can be asked: answer %d, want %d", got, answerHeard)
	}
}

// Who waits for a better one asks again soon: while what the leader has sent last is still
// being written each of two may find the other's log longer, and both would wait the whole
// time and then stand together.
func TestWaitingSuccessorAsksAgain(t *testing.T) {
	t.Parallel()
	ms := formPatient(t)
	lag(t, ms, ms[1], ms[2])
	ms[1].net.isolate("m1", true)
	behind := ms[2].group(1)
	r := behind.instance.Load().raft
	answer := make(chan byte, 1)
	go func() { answer <- behind.mayCampaign(t.Context(), r, r.CurrentTerm(), time.Hour) }()
	select {
	case got := <-answer:
		t.Fatalf("the other is better: answer %d", got)
	case <-time.After(4 * campaignRetryInterval): // it is no mistake to ask later
	}
	ms[1].net.cutLink("m0", "m2")
	if got := <-answer; got != answerHeard {
		t.Errorf("the other is away: answer %d, want %d", got, answerHeard)
	}
}

// Two candidates that took each other's votes wait for raft's timers. One of them campaigns again.
func TestCampaignAfterASplitVote(t *testing.T) {
	t.Parallel()
	ms := formPatient(t)
	net := ms[1].net
	net.isolate("m1", true)
	net.cutLink("m0", "m2")
	both := []*Group{ms[0].group(1), ms[2].group(1)}
	for _, g := range both {
		if err := g.instance.Load().campaign(g.cfg.Replica, g.cfg.Member); err != nil {
			t.Fatal(err)
		}
	}
	for _, g := range both {
		kit.Eventually(t, "it has asked for votes", func() bool { return g.Status().Term == both[0].Status().Term && g.Status().Term > 1 })
		if state := g.instance.Load().raft.State(); state != raft.Candidate {
			t.Fatalf("%s is a %s", g.cfg.Replica, state)
		}
	}
	net.mu.Lock()
	net.cut[[2]fsm.MemberID{"m0", "m2"}], net.cut[[2]fsm.MemberID{"m2", "m0"}] = false, false
	net.mu.Unlock()
	g := both[0]
	g.campaignUntilLed(t.Context(), g.instance.Load(), "nobody was elected")
	kit.Eventually(t, "a leader", func() bool { return both[0].Status().IsLeader || both[1].Status().IsLeader })
}

// Only a refused connection proves that a process is gone: not a cut.
func TestNoCampaignAgainstALivingLeader(t *testing.T) {
	t.Parallel()
	ms := formPatient(t)
	g, net := ms[0].group(1), ms[1].net
	if g.isProcessGone(t.Context(), "m1") {
		t.Error("a member that answers is taken for gone")
	}
	term := g.Status().Term
	net.isolate("m1", true)
	if g.isProcessGone(t.Context(), "m1") {
		t.Error("a member that is cut off is taken for gone")
	}
	net.isolate("m1", false)
	a := &asker{origin: 7}
	must(t, ms[1].group(1), a.next(), fsm.PutEntity{Entity: 5, Version: 1, Settings: settings()})
	for _, m := range ms {
		waitCaughtUp(t, ms, m)
		if s := m.group(1).Status(); s.Term != term || s.Leader != "m1" {
			t.Errorf("%s: term %d and leader %q, want %d and m1", m.id, s.Term, s.Leader, term)
		}
	}
	ms[1].stop()
	if !g.isProcessGone(t.Context(), "m1") {
		t.Error("a member that is gone is not noticed")
	}
}

// Of two followers one stands first, and in other groups the other; who has no vote, and
// the leader, do not stand.
func TestCampaignOrder(t *testing.T) {
	t.Parallel()
	ms := formPatient(t)
	r := ms[0].group(1).instance.Load().raft
	places := map[int]int{}
	for _, c := range []struct {
		replica string
		group   fsm.PartitionID
	}{{"m0.1", 1}, {"m2.1", 1}, {"m0.1", 2}, {"m2.1", 2}} {
		place, stands := (&Group{cfg: Config{ID: c.group, Replica: c.replica}}).campaignOrder(r, "m1.1")
		if !stands {
			t.Errorf("%s does not stand", c.replica)
		}
		places[2*int(c.group)+place]++
	}
	if len(places) != 4 {
		t.Errorf("places %v, want each once", places)
	}
	for _, replica := range []string{"m1.1", "m9.1"} {
		if _, stands := (&Group{cfg: Config{ID: 1, Replica: replica}}).campaignOrder(r, "m1.1"); stands {
			t.Errorf("%s stands", replica)
		}
	}
}

// heard waits until every follower has heard the leader: who never did says nothing of its
// silence.
func heard(t *testing.T, ms []*member) {
	t.Helper()
	for _, m := range ms {
		r := m.group(1).instance.Load().raft
		kit.Eventually(t, "a heartbeat", func() bool { return r.State() == raft.Leader || !r.LastContact().IsZero() })
	}
}

// slowTimer is how long raft waits at least in tests of silence. It is noticed after six tenths of
// it; a machine that is busy has the rest, or half of it where a leader is to stay.
const slowTimer = 12 * time.Second

// slow makes raft's timers run out only long after a silence is noticed.
func slow(c *Config) {
	c.Timing.Heartbeat, c.Timing.Election, c.Timing.Lease = slowTimer, slowTimer, slowTimer/2
}

// A leader that is cut off has a successor before raft's timers run out: its followers talk
// about the silence.
func TestCampaignWhenTheLeaderIsSilent(t *testing.T) {
	t.Parallel()
	ms := form(t, slow)
	heard(t, ms)
	old := ms[1]
	at := time.Now()
	old.net.isolate(old.id, true)
	kit.Eventually(t, "another leader", func() bool {
		for _, m := range ms {
			if m != old && m.group(1).Status().IsLeader {
				return true
			}
		}
		return false
	})
	if took := time.Since(at); took > slowTimer {
		t.Errorf("took %v: raft's own timers do that", took)
	}
}

// A follower that hears nothing while another does is cut off itself: it does not stand, and
// says what it knows when it is asked.
func TestNoCampaignByAReplicaThatIsCutOff(t *testing.T) {
	kit.Long(t)
	t.Parallel()
	ms := form(t, slow)
	heard(t, ms)
	deaf, l, other := ms[0], ms[1], ms[2]
	g := l.group(1)
	term := g.Status().Term
	l.net.cutLink(l.id, deaf.id)
	d := deaf.group(1)
	kit.Eventually(t, "the follower hears nothing", func() bool { return d.isLeaderSilent(t.Context()) })
	if d.pollVoters(t.Context(), d.instance.Load().raft, askSilent) != answerHeard {
		t.Error("one of two followers hears nothing, and takes the leader for lost")
	}
	question := append([]byte{askSilent}, make([]byte, rankBytes)...)
	if d.askVoter(t.Context(), raft.Server{Address: raft.ServerAddress(other.id)}, question) != answerHeard {
		t.Error("a follower that hears the leader says that it does not")
	}
	if other.group(1).askVoter(t.Context(), raft.Server{Address: raft.ServerAddress(deaf.id)}, question) == answerHeard {
		t.Error("a follower that hears nothing says that it does")
	}
	if s := g.Status(); !s.IsLeader || s.Term != term {
		t.Errorf("leads: %v in term %d, want true and %d", s.IsLeader, s.Term, term)
	}
}

// deaden makes two followers keep an idle stream to each other, and ends these streams at the
// side that nobody writes to, as the death of a process does: the other side does not notice
// before it writes.
func deaden(t *testing.T, a, b *member) {
	t.Helper()
	for _, ends := range [][2]*member{{a, b}, {b, a}} {
		from, to := ends[0].group(1), ends[1].group(1)
		old := raft.RequestPreVoteRequest{RPCHeader: raft.RPCHeader{
			ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(from.cfg.Replica), Addr: []byte(from.cfg.Member),
		}}
		err := from.instance.Load().transport.RequestPreVote(
			raft.ServerID(to.cfg.Replica), raft.ServerAddress(to.cfg.Member), &old, new(raft.RequestPreVoteResponse))
		if err != nil {
			t.Fatal(err)
		}
	}
	n := a.net
	n.mu.Lock()
	defer n.mu.Unlock()
	for c, ends := range n.conns {
		between := ends == [2]fsm.MemberID{a.id, b.id} || ends == [2]fsm.MemberID{b.id, a.id}
		if between && c.LocalAddr().String() == n.listener.Addr().String() {
			_ = c.Close()
			delete(n.conns, c)
		}
	}
}

// The idle streams to a member that was restarted are dead. A vote that was asked over
// one of them is asked again: else the candidate loses its campaign to a peer that is well,
// and so does the next one.
func TestCampaignOverDeadStreams(t *testing.T) {
	t.Parallel()
	ms := formPatient(t)
	deaden(t, ms[0], ms[2])
	ms[1].stop()
	m, g := leader(t, ms, 1)
	if m == ms[1] {
		t.Fatal("the leader is still there")
	}
	must(t, g, (&asker{origin: 7}).next(), fsm.PutEntity{Entity: 5, Version: 1, Settings: settings()})
}
