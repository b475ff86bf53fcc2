package gossip

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// openMember opens gossip for a member, with short intervals.
func openMember(t *testing.T, letter, address string, join ...string) *Membership {
	t.Helper()
	g, err := Open(&Config{
		Addr: address, Join: join, ProbeInterval: 100 * time.Millisecond, GossipInterval: 10 * time.Millisecond,
		RejoinInterval: 10 * time.Millisecond, TCPTimeout: time.Second, OnLost: func(fsm.MemberID) {},
		Logger: slog.New(slog.DiscardHandler),
	}, Metadata{Member: fsm.MemberID(strings.Repeat(letter, memberIDBytes)), Name: letter, Peer: ":1", Started: time.Now().UnixMilli()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

// waitForMembers waits until gossip reports a number of living members.
func waitForMembers(t *testing.T, g *Membership, want int) {
	t.Helper()
	timeout := time.After(30 * time.Second)
	for {
		changed, alive := g.Changed(), 0
		for _, m := range g.All() {
			if m.Alive {
				alive++
			}
		}
		if alive == want {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			t.Fatalf("%d members are alive, want %d", alive, want)
		}
	}
}

// TestMembersThatStartedApartMeet starts two members that find each other and not the third, which they are to join: once
// it can be reached they contact it, although they miss nobody.
func TestMembersThatStartedApartMeet(t *testing.T) {
	address := kit.FreeAddress(t) // the system gives it to nobody else meanwhile
	b := openMember(t, "B", "127.0.0.1:0", address)
	c := openMember(t, "C", "127.0.0.1:0", b.Address(), address)
	waitForMembers(t, b, 2)
	waitForMembers(t, c, 2)
	a := openMember(t, "A", address)
	for _, g := range []*Membership{a, b, c} {
		waitForMembers(t, g, 3)
	}
}
