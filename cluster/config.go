package cluster

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/peeklock/peeklock/cluster/gossip"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// The limits of a configuration.
const (
	weightMax         = 100  // of a member
	joinNamesMax      = 256  // names to join
	partitionsMax     = 1024 // message partitions of a cluster
	replicationMax    = 7    // replicas of one partition
	expectMax         = 64   // members awaited before the cluster forms
	gossipKeysMax     = 8    // keys of gossip at a time: one in use, the others for a change
	partitionsDefault = 16
	replicasDefault   = 3
)

// Config is what a member needs to know about itself. Start from [Default].
type Config struct {
	// Name is what people call this member; it decides nothing. At most 64 bytes.
	Name string
	// Dir is the data folder. It is made if absent, and locked while the member runs.
	Dir string
	// Cluster, when set, keeps members that were given another name out of the gossip.
	Cluster string

	// Zone is where this member stands, such as an availability zone, and Weight its share of
	// replicas against that of the others, 1 to 100. What is given is recorded in the
	// catalog at the start; "" and 0 leave what is recorded there.
	Zone   string
	Weight uint32

	// Rebalance lets the leader of the catalog move partitions when a member holds fewer than
	// its share by more than one, and all is calm. ReplaceAfter is after how long it gives what
	// a member that is away held to others; 0: never. All members alike, for any may lead.
	Rebalance    bool
	ReplaceAfter time.Duration

	// PeerAddr is the host:port on which other members reach this one; port 0 picks
	// a free one. PeerListener, when set, takes its place.
	PeerAddr     string
	PeerListener net.Listener
	// PeerAdvertise is the host:port told to others; empty: what the listener is bound
	// to, and where that is no single address, the address that gossip uses.
	PeerAdvertise string

	// GossipAddr is the host:port (UDP and TCP) of gossip; port 0 picks a free one.
	GossipAddr string
	// GossipAdvertise is the ip:port told to others; empty: found out from GossipAddr.
	GossipAdvertise string
	// Join are the gossip addresses (host:port, a DNS name stands for all its
	// addresses) of other members. They are tried again and again until one answers.
	Join []string

	// PeerTLS encrypts the streams between members, both ways, with TLS 1.3: each end must show a
	// certificate that RootCAs leads to and that is good for servers and clients alike;
	// names are not checked. It gives RootCAs, and the certificate either in Certificates
	// or, when it may be replaced while the member runs, by GetCertificate and
	// GetClientCertificate, which are called for every new stream. Everything else is
	// decided here. nil: streams are plain. All members alike: see DESIGN.md.
	PeerTLS *tls.Config
	// GossipKeys encrypt gossip with AES: 16, 24 or 32 bytes each, at most 8. The first encrypts, all
	// decrypt, so that a key is changed by adding the new one behind, then putting it first, then
	// taking the old one away, with a restart of every member between. Empty: gossip is plain.
	GossipKeys [][]byte

	// Expect is how many members must be seen, none of them holding data, before
	// they found a cluster together. 1 founds alone; 0 never founds, only joins.
	Expect int
	// Partitions is how many message partitions a new cluster gets, 1 to 1024.
	// A cluster that exists keeps its number.
	Partitions int
	// Replication is how many replicas a message partition gets, 1 to 7; never more
	// than there are members when the cluster is founded.
	Replication int

	// AMQPAddr and HTTPAddr are the host:port that clients of this member use; they are
	// only told to others. Both may be empty.
	AMQPAddr string
	HTTPAddr string
	// Version is the version of the binary, for pictures only.
	Version string

	// Now is the clock that messages and queues live by; nil means time.Now. How long
	// requests, connections and members may take is measured by the machine's own clock.
	Now func() time.Time

	// Reread reads a message again, from the payload that the gateway stored and the changes
	// made to it since, so that it can be forwarded: it gives ID, Payload, TimeToLive and
	// Properties. nil: what is to be forwarded waits. Called concurrently.
	Reread func(payload, patches []byte) (fsm.Message, error)

	readableLevel uint32 // what the binary knows, in tests that play another one; 0: fsm.Level

	// Slow is told of requests that took SlowAfter or longer, and where the time went; nil or 0: of none.
	Slow      *slog.Logger
	SlowAfter time.Duration

	Timing Timing
	// Sizes is how large things on disk grow; the zero value means partition.DefaultSizes.
	Sizes partition.Sizes
	// Free measures the file system of a folder, in bytes; nil asks the system.
	Free   func(dir string) (free, total uint64, err error)
	Logger *slog.Logger
}

// Timing holds every length of time of the room. Tests shorten them.
type Timing struct {
	// GossipProbe is how often gossip probes one member; a silent one is held for dead
	// after about four times as long. Default 1 s.
	GossipProbe time.Duration
	// GossipInterval is how often news is passed on. Default 200 ms.
	GossipInterval time.Duration
	// Rejoin is how often the names to join are tried while members are missing. Default 2 s.
	Rejoin time.Duration
	// Ping is how often a forward connection is tried; it is given up after three silent
	// intervals. Default 1 s.
	Ping time.Duration
	// Dial bounds the opening of a stream to another member. Default 2 s.
	Dial time.Duration
	// Bootstrap is how often members that hold no data look for each other. Default 200 ms.
	Bootstrap time.Duration
	// Reconcile is how often a leader compares what is with what is wanted. Default 2 s.
	Reconcile time.Duration
	// Settle is how long a preferred leader must have been alive before leadership is
	// given to it. Default 10 s.
	Settle time.Duration
	// Policy is how long the leader of the catalog waits between two rebalances of its own
	// accord. Default 5 min.
	Policy time.Duration
	// Retry is how long a request is tried at all; far below the ten minutes after
	// which a machine forgets who asked. Default 60 s.
	Retry time.Duration
	// Suspect is how long a request may be on its way before the other replicas are
	// asked whether the leader is still the leader. Nothing is taken from one that is. Default
	// 400 ms: a silent leader has a successor after about 700 ms, and who asks once a second
	// learns that late.
	Suspect time.Duration
	// Handover bounds the giving away of leaderships when the member closes. Default 5 s.
	Handover time.Duration
	// Compare is how often a leader compares digests with its followers. Default 10 s.
	Compare time.Duration
	// Raft is the pace of the groups; the zero value means partition.DefaultTiming.
	Raft partition.Timing
}

// retryMax bounds Timing.Retry: a machine forgets an idle member after ten minutes, and
// a request must not outlive the memory of its answer.
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

// Validate says what is wrong with the configuration, in words for the operator.
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
		{"partitions", c.Partitions, 1, partitionsMax},
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

// validateSecrets never puts a key into its words.
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
