package harness

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

// Options describe the cluster to start. The zero value is three members.
type Options struct {
	Members    int      // 1, 3 or 5; 0 means 3
	Partitions int      // message partitions; 0 means 4
	Args       []string // further flags for every member
	Network    *Network // that the members are in; nil: all listen on loopback
	Binary     string   // of the members; "": the one of this module
	Profile    bool     // members serve profiles, for Member.Collect
	// Data returns the data folder of member number i, from 0 on; nil: it is Member.Dir, which also has the configuration.
	Data func(i int) string
}

// Cluster is a set of `peeklock serve` processes that bootstrap a cluster together.
type Cluster struct {
	Members []*Member
	CA      string // of StartDev with --tls: the file with the certificate to trust
	t       testing.TB
	gossip  []string  // addresses of the founding members
	joined  []*Member // further members; see Join
	options Options
}

// Start starts a cluster and waits until every member serves and every partition has a
// leader. It ends with the test.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	if o.Members == 0 {
		o.Members = 3
	}
	if o.Partitions == 0 {
		o.Partitions = 4
	}
	dir := t.TempDir()
	c := &Cluster{t: t, options: o}
	free := c.memberAddresses(t)
	c.gossip, free = free[:o.Members], free[o.Members:]
	for i := range o.Members {
		m := newMember(t, dir, "member-"+strconv.Itoa(i+1))
		m.Data = m.Dir
		if o.Data != nil {
			m.Data = o.Data(i)
		}
		c.configure(m, c.gossip[i], free[3*i:])
		if o.Network != nil {
			o.Network.assign(m, i)
		}
		c.Members = append(c.Members, m)
	}
	t.Cleanup(c.close)
	for _, m := range c.Members {
		m.Start()
	}
	for _, m := range c.Members {
		m.WaitReady()
	}
	c.WaitLed(t)
	return c
}

// memberAddresses returns the gossip address of each member, followed by three addresses of each.
func (c *Cluster) memberAddresses(t testing.TB) []string {
	t.Helper()
	if c.options.Network == nil {
		return freeAddresses(t, 4*c.options.Members)
	}
	var gossip, rest []string
	for i := range c.options.Members {
		gossip = append(gossip, c.options.Network.address(i, 7946))
		for _, port := range []int{5672, 5300, 7947} {
			rest = append(rest, c.options.Network.address(i, port))
		}
	}
	return append(gossip, rest...)
}

// moreKeys are further keys, which only a configuration file can have.
const moreKeys = "keys:\n" +
	"  - {name: " + SendKeyName + ", primary: " + Key + ", rights: send}\n" +
	"  - {name: " + ListenKeyName + ", primary: " + Key + ", rights: listen}\n"

// configure gives a member its addresses, three of free, and its flags.
func (c *Cluster) configure(m *Member, gossip string, free []string) {
	config := filepath.Join(m.Dir, "peeklock.yaml")
	if err := os.WriteFile(config, []byte(moreKeys), 0o600); err != nil {
		c.t.Fatal(err)
	}
	m.AMQP, m.Admin, m.binary = free[0], free[1], c.options.Binary
	m.Peer, m.Gossip = free[2], gossip
	m.socket = filepath.Join(cmp.Or(m.Data, m.Dir), "peeklock.sock")
	m.args = []string{
		"serve", "--config", config, "--name", m.Name, "--dir", cmp.Or(m.Data, m.Dir),
		"--amqp", m.AMQP, "--admin", m.Admin, "--peer", free[2], "--gossip", gossip,
		"--expect", strconv.Itoa(c.options.Members), "--partitions", strconv.Itoa(c.options.Partitions),
		"--key-name", KeyName, "--key", Key,
	}
	if c.options.Profile {
		m.profile = freeAddresses(c.t, 1)[0]
		m.args = append(m.args, "--pprof", m.profile)
	}
	for _, address := range c.gossip {
		if address != gossip {
			m.args = append(m.args, "--join", address)
		}
	}
	if len(m.socket) > socketPathBytesMax && m.binary == "" { // the folder of a test has the name of the test
		short, err := os.MkdirTemp("", "pk")
		if err != nil {
			c.t.Fatal(err)
		}
		c.t.Cleanup(func() { _ = os.RemoveAll(short) })
		m.socket = filepath.Join(short, "s")
		m.args = append(m.args, "--control-socket", m.socket)
	}
	m.args = append(m.args, c.options.Args...)
}

// socketPathBytesMax is the longest path of a socket that every system allows.
const socketPathBytesMax = 103

// Join starts one more member. It holds no partition, so a fault of it affects only its clients. It is not among
// Members.
func (c *Cluster) Join(t testing.TB) *Member {
	t.Helper()
	m := newMember(c.t, c.t.TempDir(), "member-"+strconv.Itoa(len(c.Members)+len(c.joined)+1))
	free := freeAddresses(t, 4)
	c.configure(m, free[0], free[1:])
	c.joined = append(c.joined, m)
	m.Start()
	m.WaitReady()
	return m
}

// Joined returns the members that Join has started, in this order.
func (c *Cluster) Joined() []*Member { return slices.Clone(c.joined) }

// close kills the processes that still run and prints the logs of a failed test.
func (c *Cluster) close() {
	all := slices.Concat(c.Members, c.joined)
	for _, m := range all {
		m.verify()
	}
	for _, m := range all {
		if m.Running() {
			_ = m.cmd.Process.Kill() // also ends a paused process
			<-m.done
		}
		if c.t.Failed() {
			c.t.Logf("end of the log of %s:\n%s", m.Name, m.logTail())
		}
	}
}

// Status is the state of the cluster in the control API; only the fields that tests read.
type Status struct {
	ClusterID string `json:"clusterId"`
	Members   []struct {
		ID    string `json:"id"`
		Name  string `json:"name"`
		State string `json:"state"`
		AMQP  string `json:"amqp"`
	} `json:"members"`
	Partitions []struct {
		ID       uint32   `json:"id"`
		Leader   string   `json:"leader"`
		Term     uint64   `json:"term"`
		Applied  uint64   `json:"applied"`
		Replicas []string `json:"replicas"`
	} `json:"partitions"`
}

// Status returns the state of the cluster as this member sees it.
func (m *Member) Status(ctx context.Context) (Status, error) {
	var s Status
	body, err := m.get(ctx, "/v1/status")
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(body, &s)
}

// Applied is the index up to which this member has applied the log of a partition. Its status would show the
// position of the leader.
func (m *Member) Applied(ctx context.Context, partition uint32) (uint64, error) {
	name := fmt.Sprintf(`peeklock_partition_applied_index{partition="%d"}`, partition)
	found, err := m.Metrics(ctx, name)
	return uint64(found[name]), err
}

// Running returns the members whose process runs.
func (c *Cluster) Running() []*Member {
	return slices.DeleteFunc(slices.Clone(c.Members), func(m *Member) bool { return !m.Running() })
}

// WaitLed waits until each running member knows a running leader of every partition.
func (c *Cluster) WaitLed(t testing.TB) {
	t.Helper()
	Eventually(t, convergeWithin, "a leader for every partition", func(ctx context.Context) error {
		for _, m := range c.Running() {
			s, err := m.Status(ctx)
			if err != nil {
				return err
			}
			if len(s.Partitions) == 0 {
				return fmt.Errorf("%s knows no partitions", m.Name)
			}
			for _, p := range s.Partitions {
				if c.runningMember(s, p.Leader) == nil {
					return fmt.Errorf("%s knows no leader of partition %d", m.Name, p.ID)
				}
			}
		}
		return nil
	})
}

// runningMember returns the running member with an id, or nil.
func (c *Cluster) runningMember(s Status, id string) *Member {
	for _, known := range s.Members {
		if known.ID != id {
			continue
		}
		for _, m := range c.Running() {
			if m.Name == known.Name {
				return m
			}
		}
	}
	return nil
}

// Leader returns the running member that leads the partition of a queue, when all running members
// agree on it.
func (c *Cluster) Leader(t testing.TB, queue string) *Member {
	t.Helper()
	var leader *Member
	Eventually(t, convergeWithin, "leader of "+queue, func(ctx context.Context) error {
		leader = nil
		for _, m := range c.Running() {
			q, err := m.Queue(ctx, queue)
			if err != nil {
				return err
			}
			s, err := m.Status(ctx)
			if err != nil {
				return err
			}
			for _, p := range s.Partitions {
				if p.ID != q.Partition {
					continue
				}
				seen := c.runningMember(s, p.Leader)
				if seen == nil || leader != nil && seen != leader {
					return fmt.Errorf("members do not agree on a leader of partition %d", p.ID)
				}
				leader = seen
			}
		}
		if leader == nil {
			return errors.New("no member knows the partition")
		}
		return nil
	})
	return leader
}

// Others returns the running members except one.
func (c *Cluster) Others(than *Member) []*Member {
	return slices.DeleteFunc(c.Running(), func(m *Member) bool { return m == than })
}
