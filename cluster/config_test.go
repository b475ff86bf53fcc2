package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/peeklock/peeklock/cluster/gossip"
	"github.com/peeklock/peeklock/cluster/move"
)

func TestInvalidConfigIsRefused(t *testing.T) {
	t.Parallel()
	valid := Default()
	valid.Dir, valid.Logger = "data", testLogger()
	if err := valid.Validate(); err != nil {
		t.Fatalf("the default is refused: %v", err)
	}
	for word, break1 := range map[string]func(*Config){
		"dir":              func(c *Config) { c.Dir = "" },
		"logger":           func(c *Config) { c.Logger = nil },
		"name":             func(c *Config) { c.Name = strings.Repeat("x", gossip.NameBytesMax+1) },
		"cluster":          func(c *Config) { c.Cluster = strings.Repeat("x", gossip.NameBytesMax+1) },
		"version":          func(c *Config) { c.Version = strings.Repeat("x", gossip.VersionBytesMax+1) },
		"peer address":     func(c *Config) { c.PeerAddr = "7947" },
		"peer advertise":   func(c *Config) { c.PeerAdvertise = strings.Repeat("x", gossip.AddressBytesMax) + ":1" },
		"gossip address":   func(c *Config) { c.GossipAddr = "" },
		"gossip advertise": func(c *Config) { c.GossipAdvertise = "name:1" },
		"amqp address":     func(c *Config) { c.AMQPAddr = "x" },
		"http address":     func(c *Config) { c.HTTPAddr = strings.Repeat("x", gossip.AddressBytesMax) + ":1" },
		"expect":           func(c *Config) { c.Expect = expectMax + 1 },
		"only joins":       func(c *Config) { c.Expect = 0 },
		"to join":          func(c *Config) { c.Join = make([]string, joinNamesMax+1) },
		"is empty":         func(c *Config) { c.Join = []string{" "} },
		"partitions":       func(c *Config) { c.Partitions = move.PartitionsMax + 1 },
		"replication":      func(c *Config) { c.Replication = replicationMax + 1 },
		"zone must":        func(c *Config) { c.Zone = strings.Repeat("x", gossip.ZoneBytesMax+1) },
		"be UTF-8":         func(c *Config) { c.Zone = "\xff" },
		"replace after":    func(c *Config) { c.ReplaceAfter = -1 },
		"timing policy":    func(c *Config) { c.Timing.Policy = 0 },
		"timing ping":      func(c *Config) { c.Timing.Ping = 0 },
		"timing retry":     func(c *Config) { c.Timing.Retry = retryMax + time.Second },
	} {
		config := valid
		break1(&config)
		if err := config.Validate(); err == nil || !strings.Contains(err.Error(), word) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", word, err)
		}
	}
}
