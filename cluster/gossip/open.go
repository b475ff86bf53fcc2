package gossip

import (
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/peeklock/peeklock/fsm"
)

type (
	// Transport carries the packets and streams of gossip.
	Transport = memberlist.Transport
	// Packet is one packet that a Transport received.
	Packet = memberlist.Packet
)

// Config configures the gossip of one member.
type Config struct {
	// Label, when set, keeps out processes with another label.
	Label string
	// Addr is the host:port that is bound, for UDP and TCP; port 0 picks a free port. Advertise is the
	// host:port announced to others; if it is empty, Addr is announced.
	Addr, Advertise string
	// Transport, when set, carries gossip instead of sockets at Addr. Close shuts it down.
	Transport Transport
	Join      []string // host:port of members to join; contacted again while a member is missing, and every rejoinIntervalsMax intervals
	Keys      [][]byte // 16, 24 or 32 bytes each; the first encrypts, all decrypt; none: plain gossip

	ProbeInterval  time.Duration // between two probes of a random member
	GossipInterval time.Duration // between two rounds of gossip
	RejoinInterval time.Duration // least pause between two attempts to join; it grows to rejoinIntervalsMax times this value
	TCPTimeout     time.Duration // of one TCP exchange; Close may wait for one, and for the resolution of its name

	// OnLost is called when the process of a member has left or is considered dead, from memberlist's
	// goroutines and with no lock held. It must not block.
	OnLost func(fsm.MemberID)
	// OnTwin is called, in a goroutine of its own, when another process with the identity of this member appears: one that runs on a
	// copy of its data folder, or the one before this, whose end is not known yet. It gets the host:port of its peer port. It may be nil.
	OnTwin func(address string)
	Logger *slog.Logger
}

// Open starts gossip with self as this member's metadata. It does not wait for answers of other members.
func Open(c *Config, self Metadata) (*Membership, error) {
	g := &Membership{
		log:     c.Logger,
		join:    c.Join,
		onLost:  c.OnLost,
		onTwin:  c.OnTwin,
		self:    self,
		members: make(map[fsm.MemberID]*Member),
		stop:    make(chan struct{}),

		joinWarnedAt: make(map[string]time.Time),
		unreached:    make(map[string]bool),
		resolveMax:   c.TCPTimeout,
	}
	config, err := g.memberlistConfig(c)
	if err != nil {
		return nil, err
	}
	g.list, err = memberlist.Create(config)
	if err != nil && c.Advertise == "" && config.BindAddr == "0.0.0.0" {
		return nil, fmt.Errorf("open gossip on %s: %w: the address to announce was chosen among the interfaces; set advertise to the name or address of this machine", c.Addr, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open gossip on %s: %w", c.Addr, err)
	}
	g.done.Go(func() { g.rejoinLoop(c.RejoinInterval) })
	g.done.Go(func() { g.unreachedLoop(c.RejoinInterval) })
	return g, nil
}

func (g *Membership) memberlistConfig(c *Config) (*memberlist.Config, error) {
	config := memberlist.DefaultLANConfig()
	config.Name = g.self.nodeName()
	config.Label = c.Label
	config.Transport = c.Transport
	config.LogOutput = memberlistLog{log: c.Logger, refusals: &g.refusals}
	config.Delegate, config.Events, config.Alive, config.Merge = g, g, g, g
	config.ProbeInterval = c.ProbeInterval
	config.ProbeTimeout = c.ProbeInterval / 2
	config.GossipInterval = c.GossipInterval
	config.PushPullInterval = gossipPushPullEvery
	config.TCPTimeout = c.TCPTimeout
	var err error
	if len(c.Keys) > 0 { // memberlist then refuses plain messages
		if config.Keyring, err = memberlist.NewKeyring(c.Keys, c.Keys[0]); err != nil {
			return nil, fmt.Errorf("gossip keys: %w", err)
		}
		g.keyring = config.Keyring
	}
	if config.BindAddr, config.BindPort, err = splitAddress(c.Addr); err != nil {
		return nil, err
	}
	if config.BindAddr == "" {
		config.BindAddr = "0.0.0.0"
	}
	config.AdvertisePort = config.BindPort
	if c.Advertise != "" {
		if config.AdvertiseAddr, config.AdvertisePort, err = splitAddress(c.Advertise); err != nil {
			return nil, err
		}
	}
	return config, nil
}

func splitAddress(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("address %q: %w", address, err)
	}
	port, err = strconv.Atoi(text)
	if err != nil || port < 0 || port > 65535 {
		return "", 0, fmt.Errorf("address %q: port is not a number up to 65535", address)
	}
	return host, port, nil
}
