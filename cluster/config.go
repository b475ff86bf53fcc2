package cluster

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/peeklock/peeklock/partition"
)

// The limits of a configuration.
const (
	nameBytesMax      = 64   // of a member's name and of a cluster's name
	addressBytesMax   = 80   // of one advertised address: four of them fit the gossip metadata
	versionBytesMax   = 32   // of the version text
	joinNamesMax      = 256  // names to join
	partitionsMax     = 1024 // message partitions of a cluster
	replicationMax    = 7    // replicas of one partition
	expectMax         = 64   // members awaited before the cluster forms
	catalogVotersMax  = 5    // voters of the catalog; other members hold it without a vote
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

	Timing Timing
	// Sizes is how large things on disk grow; the zero value means partition.DefaultSizes.
	Sizes  partition.Sizes
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
	// Retry is how long a request is tried at all; far below the ten minutes after
	// which a machine forgets who asked. Default 60 s.
	Retry time.Duration
	// Suspect is how long a request may be on its way before the other replicas are
	// asked whether the leader is still the leader. Default 1 s.
	Suspect time.Duration
	// Handover bounds the giving away of leaderships when the member closes. Default 5 s.
	Handover time.Duration
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
			Retry:          time.Minute,
			Suspect:        time.Second,
			Handover:       5 * time.Second,
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
		{"name", c.Name, nameBytesMax},
		{"cluster", c.Cluster, nameBytesMax},
		{"peer advertise", c.PeerAdvertise, addressBytesMax},
		{"amqp address", c.AMQPAddr, addressBytesMax},
		{"http address", c.HTTPAddr, addressBytesMax},
		{"version", c.Version, versionBytesMax},
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
	if c.Expect == 0 && len(c.Join) == 0 {
		return errors.New("cluster: expect 0 only joins, and there is no name to join")
	}
	return c.Timing.validate()
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
		{"retry", t.Retry},
		{"suspect", t.Suspect},
		{"handover", t.Handover},
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
