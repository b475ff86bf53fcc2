package client

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/peeklock/peeklock/cluster/clocks"
	"github.com/peeklock/peeklock/cluster/notify"
	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/fakegroup"
	"github.com/peeklock/peeklock/test/kit"
)

// fakeTransport is the environment of one partition client: a local group that may lead, and other
// members behind real connections.
type fakeTransport struct {
	group      *fakegroup.Group
	peerClient *rpc.Client
	others     []fsm.MemberID
	changed    notify.Broadcast
	ctx        context.Context
	tasks      sync.WaitGroup
}

func (w *fakeTransport) LocalReplica(fsm.PartitionID) rpc.Group {
	if w.group == nil {
		return nil
	}
	return w.group
}

func (w *fakeTransport) Conn(m fsm.MemberID) *rpc.Conn { return w.peerClient.Conn(m) }

func (w *fakeTransport) LeaderCandidates(fsm.PartitionID) []fsm.MemberID { return w.others }

func (w *fakeTransport) Changes() <-chan struct{} { return w.changed.Wait() }

func (w *fakeTransport) Go(task func(ctx context.Context)) (took bool) {
	w.tasks.Go(func() { task(w.ctx) })
	return true
}

func testLogger() *slog.Logger { return slog.New(slog.DiscardHandler) }

// memberHost is another member that serves a fake group.
type memberHost struct{ group *fakegroup.Group }

func (h memberHost) LocalReplica(fsm.PartitionID) rpc.Group { return h.group }

func (h memberHost) Clocks() clocks.Reading { return clocks.Reading{Clock: time.Now()} }

func (h memberHost) AnswerQuery(context.Context, rpc.QueryKind, []byte) rpc.Reply {
	s := h.group.Status()
	body, _ := json.Marshal(raftgroup.Status{IsLeader: s.IsLeader, Leader: s.Leader, Term: s.Term})
	return rpc.Reply{Status: rpc.StatusOK, Body: body}
}

func newTestClient(t *testing.T, group *fakegroup.Group, others map[fsm.MemberID]*fakegroup.Group) *Client {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	w := &fakeTransport{group: group, ctx: ctx}
	for member := range others {
		w.others = append(w.others, member)
	}
	w.peerClient = rpc.NewClient(testLogger(), time.Second, func(_ context.Context, to fsm.MemberID) (net.Conn, error) {
		ours, theirs := net.Pipe()
		serving.Go(func() { rpc.Serve(ctx, memberHost{others[to]}, testLogger(), "self", theirs) })
		return ours, nil
	})
	timing := Timing{Retry: time.Minute, Suspect: 50 * time.Millisecond}
	client := newClient(1, &Config{Transport: w, Incarnation: 77, Self: "self", Timing: timing, Now: time.Now, Logger: testLogger()})
	t.Cleanup(func() {
		client.close()
		cancel()
		w.peerClient.Close()
		serving.Wait()
		w.tasks.Wait()
	})
	return client
}

func header(t *testing.T, command []byte) fsm.Header {
	t.Helper()
	info := kit.Must(fsm.PeekCommand(command))(t)
	return info.Header
}

func done(code fsm.Code) partition.Answer {
	return partition.Answer{Outcome: partition.Done, Result: fsm.Result{Code: code}}
}

// submitted starts a send and returns the channel that gets its result.
func submitted(client *Client) chan fsm.Result {
	end := make(chan fsm.Result, 1)
	client.Submit(fsm.SendMessages{Entity: 1, Messages: []fsm.Message{{Payload: []byte("x")}}}, func(r fsm.Result) { end <- r })
	return end
}

// answerOne waits until a group has one request, and answers it with success, which is the end of it.
func answerOne(t *testing.T, group *fakegroup.Group, end chan fsm.Result) {
	t.Helper()
	group.Await(t, 1, 0)
	group.Take()[0].Done(done(fsm.OK))
	if result := <-end; result.Code != fsm.OK {
		t.Fatalf("ended %v", result.Code)
	}
}
