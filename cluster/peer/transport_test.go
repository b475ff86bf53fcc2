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
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/golden"
	"github.com/peeklock/peeklock/test/kit"
)

func TestStreamHeaderIsReadBackOrRefused(t *testing.T) {
	t.Parallel()
	want := streamHeader{Kind: RaftStream, Partition: 7, To: "B", From: "A", Cluster: "C"}
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
	long := streamHeader{Kind: RaftStream, To: fsm.MemberID(strings.Repeat("x", memberIDBytesMax+1))}
	for name, hostile := range map[string][]byte{
		"another protocol": []byte("GET / HTTP/1.1\r\n\r\n"),
		"long text":        long.encode(),
		"version":          append([]byte(streamMagic+"\x02"), encoded[5:]...),
	} {
		if _, err := readStreamHeader(bytes.NewReader(hostile)); !errors.As(err, &RefusedError{}) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestUnauthenticatedPeersAreBounded checks that a port scan costs no more than its handshakes, and that
// members get through once the unauthenticated peers have gone.
func TestUnauthenticatedPeersAreBounded(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	config := &Config{
		Self: "B", Listener: listener, DialTimeout: kit.WaitMax,
		Cluster: func() string { return "" },
		Address: func(fsm.MemberID) (string, error) { return listener.Addr().String(), nil },
		Raft:    func(fsm.PartitionID, net.Conn) bool { return false },
		Forward: func(_ fsm.MemberID, conn net.Conn) { _, _ = io.Copy(io.Discard, conn) },
		Logger:  slog.New(slog.DiscardHandler),
	}
	p := New(config)
	p.Start()
	defer p.Close()
	var conns []net.Conn
	for range handshakesMax + 50 {
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	refused := 0
	for _, conn := range conns[handshakesMax:] { // over the limit: closed at once
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
	asker := *config
	asker.Self = "A"
	dialer := New(&asker)
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
	_, err = dialer.Dial(t.Context(), RaftStream, "B", 3)
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
