package rpc

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/fakegroup"
	"github.com/peeklock/peeklock/test/golden"
)

// TestStreamsKeepTheirBytes checks the content of the streams between members byte by byte,
// including the numbers of kinds, statuses and outcomes.
func TestStreamsKeepTheirBytes(t *testing.T) {
	t.Parallel()
	var written []byte
	add := func(name string, encoded []byte) { written = fmt.Appendf(written, "%s: %x\n", name, encoded) }
	asking := &Conn{writer: newFrameWriter(requestBufferBytes), calls: map[uint64]pendingCall{}}
	frame := func(name string, out *frameWriter) {
		add(name, out.pending)
		out.pending = nil
	}
	asking.Submit(300, []byte("command"), nil, 0)
	frame("submit", asking.writer)
	asking.Lock(300, time.Second, []byte("command"), nil, 0)
	frame("lock", asking.writer)
	asking.Cancel(2)
	frame("cancel", asking.writer)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := asking.Query(ctx, QueryEntity, []byte("{}")); err == nil {
		t.Error("a query that was given up was answered")
	}
	frame("query", asking.writer)

	serving := &server{writer: newFrameWriter(answerBufferBytes)}
	follower := &fakegroup.Group{}
	follower.State.Leader = "L"
	for _, answer := range []partition.Answer{
		{Outcome: partition.Done, Result: fsm.Result{Code: fsm.OK, Sequence: 9}},
		{Outcome: partition.Refused},
		{Outcome: partition.Refused, Result: fsm.Result{Code: fsm.ServerBusy}},
		{Outcome: partition.Refused, Final: true},
		{Outcome: partition.Unknown},
	} {
		serving.answer(4, follower, answer)
		frame(fmt.Sprintf("answer, outcome %d, code %d, firm %v", answer.Outcome, answer.Result.Code, answer.Final), serving.writer)
	}
	serving.reply(5, Reply{Status: StatusOK, Body: []byte("{}")})
	frame("reply, OK", serving.writer)
	serving.reply(5, Reply{Status: StatusNotLeader})
	frame("reply, not the leader", serving.writer)
	serving.reply(5, Reply{Status: StatusFailed, Code: fsm.EntityNotFound})
	frame("reply, failed", serving.writer)
	serving.host = fakeHost{}
	if err := serving.pong(6); err != nil {
		t.Error(err)
	}
	frame("pong", serving.writer)
	golden.Compare(t, "testdata/streams.golden", written)
}
