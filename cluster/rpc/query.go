package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// QueryKind is the kind of a query.
type QueryKind byte

// The queries. Their arguments and answers are JSON, except for the messages of a
// peek: no query is sent per message.
const (
	QueryHello        QueryKind = 1  // bootstrap: identity of a member, and whether it holds data
	QueryPledge       QueryKind = 2  // bootstrap: promise to found a cluster with these members
	QueryStatus       QueryKind = 3  // of one replica
	QueryEntity       QueryKind = 4  // an entity, at the catalog's leader
	QueryEntities     QueryKind = 5  // entities, at the catalog's leader
	QueryCounts       QueryKind = 6  // of entities, at their partition's leader
	QueryPeek         QueryKind = 7  // messages, at their partition's leader
	QueryLoad         QueryKind = 8  // entities of each partition, at the catalog's leader
	QueryRules        QueryKind = 9  // of a subscription, at its partition's leader
	QuerySessionState QueryKind = 10 // of a session, at its partition's leader
	QuerySessions     QueryKind = 11 // of an entity, at its partition's leader

	QueryNamespace  QueryKind = 12 // one, at the catalog's leader
	QueryNamespaces QueryKind = 13 // a list, at the catalog's leader

	QueryPlacement      QueryKind = 14 // of partitions and members, at the catalog's leader
	QueryReplicaRemoved QueryKind = 15 // whether a replica is removed, at its partition's leader

	QueryDigest QueryKind = 16 // of a replica's state at an index
	QueryVerify QueryKind = 17 // of all replicas, at their partition's leader

	QueryCheckpoints QueryKind = 18 // of a replica, which the query may mark as different

	QueryPurgeable QueryKind = 19 // in a session, at its partition's leader

	QueryLocks QueryKind = 20 // whether locks are held, at their partition's leader

	QueryReplaceReplica QueryKind = 21 // of another member, because its log is damaged, at its partition's leader

	QueryIdle QueryKind = 22 // whether an entity is idle, at its partition's leader

	QueryCampaign QueryKind = 23 // whether a replica may campaign, of another voter

	QuerySubscriptions QueryKind = 24 // by parts of their names, at the catalog's leader

	QueryCatalogIndex QueryKind = 25 // that the catalog's leader has applied

	QueryUsage QueryKind = 26 // what namespaces hold at a member

	QueryConnections     QueryKind = 27 // of clients, at a member
	QueryCloseConnection QueryKind = 28 // of a client, at its member
	QueryLockHolders     QueryKind = 29 // which connections of a member hold locks
	QueryRates           QueryKind = 30 // of entities whose partitions a member leads
	QueryFigures         QueryKind = 31 // of a namespace, in the partitions that a member leads
	QueryAudit           QueryKind = 32 // the newest audit events of a member
	QueryStorage         QueryKind = 33 // the disk of a member, and the backups that were read from it
)

// ReplyStatus says how a query ended.
type ReplyStatus byte

// The results of a query.
const (
	StatusOK        ReplyStatus = 1
	StatusNotLeader ReplyStatus = 2 // ask the leader
	StatusFailed    ReplyStatus = 3 // the code says why
)

// ErrNotLeader says that the asked member does not lead the partition.
var ErrNotLeader = errors.New("not the leader")

// Decode turns a reply into a value or an error: ErrNotLeader, or an fsm.Code.
func (r *Reply) Decode(into any) error {
	switch r.Status {
	case StatusOK:
		if into == nil {
			return nil
		}
		if err := json.Unmarshal(r.Body, into); err != nil {
			return fmt.Errorf("decode reply: %w", err)
		}
		return nil
	case StatusNotLeader:
		return ErrNotLeader
	case StatusFailed:
		return r.Code
	}
	return ErrFrame
}

// NewReply turns a value or an error into a reply.
func NewReply(value any, err error) Reply {
	if err == nil {
		body, encodeErr := json.Marshal(value)
		if encodeErr == nil {
			return Reply{Status: StatusOK, Body: body}
		}
		err = encodeErr
	}
	var code fsm.Code
	switch {
	case errors.Is(err, partition.ErrNotLeader), errors.Is(err, ErrNotLeader):
		return Reply{Status: StatusNotLeader}
	case errors.As(err, &code):
		return Reply{Status: StatusFailed, Code: code}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return Reply{Status: StatusFailed, Code: fsm.Timeout}
	}
	return Reply{Status: StatusFailed, Code: fsm.Internal}
}

// Asker sends a query and returns the reply. Conn.Query is one.
type Asker func(ctx context.Context, kind QueryKind, arguments []byte) (Reply, error)

// Query ties the number of a query to the types of its arguments and its reply.
type Query[Q, R any] struct{ Kind QueryKind }

// Ask sends a query and decodes the reply. Errors wrap those of ask, ErrNotLeader or an fsm.Code.
func (q Query[Q, R]) Ask(ctx context.Context, ask Asker, arguments Q) (reply R, err error) {
	encoded, err := json.Marshal(arguments)
	if err != nil {
		return reply, fmt.Errorf("encode query: %w", err)
	}
	answer, err := ask(ctx, q.Kind, encoded)
	if err == nil {
		err = answer.Decode(&reply)
	}
	return reply, err
}

// Handlers maps kinds to the functions that answer queries. Register them before the first query arrives.
type Handlers map[QueryKind]func(ctx context.Context, arguments []byte) Reply

// Handle registers the function that answers a query.
func (q Query[Q, R]) Handle(h Handlers, answer func(context.Context, Q) (R, error)) {
	h[q.Kind] = func(ctx context.Context, encoded []byte) Reply {
		var arguments Q
		if json.Unmarshal(encoded, &arguments) != nil {
			return Reply{Status: StatusFailed, Code: fsm.InvalidArgument}
		}
		return NewReply(answer(ctx, arguments))
	}
}

// Answer answers a query; the answer is NotImplemented when the kind has no handler.
func (h Handlers) Answer(ctx context.Context, kind QueryKind, arguments []byte) Reply {
	if answer := h[kind]; answer != nil {
		return answer(ctx, arguments)
	}
	return Reply{Status: StatusFailed, Code: fsm.NotImplemented}
}
