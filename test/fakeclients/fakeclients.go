package fakeclients

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/peeklock/peeklock/cluster/client"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/fakegroup"
)

// transport is the environment of a member that has a group for each partition, numbered from 1, or one for all.
type transport struct {
	client.Transport

	ctx    context.Context
	groups []*fakegroup.Group
}

func (w transport) LocalReplica(id fsm.PartitionID) rpc.Group {
	if len(w.groups) == 1 {
		return w.groups[0]
	}
	return w.groups[id-1]
}

func (w transport) LeaderCandidates(fsm.PartitionID) []fsm.MemberID { return nil }
func (w transport) Changes() <-chan struct{}                        { return nil }
func (w transport) Go(task func(ctx context.Context)) bool {
	go task(w.ctx)
	return true
}

// New returns clients of partitions that the groups serve: each serves one, numbered from 1, or a single one serves all.
// The clients are closed when the test ends. The test calls Run if it needs timeouts.
func New(t *testing.T, groups ...*fakegroup.Group) *client.Clients {
	t.Helper()
	clients := client.New(&client.Config{
		Transport: transport{ctx: t.Context(), groups: groups}, Self: "self", Timing: client.Timing{Retry: time.Minute, Suspect: time.Minute},
		Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(clients.Close)
	return clients
}
