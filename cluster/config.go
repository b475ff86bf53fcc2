package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/peeklock/peeklock/cluster/gossip"
	"github.com/peeklock/peeklock/cluster/move"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// The limits of a configuration.
const (
	weightMax         = 100 // of a member
	joinNamesMax      = 256 // names to join
	replicationMax    = 7   // replicas of one partition
	expectMax         = 64  // members awaited before the bootstrap
	gossipKeysMax     = 8   // gossip keys at a time: one in use, the others for a rotation
	partitionsDefault = 16
	replicasDefault   = 3
)

// Config is the configuration of a member. Start from [Default].
type Config struct {
	// Name is a label of this member for people; nothing depends on it. At most 64 bytes.
	Name string
	// Dir is the data folder. It is created if absent, and locked while the member runs.
	Dir string
	// Cluster, when set, keeps members with another cluster name out of the gossip.
	Cluster string

	// Zone is the failure domain of this member, such as an availability zone. Weight, 1 to 100, is its share
	// of replicas relative to the other members. Both are recorded in the catalog at the start; "" and 0 keep
	// the recorded values.
	Zone   string
	Weight uint32

	// Rebalance allows the leader of the catalog to move partitions when a member holds fewer than its share by
	// more than one and the cluster is stable. ReplaceAfter is how long a member must be dead before its
	// replicas are placed on others; 0 means never. Configure all members alike, because any of them may lead.
	Rebalance    bool
	ReplaceAfter time.Duration

	// PeerAddr is the host:port on which other members reach this one; port 0 picks a free port. PeerListener,
	// when set, is used instead.
	PeerAddr     string
	PeerListener net.Listener
	// Dial opens connections to the peer ports of other members; nil means the dialer of package net.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// PeerAdvertise is the host:port announced to other members. If it is empty, the address of the listener is
	// announced, or, if the listener is bound to all addresses, its port at the address that gossip uses.
	PeerAdvertise string

	// GossipAddr is the host:port (UDP and TCP) of gossip; port 0 picks a free port.
	GossipAddr string
	// GossipTransport, when set, carries gossip instead of sockets at GossipAddr. The member shuts it down.
	GossipTransport gossip.Transport
	// GossipAdvertise is the ip:port announced to other members; if it is empty, it is derived from GossipAddr.
	GossipAdvertise string
	// Join lists the gossip addresses (host:port) of other members; a DNS name means all its addresses. The
	// member retries them until one answers.
	Join []string

	// PeerTLS encrypts the streams between members, in both directions, with TLS 1.3: each end must present a
	// certificate that chains to RootCAs and is valid for servers and clients; names are not checked. Set
	// RootCAs, and the certificate either in Certificates or, if it may be replaced while the member runs, in
	// GetCertificate and GetClientCertificate, which are called for every new stream. Other fields are ignored.
	// nil means plain streams. Configure all members alike: see DESIGN.md.
	PeerTLS *tls.Config
	// PeerAuthorities, when set, returns the authorities to trust instead of RootCAs of PeerTLS. It is called for every new
	// stream, concurrently, so that authorities may be replaced while the member runs.
	PeerAuthorities func() *x509.CertPool
	// GossipKeys encrypt gossip with AES: 16, 24 or 32 bytes each, at most 8. The first key encrypts, all keys
	// decrypt. To rotate a key, append the new one, then move it to the front, then remove the old one, on every
	// member before the next step (Node.SetGossipKeys). Empty means plain gossip.
	GossipKeys [][]byte

	// Expect is how many members without data must be seen before they bootstrap a cluster together. 1
	// bootstraps alone; 0 never bootstraps and only joins.
	Expect int
	// Partitions is the number of message partitions of a new cluster, 1 to 1024. An existing cluster keeps its
	// number.
	Partitions int
	// Replication is the number of replicas of a message partition, 1 to 7; never more than there are members
	// at the bootstrap.
	Replication int

	// AMQPAddr and HTTPAddr are the host:port that clients of this member use. They are only announced to
	// others, and may be empty.
	AMQPAddr string
	HTTPAddr string
	// Version is the version of the binary, for display only.
	Version string

	// Now is the clock for messages and queues; nil means time.Now. Timeouts of requests, connections and
	// members use the system clock.
	Now func() time.Time
	// Monotonic counts the time since some moment of the process, for locks and what else runs on serving time
	// (partition.Config.Monotonic). nil means the clock of the operating system.
	Monotonic func() time.Duration
	// BootTime counts the time since some moment, that for which the host is suspended included. By it members find that
	// their clocks were set together, and hold wall time (cluster/clocks). nil: they follow their clocks always.
	BootTime func() time.Duration

	// Reread decodes a stored message for forwarding, from the payload that the gateway stored and the changes
	// made to it since. It sets ID, Payload, TimeToLive and Properties. If it is nil, nothing is forwarded and
	// messages wait. It is called concurrently.
	Reread func(payload, patches []byte) (fsm.Message, error)

	readableLevel uint32 // highest level that the binary can read, set by tests only; 0: fsm.FormatLevel

	// Slow logs requests that took SlowAfter or longer, with the time of each stage. A nil Slow or a SlowAfter
	// of 0 turns this off.
	Slow      *slog.Logger
	SlowAfter time.Duration

	Timing Timing
	// Sizes bounds the sizes of files on disk; the zero value means partition.DefaultSizes.
	Sizes partition.Sizes
	// LogStore is where the log keeps its entries; empty means partition.JournalLog. A folder that was created with another one is
	// refused.
	LogStore partition.LogKind
	// FS holds the data folder, and OpenLogStore opens the store of the log in it. nil means the files of the
	// operating system and a bbolt file, which is what members use; a simulation replaces both.
	FS           partition.FS
	OpenLogStore partition.OpenLogStore
	// Free measures the file system of a folder, in bytes; nil asks the operating system.
	Free   func(dir string) (free, total uint64, err error)
	Logger *slog.Logger
}

// Timing holds all timeouts and intervals of the package. Tests shorten them.
type Timing struct {
	// GossipProbe is the interval between two probes; a silent member is considered dead after about four times
	// as long. Default 1 s.
	GossipProbe time.Duration
	// GossipInterval is the interval at which changes are passed on to other members. Default 200 ms.
	GossipInterval time.Duration
	// Rejoin is the least interval at which the names to join are tried: it grows to 15 times this value while members are
	// missing. While nobody is missing, they are tried every 15 to 30 times this value. A name of which a process was not reached
	// is tried every second interval. Default 2 s.
	Rejoin time.Duration
	// Ping is the interval at which a forward connection is checked; it is closed after three silent intervals.
	// Default 1 s.
	Ping time.Duration
	// Dial bounds the opening of a stream to another member. Default 2 s.
	Dial time.Duration
	// Bootstrap is the interval at which members without data look for each other. Default 200 ms.
	Bootstrap time.Duration
	// Reconcile is the interval at which a leader compares the actual with the desired state. Default 2 s.
	Reconcile time.Duration
	// Settle is how long a preferred leader must have been alive before leadership is transferred to it.
	// Default 10 s.
	Settle time.Duration
	// Policy is the least time between two automatic rebalances. Default 5 min.
	Policy time.Duration
	// Retry bounds the time for which a request is retried. It must be far below the ten minutes after which a
	// state machine forgets the sender of a request. Default 60 s.
	Retry time.Duration
	// Suspect is how long a request may be unanswered before the other replicas are asked whether the leader
	// still leads. A leader that still leads loses nothing by it. Default 400 ms: a silent leader has a
	// successor after about 700 ms, and a longer interval, such as one second, learns of it late.
	Suspect time.Duration
	// Handover bounds the transfer of leaderships when the member closes. Default 5 s.
	Handover time.Duration
	// Compare is the interval at which a leader compares digests with its followers. Default 10 s.
	Compare time.Duration
	// Raft holds the timing of the groups; the zero value means partition.DefaultTiming.
	Raft partition.Timing
}

// retryMax bounds Timing.Retry: a state machine forgets an idle member after ten minutes, and a request must
// not outlive the memory of its answer.
const retryMax = 5 * time.Minute

// Default returns a configuration that lacks only Dir and Logger: three members,
// loopback, sixteen partitions.
func Default() Config {
	return Config{
		PeerAddr:    "127.0.0.1:7947",
		GossipAddr:  "127.0.0.1:7946",
		Expect:      3,
		Partitions:  partitionsDefault,
		Replication: replicasDefault,
		Timing: Timing{
			GossipProbe:    time.Second,
			GossipInterval: 200 * time.Millisecond,
			Rejoin:         2 * time.Second,
			Ping:           time.Second,
			Dial:           2 * time.Second,
			Bootstrap:      200 * time.Millisecond,
			Reconcile:      2 * time.Second,
			Settle:         10 * time.Second,
			Policy:         5 * time.Minute,
			Retry:          time.Minute,
			Suspect:        400 * time.Millisecond,
			Handover:       5 * time.Second,
			Compare:        10 * time.Second,
			Raft:           partition.DefaultTiming(),
		},
	}
}

// Validate reports the first error of the configuration, in words for the operator.
func (c *Config) Validate() error {
	if c.Dir == "" {
		return errors.New("cluster: dir is empty: name the data folder")
	}
	if c.Logger == nil {
		return errors.New("cluster: no logger")
	}
	for _, text := range []struct {
		field, value string
		limit        int
	}{
		{"name", c.Name, gossip.NameBytesMax},
		{"cluster", c.Cluster, gossip.NameBytesMax},
		{"peer advertise", c.PeerAdvertise, gossip.AddressBytesMax},
		{"amqp address", c.AMQPAddr, gossip.AddressBytesMax},
		{"http address", c.HTTPAddr, gossip.AddressBytesMax},
		{"version", c.Version, gossip.VersionBytesMax},
	} {
		if len(text.value) > text.limit {
			return fmt.Errorf("cluster: %s is longer than %d bytes", text.field, text.limit)
		}
	}
	if err := c.validateAddresses(); err != nil {
		return err
	}
	for _, number := range []struct {
		field           string
		value, min, max int
	}{
		{"expect", c.Expect, 0, expectMax},
		{"partitions", c.Partitions, 1, move.PartitionsMax},
		{"replication", c.Replication, 1, replicationMax},
	} {
		if number.value < number.min || number.value > number.max {
			return fmt.Errorf("cluster: %s is %d: must be %d to %d", number.field, number.value, number.min, number.max)
		}
	}
	if len(c.Zone) > gossip.ZoneBytesMax || !utf8.ValidString(c.Zone) || c.Weight > weightMax {
		return fmt.Errorf("cluster: zone must be UTF-8 of at most %d bytes and weight at most %d", gossip.ZoneBytesMax, weightMax)
	}
	if c.ReplaceAfter < 0 {
		return fmt.Errorf("cluster: replace after is %s: must be 0, for never, or more", c.ReplaceAfter)
	}
	if err := c.validateSecrets(); err != nil {
		return err
	}
	if c.Expect == 0 && len(c.Join) == 0 {
		return errors.New("cluster: expect 0 only joins, and there is no name to join")
	}
	return c.Timing.validate()
}

// validateSecrets checks keys and certificates. Its errors never contain a key.
func (c *Config) validateSecrets() error {
	if len(c.GossipKeys) > gossipKeysMax {
		return fmt.Errorf("cluster: %d gossip keys: at most %d", len(c.GossipKeys), gossipKeysMax)
	}
	for i, key := range c.GossipKeys {
		if len(key) != 16 && len(key) != 24 && len(key) != 32 {
			return fmt.Errorf("cluster: gossip key %d has %d bytes: want 16, 24 or 32", i+1, len(key))
		}
	}
	if t := c.PeerTLS; t != nil {
		switch {
		case t.RootCAs == nil:
			return errors.New("cluster: peer TLS names no authority: anybody with a certificate would be a member")
		case len(t.Certificates) == 0 && (t.GetCertificate == nil || t.GetClientCertificate == nil):
			return errors.New("cluster: peer TLS has no certificate for both ends of a stream")
		}
	}
	return nil
}

func (c *Config) validateAddresses() error {
	for _, address := range []struct {
		field, value string
		optional     bool
	}{
		{"peer address", c.PeerAddr, c.PeerListener != nil},
		{"peer advertise", c.PeerAdvertise, true},
		{"gossip address", c.GossipAddr, false},
		{"gossip advertise", c.GossipAdvertise, true},
		{"amqp address", c.AMQPAddr, true},
		{"http address", c.HTTPAddr, true},
	} {
		if address.value == "" && address.optional {
			continue
		}
		if _, _, err := net.SplitHostPort(address.value); err != nil {
			return fmt.Errorf("cluster: %s %q: want host:port", address.field, address.value)
		}
	}
	if c.GossipAdvertise != "" {
		host, _, err := net.SplitHostPort(c.GossipAdvertise)
		if err != nil || net.ParseIP(host) == nil {
			return fmt.Errorf("cluster: gossip advertise %q: want ip:port", c.GossipAdvertise)
		}
	}
	if len(c.Join) > joinNamesMax {
		return fmt.Errorf("cluster: %d names to join: at most %d", len(c.Join), joinNamesMax)
	}
	for _, name := range c.Join {
		if strings.TrimSpace(name) == "" {
			return errors.New("cluster: a name to join is empty")
		}
	}
	return nil
}

func (t *Timing) validate() error {
	for _, length := range []struct {
		field string
		value time.Duration
	}{
		{"gossip probe", t.GossipProbe},
		{"gossip interval", t.GossipInterval},
		{"rejoin", t.Rejoin},
		{"ping", t.Ping},
		{"dial", t.Dial},
		{"bootstrap", t.Bootstrap},
		{"reconcile", t.Reconcile},
		{"settle", t.Settle},
		{"policy", t.Policy},
		{"retry", t.Retry},
		{"suspect", t.Suspect},
		{"handover", t.Handover},
		{"compare", t.Compare},
	} {
		if length.value <= 0 {
			return fmt.Errorf("cluster: timing %s is %s: must be above zero", length.field, length.value)
		}
	}
	if t.Retry > retryMax {
		return fmt.Errorf("cluster: timing retry is %s: at most %s", t.Retry, retryMax)
	}
	return nil
}
