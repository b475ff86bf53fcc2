package partition

import (
	"context"
	"errors"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
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

func form(t *testing.T, tune func(*Config)) []*member { return formOf(t, 3, tune) }

// formOf makes a group of members of which the second leads.
func formOf(t *testing.T, members int, tune func(*Config)) []*member {
	t.Helper()
	ms := newMembers(t, members, tune)
	voters := slices.Clone(ms[0].voters)
	voters[0], voters[1] = voters[1], voters[0] // the first goes first
	for _, m := range ms {
		m.voters = voters
		m.start(1)
	}
	awaitFirstLeader(t, ms, ms[1])
	transferTo(t, ms, ms[1]) // it leads already, unless the machine stalled
	for _, m := range ms {
		kit.Eventually(t, "everybody knows the leader", func() bool { return m.group(1).Status().Leader == "m1" })
	}
	return ms
}

// A leader whose process is gone has a successor at once: nobody waits for a timer.
func TestCampaignWhenTheLeaderIsGone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ms := formPatient(t)
		a := &asker{origin: 7}
		must(t, ms[1].group(1), a.next(), fsm.PutEntity{Entity: 5, Version: 1, Settings: settings()})
		sent := must(t, ms[1].group(1), a.next(), send(5, body(1)))
		ms[1].stop()
		if m, _ := leader(t, ms, 1); m == ms[1] {
			t.Fatal("the leader is still there")
		}
		next := mustEventually(t, ms, a.next(), send(5, body(2)))
		if next.Sequence != sent.Sequence+1 {
			t.Fatalf("got number %d behind %d", next.Sequence, sent.Sequence)
		}
	})
}

// A follower reports that it follows another leader, although no connection to the old one has ended: requests that
// wait for the old one are sent to the new one.
func TestFollowerReportsItsNewLeader(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		found := make(chan struct{}, 8)
		ms := form(t, func(c *Config) {
			patient(c)
			if c.Member == "m2" {
				c.LeaderFound = func() { found <- struct{}{} }
			}
		})
		next := ms[0].group(1)
		kit.OK(t, next.instance.Load().campaign(t.Context(), next.cfg.Replica, next.cfg.Member))
		for ms[2].group(1).Status().Leader != "m0" {
			<-found
		}
	})
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
	inBubble(t, func(t *testing.T) {
		ms := formPatient(t)
		lag(t, ms, ms[1], ms[2])
		ms[1].stop()
		behind := ms[2].group(1)
		kit.OK(t, behind.instance.Load().campaign(t.Context(), behind.cfg.Replica, behind.cfg.Member))
		// The entity is what the one that lost lacks: only the other one can have brought it. A late vote request of the one that lost
		// can cost the leader its term then, so that it leads after all.
		mustEventually(t, []*member{ms[0], ms[2]}, (&asker{origin: 8}).next(), send(5, body(1)))
	})
}

// Who refuses its vote to one that is behind stands itself, although it knows nothing else of
// the leader: here the leader is cut off, which no connection tells. The candidate
// would wait for raft's timer, and lose again.
func TestReplicaThatRefusedItsVoteCampaigns(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ms := formPatient(t)
		lag(t, ms, ms[1], ms[2])
		ms[1].net.isolate("m1", true)
		behind := ms[2].group(1)
		kit.OK(t, behind.instance.Load().campaign(t.Context(), behind.cfg.Replica, behind.cfg.Member))
		kit.Eventually(t, "the one that refused leads", func() bool { return ms[0].group(1).Status().IsLeader })
	})
}

// Only a candidate that is behind, in a term in which nobody has our vote, makes us stand:
// else we would take the office of one that is about to win.
func TestUninformativeRefusalsStartNoCampaign(t *testing.T) {
	inBubble(t, func(t *testing.T) {
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
			alone := &candidacy{} // nobody listens
			alone.init(&g.cfg, &g.instance)
			alone.noteRefusedVote(&c.vote)
			if got := len(alone.voteRefused); got != c.want {
				t.Errorf("%s: told %d times, want %d", name, got, c.want)
			}
		}
	})
}

// askInTime asks for a verdict about a leader that is gone. A leader counts as alive if its end is not noticed within
// aliveTimeout, which a busy machine may exceed: then askInTime asks again.
func askInTime(t *testing.T, ask func() Verdict) (verdict Verdict) {
	t.Helper()
	kit.Eventually(t, "the end of the leader is noticed in time", func() bool {
		verdict = ask()
		return verdict != verdictHasLeader
	})
	return verdict
}

// The better successor campaigns first. Nobody campaigns while the process of a leader is alive, or cannot be reached although
// the leader is heard.
func TestBetterSuccessorGoesFirst(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ms := formPatient(t)
		lag(t, ms, ms[1], ms[2])
		better, behind := ms[0].group(1), ms[2].group(1)
		asks := func(ctx context.Context, g *Group) Verdict {
			return g.candidacy.pollVoters(ctx, g.candidacy.newElection(leaderGone))
		}
		if got := asks(t.Context(), behind); got != verdictHasLeader {
			t.Errorf("the leader is alive: %d, want %d", got, verdictHasLeader)
		}
		ended := gone(t.Context(), "m1")
		if got := askInTime(t, func() Verdict { return asks(ended, better) }); got != verdictAgree {
			t.Errorf("to the better one: %d, want %d", got, verdictAgree)
		}
		if got := askInTime(t, func() Verdict { return asks(ended, behind) }); got != verdictBetter {
			t.Errorf("to the one that is behind: %d, want %d", got, verdictBetter)
		}
		ms[1].net.isolate("m1", true)
		if got := asks(t.Context(), behind); got != verdictHasLeader {
			t.Errorf("the leader cannot be reached: %d, want %d", got, verdictHasLeader)
		}
		ms[1].net.cutLink("m0", "m2")
		if got := asks(ended, behind); got != verdictNone {
			t.Errorf("nobody can be asked: %d, want %d", got, verdictNone)
		}
	})
}

// A member of an earlier release does not know the questions: it counts as the better successor when the leader is gone,
// and confirms no silence.
func TestEarlierReleaseCampaignsFirst(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ms := formPatient(t)
		ms[2].isEarlier = true
		ms[1].net.isolate("m1", true)
		g := ms[0].group(1)
		if got := g.candidacy.pollVoters(t.Context(), g.candidacy.newElection(leaderGone)); got != verdictBetter {
			t.Errorf("the leader is gone: %d, want %d", got, verdictBetter)
		}
		if got := g.candidacy.pollVoters(t.Context(), g.candidacy.newElection(leaderSilent)); got != verdictNone {
			t.Errorf("the leader is silent: %d, want %d", got, verdictNone)
		}
	})
}

// The leader is gone, and the follower of an earlier release campaigns once when nobody answers it: there is a leader.
func TestCampaignBesideAnEarlierRelease(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ms := formPatient(t)
		ms[2].isEarlier = true
		ms[1].stop()
		leader(t, ms, 1)
	})
}

// Who waits for a better one asks again soon: while what the leader has sent last is still
// being written each of two may find the other's log longer, and both would wait the whole
// time and then stand together.
func TestWaitingSuccessorAsksAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ms := formPatient(t)
		lag(t, ms, ms[1], ms[2])
		behind := ms[2].group(1)
		verdict := make(chan Verdict, 1)
		go func() {
			got := verdictHasLeader
			for got == verdictHasLeader && t.Context().Err() == nil { // see askInTime
				got = behind.candidacy.mayCampaign(gone(t.Context(), "m1"), behind.candidacy.newElection(leaderGone), time.Hour)
			}
			verdict <- got
		}()
		select {
		case got := <-verdict:
			t.Fatalf("the other is better: %d", got)
		case <-time.After(4 * campaignRetryInterval): // it is no mistake to ask later
		}
		ms[1].net.cutLink("m0", "m2")
		if got := <-verdict; got != verdictNone {
			t.Errorf("the other is away: %d, want %d", got, verdictNone)
		}
	})
}

// Two candidates that took each other's votes wait for raft's timers. One of them campaigns again.
func TestCampaignAfterASplitVote(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ms := formPatient(t)
		net := ms[1].net
		net.isolate("m1", true)
		net.cutLink("m0", "m2")
		both := []*Group{ms[0].group(1), ms[2].group(1)}
		for _, g := range both {
			kit.OK(t, g.instance.Load().campaign(t.Context(), g.cfg.Replica, g.cfg.Member))
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
		g.candidacy.elect(t.Context(), g.candidacy.newElection(candidateBehind))
		kit.Eventually(t, "a leader", func() bool { return both[0].Status().IsLeader || both[1].Status().IsLeader })
	})
}

// Only a refused connection proves that a process is gone: not a cut.
func TestNoCampaignAgainstALivingLeader(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ms := formPatient(t)
		g, net := ms[0].group(1), ms[1].net
		reach := func() error { return g.cfg.Liveness.reach(t.Context(), "m1") }
		if err := reach(); err != nil {
			t.Errorf("a member that answers: %v", err)
		}
		term := g.Status().Term
		net.isolate("m1", true)
		if err := reach(); err == nil || errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a member that is cut off: %v", err)
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
		if err := reach(); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a member that is gone: %v", err)
		}
	})
}

// Groups that ask at the same time whether a process is alive share one probe, and a probe that lasts a while makes none of
// them wait for its turn. A group that asks later does not get an old result.
func TestGroupsShareAProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var probes int
		var result error
		l := NewLiveness(func(ctx context.Context, _ fsm.MemberID) error {
			probes++
			pause(ctx, 20*time.Millisecond)
			return result
		}, nil)
		for i, want := range []error{nil, syscall.ECONNREFUSED, nil} {
			result = want
			impatient, cancel := context.WithCancel(t.Context())
			cancel() // a caller that gives up does not end the probe of the others
			if err := l.reach(impatient, "m1"); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			var groups sync.WaitGroup
			for range 50 {
				groups.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), aliveTimeout)
					defer cancel()
					if err := l.reach(ctx, "m1"); !errors.Is(err, want) {
						t.Errorf("%v, want %v", err, want)
					}
				})
			}
			groups.Wait()
			if probes != i+1 {
				t.Errorf("probed %d times, want %d", probes, i+1)
			}
		}
	})
}

// Many groups ask at once whether their leader is lost, and every probe of the one that is alive is slow: all learn that there
// is a leader.
func TestManyQuestionsAboutALivingLeader(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ms := form(t, func(c *Config) {
			patient(c)
			c.Liveness = NewLiveness(func(ctx context.Context, _ fsm.MemberID) error {
				pause(ctx, 20*time.Millisecond)
				return nil
			}, c.Liveness.ask)
		})
		var groups sync.WaitGroup
		for range 50 {
			groups.Go(func() {
				if got := ms[0].group(1).Answer(t.Context(), Question{Gone: true}); got != verdictHasLeader {
					t.Errorf("%d, want %d", got, verdictHasLeader)
				}
			})
		}
		groups.Wait()
	})
}

// A member whose process has ended may be started again and lead at once. When the end of a stream of the old process is
// noticed late, the others do not depose it.
func TestNoCampaignAgainstARestartedLeader(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ms := formPatient(t)
		g := ms[0].group(1)
		if err := g.cfg.Liveness.reach(gone(t.Context(), "m1"), "m1"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatal(err)
		}
		term := g.Status().Term
		must(t, ms[1].group(1), (&asker{origin: 7}).next(), fsm.PutEntity{Entity: 5, Version: 1, Settings: settings()})
		waitCaughtUp(t, ms, ms[0]) // it has heard the leader
		g.candidacy.replaceLeader(t.Context(), leaderGone)
		if s := g.Status(); s.Term != term || s.Leader != "m1" {
			t.Errorf("term %d and leader %q, want %d and m1", s.Term, s.Leader, term)
		}
	})
}

// Voters that cannot ask each other campaign one after another, and each is the first in some groups. The lost leader has no position.
func TestCampaignPositionsAreDistinct(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ms := formPatient(t)
		e := ms[0].group(1).candidacy.newElection(leaderGone)
		first := map[string]bool{}
		for id := range fsm.PartitionID(9) {
			taken := map[int]bool{}
			for _, replica := range []string{"m0.1", "m2.1"} {
				position := (&candidacy{cfg: &Config{ID: id, Replica: replica}}).campaignPosition(e)
				if position < 0 || position > 1 || taken[position] {
					t.Errorf("group %d: %s has position %d", id, replica, position)
				}
				taken[position] = true
				first[replica] = first[replica] || position == 0
			}
		}
		if !first["m0.1"] || !first["m2.1"] {
			t.Errorf("first in some group: %v", first)
		}
	})
}

// A question is asked again once, since the connection may be dead, and not while the member cannot be asked at all.
func TestAQuestionIsAskedTwiceAtMost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		errs  []error
		want  Verdict
		asked int
	}{
		"a dead connection":    {[]error{errCut, nil}, verdictAgree, 2},
		"no connection":        {[]error{errCut, errCut, nil}, verdictNone, 2},
		"no process":           {[]error{syscall.ECONNREFUSED, nil}, verdictNone, 1},
		"a working connection": {[]error{nil}, verdictAgree, 1},
	} {
		asked := 0
		l := NewLiveness(nil, func(context.Context, fsm.MemberID, Question) (Verdict, error) {
			asked++
			return verdictAgree, c.errs[asked-1]
		})
		if got := l.askVoter(t.Context(), "m1", Question{Gone: true}); got != c.want || asked != c.asked {
			t.Errorf("%s: %d after %d questions, want %d after %d", name, got, asked, c.want, c.asked)
		}
	}
}

// Five voters: the leader and another one die together, and the three that remain are a quorum only together. The best
// of them campaigns first, also if it answers last.
func TestCampaignOfFiveVotersWithTwoGone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ms := formOf(t, 5, patient)
		lag(t, ms, ms[1], ms[2])
		var both sync.WaitGroup
		both.Go(ms[1].stop)
		both.Go(ms[0].stop)
		both.Wait()
		if m, _ := leader(t, ms, 1); m == ms[2] {
			t.Error("the replica that is behind leads")
		}
		mustEventually(t, ms, (&asker{origin: 8}).next(), send(5, body(1)))
	})
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
	inBubble(t, func(t *testing.T) {
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
	})
}

// A follower that hears nothing while another does is cut off itself: it does not stand, and
// says what it knows when it is asked.
func TestNoCampaignByAReplicaThatIsCutOff(t *testing.T) {
	kit.Long(t)
	inBubble(t, func(t *testing.T) {
		ms := form(t, slow)
		heard(t, ms)
		deaf, l, other := ms[0], ms[1], ms[2]
		g := l.group(1)
		term := g.Status().Term
		l.net.cutLink(l.id, deaf.id)
		d := deaf.group(1)
		kit.Eventually(t, "the follower hears nothing", func() bool { return d.candidacy.isLeaderSilent(t.Context()) })
		if d.candidacy.pollVoters(t.Context(), d.candidacy.newElection(leaderSilent)) != verdictNone {
			t.Error("one of two followers hears nothing, and takes the leader for lost")
		}
		if other.group(1).Answer(t.Context(), Question{}) != verdictNone {
			t.Error("a follower that hears the leader says that it does not")
		}
		if d.Answer(t.Context(), Question{}) == verdictNone {
			t.Error("a follower that hears nothing says that it does")
		}
		if d.Answer(t.Context(), Question{Gone: true}) == verdictHasLeader {
			t.Error("a follower that neither hears nor reaches the leader says that there is one")
		}
		if s := g.Status(); !s.IsLeader || s.Term != term {
			t.Errorf("leads: %v in term %d, want true and %d", s.IsLeader, s.Term, term)
		}
	})
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
		kit.OK(t, from.instance.Load().transport.RequestPreVote(
			raft.ServerID(to.cfg.Replica), raft.ServerAddress(to.cfg.Member), &old, new(raft.RequestPreVoteResponse)))
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
	inBubble(t, func(t *testing.T) {
		ms := formPatient(t)
		deaden(t, ms[0], ms[2])
		ms[1].stop()
		if m, _ := leader(t, ms, 1); m == ms[1] {
			t.Fatal("the leader is still there")
		}
		mustEventually(t, ms, (&asker{origin: 7}).next(), fsm.PutEntity{Entity: 5, Version: 1, Settings: settings()})
	})
}
