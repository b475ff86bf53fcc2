package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"testing"
	"time"
)

// The key that every cluster of the harness is started with: the names under which users
// of the official emulator know it.
const (
	KeyName = "RootManageSharedAccessKey"
	Key     = "SAS_KEY_VALUE"
)

// settleWithin bounds the waits for elections and for what the cluster does by itself.
const settleWithin = 60 * time.Second

// Options says what cluster to start. The zero value is three members.
type Options struct {
	Members    int      // 1, 3 or 5; 0 means 3
	Partitions int      // message partitions; 0 means 4
	Args       []string // further flags for every member
}

// Cluster is a set of `peeklock serve` processes that were founded together.
type Cluster struct {
	Members []*Member
	t       testing.TB
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
	c := &Cluster{t: t}
	gossip := make([]string, o.Members)
	for i := range gossip {
		gossip[i] = freeAddress(t)
	}
	for i := range o.Members {
		m := newMember(t, dir, "member-"+strconv.Itoa(i+1))
		m.AMQP, m.Admin = freeAddress(t), freeAddress(t)
		m.args = []string{
			"serve", "--name", m.Name, "--dir", m.Dir,
			"--amqp", m.AMQP, "--admin", m.Admin, "--peer", freeAddress(t), "--gossip", gossip[i],
			"--expect", strconv.Itoa(o.Members), "--partitions", strconv.Itoa(o.Partitions),
			"--key-name", KeyName, "--key", Key,
		}
		for j, address := range gossip {
			if j != i {
				m.args = append(m.args, "--join", address)
			}
		}
		m.args = append(m.args, o.Args...)
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

// close kills what still runs and shows the logs of a failed test.
func (c *Cluster) close() {
	for _, m := range c.Members {
		m.verify()
	}
	for _, m := range c.Members {
		if m.Running() {
			_ = m.cmd.Process.Kill() // also ends a paused process
			<-m.done
		}
		if c.t.Failed() {
			c.t.Logf("end of the log of %s:\n%s", m.Name, m.tail())
		}
	}
}

// Status is what the control API says of the cluster; only what tests read.
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

// Status asks one member how the cluster looks to it.
func (m *Member) Status(ctx context.Context) (Status, error) {
	var s Status
	body, err := m.get(ctx, "/v1/status")
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(body, &s)
}

// Applied is the index up to which the member has applied the log of a partition.
func (m *Member) Applied(ctx context.Context, partition uint32) (uint64, error) {
	s, err := m.Status(ctx)
	if err != nil {
		return 0, err
	}
	for _, p := range s.Partitions {
		if p.ID == partition {
			return p.Applied, nil
		}
	}
	return 0, fmt.Errorf("%s has no partition %d", m.Name, partition)
}

// Running returns the members whose process lives.
func (c *Cluster) Running() []*Member {
	return slices.DeleteFunc(slices.Clone(c.Members), func(m *Member) bool { return !m.Running() })
}

// WaitLed waits until each running member knows a living leader of every partition.
func (c *Cluster) WaitLed(t testing.TB) {
	t.Helper()
	Eventually(t, settleWithin, "a leader for every partition", func(ctx context.Context) error {
		for _, m := range c.Running() {
			s, err := m.Status(ctx)
			if err != nil {
				return err
			}
			if len(s.Partitions) == 0 {
				return fmt.Errorf("%s knows no partitions", m.Name)
			}
			for _, p := range s.Partitions {
				if c.named(s, p.Leader) == nil {
					return fmt.Errorf("%s knows no leader of partition %d", m.Name, p.ID)
				}
			}
		}
		return nil
	})
}

// named finds the running member with an id, or nil.
func (c *Cluster) named(s Status, id string) *Member {
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

// Queue is an entity as the control API shows it; only what tests read.
type Queue struct {
	Name      string `json:"name"`
	Partition uint32 `json:"partition"`
	Counts    Counts `json:"counts"`
}

// Counts are the numbers of messages of a queue.
type Counts struct {
	Active     uint64 `json:"active"`
	Locked     uint64 `json:"locked"`
	Deferred   uint64 `json:"deferred"`
	Scheduled  uint64 `json:"scheduled"`
	DeadLetter uint64 `json:"deadLetter"`
}

// Settings are those of a queue at its creation; zero means the default.
type Settings struct {
	LockDuration     time.Duration
	MaxDeliveryCount int
	More             Fields // any others, under the names of the control API
}

// Fields are settings of a queue as the control API reads them: lengths of time as texts.
type Fields map[string]any

// CreateQueue makes a queue and fails the test when it cannot.
func (c *Cluster) CreateQueue(t testing.TB, name string, s Settings) {
	t.Helper()
	body, err := json.Marshal(settingsJSON(s))
	if err != nil {
		t.Fatal(err)
	}
	var before error
	Eventually(t, settleWithin, "queue "+name, func(ctx context.Context) error {
		_, err := c.Running()[0].request(ctx, http.MethodPut, "/v1/queues/"+url.PathEscape(name), bytes.NewReader(body))
		if before != nil && errors.Is(err, errConflict) {
			return nil // the try before was done, and only its answer was lost
		}
		before = err
		return err
	})
}

// settingsJSON leaves out what is to be the default.
func settingsJSON(s Settings) map[string]any {
	fields := map[string]any{}
	if s.LockDuration != 0 {
		fields["lockDuration"] = s.LockDuration.String()
	}
	if s.MaxDeliveryCount != 0 {
		fields["maxDeliveryCount"] = s.MaxDeliveryCount
	}
	maps.Copy(fields, s.More)
	return fields
}

// Queue asks one member about a queue.
func (m *Member) Queue(ctx context.Context, name string) (Queue, error) {
	var q Queue
	body, err := m.get(ctx, "/v1/queues/"+url.PathEscape(name))
	if err != nil {
		return q, err
	}
	return q, json.Unmarshal(body, &q)
}

// WaitCounts waits until every running member gives these counts of a queue.
func (c *Cluster) WaitCounts(t testing.TB, queue string, want Counts) {
	t.Helper()
	Eventually(t, settleWithin, "counts of "+queue, func(ctx context.Context) error {
		for _, m := range c.Running() {
			q, err := m.Queue(ctx, queue)
			if err != nil {
				return err
			}
			if q.Counts != want {
				return fmt.Errorf("%s counts %+v, want %+v", m.Name, q.Counts, want)
			}
		}
		return nil
	})
}

// Leader returns the running member that leads the partition of a queue, as the other
// running members agree.
func (c *Cluster) Leader(t testing.TB, queue string) *Member {
	t.Helper()
	var leader *Member
	Eventually(t, settleWithin, "leader of "+queue, func(ctx context.Context) error {
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
				seen := c.named(s, p.Leader)
				if seen == nil || leader != nil && seen != leader {
					return fmt.Errorf("members do not agree on a leader of partition %d", p.ID)
				}
				leader = seen
			}
		}
		if leader == nil {
			return errors.New("nobody knows the partition")
		}
		return nil
	})
	return leader
}

// Others returns the running members but one.
func (c *Cluster) Others(than *Member) []*Member {
	return slices.DeleteFunc(c.Running(), func(m *Member) bool { return m == than })
}
