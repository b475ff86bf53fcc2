package main

import (
	"context"

	"github.com/peeklock/peeklock/admin"
	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/amqp"
	"github.com/peeklock/peeklock/cluster"
	"github.com/peeklock/peeklock/fsm"
)

// The rooms do not know each other: each says in an interface of its own what it asks
// of the house. The adapters here only change the names of types.

// broker is the router as the gateway wants it.
type broker struct{ *cluster.Router }

// Receiver opens a lane. The receivers of both rooms have the same methods.
func (b broker) Receiver(at fsm.Place, takes bool) amqp.Receiver {
	return b.Router.Receiver(at, takes)
}

// control is the router as the control API wants it.
type control struct{ *cluster.Router }

// Status copies the picture field by field: the JSON is admin's, not cluster's.
func (c control) Status(ctx context.Context) (admin.Status, error) {
	st, err := c.Router.Status(ctx)
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

// authorizer is the keyring as the gateway wants it.
type authorizer struct{ ring *auth.Keyring }

// Token checks a put-token.
func (a authorizer) Token(ctx context.Context, kind, token, audience string) (amqp.Grant, error) {
	grant, err := a.ring.Token(ctx, kind, token, audience)
	return amqp.Grant(grant), err
}

// Password checks SASL PLAIN.
func (a authorizer) Password(ctx context.Context, user, password string) (amqp.Grant, error) {
	grant, err := a.ring.Password(ctx, user, password)
	return amqp.Grant(grant), err
}
