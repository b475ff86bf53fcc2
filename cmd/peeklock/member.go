package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/peeklock/peeklock/admin"
	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/amqp"
	"github.com/peeklock/peeklock/cluster"
)

// member is one member of a cluster, whole: the node that stores, the gateway and the
// control API in front of it.
type member struct {
	node    *cluster.Node
	gateway *amqp.Server
	admin   *admin.Server
	ready   atomic.Bool
	stop    context.CancelFunc // of the wait for readiness
	waiting sync.WaitGroup
}

// memberParts is what a member is made of. The listeners are bound already, so that a
// port that is taken is known before any data is touched.
type memberParts struct {
	cluster cluster.Config
	amqp    net.Listener
	admin   net.Listener
	ring    *auth.Keyring
	logger  *slog.Logger
}

// release gives the listeners back, on the way out of a failure that is worth telling;
// what closing says is not.
func (p memberParts) release() {
	for _, l := range []net.Listener{p.amqp, p.admin} {
		if l != nil {
			_ = l.Close()
		}
	}
}

// openMember starts a member. It answers clients at once; until it is ready they are
// told to come back (server-busy). The listeners are the member's, also when it fails.
func openMember(ctx context.Context, p memberParts) (*member, error) {
	m := &member{}
	var err error
	if m.node, err = cluster.Open(ctx, p.cluster); err != nil {
		p.release()
		return nil, err
	}
	gateway := amqp.DefaultConfig()
	gateway.Listener = p.amqp
	gateway.Broker = broker{m.node.Router()}
	gateway.Authorizer = authorizer{p.ring}
	gateway.Logger = p.logger.With("room", "amqp")
	gateway.ContainerID = p.cluster.Name
	gateway.Version = p.cluster.Version
	if m.gateway, err = amqp.Open(ctx, gateway); err != nil {
		p.release()
		return nil, errors.Join(err, m.close(ctx))
	}
	m.admin, err = admin.Open(ctx, admin.Config{
		Listener:  p.admin,
		Control:   control{m.node.Router()},
		Authority: p.ring,
		Ready:     m.ready.Load,
		Logger:    p.logger.With("room", "admin"),
	})
	if err != nil {
		p.release()
		return nil, errors.Join(err, m.close(ctx))
	}
	waitCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	m.stop = stop
	m.waiting.Go(func() { m.ready.Store(m.node.Ready(waitCtx) == nil) })
	return m, nil
}

// close takes clients away first and the storage last.
func (m *member) close(ctx context.Context) error {
	m.ready.Store(false)
	if m.stop != nil {
		m.stop()
	}
	m.waiting.Wait()
	var all []error
	if m.gateway != nil {
		all = append(all, m.gateway.Close(ctx))
	}
	if m.admin != nil {
		all = append(all, m.admin.Close(ctx))
	}
	return errors.Join(append(all, m.node.Close(ctx))...)
}

// closeTimeMax is how long members take to leave in order: hand over leadership, end
// their connections, sync.
const closeTimeMax = 15 * time.Second

// closeAll closes members at the same time: one after the other, each would hand its
// leaderships to one that closes next.
func closeAll(ctx context.Context, members []*member) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeMax)
	defer cancel()
	errs := make([]error, len(members))
	var group sync.WaitGroup
	for i, m := range members {
		if m != nil {
			group.Go(func() { errs[i] = m.close(ctx) })
		}
	}
	group.Wait()
	return errors.Join(errs...)
}

// connectionString is what a Service Bus client needs, in the official emulator's form.
func connectionString(address, keyName, key string) string {
	return fmt.Sprintf("Endpoint=sb://%s;SharedAccessKeyName=%s;SharedAccessKey=%s;UseDevelopmentEmulator=true", address, keyName, key)
}
