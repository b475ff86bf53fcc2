package amqp

import (
	"context"
	"slices"
	"time"

	"github.com/peeklock/peeklock/amqp/address"
	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// Temporary queues and topics are the dynamic nodes of AMQP (part 3, 3.5.3 and 3.5.4): a client attaches without an
// address and the broker creates an entity, whose name it answers. Request and reply of JMS use them. A consumer of a
// topic has a temporary subscription (subscription.go). A temporary entity ends with the link that created it, also
// when the connection ends. If the deletion fails, or the member ends, the entity is deleted when it has been idle for
// long enough.

// temporaryTopic is the capability with which a client asks for a temporary topic, or receives from one.
const temporaryTopic = wire.Symbol("temporary-topic")

// readTemporary reads an attach to a dynamic node.
func (l *link) readTemporary(address any, capabilities []wire.Symbol) refusal.Cause {
	topic := slices.Contains(capabilities, temporaryTopic)
	switch {
	case address != nil && address != "":
		return refusal.New(wire.ConditionInvalidField, "The attach asks for a dynamic node and names an address. Leave out one of them.")
	case topic && !l.clientSends:
		return refusal.New(wire.ConditionInvalidField, "A temporary topic is created by a sender. Attach one, and then a receiver at the address that it gets.")
	}
	l.temporary, l.creates, l.right, l.path = true, fsm.QueueEntity, fsm.Manage, fsm.TemporaryPrefix+refusal.NewTrackingID()
	if topic {
		l.creates = fsm.TopicEntity
	}
	if l.clientSends {
		l.reply.Target.Address = l.path
	} else {
		l.reply.Source.Address = l.path
	}
	return refusal.Cause{}
}

// createTemporary creates the entity of a link. rule is the first rule of a subscription, nil for the default. mu is not held.
func (l *link) createTemporary(ctx context.Context, rule *fsm.Rule) (fsm.EntityRef, error) {
	idle := temporaryIdle
	if l.creates == fsm.TopicEntity {
		idle = temporaryTopicIdle
	}
	settings := fsm.DefaultSettings()
	settings.AutoDeleteOnIdle = fsm.Millis(idle.Milliseconds())
	settings.MaxMessageBytes = 0 // the default of the namespace
	return l.createEntity(ctx, settings, rule)
}

// createEntity creates an entity for a link. rule is that of createTemporary. mu is not held.
func (l *link) createEntity(ctx context.Context, settings fsm.EntitySettings, rule *fsm.Rule) (fsm.EntityRef, error) {
	c := l.session.conn
	ctx, cancel := context.WithTimeout(ctx, creationWithin)
	defer cancel()
	at, err := c.config.Broker.CreateEntity(ctx, c.credentials.Namespace(), l.creates, l.path, settings, rule)
	c.auditEntity(ctx, "create", l.creates, l.path, err)
	return at, err
}

// creationRefusal returns the reason why the entity of a link could not be created.
func creationRefusal(err error, path string) refusal.Cause {
	if refusal.CodeOf(err) == fsm.QuotaExceeded {
		return refusal.AfterChange(wire.ConditionResourceLimitExceeded, "The topic has as many subscriptions or selectors as it may have, or the namespace or the cluster as many entities. Delete some.")
	}
	return refusal.ReplyOf(refusal.CodeOf(err)).WithEntity(path).Cause
}

// foreignTemporary returns the reason why a link may not receive from a temporary queue that another connection has
// created. It holds the replies to that connection, and its name is in every request. Nothing but the queue's own
// connection, and administration, reads it. mu is held.
func (l *link) foreignTemporary() refusal.Cause {
	entity := l.path
	if l.kind == managementNode {
		entity, _ = address.CutManagement(l.path)
	}
	entity = fsm.PathKey(fsm.EntityPath(entity))
	c := l.session.conn
	if _, own := c.temporaries[entity]; own || l.temporary || l.subscription != nil || l.clientSends && l.kind == entityNode || !fsm.IsTemporaryQueue(entity) {
		return refusal.Cause{}
	}
	return refusal.New(wire.ConditionNotAllowed, "The temporary queue '%s' belongs to another connection. Receive on the connection that created it.", entity)
}

// beginEntity counts the entity of a link, and the work of creating and deleting it. mu is held.
func (l *link) beginEntity() {
	c := l.session.conn
	if l.temporary {
		if c.temporaries == nil {
			c.temporaries = make(map[string]struct{})
		}
		c.temporaries[fsm.PathKey(l.path)] = struct{}{}
	}
	if l.temporary || l.subscription != nil {
		c.costs.due += temporaryCost
	}
}

// forgetTemporary no longer counts the entity of a link. mu is held.
func (l *link) forgetTemporary() {
	l.temporary = false
	delete(l.session.conn.temporaries, fsm.PathKey(l.path))
}

// endTemporary no longer counts the entity of a link whose creation has ended, and deletes it. mu is held.
func (l *link) endTemporary() {
	if !l.temporary {
		return
	}
	c, kind, path := l.session.conn, l.creates, l.path
	l.forgetTemporary()
	c.brokerCalls = append(c.brokerCalls, func() {
		go func() {
			defer c.recovered(context.Background())
			_ = c.deleteEntity(context.Background(), kind, path) // audited; AutoDeleteOnIdle deletes it otherwise
		}()
	})
}

// deleteEntity deletes an entity that was created for a link. mu is not held; the connection may have ended.
func (c *conn) deleteEntity(ctx context.Context, kind fsm.EntityKind, path string) error {
	ctx, cancel := context.WithTimeout(ctx, creationWithin)
	defer cancel()
	err := c.config.Broker.DeleteEntity(ctx, c.credentials.Namespace(), kind, path)
	c.auditEntity(ctx, "delete", kind, path, err)
	return err
}

// Limits of temporary entities.
const (
	temporariesMax     = 64               // of one connection
	temporaryIdle      = time.Hour        // until a queue or subscription that its member could not delete is deleted
	temporaryTopicIdle = 24 * time.Hour   // the same for a topic, for which only sends are use
	creationWithin     = 60 * time.Second // creation or deletion
	temporaryCost      = 150              // units of work: six log entries, until the entity is deleted again
)
