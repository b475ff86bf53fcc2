package main

import (
	"context"
	"crypto/x509"
	"fmt"

	"github.com/peeklock/peeklock/admin"
	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/admin/dataplane"
	"github.com/peeklock/peeklock/amqp"
	"github.com/peeklock/peeklock/cluster"
	"github.com/peeklock/peeklock/cluster/entities"
	"github.com/peeklock/peeklock/cluster/router"
	"github.com/peeklock/peeklock/cmd/broker"
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
	return namespaceView{c.Router.In(namespace), c.Router}
}

// namespaceView adapts the view of a namespace to the control API.
type namespaceView struct {
	entities.NamespaceView

	router *router.Router
}

// Sessions lists the sessions of the entity at a path. A topic itself has none.
func (s namespaceView) Sessions(ctx context.Context, path string, skip, most int) ([]fsm.Session, error) {
	at, err := s.Resolve(ctx, path)
	switch {
	case err != nil:
		return nil, err
	case at.Kind == fsm.TopicEntity:
		return nil, fmt.Errorf("sessions of the topic %q: %w", path, fsm.EntityNotFound)
	}
	return s.router.Sessions(ctx, at, 0, skip, most)
}

// messageBroker adapts the router to the HTTP interface for messages.
type messageBroker struct{ broker.Broker }

// Receiver opens a receiver. The receivers of both packages have the same methods.
func (b messageBroker) Receiver(at fsm.EntityRef, receiveAndDelete bool) dataplane.Receiver {
	return b.Router.Receiver(at, receiveAndDelete)
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
func (r accessRules) NamespaceByHost(ctx context.Context, host string) (fsm.NamespaceID, error) {
	return r.router.NamespaceByHost(ctx, host)
}

// NamesEntity reports whether a queue or topic has this name in the local replica of the catalog.
func (r accessRules) NamesEntity(namespace fsm.NamespaceID, name string) bool {
	return r.router.NamesEntity(namespace, name)
}

// AwaitConfirmed reports whether the rules may be believed.
func (r accessRules) AwaitConfirmed(ctx context.Context) bool { return r.router.AwaitConfirmed(ctx) }

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
		Rights: grant.Rights, Namespace: grant.Namespace, OwnNamespace: grant.OwnNamespace, Path: grant.Path, OfEntity: grant.EntityOnly, Expires: grant.Expires, Name: grant.Name, Valid: grant.Valid,
	}, err
}
