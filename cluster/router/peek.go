package router

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/peeklock/peeklock/cluster/raftgroup"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// The limits of a peek.
const (
	peekBytesMax = 8 << 20 // payloads of one peek; the first is returned even when it is larger
	peekCountMax = 1024    // messages of one peek
)

// peekQuery is the argument of a peek, which is answered in binary form.
type peekQuery struct {
	Partition fsm.PartitionID    `json:"Partition"`
	Address   fsm.Address        `json:"Address"`
	From      fsm.SequenceNumber `json:"From"`
	Max       int                `json:"Max"`
	MaxBytes  int                `json:"MaxBytes"`
	Session   *string            `json:"Session"` // only messages of that session
}

// peek reads messages of an entity, or only those of a session.
func (s *single) peek(ctx context.Context, at fsm.EntityRef, session *string, from fsm.SequenceNumber, most, maxBytes int) ([]fsm.Delivery, error) {
	if at.Kind == fsm.TopicEntity && at.Sub != fsm.TransferDeadLetterQueue {
		return nil, fmt.Errorf("peek at topic %q: %w", at.Name, fsm.NotAllowed)
	}
	s.ReportActivity(at.Entity)
	arguments, err := json.Marshal(peekQuery{Partition: at.Partition, Address: at.Address(), From: from, Max: most, MaxBytes: maxBytes, Session: session})
	if err != nil {
		return nil, fmt.Errorf("encode query: %w", err)
	}
	reply, err := s.Leader(at.Partition)(ctx, rpc.QueryPeek, arguments)
	if err != nil {
		return nil, err
	}
	result, err := fsm.DecodeResult(reply.Body)
	if err != nil {
		return nil, fmt.Errorf("peek: %w", err)
	}
	return result.Deliveries, nil
}

// answerPeek answers a peek with the encoded messages.
func (s *single) answerPeek(ctx context.Context, arguments []byte) rpc.Reply {
	var q peekQuery
	if json.Unmarshal(arguments, &q) != nil {
		return rpc.Reply{Status: rpc.StatusFailed, Code: fsm.InvalidArgument}
	}
	deliveries, err := s.readMessages(ctx, q)
	if err != nil {
		return rpc.NewReply(nil, err)
	}
	return rpc.Reply{Status: rpc.StatusOK, Body: fsm.AppendResult(nil, fsm.Result{Deliveries: deliveries})}
}

// readMessages reads messages at the leader. It reads bodies while the state machine is not locked, so a
// slow disk does not delay other requests.
func (s *single) readMessages(ctx context.Context, q peekQuery) ([]fsm.Delivery, error) {
	if q.Partition == fsm.CatalogPartition {
		return nil, fsm.InvalidArgument
	}
	var found []fsm.Delivery
	err := s.replicas.Read(ctx, q.Partition, func(m partition.Machine) {
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
	return s.replicas.Local(q.Partition).ReadBodies(found)
}
