package gossip_test

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/cluster/gossip"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/sim/simnet"
)

// TestHalvesThatStartedApartMeetSoon starts four members, two of which cannot reach the other two. Once they can, each knows all others within
// 5 s, with the default intervals, although nobody misses a member.
func TestHalvesThatStartedApartMeetSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const port, size, meetMax = 7946, 4, 5 * time.Second
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
			transport, err := network.Start(i).Gossip(port)
			if err != nil {
				t.Fatal(err)
			}
			g, err := gossip.Open(&gossip.Config{
				Addr: join[i], Advertise: join[i], Transport: transport, Join: join, ProbeInterval: time.Second, GossipInterval: 200 * time.Millisecond,
				RejoinInterval: 2 * time.Second, TCPTimeout: 2 * time.Second, OnLost: func(fsm.MemberID) {}, Logger: slog.New(slog.DiscardHandler),
			}, gossip.Metadata{Member: fsm.MemberID(strings.Repeat(string(rune('A'+i)), 26)), Name: join[i], Peer: ":1", Started: time.Now().UnixMilli()})
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			all = append(all, g)
		}
		for range 3 {
			time.Sleep(37 * time.Second) // longer than the pause between two attempts to join by all names
			for _, g := range all {
				if n := len(g.Alive()); n != size/2 {
					t.Fatalf("%d members are alive for one that cannot reach the others, want %d", n, size/2)
				}
			}
		}
		time.Sleep(100 * time.Millisecond)
		network.SetCuts(nil)
		time.Sleep(meetMax)
		for _, g := range all {
			if n := len(g.Alive()); n != size {
				t.Errorf("%d members are alive %v after they can reach each other, want %d", n, meetMax, size)
			}
		}
	})
}
