package gossip

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/hashicorp/memberlist"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/golden"
	"github.com/peeklock/peeklock/test/kit"
)

func TestMetadataRoundTrip(t *testing.T) {
	t.Parallel()
	id := fsm.MemberID(rand.Text())
	text := func(n int) string { return strings.Repeat("x", n) }
	want := Metadata{
		Member: id, Name: text(NameBytesMax), Cluster: string(id), Peer: text(AddressBytesMax), AMQP: text(AddressBytesMax),
		HTTP: text(AddressBytesMax), Version: text(VersionBytesMax), Zone: text(ZoneBytesMax), Level: 1<<32 - 1, Incarnation: 1 << 63, Started: 1, Leaving: true,
	}
	encoded := want.encode()
	if len(encoded) > 512 {
		t.Fatalf("%d bytes do not fit gossip", len(encoded))
	}
	got, err := decodeMetadata(encoded)
	if err != nil || got != want {
		t.Fatalf("came back as %+v, %v", got, err)
	}
	for _, m := range []Metadata{{Member: id}, {Member: id, ReadOnly: true}, {Member: id, ReadOnly: true, Leaving: true}} {
		if got, err := decodeMetadata(m.encode()); err != nil || got != m {
			t.Errorf("%+v came back as %+v, %v", m, got, err)
		}
	}
	for cut := range encoded {
		if _, err := decodeMetadata(encoded[:cut]); err == nil {
			t.Fatalf("metadata cut at %d was taken", cut)
		}
	}
	if _, err := decodeMetadata(append(encoded, 0)); err == nil {
		t.Fatal("trailing bytes were taken")
	}
}

// TestMemberWithAnotherDraftIsRefused: a member whose metadata has another draft of the formats is not listed, whatever else
// they hold, and the log says why, once.
func TestMemberWithAnotherDraftIsRefused(t *testing.T) {
	t.Parallel()
	var lines kit.LogLines
	g := &Membership{log: lines.Logger(), members: make(map[fsm.MemberID]*Member)}
	m := Metadata{Member: fsm.MemberID(rand.Text()), Name: "a"}
	node := memberlist.Node{Name: m.nodeName(), Addr: net.IPv4(127, 0, 0, 1), Port: 1, Meta: append(m.encode(), 7)} // a field that this build does not know
	node.Meta[1]++                                                                                                  // the draft
	for range 2 {
		if err := g.NotifyAlive(&node); !errors.Is(err, errDraft) {
			t.Errorf("the member is admitted: error %v, want %v", err, errDraft)
		}
	}
	g.NotifyJoin(&node)
	if all := g.All(); len(all) != 0 {
		t.Errorf("members %+v, want none", all)
	}
	if n := lines.Count("level=ERROR", "another draft of the formats", "127.0.0.1:1"); n != 1 {
		t.Errorf("%d lines in the log, want 1:\n%s", n, &lines)
	}
	node.Meta = m.encode()
	if err := g.NotifyAlive(&node); err != nil {
		t.Errorf("with the draft of this build: %v", err)
	}
}

// TestMetadataFitsLimit compares the encoded metadata with the golden file, because members of other releases
// read these bytes.
func TestMetadataFitsLimit(t *testing.T) {
	t.Parallel()
	m := Metadata{
		Member: "M", Name: "name", Cluster: "C", Peer: "p:1", AMQP: "a:2", HTTP: "h:3", Version: "v4", Zone: "z",
		Level: 5, Incarnation: 6, Started: 7, Leaving: true, ReadOnly: true,
	}
	golden.Compare(t, "testdata/metadata.golden", fmt.Appendf(nil, "metadata in gossip: %x\n", m.encode()))
}
