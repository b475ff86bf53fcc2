package transport

import (
	"io"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// receiveStallTimeout is the time after which the reception of a snapshot ends if nothing arrives.
const receiveStallTimeout = 10 * time.Second

// WaitReceptions returns when no snapshot is being received any more. It is called after Config.Closed was closed.
func (t Transport) WaitReceptions() { t.receptions.running.Wait() }

// receiveSnapshot reads a snapshot and only then gives the request to raft. Raft would read it on its main goroutine,
// without a deadline: while a snapshot arrives, the replica would answer neither heartbeats nor votes, and if the
// sender lost its power not until TCP gave it up minutes later.
func (t Transport) receiveSnapshot(rpc raft.RPC, request *raft.InstallSnapshotRequest) {
	if running := t.raft.Load(); running != nil && request.Term < running.CurrentTerm() {
		t.refuseSnapshot(rpc, errOlderTerm) // of a leader that was replaced: raft would refuse it, too
		return
	}
	r := &reception{from: rpc.Reader, term: request.Term, ended: make(chan struct{})}
	if err := t.receptions.begin(r, t.cfg.Closed); err != nil {
		t.refuseSnapshot(rpc, err)
		return
	}
	stop := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { t.watchReception(r, stop) })
	whole, done, err := t.cfg.Receive(request, r)
	close(stop)
	watching.Wait()
	if err != nil {
		t.receptions.end(r) // the next sender need not wait until this one has sent the rest
		t.refuseSnapshot(rpc, err)
		return
	}
	defer t.receptions.end(r)
	defer done()
	answers := make(chan raft.RPCResponse, 1)
	if !t.forward(raft.RPC{Command: rpc.Command, Reader: whole, RespChan: answers}) {
		return
	}
	select {
	case answer := <-answers:
		rpc.RespChan <- answer // the channel is buffered
	case <-t.cfg.Closed:
	}
}

// refuseSnapshot answers that a snapshot was not received. The stream is read to its end first, because the bytes
// that remain are no request.
func (t Transport) refuseSnapshot(rpc raft.RPC, err error) {
	r := &reception{from: rpc.Reader}
	stop := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { t.watchReception(r, stop) })
	_, _ = io.Copy(io.Discard, r) // the sender learns of err in any case
	close(stop)
	watching.Wait()
	rpc.Respond(&raft.InstallSnapshotResponse{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}}, err)
}

// watchReception ends a reception that gets no bytes. Raft does not tell from which stream it reads, so all streams of
// peers end on which nothing has arrived for that long; those that are merely idle are opened again when needed.
func (t Transport) watchReception(r *reception, stop <-chan struct{}) {
	timeout := t.cfg.StallTimeout
	if timeout == 0 {
		timeout = receiveStallTimeout
	}
	look := time.NewTicker(timeout / 4)
	defer look.Stop()
	for {
		select {
		case now := <-look.C:
			since := r.waiting.Load()
			if since != 0 && now.UnixNano()-since > int64(timeout) {
				t.cfg.Streams.CloseSilent(timeout)
			}
		case <-stop:
			return
		}
	}
}
