package router

import (
	"context"
	"encoding/json"

	"github.com/peeklock/peeklock/cluster/entities"
	"github.com/peeklock/peeklock/cluster/query"
	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/queue"
	"github.com/peeklock/peeklock/partition"
)

// The limits of queries.
const (
	peekBytesMax = 8 << 20 // payloads of one peek; the first is returned even when it is larger
	peekCountMax = 1024    // messages of one peek
)

// The arguments and replies of queries.
type (
	peekQuery struct {
		Partition fsm.PartitionID    `json:"Partition"`
		Address   fsm.Address        `json:"Address"`
		From      fsm.SequenceNumber `json:"From"`
		Max       int                `json:"Max"`
		MaxBytes  int                `json:"MaxBytes"`
		Session   *string            `json:"Session"` // only messages of that session
	}
)

// The queries that the router sends and answers. A peek is answered in binary form.
var (
	stateOfSession = rpc.Query[sessionStateQuery, sessionStateReply]{Kind: rpc.QuerySessionState}
	locksHeld      = rpc.Query[locksQuery, []fsm.Code]{Kind: rpc.QueryLocks}

	listSessions = query.OfQueues(rpc.QuerySessions, func(queues *queue.Machine, q sessionsQuery) ([]fsm.Session, error) {
		list, found := queues.Sessions(q.Entity, q.UpdatedAfter, q.Skip, max(0, min(q.Max, sessionsListMax)))
		if !found {
			return nil, fsm.NotAllowed
		}
		return list, nil
	})
	purgeable = query.OfQueues(rpc.QueryPurgeable, func(queues *queue.Machine, q purgeableQuery) (reply purgeableReply, err error) {
		var code fsm.Code
		reply.Lock, reply.Reach, code = queues.PurgeableInSession(q.Entity, q.Session, q.Before, max(0, min(q.Max, entities.PurgeMessagesMax)))
		if code != fsm.OK {
			err = code
		}
		return reply, err
	})
)

// queryHandler answers queries about messages from this member's replicas.
type queryHandler struct{ query.Replicas }

// RegisterQueries registers the handlers of all queries about replicas and their content.
func (r *Router) RegisterQueries(h rpc.Handlers) {
	d := queryHandler{r.replicas}
	d.Register(h)
	r.Register(h)
	stateOfSession.Handle(h, d.sessionState)
	locksHeld.Handle(h, d.locks)
	listSessions.Register(h, d.Replicas)
	purgeable.Register(h, d.Replicas)
	h[rpc.QueryPeek] = d.answerPeek
}

// answerPeek answers a peek with the encoded messages.
func (d queryHandler) answerPeek(ctx context.Context, arguments []byte) rpc.Reply {
	var q peekQuery
	if json.Unmarshal(arguments, &q) != nil {
		return rpc.Reply{Status: rpc.StatusFailed, Code: fsm.InvalidArgument}
	}
	deliveries, err := d.peek(ctx, q)
	if err != nil {
		return rpc.NewReply(nil, err)
	}
	return rpc.Reply{Status: rpc.StatusOK, Body: fsm.AppendResult(nil, fsm.Result{Deliveries: deliveries})}
}

// peek reads messages at the leader. It reads bodies while the state machine is not locked, so a
// slow disk does not delay other requests.
func (d queryHandler) peek(ctx context.Context, q peekQuery) ([]fsm.Delivery, error) {
	if q.Partition == fsm.CatalogPartition {
		return nil, fsm.InvalidArgument
	}
	var found []fsm.Delivery
	err := d.Read(ctx, q.Partition, func(m partition.Machine) {
		if q.Session != nil {
			found = raftgroup.Queues(m).PeekSession(q.Address.Entity, *q.Session, q.From, max(0, min(q.Max, peekCountMax)))
			return
		}
		found = raftgroup.Queues(m).Peek(q.Address, q.From, max(0, min(q.Max, peekCountMax)))
	})
	if err != nil {
		return nil, err
	}
	bytesLeft := uint64(max(0, min(q.MaxBytes, peekBytesMax)))
	for i := range found {
		size := uint64(found[i].Body.Size) + uint64(found[i].Patch.Size)
		if i > 0 && size > bytesLeft {
			found = found[:i]
			break
		}
		bytesLeft -= min(bytesLeft, size)
	}
	if len(found) == 0 {
		return nil, nil
	}
	return d.Local(q.Partition).ReadBodies(found)
}

// ReplicaStatus returns the status of this member's replica of a partition, leader or not; EntityNotFound
// when none is open.
func (r *Router) ReplicaStatus(id fsm.PartitionID) (raftgroup.Status, error) {
	return r.replicas.Status(id)
}
