package peer

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/peeklock/peeklock/cluster/starts"
	"github.com/peeklock/peeklock/fsm"
)

// damagedConn changes a bit of the first bytes that are written or read.
type damagedConn struct {
	net.Conn

	written, read int // bits that are changed, -1 for none
}

func flip(b []byte, bit *int) {
	if *bit >= 0 && *bit < 8*len(b) {
		b[*bit/8] ^= 1 << (*bit % 8)
		*bit = -1
	} else if *bit >= 0 {
		*bit -= 8 * len(b)
	}
}

func (c *damagedConn) Write(b []byte) (int, error) {
	flip(b, &c.written)
	return c.Conn.Write(b)
}

func (c *damagedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	flip(b[:n], &c.read)
	return n, err
}

// TestDamagedHandshakeHasNoEffect: whatever bit of a header or of a reply changes on its way, no member takes another one for a copy, or
// remembers a start that no process had.
func TestDamagedHandshakeHasNoEffect(t *testing.T) {
	t.Parallel()
	var first starts.Start
	first = first.Next(1)
	config := process(t, "B", first.Next(2), func(err error) { t.Errorf("B was told that it is a copy: %v", err) })
	listenerSaw := new(observed)
	config.Observe = listenerSaw.observe
	config.Raft = func(fsm.MemberID, fsm.PartitionID, string, net.Conn) Reply { return NoReplica }
	listener := New(config)
	listener.Start()
	t.Cleanup(listener.Close)
	dialled := &damagedConn{}
	dialConfig := process(t, "A", first, func(err error) { t.Errorf("bits %+v: A was told that it is a copy: %v", dialled, err) })
	dialerSaw := new(observed)
	dialConfig.Observe = dialerSaw.observe
	dialConfig.Address = func(fsm.MemberID) (string, error) { return config.Listener.Addr().String(), nil }
	dialConfig.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		var d net.Dialer
		conn, err := d.DialContext(ctx, network, address)
		dialled.Conn = conn
		return dialled, err
	}
	dialer := New(dialConfig)
	length := len((&streamHeader{Kind: RaftStream, Partition: 1, To: "B", From: "A", Cluster: "C", Replica: "B.1", Start: first}).encode())
	try := func(written, read int, kind Kind) {
		dialled.written, dialled.read = written, read
		var conn net.Conn
		var err error
		if kind == RaftStream {
			conn, err = dialer.DialRaft(t.Context(), "B", 1, "B.1")
		} else {
			conn, err = dialer.Dial(t.Context(), kind, "B", 0)
		}
		if refused := (RefusedError{}); err == nil || errors.As(err, &refused) && read >= 0 {
			t.Errorf("stream of kind %d with bit %d of the header or %d of the reply changed: %v", kind, written, read, err)
		}
		if err == nil {
			_ = conn.Close()
		}
	}
	for bit := range 8 * length {
		if at := bit / 8; at >= streamHeaderBytes || at < streamHeaderBytes-4 && at > 1 { // in between are the draft and the length; the first two bytes tell TLS
			try(bit, -1, RaftStream)
		}
	}
	for bit := range 8 * (1 + checksumBytes) {
		try(-1, bit, RaftStream)
	}
	for bit := range 8 * (1 + starts.Bytes + checksumBytes) {
		if bit >= 8 {
			try(-1, bit, ForwardStream)
		}
	}
	if n := len(listenerSaw.seen); n > 1 || listenerSaw.seen["A"] != first && n == 1 {
		t.Errorf("B remembers starts that no process had: %v", listenerSaw.seen)
	}
	if len(dialerSaw.seen) > 0 {
		t.Errorf("A remembers starts that no process had: %v", dialerSaw.seen)
	}
}

// TestReplyIsReadToItsEnd: what follows a reply belongs to the stream.
func TestReplyIsReadToItsEnd(t *testing.T) {
	t.Parallel()
	p := New(process(t, "B", starts.Start{Count: 3, Nonce: 4}, nil))
	ours, theirs := net.Pipe()
	go func() { _, _ = theirs.Write(append(p.encodeReply(Accepted), "next"...)) }()
	start, err := readReply(ours)
	next := make([]byte, 4)
	if _, readErr := io.ReadFull(ours, next); err != nil || readErr != nil || start != p.config.Start || string(next) != "next" {
		t.Errorf("start %v, %v, and then %q, %v", start, err, next, readErr)
	}
}
