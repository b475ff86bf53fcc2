package transport

import (
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// AppendEntries sends entries again that could not be sent, as soon as the peer answers a heartbeat. Raft
// would retry them with a backoff of up to ten seconds: a member that returns gets nothing meanwhile, and is
// far behind when it is needed. Heartbeats are sent at least twice a second. A request that fails although
// heartbeats are answered is left to raft.
func (t Transport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if len(args.Entries) == 0 && args.PrevLogEntry == 0 && args.LeaderCommitIndex == 0 { // raft 1.7.3, heartbeat
		err := t.NetworkTransport.AppendEntries(id, target, args, resp)
		if err == nil {
			t.heartbeats.notify(id)
		}
		return err
	}
	for answered := false; ; {
		beat := t.heartbeats.wait(id)
		err := t.NetworkTransport.AppendEntries(id, target, args, resp)
		if err == nil || answered || !t.stillLeads(id, args.Term) {
			return err
		}
		look := time.NewTimer(heartbeatWaitMax)
		select {
		case <-beat:
			answered = true
		case <-look.C:
		case <-t.closed:
		}
		look.Stop()
		if !t.stillLeads(id, args.Term) {
			return err
		}
	}
}

// stillLeads reports whether this replica is the leader in that term and the group contains the other.
func (t Transport) stillLeads(id raft.ServerID, term uint64) bool {
	select {
	case <-t.closed:
		return false
	default:
	}
	r := t.raft.Load()
	return r == nil || r.State() == raft.Leader && r.CurrentTerm() == term &&
		slices.ContainsFunc(r.GetConfiguration().Configuration().Servers, func(s raft.Server) bool { return s.ID == id })
}

// heartbeats signals heartbeats that were answered.
type heartbeats struct {
	mu   sync.Mutex
	next map[raft.ServerID]chan struct{} // closed with the next answered heartbeat
}

// wait returns a channel that is closed when the peer answers its next heartbeat.
func (b *heartbeats) wait(id raft.ServerID) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next[id] == nil {
		b.next[id] = make(chan struct{})
	}
	return b.next[id]
}

func (b *heartbeats) notify(id raft.ServerID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.next[id]; c != nil {
		close(c)
		delete(b.next, id)
	}
}

// AppendEntriesPipeline opens a pipeline that ends with the first answer after which raft stops reading (raft
// 1.7.3, pipelineDecode).
func (t Transport) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	inner, err := t.NetworkTransport.AppendEntriesPipeline(id, target)
	if err != nil {
		return nil, err
	}
	p := &pipeline{AppendPipeline: inner, answers: make(chan raft.AppendFuture), closed: make(chan struct{})}
	go p.relay()
	return p, nil
}

// pipeline wraps raft's pipeline so that it cannot deadlock. Raft stops reading answers after a negative one
// but may still send: then the transport waits forever for a reader of the next answer, and the sender waits
// forever for the transport. The follower receives no entries while its leader stays in office, because
// heartbeats use another stream, and the raft instance cannot be shut down. Here the pipeline is closed after
// a negative answer, which is what raft itself does next, and the sender gets an error.
type pipeline struct {
	raft.AppendPipeline
	answers chan raft.AppendFuture
	closed  chan struct{}
	once    sync.Once
}

// Consumer implements raft.AppendPipeline.
func (p *pipeline) Consumer() <-chan raft.AppendFuture { return p.answers }

// Close implements raft.AppendPipeline.
func (p *pipeline) Close() error {
	p.once.Do(func() { close(p.closed) })
	return p.AppendPipeline.Close()
}

// relay forwards the answers.
func (p *pipeline) relay() {
	for {
		select {
		case f := <-p.AppendPipeline.Consumer():
			// Raft owns an answer once it has received it. A failed request has an empty answer.
			last := !f.Response().Success || f.Response().Term > f.Request().Term
			select {
			case p.answers <- f:
			case <-p.closed:
				return
			}
			if last {
				_ = p.Close()
				return
			}
		case <-p.closed:
			return
		}
	}
}
