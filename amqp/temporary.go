package amqp

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// Temporary queues are the dynamic nodes of AMQP (part 3, 3.5.3 and 3.5.4): a client attaches without an address
// and the broker creates a queue, whose name it answers. Request and reply of JMS use them. The queue ends with the
// link that created it, also when the connection ends. If the deletion fails, or the member ends, the queue is
// deleted after temporaryIdle without use.

// temporaryPrefix begins the names of temporary queues.
const temporaryPrefix = "temporary/"

// temporaryTopic is the capability with which a client asks for a temporary topic.
const temporaryTopic = wire.Symbol("temporary-topic")

// readTemporary reads an attach to a dynamic node.
func (l *link) readTemporary(address any, capabilities []wire.Symbol) refusal {
	switch {
	case address != nil && address != "":
		return newRefusal(wire.ConditionInvalidField, "The attach asks for a dynamic node and names an address. Leave out one of them.")
	case slices.Contains(capabilities, temporaryTopic):
		return refusal{wire.ConditionNotImplemented, "Temporary topics are not supported. Create a topic, or use a temporary queue.", retryAfterChange}
	}
	l.temporary, l.right, l.path = true, fsm.Manage, temporaryPrefix+newTrackingID()
	if l.clientSends {
		l.reply.Target.Address = l.path
	} else {
		l.reply.Source.Address = l.path
	}
	return refusal{}
}

// createTemporary creates the queue of a link. mu is not held.
func (c *conn) createTemporary(ctx context.Context, path string) (fsm.EntityRef, error) {
	ctx, cancel := context.WithTimeout(ctx, temporaryWithin)
	defer cancel()
	settings := fsm.DefaultSettings()
	settings.AutoDeleteOnIdle = fsm.Millis(temporaryIdle.Milliseconds())
	settings.MaxMessageBytes = 0 // the default of the namespace
	at, err := c.config.Broker.CreateQueue(ctx, c.namespace, path, settings)
	c.auditTemporary(ctx, "create", path, err)
	return at, err
}

// beginTemporary counts the queue of a link, and its work. mu is held.
func (l *link) beginTemporary() {
	if l.temporary {
		c := l.session.conn
		c.temporaries++
		c.dueWork += temporaryCost
	}
}

// endTemporary no longer counts the queue of a link whose creation has ended, and deletes it. mu is held.
func (l *link) endTemporary() {
	if !l.temporary {
		return
	}
	c, path := l.session.conn, l.path
	c.temporaries--
	c.brokerCalls = append(c.brokerCalls, func() { go c.removeTemporary(context.Background(), path) })
}

// removeTemporary deletes a temporary queue. mu is not held; the connection may have ended.
func (c *conn) removeTemporary(ctx context.Context, path string) {
	ctx, cancel := context.WithTimeout(ctx, temporaryWithin)
	defer cancel()
	defer c.recovered(ctx)
	c.auditTemporary(ctx, "delete", path, c.config.Broker.DeleteQueue(ctx, c.namespace, path))
}

// auditTemporary records a change of the entities, as the administration interfaces do.
func (c *conn) auditTemporary(ctx context.Context, operation, path string, err error) {
	outcome := "ok"
	if err != nil {
		outcome = err.Error()
	}
	c.audit(ctx, slog.LevelInfo, auditTemporaryQueue, slog.String("operation", operation), slog.String("name", path), slog.String("outcome", outcome))
}

// Limits of temporary queues.
const (
	temporariesMax  = 64               // of one connection
	temporaryIdle   = time.Hour        // until a queue that its member could not delete is deleted
	temporaryWithin = 60 * time.Second // creation or deletion
	temporaryCost   = 150              // units of work: six log entries, until the queue is deleted again
)
