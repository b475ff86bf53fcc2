package gossip

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// openMember opens gossip for a member, with short intervals.
func openMember(t *testing.T, letter, address string, join ...string) *Membership {
	t.Helper()
	g := kit.Must(Open(&Config{
		Addr: address, Join: join, ProbeInterval: 100 * time.Millisecond, GossipInterval: 10 * time.Millisecond,
		RejoinInterval: 10 * time.Millisecond, TCPTimeout: time.Second, OnLost: func(fsm.MemberID) {},
		Logger: slog.New(slog.DiscardHandler),
	}, Metadata{Member: fsm.MemberID(strings.Repeat(letter, memberIDBytes)), Name: letter, Peer: ":1", Started: time.Now().UnixMilli()}))(t)
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

// TestKeysRotateWhileMembersRun appends a new key at every member, moves it to the front, and removes the old one. The members stay alive
// for each other, and afterwards only the new key opens gossip.
func TestKeysRotateWhileMembersRun(t *testing.T) {
	t.Parallel()
	key := func(b byte) []byte { return bytes.Repeat([]byte{b}, 32) }
	fresh, old, older := key(3), key(2), key(1)
	var lines kit.LogLines
	open := func(letter string, key []byte, join ...string) *Membership {
		t.Helper()
		g := kit.Must(Open(&Config{
			Addr: "127.0.0.1:0", Join: join, Keys: [][]byte{key}, ProbeInterval: 100 * time.Millisecond, GossipInterval: 10 * time.Millisecond,
			RejoinInterval: 10 * time.Millisecond, TCPTimeout: time.Second, OnLost: func(fsm.MemberID) {}, Logger: lines.Logger(),
		}, Metadata{Member: fsm.MemberID(strings.Repeat(letter, memberIDBytes)), Name: letter, Peer: ":1", Started: time.Now().UnixMilli()}))(t)
		t.Cleanup(g.Close)
		return g
	}
	a := open("A", old)
	b := open("B", old, a.Address())
	waitForMembers(t, a, 2)
	waitForMembers(t, b, 2)
	for _, keys := range [][][]byte{{old, fresh}, {fresh, old}, {fresh, old, older}, {older, fresh}, {fresh, older}, {fresh}} {
		for _, g := range []*Membership{a, b} {
			kit.OK(t, g.SetKeys(keys))
			if got := g.keyring.GetKeys(); !slices.EqualFunc(got, keys, bytes.Equal) {
				t.Fatalf("%d keys on the ring differ from the %d given", len(got), len(keys))
			}
		}
		a.update(func(m *Metadata) { m.Zone += "x" }) // is told with the new keys
		kit.Eventually(t, "the other member learns of a change", func() bool {
			seen, _ := b.Lookup(a.self.Member)
			return seen.Zone == a.self.Zone
		})
	}
	c := open("C", fresh, a.Address())
	waitForMembers(t, c, 3)
	if err := a.SetKeys([][]byte{{1}}); err == nil {
		t.Error("a key of one byte is used")
	}
	if err := a.SetKeys(nil); err == nil {
		t.Error("gossip became plain")
	}
}

// TestUnreachableJoinIsReported: an address to join that nobody answers, and a name that does not resolve, are warnings with their
// causes, once a minute each.
func TestUnreachableJoinIsReported(t *testing.T) {
	t.Parallel()
	var lines kit.LogLines
	silent := kit.FreeAddress(t)
	const unknown = "no such host:7946" // refused without a query
	g := kit.Must(Open(&Config{
		Addr: "127.0.0.1:0", Join: []string{silent, unknown}, ProbeInterval: 100 * time.Millisecond, GossipInterval: 10 * time.Millisecond,
		RejoinInterval: time.Minute, TCPTimeout: time.Second, OnLost: func(fsm.MemberID) {}, Logger: lines.Logger(),
	}, Metadata{Member: fsm.MemberID(strings.Repeat("A", memberIDBytes)), Name: "A", Peer: ":1", Started: time.Now().UnixMilli()}))(t)
	t.Cleanup(g.Close)
	for _, address := range []string{silent, unknown} {
		kit.Eventually(t, "the address is reported", func() bool { return lines.Has("level=WARN", address) })
	}
	if !lines.Has(silent, "connection refused") {
		t.Errorf("the cause is not in the log:\n%s", lines.String())
	}
	g.contact([]string{silent, "127.0.0.1:1"})
	if n := lines.Count("level=WARN", silent); n != 1 || lines.Has("level=WARN", "127.0.0.1:1 ") {
		t.Errorf("%d warnings within a minute, want 1, and none about other addresses:\n%s", n, lines.String())
	}
}
