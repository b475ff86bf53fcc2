package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/peeklock/peeklock/cluster/notify"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
)

func newClient(id fsm.PartitionID, c *Config) *Client {
	return &Client{
		id: id, incarnation: c.Incarnation, self: c.Self, transport: c.Transport, timing: c.Timing, log: c.Logger, now: c.Now,
		slow:   slowLogger{c.Slow, c.SlowAfter},
		window: make([]*request, windowMin),
		low:    1, next: 1, cursor: 1,
		receivers: make(map[*Receiver]struct{}),
	}
}

// The intervals of a Clients.
const (
	tickEvery   = 100 * time.Millisecond
	askPauseMin = 5 * time.Millisecond // between two questions to a leader
	askPauseMax = 200 * time.Millisecond
)

// Clients holds the clients of all partitions. Its methods are safe for concurrent use.
type Clients struct {
	config      Config
	receiverIDs atomic.Uint64

	mu      sync.Mutex
	clients map[fsm.PartitionID]*Client
	closed  bool
}

// New makes the clients. Run must run while they are used.
func New(c *Config) *Clients {
	return &Clients{config: *c, clients: make(map[fsm.PartitionID]*Client)}
}

// Client returns the client of a partition. Partitions come from the catalog, so their number is bounded.
func (c *Clients) Client(id fsm.PartitionID) *Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	client := c.clients[id]
	if client == nil {
		client = newClient(id, &c.config)
		client.closed = c.closed
		c.clients[id] = client
	}
	return client
}

func (c *Clients) all() []*Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	clients := make([]*Client, 0, len(c.clients))
	for _, client := range c.clients {
		clients = append(clients, client)
	}
	return clients
}

// Run ends overdue requests until ctx ends, and calls used with each entity that receivers wait for or have got messages
// from. It calls used at most once per ActivityEvery and receiver.
func (c *Clients) Run(ctx context.Context, used func(fsm.Entity)) {
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			for _, client := range c.all() {
				client.tick(now)
				for _, entity := range client.takeTouched() {
					used(entity)
				}
			}
		}
	}
}

// Close ends all requests: with ServerBusy if they were certainly not applied, with Timeout otherwise.
func (c *Clients) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	for _, client := range c.all() {
		client.close()
	}
}

// Receiver opens a receiver with an id of its own for a sub-queue of an entity. With receiveAndDelete, messages are
// deleted as they are received and not locked.
func (c *Clients) Receiver(at fsm.EntityRef, receiveAndDelete bool) *Receiver {
	return &Receiver{client: c.Client(at.Partition), id: c.receiverIDs.Add(1), at: at, receiveAndDelete: receiveAndDelete}
}

// Command submits a command and waits for its result. An error wraps the Code.
func (c *Clients) Command(ctx context.Context, id fsm.PartitionID, command fsm.Command) (fsm.Result, error) {
	results := make(chan fsm.Result, 1)
	c.Client(id).Submit(command, func(result fsm.Result) { results <- result })
	select {
	case result := <-results:
		recordChange(ctx, result.Code)
		if result.Code != fsm.OK {
			return result, result.Code
		}
		return result, nil
	case <-ctx.Done():
		recordChange(ctx, fsm.Timeout)
		return fsm.Result{}, fmt.Errorf("%w (%w)", fsm.Timeout, ctx.Err())
	}
}

// Leader returns an Asker that asks the leader of a partition and, when it has changed, the next one, until
// ctx or Timing.Retry ends. Its errors wrap an fsm.Code.
func (c *Clients) Leader(id fsm.PartitionID) rpc.Asker {
	return func(ctx context.Context, kind rpc.QueryKind, arguments []byte) (rpc.Reply, error) {
		return c.askLeader(ctx, id, kind, arguments)
	}
}

func (c *Clients) askLeader(ctx context.Context, id fsm.PartitionID, kind rpc.QueryKind, arguments []byte) (reply rpc.Reply, err error) {
	client := c.Client(id)
	err = c.AtLeader(ctx, id, func(leader fsm.MemberID) (err error) {
		ctx, cancel := client.untilLeaderChanges(ctx, leader)
		defer cancel()
		if reply, err = c.askMember(ctx, leader, kind, arguments); err == nil {
			err = reply.Decode(nil)
		}
		return err
	})
	if err != nil {
		return rpc.Reply{}, fmt.Errorf("ask partition %d: %w", id, err)
	}
	return reply, nil
}

// AtLeader calls a function with the leader of a partition. Until ctx or Timing.Retry ends, it repeats
// the call while that member does not lead or does not answer. An error of the function that wraps an
// fsm.Code is an answer.
func (c *Clients) AtLeader(ctx context.Context, id fsm.PartitionID, call func(leader fsm.MemberID) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timing.Retry)
	defer cancel()
	client := c.Client(id)
	for pause := askPauseMin; ; pause = min(2*pause, askPauseMax) {
		leader, err := client.awaitLeader(ctx)
		if err != nil {
			return fmt.Errorf("the partition has no leader: %w", fsm.ServerBusy)
		}
		err = call(leader)
		var code fsm.Code
		if err == nil || errors.As(err, &code) {
			return err
		}
		c.SuspectLeader(id, leader)
		notify.Pause(ctx, pause)
	}
}

// askMember asks a member, which may be this one. It stops waiting for a member that does not answer, so
// that another one can be asked.
func (c *Clients) askMember(ctx context.Context, member fsm.MemberID, kind rpc.QueryKind, arguments []byte) (rpc.Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, max(time.Second, 2*c.config.Timing.Suspect))
	defer cancel()
	if member == c.config.Self {
		return c.config.AnswerLocal(ctx, kind, arguments), nil
	}
	conn := c.config.Transport.Conn(member)
	if conn == nil {
		return rpc.Reply{}, rpc.ErrClosed
	}
	return conn.Query(ctx, kind, arguments)
}

// AwaitLeader waits until a leader of the partition is known and returns it.
func (c *Clients) AwaitLeader(ctx context.Context, id fsm.PartitionID) (fsm.MemberID, error) {
	return c.Client(id).awaitLeader(ctx)
}

// LeaderChanged is called when this member has gained or lost the leadership of a partition, or its replica follows
// another leader: the search for a leader restarts immediately, and requests in flight to an old leader are sent again.
func (c *Clients) LeaderChanged(id fsm.PartitionID) { c.Client(id).leaderChanged() }

// SuspectLeader restarts the search for the leader of a partition if member is considered the leader.
func (c *Clients) SuspectLeader(id fsm.PartitionID, member fsm.MemberID) {
	client := c.Client(id)
	client.mu.Lock()
	client.suspectLeader(member, "")
	client.mu.Unlock()
}

// Outstanding returns the number of requests to a partition from the oldest unanswered one to the newest.
func (c *Clients) Outstanding(id fsm.PartitionID) int {
	client := c.Client(id)
	client.mu.Lock()
	defer client.mu.Unlock()
	return int(client.next - client.low)
}

// HasNoLeader reports whether requests to a partition wait because no leader is known.
func (c *Clients) HasNoLeader(id fsm.PartitionID) bool { return c.Client(id).hasNoLeader() }

// Stats sums the counts of all partition clients.
func (c *Clients) Stats() Stats {
	var f Stats
	for _, client := range c.all() {
		f.Requests += client.counts.requests.Load()
		f.Retries += client.counts.retries.Load()
		f.Busy += client.counts.busy.Load()
		f.Timeouts += client.counts.timeouts.Load()
		took := client.counts.took.Durations()
		for i := range took.Within {
			f.Took.Within[i] += took.Within[i]
		}
		f.Took.Count += took.Count
		f.Took.Sum += took.Sum
	}
	return f
}
