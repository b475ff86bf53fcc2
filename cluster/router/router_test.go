package router

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

// testTransport is the environment of a member that has one group.
type testTransport struct {
	client.Transport

	group *fakegroup.Group
}

func (w testTransport) LocalReplica(fsm.PartitionID) rpc.Group          { return w.group }
func (w testTransport) LeaderCandidates(fsm.PartitionID) []fsm.MemberID { return nil }
func (w testTransport) Changes() <-chan struct{}                        { return nil }
func (w testTransport) Go(task func(ctx context.Context)) bool {
	go task(context.Background())
	return true
}

// testClients returns clients of partitions that the group serves.
func testClients(t *testing.T, group *fakegroup.Group) *client.Clients {
	t.Helper()
	clients := client.New(&client.Config{
		Transport: testTransport{group: group}, Self: "self", Timing: client.Timing{Retry: time.Minute, Suspect: time.Minute},
		Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(clients.Close)
	return clients
}
