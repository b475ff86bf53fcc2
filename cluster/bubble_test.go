package cluster

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/kit"
	"github.com/peeklock/peeklock/test/sim/simfs"
	"github.com/peeklock/peeklock/test/sim/simnet"
)

// The ports and the data folder of a host in a bubble.
const (
	bubblePeerPort   = 1
	bubbleGossipPort = 2
	bubbleFolder     = "/data"
)

// bubbleHost is the host of a member in a bubble: a disk that outlives the member's processes, and the network. Without a
// disk the member uses files of the operating system.
type bubbleHost struct {
	network *simnet.Network
	number  int
	disk    *simfs.Disk
	process *simnet.Host // of the newest process, nil before the first
}

// inBubble runs a parallel test in virtual time, over the network and the disks of the simulation.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	kit.InBubble(t, test)
}

// newBubbleCluster creates members for a test that inBubble runs, with disks of the simulation.
func newBubbleCluster(t *testing.T, members, partitions int) *testCluster {
	t.Helper()
	c := newFileCluster(t, members, partitions)
	for i := range c.configs {
		disk, config := simfs.New(rand.New(rand.NewPCG(1, uint64(i)))), &c.configs[i]
		c.hosts[i].disk = disk
		config.Dir, config.Free, config.LogStore = bubbleFolder, disk.Space, partition.JournalLog
	}
	return c
}

// newFileCluster is newBubbleCluster with real files, for tests that change them.
func newFileCluster(t *testing.T, members, partitions int) *testCluster {
	t.Helper()
	c := newCluster(t, members, partitions)
	network := simnet.New(1)
	var gossip []string
	for i := range members {
		gossip = append(gossip, simnet.Address(i, bubbleGossipPort))
	}
	for i := range c.configs {
		c.hosts = append(c.hosts, &bubbleHost{network: network, number: i})
		config := &c.configs[i]
		config.Dir, config.LogStore = kit.MemoryDir(t), partition.LogKind(os.Getenv("PEEKLOCK_LOG_STORE"))
		config.GossipAddr, config.Join = gossip[i], slices.Concat(gossip[:i], gossip[i+1:])
	}
	// After the folders exist: cleanups run in reverse order.
	t.Cleanup(c.stopAll)
	return c
}

// add adds the configuration of one more member, which knows all others, with a host and a folder of its own.
func (c *testCluster) add() int {
	c.t.Helper()
	i, config := len(c.configs), c.configs[0]
	config.Name, config.Dir, config.GossipAddr = fmt.Sprintf("m%d", i), kit.MemoryDir(c.t), simnet.Address(i, bubbleGossipPort)
	config.Join = nil
	for j := range c.configs {
		config.Join = append(config.Join, c.configs[j].GossipAddr)
	}
	config.Logger = testLogger().With("name", config.Name)
	c.configs, c.nodes = append(c.configs, config), append(c.nodes, nil)
	c.hosts = append(c.hosts, &bubbleHost{network: c.hosts[0].network, number: i})
	c.t.Cleanup(func() { c.stop(i) }) // before its folder is removed
	return i
}

// boot starts the host of a process, and puts its network and its file system into the configuration.
func (h *bubbleHost) boot(config *Config) (err error) {
	h.end()
	if h.disk != nil {
		files := h.disk.Mount()
		config.FS, config.OpenLogStore = files, files.OpenLog
	}
	h.process = h.network.Start(h.number)
	config.Dial = h.process.Dial
	if config.PeerListener, err = h.process.Listen(bubblePeerPort); err != nil {
		return fmt.Errorf("listen for peers: %w", err)
	}
	if config.GossipTransport, err = h.process.Gossip(bubbleGossipPort); err != nil {
		return fmt.Errorf("listen for gossip: %w", err)
	}
	return nil
}

// end ends what the newest process has left.
func (h *bubbleHost) end() {
	if h.process != nil {
		h.process.Kill()
		if h.disk != nil {
			h.disk.Kill()
		}
		h.process = nil
	}
}
