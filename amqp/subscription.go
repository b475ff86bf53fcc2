package amqp

import (
	"context"
	"slices"
	"strings"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// A client of JMS that consumes from a topic attaches a receiver at the topic itself. The gateway attaches it to a
// subscription of the topic.

// Capabilities of a receiver at a topic, as Qpid JMS names them.
const (
	topicCapability     = wire.Symbol("topic")
	sharedCapability    = wire.Symbol("shared")
	globalCapability    = wire.Symbol("global") // the name does not depend on the container id
	sharedSubscriptions = wire.Symbol("SHARED-SUBS")
)

// Descriptors of the filter of a consumer that does not want the messages of its own connection.
const (
	noLocalDescriptor        = wire.Symbol("apache.org:no-local-filter:list")
	noLocalCode       uint64 = 0x0000468C00000003
)

// consumerPrefix begins the names of the subscriptions that the gateway creates.
const consumerPrefix = "jms."

// readSubscription reads an attach of a receiver at an entity. If that is a consumer of a topic, l.path becomes the
// path of its subscription.
func (l *link) readSubscription(a *wire.Attach) refusal {
	s := a.Source
	if fsm.EntityPath(l.path) != l.path || browses(s) || !slices.Contains(s.Capabilities, topicCapability) && !slices.Contains(s.Capabilities, temporaryTopic) {
		return refusal{}
	}
	for _, pair := range s.Filter {
		if described, ok := pair.Value.(wire.Described); ok && (described.Descriptor == noLocalDescriptor || described.Descriptor == noLocalCode) {
			return refusal{wire.ConditionNotImplemented, "A consumer gets the messages of its own connection too. Leave out noLocal, or select by a property that the producer sets.", retryAfterChange}
		}
	}
	durable, shared := s.Durable != nil && *s.Durable != 0, slices.Contains(s.Capabilities, sharedCapability)
	switch {
	case !durable && !shared:
		l.topic = l.path
		l.temporary, l.creates, l.path = true, fsm.SubscriptionEntity, fsm.SubscriptionPath(l.topic, consumerPrefix+newTrackingID())
	case durable && shared && slices.Contains(s.Capabilities, globalCapability):
		l.sharedSubscription(a.Name)
	}
	return refusal{}
}

// sharedSubscription attaches a receiver at a topic to the subscription that it shares. JMS names the subscription by
// the link: up to the first '|', which the client appends. An administrator creates the subscription; a link neither
// creates nor deletes it.
func (l *link) sharedSubscription(linkName string) {
	if name, _, _ := strings.Cut(linkName, "|"); name != "" && !strings.Contains(name, "/") {
		l.reply.OfferedCapabilities = []wire.Symbol{sharedSubscriptions} // otherwise the client detaches
		l.path = fsm.SubscriptionPath(l.path, name)
	}
}

// checkTopic returns the reason why nobody can subscribe to the entity at path, if there is one. mu is not held.
func (c *conn) checkTopic(ctx context.Context, path string) refusal {
	at, err := c.resolvePath(ctx, path)
	switch {
	case err != nil:
		return errorReplyOf(codeOf(err)).withEntity(path).refusal
	case at.Kind != fsm.TopicEntity:
		return newRefusal(wire.ConditionNotAllowed, "The %s '%s' is not a topic. Receive from it as from a queue.", at.Kind, at.Name)
	}
	return refusal{}
}

// subscribe creates the subscription of a consumer of a topic. mu is not held.
func (c *conn) subscribe(ctx context.Context, l *link) (fsm.EntityRef, refusal) {
	if cause := c.checkTopic(ctx, l.topic); cause.condition != "" {
		c.mu.Lock()
		defer c.unlock()
		l.forgetTemporary()
		return fsm.EntityRef{}, cause
	}
	at, err := c.createTemporary(ctx, l.creates, l.path)
	if err != nil {
		return at, creationRefusal(err, l.topic)
	}
	return at, refusal{}
}
