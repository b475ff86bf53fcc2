package partition

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/raftlog"
	"github.com/peeklock/peeklock/partition/transport"
)

const (
	entriesPerRequestMax    = 64                   // of one AppendEntries request; also entries per apply batch
	trailingEntriesMin      = 16                   // whatever their size; see snapshotter.trailingEntries
	trailingEntriesUnknown  = 256                  // while the sizes of older entries are not known
	allEntries              = 1 << 62              // more trailing entries than a log has: nothing is deleted
	snapshotNever           = 24 * 365 * time.Hour // turns raft's own schedule off; the snapshotter decides
	installsWithoutApplyMax = 5                    // snapshots in a row without an applied entry
	campaignBeginTimeout    = 10 * time.Second     // for raft to become a candidate
	abandonTimeout          = time.Second          // for raft to become a follower again
	verificationsMax        = 256                  // of the leadership that wait for raft's main goroutine; further reads wait for a place
	beatsPerHeartbeat       = 20                   // moments at which heartbeats are sent, in one heartbeat timeout; raft sends 5 to 10 of them
)

// instance is one raft instance. A group may use several in turn: raft leaves some states only when it is
// reopened.
type instance struct {
	raft      *raft.Raft
	transport transport.Transport
	streams   *transport.Streams
	leaders   chan raft.Observation // another leader is known; a later one is not reported before this one is received
	closed    chan struct{}         // closed when the instance no longer reaches any peer
	givenUp   chan struct{}         // closed when the instance is to be reopened
	giveUp    sync.Once
	log       *raftlog.Group
	once      sync.Once
	closeErr  error
	verifying chan struct{} // has a value for each verification that waits for raft
	probing   chan struct{} // the same for the one with which a follower finds out whether raft responds
}

// close stops the instance and waits for its goroutines. It closes the streams first: a replicator may be
// blocked in a request to a peer that does not answer.
func (i *instance) close() error {
	i.once.Do(func() {
		f := i.raft.Shutdown()
		err := i.streams.Close()
		close(i.closed)
		i.closeErr = errors.Join(err, f.Error())
		i.transport.WaitReceptions()
		i.log.EndInstance()
	})
	return i.closeErr
}

// pause waits for d or for the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// mapRaftError maps raft's errors to the errors of this package where a caller branches on them.
func mapRaftError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipLost),
		errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return fmt.Errorf("%w (%w)", ErrNotLeader, err)
	case errors.Is(err, raft.ErrRaftShutdown):
		return fmt.Errorf("%w (%w)", ErrClosed, err)
	}
	return err
}

// await waits for a future of raft, or for ctx. After ctx has ended, the future still completes later, unless
// raft is shut down during a leadership transfer or with a committed barrier not yet applied: raft never
// completes those, and their goroutine stays.
func await(ctx context.Context, start func() raft.Future) error {
	done := make(chan error, 1)
	go func() { done <- start().Error() }()
	select {
	case err := <-done:
		return mapRaftError(err)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// verifyLeader returns when a quorum has confirmed with a heartbeat that this replica leads.
func (i *instance) verifyLeader(ctx context.Context) error {
	defer i.transport.Urgent()()
	return i.verify(ctx, i.verifying)
}

// verify waits for the answer of raft's main goroutine to VerifyLeader, and before for a place among the calls that wait for one. The disk
// may block that goroutine for hours, and a call that was given up still waits: without places each retry would leave a goroutine.
func (i *instance) verify(ctx context.Context, places chan struct{}) error {
	select {
	case places <- struct{}{}:
		return await(ctx, func() raft.Future { return placedFuture{i.raft.VerifyLeader(), places} })
	case <-ctx.Done():
		return ctx.Err()
	}
}

// placedFuture is a future that gives its place back when it completes.
type placedFuture struct {
	raft.Future

	places <-chan struct{}
}

// Error implements raft.Future. It is called once.
func (f placedFuture) Error() error {
	err := f.Future.Error()
	<-f.places
	return err
}

// waitCommitted waits until the leader's whole log is committed, and what was applied satisfies a condition. A barrier would do the same, but it is an
// entry that the machine never sees, and a Read behind it would wait for the next command.
func (i *instance) waitCommitted(ctx context.Context, most time.Duration, applied func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	last := i.raft.LastIndex()
	ticker := time.NewTicker(committedPollInterval)
	defer ticker.Stop()
	for i.raft.CommitIndex() < last || !applied() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return i.verifyLeader(ctx)
}

// campaign makes this replica a candidate at once, by the request with which a leader transfers its leadership: the
// voters then vote although they know a leader.
func (i *instance) campaign(ctx context.Context, replica string, member fsm.MemberID) error {
	ctx, cancel := context.WithTimeout(ctx, campaignBeginTimeout)
	defer cancel()
	return i.ask(ctx, timeoutNow(replica, member))
}

// timeoutNow returns the request of a replica with which a leader transfers its leadership.
func timeoutNow(replica string, member fsm.MemberID) *raft.TimeoutNowRequest {
	return &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{
		ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(replica), Addr: []byte(member),
	}}
}

// abandonCampaign makes a candidate a follower again. Raft has no call for that before the timer of the campaign
// expires; so raft receives a vote request of the next term, as if from a candidate with an empty log. It adopts the
// term, becomes a follower and refuses the vote.
func (i *instance) abandonCampaign(ctx context.Context, member fsm.MemberID) {
	ctx, cancel := context.WithTimeout(ctx, abandonTimeout)
	defer cancel()
	_ = i.ask(ctx, &raft.RequestVoteRequest{ // the campaign that follows shows whether it is abandoned
		RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, Addr: []byte(member)},
		Term:      i.raft.CurrentTerm() + 1, LeadershipTransfer: true,
	})
}

// ask gives raft a request as if from a peer, and waits until raft has answered it.
func (i *instance) ask(ctx context.Context, request any) error {
	answers := make(chan raft.RPCResponse, 1)
	select {
	case i.transport.Requests() <- raft.RPC{Command: request, RespChan: answers}:
	case <-i.closed:
		return raft.ErrRaftShutdown
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case answer := <-answers:
		return answer.Error
	case <-i.closed:
		return raft.ErrRaftShutdown
	case <-ctx.Done():
		return ctx.Err()
	}
}
