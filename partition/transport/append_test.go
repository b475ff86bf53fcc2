package transport

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/test/kit"
	"github.com/peeklock/peeklock/test/sim/simnet"
)

// giveUpAt is the number of requests after which a follower fails no further ones.
const giveUpAt = 6

// follower stores entries as raft does.
type follower struct {
	mu       sync.Mutex
	last     uint64 // index of the last entry
	requests int
	most     int // bytes of the largest request with more than one entry
	refuseAt int // number of the request that is refused, 0: none
	failAt   int // number of the request that gets an error
	failFrom int // number of the first of all requests that get an error, 0: none
}

func (f *follower) handle(rpc raft.RPC) {
	request, is := rpc.Command.(*raft.AppendEntriesRequest)
	if !is {
		rpc.Respond(nil, errors.New("unexpected request"))
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	answer := &raft.AppendEntriesResponse{Term: request.Term, LastLog: f.last}
	f.requests++
	size := 0
	for _, e := range request.Entries {
		size += len(e.Data)
	}
	if len(request.Entries) > 1 {
		f.most = max(f.most, size)
	}
	switch {
	case f.requests == f.failAt || f.failFrom != 0 && f.requests >= f.failFrom && f.requests < giveUpAt:
		rpc.Respond(answer, errors.New("planned"))
		return
	case f.requests == f.refuseAt || request.PrevLogEntry != f.last || request.LeaderCommitIndex > f.last+uint64(len(request.Entries)):
	default:
		answer.Success = true
		f.last += uint64(len(request.Entries))
	}
	rpc.Respond(answer, nil)
}

// largest returns the most bytes of entries that came with one request.
func (f *follower) largest() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.most
}

func (f *follower) end() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// largeRequest has entries of that size, all of which share their bytes.
func largeRequest(entries, size int) *raft.AppendEntriesRequest {
	request := &raft.AppendEntriesRequest{Term: 1, LeaderCommitIndex: uint64(entries)}
	data := make([]byte, size)
	for i := range entries {
		request.Entries = append(request.Entries, &raft.Log{Index: uint64(i + 1), Term: 1, Data: data})
	}
	return request
}

// counted is the index up to which raft takes the entries of a request for what the follower holds
// (updateLastAppended).
func counted(request *raft.AppendEntriesRequest) uint64 {
	if n := len(request.Entries); n > 0 {
		return request.Entries[n-1].Index
	}
	return 0
}

// TestFollowerHoldsWhatIsCounted: requests are bounded in bytes, and whatever happens to one of them, the leader counts
// no entry that the follower does not hold.
func TestFollowerHoldsWhatIsCounted(t *testing.T) {
	t.Parallel()
	const entries, size, pieces = 20, requestBytesMax / 4, 5
	for name, f := range map[string]*follower{
		"all arrive":        {},
		"the third fails":   {failAt: 3},
		"the third refused": {refuseAt: 3},
		"the last fails":    {failAt: pieces},
	} {
		t.Run(name+", one by one", func(t *testing.T) {
			t.Parallel()
			m := new(mesh)
			f := &follower{failAt: f.failAt, refuseAt: f.refuseAt}
			leader := m.open(t, "A", nil)
			serve(t, m.open(t, "B", nil), f.handle)
			request, answer := largeRequest(entries, size), new(raft.AppendEntriesResponse)
			err := leader.AppendEntries("B.1", "B", request, answer)
			if err == nil && answer.Success && counted(request) != f.end() {
				t.Errorf("the leader counts up to %d, the follower has %d", counted(request), f.end())
			}
			if answered := err == nil && answer.Success; answered == (f.refuseAt > 0) {
				t.Errorf("answered %+v, %v", answer, err)
			}
			if most := f.largest(); most > requestBytesMax {
				t.Errorf("a request of %d bytes", most)
			}
		})
		t.Run(name+", pipelined", func(t *testing.T) {
			t.Parallel()
			m := new(mesh)
			f := &follower{failAt: f.failAt, refuseAt: f.refuseAt}
			leader := m.open(t, "A", nil)
			serve(t, m.open(t, "B", nil), f.handle)
			p := kit.Must(leader.AppendEntriesPipeline("B.1", "B"))(t)
			defer func() { _ = p.Close() }()
			request := largeRequest(entries, size)
			sent := make(chan error, 1)
			go func() {
				_, err := p.AppendEntries(request, new(raft.AppendEntriesResponse))
				sent <- err
			}()
			got := <-p.Consumer()
			if got.Response().Success && (counted(got.Request()) != f.end() || f.end() != entries) {
				t.Errorf("the leader counts up to %d, the follower has %d", counted(got.Request()), f.end())
			}
			if whole := f.failAt == 0 && f.refuseAt == 0; got.Response().Success != whole {
				t.Errorf("answered %+v", got.Response())
			}
			if err := <-sent; err == nil && counted(request) != entries {
				t.Errorf("raft takes %d entries for sent", counted(request))
			}
			if most := f.largest(); most > requestBytesMax {
				t.Errorf("a request of %d bytes", most)
			}
		})
	}
}

// TestCommitIndexEndsWithTheEntries: raft's follower takes all that it has up to the commit index for committed, also
// entries behind those of the request.
func TestCommitIndexEndsWithTheEntries(t *testing.T) {
	t.Parallel()
	request := largeRequest(3, requestBytesMax)
	request.LeaderCommitIndex = 7
	for from := range 3 {
		if piece, next := pieceOf(request, from); next != from+1 || piece.LeaderCommitIndex != uint64(next) {
			t.Errorf("entry %d: %d entries, committed up to %d", from+1, len(piece.Entries), piece.LeaderCommitIndex)
		}
	}
	bare := &raft.AppendEntriesRequest{Term: 1, PrevLogEntry: 4, LeaderCommitIndex: 7}
	if piece, _ := pieceOf(bare, 0); piece.LeaderCommitIndex != 4 {
		t.Errorf("without entries: committed up to %d", piece.LeaderCommitIndex)
	}
}

// TestCommitIndexEndsWithWhatIsStored: raft counts a leader as one of the quorum before the leader has written an entry. No
// request, one by one or pipelined, with entries or without, says that such an entry is committed.
func TestCommitIndexEndsWithWhatIsStored(t *testing.T) {
	t.Parallel()
	const stored, committed = 2, 3
	m := new(mesh)
	leader := m.open(t, "A", nil)
	var onDisk atomic.Uint64
	onDisk.Store(stored)
	leader.cfg.Stored = onDisk.Load
	told := make(chan uint64, 1)
	serve(t, m.open(t, "B", nil), func(rpc raft.RPC) {
		request, _ := rpc.Command.(*raft.AppendEntriesRequest)
		told <- request.LeaderCommitIndex
		rpc.Respond(&raft.AppendEntriesResponse{Term: 1, Success: true}, nil)
	})
	requests := func() []*raft.AppendEntriesRequest {
		entries := largeRequest(4, 1)
		entries.LeaderCommitIndex = committed
		return []*raft.AppendEntriesRequest{entries, {Term: 1, PrevLogEntry: 3, PrevLogTerm: 1, LeaderCommitIndex: committed}}
	}
	for i, request := range requests() {
		kit.OK(t, leader.AppendEntries("B.1", "B", request, new(raft.AppendEntriesResponse)))
		if got := <-told; got != stored {
			t.Errorf("request %d: committed up to %d", i, got)
		}
	}
	p := kit.Must(leader.AppendEntriesPipeline("B.1", "B"))(t)
	defer func() { _ = p.Close() }()
	send := func(request *raft.AppendEntriesRequest) uint64 {
		kit.Must(p.AppendEntries(request, new(raft.AppendEntriesResponse)))(t)
		<-p.Consumer()
		return <-told
	}
	for i, request := range requests() {
		if got := send(request); got != stored {
			t.Errorf("pipelined request %d: committed up to %d", i, got)
		}
	}
	onDisk.Store(committed)
	if got := send(requests()[0]); got != committed {
		t.Errorf("all is on disk, and committed up to %d", got)
	}
}

// TestLargeEntriesArriveOverASlowNetwork: what raft sends at once, up to 64 entries, arrives although it takes longer
// than the ten seconds that raft gives a request.
func TestLargeEntriesArriveOverASlowNetwork(t *testing.T) {
	kit.Long(t)
	t.Parallel()
	t.Run("8 entries of 5 MiB", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) { replicateSlowly(t, 8, 5<<20, 3<<20) })
	})
	t.Run("64 entries of 10 MiB", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) { replicateSlowly(t, 64, 10<<20, 40<<20) })
	})
}

func replicateSlowly(t *testing.T, entries, size, perSecond int) {
	t.Helper()
	m := mesh{wrap: func(c net.Conn) net.Conn { return kit.SlowConn(c, perSecond) }, host: simnet.New(1).Start(0)}
	leader := m.open(t, "A", nil)
	f := &follower{}
	serve(t, m.open(t, "B", nil), f.handle)
	request := largeRequest(entries, size)
	begun := time.Now()
	for len(request.Entries) > 0 { // as raft does
		kit.OK(t, leader.AppendEntries("B.1", "B", request, new(raft.AppendEntriesResponse)))
		have := f.end()
		if counted(request) != have {
			t.Fatalf("the leader counts up to %d, the follower has %d", counted(request), have)
		}
		request.PrevLogEntry, request.PrevLogTerm = have, 1
		request.Entries = largeRequest(entries, size).Entries[have:]
	}
	if took := time.Since(begun); took < streamRequestTimeout {
		t.Errorf("the network was not slow: %v", took)
	}
}

// TestTakenEntriesAreCountedWhenTheFollowerFails: when a follower takes a part of a request and then does not answer
// any more, raft learns at once what it has taken, although heartbeats fail too.
func TestTakenEntriesAreCountedWhenTheFollowerFails(t *testing.T) {
	t.Parallel()
	const entries, size, taken = 20, requestBytesMax / 4, 8
	var m mesh
	leader := m.open(t, "A", nil)
	f := &follower{failFrom: 3}
	serve(t, m.open(t, "B", nil), f.handle)
	request, answer := largeRequest(entries, size), new(raft.AppendEntriesResponse)
	if err := leader.AppendEntries("B.1", "B", request, answer); err != nil || !answer.Success {
		t.Errorf("answered %+v, %v", answer, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if counted(request) != taken || f.last != taken || f.requests != 3 {
		t.Errorf("counted up to %d of %d that the follower has, after %d requests", counted(request), f.last, f.requests)
	}
}
