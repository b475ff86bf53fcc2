package main

import (
	"context"
	"crypto/x509"
	"fmt"

	"github.com/peeklock/peeklock/admin"
	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/amqp"
	"github.com/peeklock/peeklock/cluster"
	"github.com/peeklock/peeklock/cluster/move"
	"github.com/peeklock/peeklock/cluster/router"
	"github.com/peeklock/peeklock/fsm"
)

// The packages of a member do not import each other: each declares an interface for what it needs. The adapters
// here and in cmd/broker only convert types.

// control adapts the router and the operator to the control API.
type control struct {
	*router.Router
	*cluster.Operator
}

// In returns the view of a namespace.
func (c control) In(namespace fsm.NamespaceID) admin.NamespaceView {
	return namespaceView{c.Router.In(namespace)}
}

// Status copies the status field by field, because the JSON is part of admin, not of cluster.
func (c control) Status(ctx context.Context) (admin.Status, error) {
	st, err := c.Operator.Status(ctx)
	if err != nil {
		return admin.Status{}, err
	}
	out := admin.Status{
		ClusterID:  st.ClusterID,
		Members:    make([]admin.MemberStatus, len(st.Members)),
		Partitions: make([]admin.PartitionStatus, len(st.Partitions)),
	}
	for i, m := range st.Members {
		out.Members[i] = admin.MemberStatus(m)
	}
	for i, p := range st.Partitions {
		out.Partitions[i] = admin.PartitionStatus(p)
	}
	return out, nil
}

// Plan returns the moves of a rebalance.
func (c control) Plan(ctx context.Context) ([]admin.PlannedMove, error) {
	plan, err := c.PlanRebalance(ctx)
	moves := make([]admin.PlannedMove, len(plan.Moves))
	for i, m := range plan.Moves {
		moves[i] = admin.PlannedMove(m)
	}
	return moves, err
}

// Rebalance submits the moves of a plan.
func (c control) Rebalance(ctx context.Context, moves []admin.PlannedMove) error {
	plan := move.Plan{Moves: make([]move.PlannedMove, len(moves))}
	for i, m := range moves {
		plan.Moves[i] = move.PlannedMove(m)
	}
	return c.Operator.Rebalance(ctx, plan)
}

// Moves lists the moves that have not ended.
func (c control) Moves(ctx context.Context) ([]admin.Move, error) {
	list, err := c.Operator.Moves(ctx)
	moves := make([]admin.Move, len(list))
	for i, m := range list {
		moves[i] = admin.Move(m)
	}
	return moves, err
}

// Verify compares the replicas of a partition.
func (c control) Verify(ctx context.Context, id fsm.PartitionID) (admin.VerifyResult, error) {
	found, err := c.Operator.Verify(ctx, id)
	if err != nil {
		return admin.VerifyResult{}, err
	}
	out := admin.VerifyResult{Partition: found.Partition, Index: found.Index, Equal: found.Equal()}
	for _, r := range found.Replicas {
		one := admin.VerifiedReplica{Member: r.Member, Replica: r.Replica, Error: r.Failed}
		if r.Failed == "" {
			one.Digest = fmt.Sprintf("%016x", r.Digest)
		}
		out.Replicas = append(out.Replicas, one)
	}
	return out, nil
}

// namespaceView adapts the view of a namespace to the control API.
type namespaceView struct{ router.NamespaceView }

// Sessions lists the sessions of the entity at a path. A topic itself has none.
func (s namespaceView) Sessions(ctx context.Context, path string, skip, most int) ([]fsm.Session, error) {
	at, err := s.Resolve(ctx, path)
	switch {
	case err != nil:
		return nil, err
	case at.Kind == fsm.TopicEntity:
		return nil, fmt.Errorf("sessions of the topic %q: %w", path, fsm.EntityNotFound)
	}
	return s.Router.Sessions(ctx, at, 0, skip, most)
}

// accessRules adapts the catalog to the keyring.
type accessRules struct{ router *router.Router }

// Access returns the access rules in the local replica of the catalog.
func (r accessRules) Access(namespace fsm.NamespaceID, path string) (own, shared []fsm.AccessRule) {
	return r.router.Access(namespace, path)
}

// NamespaceName returns the name of a namespace.
func (r accessRules) NamespaceName(id fsm.NamespaceID) string { return r.router.NamespaceName(id) }

// NamespaceByHost returns the namespace that a host name selects in the local replica of the catalog.
func (r accessRules) NamespaceByHost(host string) fsm.NamespaceID {
	return r.router.NamespaceByHost(host)
}

// authorizer adapts the keyring to the gateway.
type authorizer struct{ ring *auth.Keyring }

// Token verifies the token of a put-token request.
func (a authorizer) Token(ctx context.Context, from amqp.Client, kind, token, audience string) (amqp.Grant, error) {
	return toGrant(a.ring.Token(ctx, authClient(from), kind, token, audience))
}

// Password verifies the credentials of SASL PLAIN.
func (a authorizer) Password(ctx context.Context, from amqp.Client, user, password string) (amqp.Grant, error) {
	return toGrant(a.ring.Password(ctx, authClient(from), user, password))
}

// Certificate verifies the certificate of SASL EXTERNAL.
func (a authorizer) Certificate(ctx context.Context, from amqp.Client, certificate *x509.Certificate) (amqp.Grant, error) {
	return toGrant(a.ring.Certificate(ctx, authClient(from), certificate))
}

// authClient converts a client for a query to the keyring. A login may wait, because it runs in a goroutine of its
// own connection.
func authClient(from amqp.Client) auth.Client {
	return auth.Client{Namespace: from.Namespace, Peer: from.Peer}
}

func toGrant(grant auth.Grant, err error) (amqp.Grant, error) {
	return amqp.Grant{
		Rights: grant.Rights, Namespace: grant.Namespace, Path: grant.Path, OfEntity: grant.EntityOnly, Expires: grant.Expires, Name: grant.Name, Valid: grant.Valid,
	}, err
}
