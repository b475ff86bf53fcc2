package gossip_test

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/cluster/gossip"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
	"github.com/peeklock/peeklock/test/sim/simnet"
)

const port = 7946

// openMember opens the gossip of a member on a host, which joins others. The test closes it.
func openMember(t *testing.T, network *simnet.Network, host int, join []string) *gossip.Membership {
	t.Helper()
	transport := kit.Must(network.Start(host).Gossip(port))(t)
	g := kit.Must(gossip.Open(&gossip.Config{
		Addr: simnet.Address(host, port), Advertise: simnet.Address(host, port), Transport: transport, Join: join, ProbeInterval: time.Second, GossipInterval: 200 * time.Millisecond,
		RejoinInterval: 2 * time.Second, TCPTimeout: 2 * time.Second, OnLost: func(fsm.MemberID) {}, Logger: slog.New(slog.DiscardHandler),
	}, gossip.Metadata{Member: fsm.MemberID(strings.Repeat(string(rune('A'+host)), 26)), Name: simnet.Address(host, port), Peer: ":1", Started: time.Now().UnixMilli()}))(t)
	t.Cleanup(g.Close)
	return g
}

// TestMembersThatFindTheyAreOfTwoClustersPart: two members met before they knew the ids of their clusters.
func TestMembersThatFindTheyAreOfTwoClustersPart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		network := simnet.New(1)
		a, b := openMember(t, network, 0, nil), openMember(t, network, 1, []string{simnet.Address(0, port)})
		<-time.After(10 * time.Second)
		for _, g := range []*gossip.Membership{a, b} {
			if n := len(g.Alive()); n != 2 {
				t.Fatalf("%d members are alive before they know their clusters, want 2", n)
			}
		}
		a.SetCluster("one")
		b.SetCluster("two")
		for range 30 {
			<-time.After(time.Second)
			for _, g := range []*gossip.Membership{a, b} {
				if all := g.All(); len(all) != 1 {
					t.Fatalf("a member of another cluster is still listed: got %d members, want 1", len(all))
				}
			}
		}
	})
}

// TestHalvesThatStartedApartMeetSoon starts four members, two of which cannot reach the other two. Once they can, each knows all others within
// 5 s, with the default intervals, although nobody misses a member.
func TestHalvesThatStartedApartMeetSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const size, meetMax = 4, 5 * time.Second
		network := simnet.New(1)
		cuts := make(map[simnet.Link]bool)
		var join []string
		for i := range size {
			join = append(join, simnet.Address(i, port))
			for j := range size {
				cuts[simnet.Link{From: i, To: j}] = i/2 != j/2
			}
		}
		network.SetCuts(cuts)
		var all []*gossip.Membership
		for i := range size {
			all = append(all, openMember(t, network, i, join))
		}
		for range 3 {
			<-time.After(37 * time.Second) // longer than the pause between two attempts to join by all names
			for _, g := range all {
				if n := len(g.Alive()); n != size/2 {
					t.Fatalf("%d members are alive for one that cannot reach the others, want %d", n, size/2)
				}
			}
		}
		<-time.After(100 * time.Millisecond)
		network.SetCuts(nil)
		<-time.After(meetMax)
		for _, g := range all {
			if n := len(g.Alive()); n != size {
				t.Errorf("%d members are alive %v after they can reach each other, want %d", n, meetMax, size)
			}
		}
	})
}
