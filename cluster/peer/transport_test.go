package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/peeklock/peeklock/cluster/starts"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/golden"
	"github.com/peeklock/peeklock/test/kit"
)

func TestStreamHeaderIsReadBackOrRefused(t *testing.T) {
	t.Parallel()
	for _, want := range []streamHeader{
		{Kind: ForwardStream, To: "B", From: "A", Cluster: "C"},
		{Kind: RaftStream, Partition: 7, To: "B", From: "A", Cluster: "C", Replica: "B.12", Start: starts.Start{Count: 3, Nonce: 4, Before: [starts.Kept]uint64{5, 6}}},
	} {
		encoded := want.encode()
		source := bytes.NewReader(append(encoded, "rest"...))
		got, err := readStreamHeader(source)
		if err != nil || got != want || source.Len() != 4 {
			t.Fatalf("came back as %+v, %v, %d bytes left", got, err, source.Len())
		}
		for cut := range encoded {
			if _, err := readStreamHeader(bytes.NewReader(encoded[:cut])); err == nil {
				t.Fatalf("a header cut at %d was taken", cut)
			}
		}
	}
	long := streamHeader{Kind: RaftStream, To: fsm.MemberID(strings.Repeat("x", memberIDBytesMax+1))}
	manyDigits := streamHeader{Kind: RaftStream, Replica: strings.Repeat("9", replicaBytesMax+1)}
	for name, hostile := range map[string][]byte{
		"another protocol": []byte("GET / HTTP/1.1\r\n\r\n"),
		"long text":        long.encode(),
		"long replica":     manyDigits.encode(),
		"version":          append([]byte(streamMagic+"\x02"), manyDigits.encode()[5:]...),
	} {
		if _, err := readStreamHeader(bytes.NewReader(hostile)); !errors.As(err, &RefusedError{}) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestMemberWithAnotherDraftIsRefused: before a release, a member of another build reads this one's formats wrongly. It is
// told so, whatever else its header says, and so is the operator.
func TestMemberWithAnotherDraftIsRefused(t *testing.T) {
	t.Parallel()
	var lines kit.LogLines
	config := listening(t)
	config.Logger = lines.Logger()
	p := New(config)
	p.Start()
	defer p.Close()
	for range 2 {
		conn := kit.Must(net.Dial("tcp", config.Listener.Addr().String()))(t)
		header := streamHeader{Kind: ForwardStream, To: "B", From: "A"}
		encoded := append(header.encode(), 7) // a field that this build does not know
		encoded[len(streamMagic)+1]++         // the draft
		encoded[streamHeaderBytes-2]++        // the length
		kit.Must(conn.Write(encoded))(t)
		var reply [1]byte
		if _, err := io.ReadFull(conn, reply[:]); err != nil || Reply(reply[0]) != OtherDraft {
			t.Errorf("the answer is %q (%v), want %q", Reply(reply[0]), err, OtherDraft)
		}
		_, _ = io.Copy(io.Discard, conn) // until the other end has closed it
		_ = conn.Close()
	}
	kit.Eventually(t, "a line in the log", func() bool { return lines.Has("level=ERROR", "another draft of the formats") })
	if n := lines.Count("another draft"); n != 1 {
		t.Errorf("%d lines of one member, want 1:\n%s", n, &lines)
	}
}

// listening returns the configuration of member B, at whose address every member is dialled.
func listening(t *testing.T) *Config {
	t.Helper()
	listener := kit.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	return &Config{
		Self: "B", Listener: listener, DialTimeout: kit.WaitMax,
		Cluster: func() string { return "" },
		Address: func(fsm.MemberID) (string, error) { return listener.Addr().String(), nil },
		Logger:  slog.New(slog.DiscardHandler),
	}
}

// startPair starts a member with the given configuration, and returns it and member A, which dials it.
func startPair(t *testing.T, config *Config) (listener, dialler *Transport) {
	t.Helper()
	listener = New(config)
	listener.Start()
	t.Cleanup(listener.Close)
	asker := *config
	asker.Self = "A"
	return listener, New(&asker)
}

// TestUnauthenticatedPeersAreBounded checks that a port scan costs no more than its handshakes, and that
// members get through meanwhile, even from the same address.
func TestUnauthenticatedPeersAreBounded(t *testing.T) {
	t.Parallel()
	config := listening(t)
	config.Raft = func(fsm.MemberID, fsm.PartitionID, string, net.Conn) Reply { return NoReplica }
	config.Forward = func(_ fsm.MemberID, conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }
	p := New(config)
	p.Start()
	defer p.Close()
	var conns []net.Conn
	for range handshakesMax + 50 {
		conn := kit.Must(net.Dial("tcp", config.Listener.Addr().String()))(t)
		conns = append(conns, conn)
	}
	refused := 0
	asker := *config
	asker.Self = "A"
	dialer := New(&asker)
	if conn, err := dialer.Dial(t.Context(), ForwardStream, "B", 0); err != nil {
		t.Errorf("a member is kept out by silent peers: %v", err)
	} else {
		_ = conn.Close()
	}
	for _, conn := range conns[:50] { // over the limit: closed at once, the oldest first
		_ = conn.SetReadDeadline(time.Now().Add(kit.WaitMax))
		if _, err := conn.Read(make([]byte, 1)); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			refused++
		}
	}
	if refused != 50 {
		t.Errorf("%d of 50 unauthenticated peers over the limit were refused", refused)
	}
	for _, conn := range conns {
		_ = conn.Close()
	}
	kit.Eventually(t, "a member gets through", func() bool {
		conn, err := dialer.Dial(t.Context(), ForwardStream, "B", 0)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	for member, want := range map[fsm.MemberID]Reply{"C": OtherMember} {
		_, err := dialer.Dial(t.Context(), ForwardStream, member, 0)
		if refused := (RefusedError{}); !errors.As(err, &refused) || refused.Reply != want {
			t.Errorf("dial %s: %v", member, err)
		}
	}
	_, err := dialer.DialRaft(t.Context(), "B", 3, "B.1")
	if refused := (RefusedError{}); !errors.As(err, &refused) || refused.Reply != NoReplica {
		t.Errorf("raft stream to a closed group: %v", err)
	}
}

// TestStreamHeaderBytes checks the encoded headers, with the numbers of kinds, because members of other
// releases read them.
func TestStreamHeaderBytes(t *testing.T) {
	t.Parallel()
	var written []byte
	for _, kind := range []Kind{RaftStream, ForwardStream, BackupStream} {
		header := streamHeader{Kind: kind, Partition: 300, To: "T", From: "F", Cluster: "C"}
		if kind == RaftStream {
			header.Replica = "B.2"
		}
		written = fmt.Appendf(written, "header of a stream, kind %d: %x\n", kind, header.encode())
	}
	golden.Compare(t, "testdata/header.golden", written)
}

// TestDialUsesTheConfiguredDialer checks that a stream reaches a member over a network that is not that of the
// operating system.
func TestDialUsesTheConfiguredDialer(t *testing.T) {
	t.Parallel()
	refused := errors.New("this network refuses")
	p := New(&Config{
		Self: "A", DialTimeout: kit.WaitMax, Cluster: func() string { return "" }, Logger: slog.New(slog.DiscardHandler),
		Address: func(fsm.MemberID) (string, error) { return "nowhere:1", nil },
		Dial: func(_ context.Context, network, address string) (net.Conn, error) {
			if network != "tcp" || address != "nowhere:1" {
				t.Errorf("dialled %s %s", network, address)
			}
			return nil, refused
		},
	})
	if _, err := p.Dial(t.Context(), ForwardStream, "B", fsm.CatalogPartition); !errors.Is(err, refused) {
		t.Fatalf("the stream was opened elsewhere: %v", err)
	}
}

// TestRaftStreamNamesItsReplica: the member gets the name, and refuses that of a replica that it no longer has.
func TestRaftStreamNamesItsReplica(t *testing.T) {
	t.Parallel()
	config := listening(t)
	taken := make(chan string, 1)
	config.Raft = func(_ fsm.MemberID, _ fsm.PartitionID, replica string, conn net.Conn) Reply {
		if replica != "B.2" {
			return OtherReplica
		}
		if conn != nil {
			taken <- replica
			_ = conn.Close()
		}
		return Accepted
	}
	_, dialler := startPair(t, config)
	for _, former := range []string{"B.1", ""} {
		_, err := dialler.DialRaft(t.Context(), "B", 1, former)
		if refused := (RefusedError{}); !errors.As(err, &refused) || refused.Reply != OtherReplica {
			t.Errorf("dial replica %q: %v, want %v", former, err, OtherReplica)
		}
	}
	conn := kit.Must(dialler.DialRaft(t.Context(), "B", 1, "B.2"))(t)
	defer func() { _ = conn.Close() }()
	if got := <-taken; got != "B.2" {
		t.Errorf("the stream names %q, want B.2", got)
	}
}

// TestRaftStreamsAreBounded: a member keeps so many streams of groups and closes further ones; when one ends, the
// next is taken.
func TestRaftStreamsAreBounded(t *testing.T) {
	t.Parallel()
	config := listening(t)
	taken := make(chan net.Conn, 1)
	config.Raft = func(from fsm.MemberID, _ fsm.PartitionID, _ string, conn net.Conn) Reply {
		if from != "A" {
			t.Errorf("the stream is of member %s", from)
		}
		if conn != nil {
			taken <- conn
		}
		return Accepted
	}
	p := New(config)
	if p.raftStreamsMax != raftStreamsMax {
		t.Errorf("%d streams are kept", p.raftStreamsMax)
	}
	p.raftStreamsMax = 2
	p.Start()
	defer p.Close()
	asker := *config
	asker.Self = "A"
	dialler := New(&asker)
	dial := func() net.Conn {
		conn := kit.Must(dialler.DialRaft(t.Context(), "B", 1, "B.1"))(t)
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	dial()
	first := <-taken
	dial()
	second := <-taken
	if _, err := dial().Read(make([]byte, 1)); err == nil || len(taken) != 0 {
		t.Errorf("a stream too many was taken: %v", err)
	}
	_ = first.Close()
	_ = first.Close() // counts once
	dial()
	third := <-taken
	if _, err := dial().Read(make([]byte, 1)); err == nil || len(taken) != 0 {
		t.Errorf("a stream too many was taken: %v", err)
	}
	_, _ = second.Close(), third.Close()
}

// TestProbe: a member that answers is alive, one at whose address nothing listens has ended, and another member at its
// address proves neither.
func TestProbe(t *testing.T) {
	t.Parallel()
	config := listening(t)
	config.Raft = func(_ fsm.MemberID, _ fsm.PartitionID, _ string, conn net.Conn) Reply {
		if conn != nil {
			t.Error("a group got a stream")
		}
		return NoReplica
	}
	p, dialler := startPair(t, config)
	if err := dialler.Probe(t.Context(), "B"); err != nil {
		t.Errorf("a member that answers: %v", err)
	}
	if err := dialler.Probe(t.Context(), "C"); err == nil || errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("another member: %v", err)
	}
	p.Close()
	if err := dialler.Probe(t.Context(), "B"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a process that has ended: %v", err)
	}
}
