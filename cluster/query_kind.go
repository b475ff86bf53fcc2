package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// queryKind says what is asked.
type queryKind byte

// The queries. Their arguments and answers are JSON, except for the messages of a
// peek: nothing here is asked per message.
const (
	queryHello        queryKind = 1  // bootstrap: who are you, do you hold data
	queryPledge       queryKind = 2  // bootstrap: promise to found with these members
	queryStatusOf     queryKind = 3  // of one replica
	queryLookup       queryKind = 4  // an entity, at the catalog's leader
	queryList         queryKind = 5  // entities, at the catalog's leader
	queryCounts       queryKind = 6  // of entities, at their partition's leader
	queryPeek         queryKind = 7  // messages, at their partition's leader
	queryLoad         queryKind = 8  // entities of each partition, at the catalog's leader
	queryRules        queryKind = 9  // of a subscription, at its partition's leader
	querySessionState queryKind = 10 // of a session, at its partition's leader
	querySessions     queryKind = 11 // of an entity, at its partition's leader

	queryNamespace  queryKind = 12 // one, at the catalog's leader
	queryNamespaces queryKind = 13 // a list, at the catalog's leader

	queryPlacement      queryKind = 14 // of partitions and members, at the catalog's leader
	queryReplicaRemoved queryKind = 15 // whether a replica is out, at its partition's leader

	queryDigest queryKind = 16 // of a replica's state at an index
	queryVerify queryKind = 17 // of all replicas, at their partition's leader

	queryCheckpoints queryKind = 18 // of a replica, which may be told that it differs

	queryPurgeable queryKind = 19 // in a session, at its partition's leader
)

// queryStatus is how a query ended.
type queryStatus byte

// The ends of a query.
const (
	queryOK        queryStatus = 1
	queryNotLeader queryStatus = 2 // ask the leader
	queryFailed    queryStatus = 3 // the code says why
)

var errNotLeader = errors.New("not the leader")

// decode turns a reply into a value or an error: errNotLeader, or an fsm.Code.
func (r *queryReply) decode(into any) error {
	switch r.status {
	case queryOK:
		if into == nil {
			return nil
		}
		if err := json.Unmarshal(r.body, into); err != nil {
			return fmt.Errorf("decode reply: %w", err)
		}
		return nil
	case queryNotLeader:
		return errNotLeader
	case queryFailed:
		return r.code
	}
	return errFrame
}

// replyWith turns a value or an error into a reply.
func replyWith(value any, err error) queryReply {
	if err == nil {
		body, encodeErr := json.Marshal(value)
		if encodeErr == nil {
			return queryReply{status: queryOK, body: body}
		}
		err = encodeErr
	}
	var code fsm.Code
	switch {
	case errors.Is(err, partition.ErrNotLeader), errors.Is(err, errNotLeader):
		return queryReply{status: queryNotLeader}
	case errors.As(err, &code):
		return queryReply{status: queryFailed, code: code}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return queryReply{status: queryFailed, code: fsm.Timeout}
	}
	return queryReply{status: queryFailed, code: fsm.Internal}
}

// answerTyped decodes the arguments, asks, and encodes the answer.
func answerTyped[Q, R any](arguments []byte, answer func(Q) (R, error)) queryReply {
	var q Q
	if json.Unmarshal(arguments, &q) != nil {
		return queryReply{status: queryFailed, code: fsm.InvalidArgument}
	}
	return replyWith(answer(q))
}
