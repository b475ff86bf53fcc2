package peer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/peeklock/peeklock/cluster/starts"
	"github.com/peeklock/peeklock/cluster/throttle"
	"github.com/peeklock/peeklock/fsm"
)

// Config configures the peer port of one member. Accepting needs Listener, Self, Cluster, Address, Raft,
// Forward and Logger; dialling needs Self, DialTimeout, Cluster, Address and Logger.
type Config struct {
	Self        fsm.MemberID
	Listener    net.Listener // closed by the Transport
	DialTimeout time.Duration
	// Dial opens a connection to the peer port of another member; nil means the dialer of package net.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// TLS, when set, makes every stream a TLS stream; see newTLS for the fields that are used.
	TLS *tls.Config
	// Authorities, when set, returns the authorities to trust instead of those in TLS, at each handshake.
	Authorities func() *x509.CertPool
	// Cluster returns the id of this member's cluster, "" while none is known. Address returns the host:port of
	// a member. Both are called from any goroutine.
	Cluster func() string
	Address func(fsm.MemberID) (string, error)

	// Known reports whether a member is known at an address: the handshakes of others leave places for those of members. It may
	// be nil, and is called from one goroutine.
	Known func(netip.Addr) bool

	// Start is that of this process. Observe records a start of another member of the cluster; an error that wraps
	// starts.ErrOld refuses its streams. It may be nil.
	Start   starts.Start
	Observe func(fsm.MemberID, starts.Start) error
	// Copied is called when another member has seen a later process of this member, or another process of it has
	// answered. It is called from the goroutine of the stream. It may be nil.
	Copied func(error)

	// Raft takes over a stream of another member for the named replica of a partition's group. With a nil connection it only
	// answers whether it would: Accepted, NoReplica or OtherReplica. Without a name it then answers for any replica.
	Raft func(from fsm.MemberID, id fsm.PartitionID, replica string, conn net.Conn) Reply
	// Forward serves a stream and returns when it has ended.
	Forward func(fsm.MemberID, net.Conn)
	// Backup takes over a stream to which it writes a backup. If it is nil, such streams are refused.
	Backup func(fsm.PartitionID, net.Conn)
	Logger *slog.Logger
}

// Stats counts streams since the start.
type Stats struct{ Dialled, Accepted, Failed, Untrusted uint64 }

type counters struct{ dialled, accepted, failed, untrusted atomic.Uint64 }

// Transport opens streams to other members and accepts theirs. It uses one TCP connection per stream: in
// measurements this is 7 to 12 % faster than multiplexing over one connection, and a slow group does not block
// the others (DESIGN.md of package cluster). All methods may be called concurrently.
type Transport struct {
	config   Config
	tls      *memberTLS   // nil: plain streams
	refusals throttle.Log // limits log lines about untrusted peers
	counts   counters

	members memberStreams // what is open to and from each member

	raftStreams    atomic.Int64 // that groups have taken over
	raftStreamsMax int64

	handshakes places

	mu         sync.Mutex
	streams    map[net.Conn]struct{} // accepted streams that Close must close
	closed     bool
	foreignLog time.Time // when a foreign member was last logged
	done       sync.WaitGroup
}

// Addr returns the address that the peer port is bound to.
func (p *Transport) Addr() net.Addr { return p.config.Listener.Addr() }

// Stats returns the number of streams since the start.
func (p *Transport) Stats() Stats {
	c := &p.counts
	return Stats{Dialled: c.dialled.Load(), Accepted: c.accepted.Load(), Failed: c.failed.Load(), Untrusted: c.untrusted.Load()}
}
