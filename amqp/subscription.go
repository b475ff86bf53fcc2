package amqp

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/peeklock/peeklock/amqp/consumers"
	"github.com/peeklock/peeklock/amqp/login"
	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// A client of JMS that consumes from a topic attaches a receiver at the topic itself. The gateway attaches it to a
// subscription of the topic, which it creates if it is missing (docs/service-bus-protocol.md#subscriptions-of-jms).

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

// Limits of subscriptions.
const (
	clientIDBytesMax       = 256 // of a container id that names subscriptions
	subscriptionLabelBytes = 19  // of the name that the program chose, in the name of the subscription, with what stands for a selector
	metadataBytesMax       = 1024
	volatilesMax           = 64 // shared subscriptions that are not durable and that one connection creates
)

// subscription is the subscription of JMS that a receiver at a topic asks for.
type subscription struct {
	topic    string // path of the topic
	name     string // the name that the program chose; "" for a consumer with a subscription of its own
	client   string // the client id to which the name belongs; "" for a name that all clients share
	durable  bool
	shared   bool
	selector *selectorFilter // nil for all messages
	found    []string        // paths of what the client deletes when it unsubscribes
}

// readSubscription reads an attach of a receiver at an entity. If that is a consumer of a topic, l.path becomes the
// path of its subscription.
func (l *link) readSubscription(a *wire.Attach) refusal.Cause {
	source := a.Source
	if fsm.EntityPath(l.path) != l.path || browses(source) || !slices.Contains(source.Capabilities, topicCapability) && !slices.Contains(source.Capabilities, temporaryTopic) {
		return refusal.Cause{}
	}
	for _, pair := range source.Filter {
		if described, ok := pair.Value.(wire.Described); ok && (described.Descriptor == noLocalDescriptor || described.Descriptor == noLocalCode) {
			return refusal.AfterChange(wire.ConditionNotImplemented, "A consumer gets the messages of its own connection too. Leave out noLocal, or select by a property that the producer sets.")
		}
	}
	s := &subscription{topic: l.path, durable: source.Durable != nil && *source.Durable != 0, shared: slices.Contains(source.Capabilities, sharedCapability)}
	l.subscription, l.creates = s, fsm.SubscriptionEntity
	if s.shared {
		l.reply.OfferedCapabilities = []wire.Symbol{sharedSubscriptions} // otherwise the client detaches
	}
	if !s.durable && !s.shared {
		l.temporary, l.path = true, fsm.SubscriptionPath(s.topic, consumerPrefix+refusal.NewTrackingID())
		return refusal.Cause{}
	}
	cause := s.readName(a.Name, s.shared && slices.Contains(source.Capabilities, globalCapability), l.session.conn.clientID)
	l.path = fsm.SubscriptionPath(s.topic, s.entityName())
	return cause
}

// readName sets the name of a subscription and the client to which it belongs. JMS names the subscription by the link:
// up to the first '|', after which the client makes the name of the link unique.
func (s *subscription) readName(linkName string, global bool, client string) refusal.Cause {
	s.name, _, _ = strings.Cut(linkName, "|")
	switch {
	case s.name == "":
		return refusal.New(wire.ConditionInvalidField, "The link of a subscription has no name. Name it after the subscription.")
	case global:
		return refusal.Cause{}
	case client == "" || len(client) > clientIDBytesMax:
		return refusal.New(wire.ConditionInvalidField, "The subscription belongs to a client, and the container id of the connection is empty or longer than %d bytes. Set a client id.", clientIDBytesMax)
	}
	s.client = client
	return refusal.Cause{}
}

// code returns a hash that stands for the client id and the name, which have any characters and whose case counts: no
// choice of either leads to the subscription of another client.
func (s *subscription) code() string {
	hashed := []byte{'v'}
	if s.durable {
		hashed[0] = 'd'
	}
	hashed = append(binary.BigEndian.AppendUint32(hashed, uint32(len(s.client))), s.client+s.name...)
	return shortHash(hashed, 16)
}

func shortHash(text []byte, size int) string {
	sum := sha256.Sum256(text)
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:size]))
}

// entityName returns the name of the subscription of a topic that belongs to a subscription of JMS: a part of its name,
// for people, a hash of the selector, and the code. The rules of a subscription do not tell which selector the client
// gave: an administrator can change them, and a later release may translate selectors differently.
func (s *subscription) entityName() string {
	selector := ""
	if s.selector != nil {
		selector = "." + shortHash([]byte(s.selector.text), 5)
	}
	label := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '-' || r == '_' {
			return r
		}
		return -1
	}, s.name)
	return consumerPrefix + label[:min(len(label), subscriptionLabelBytes-len(selector))] + selector + "." + s.code()
}

// setRule makes the selector of a link the rule of its subscription.
func (l *link) setRule(f *selectorFilter) {
	s := l.subscription
	if s.selector, l.reply.Source.Filter = f, f.reply; s.name != "" {
		l.path = fsm.SubscriptionPath(s.topic, s.entityName())
	}
}

// rule returns the first rule of a subscription that is created, nil for the default.
func (s *subscription) rule() *fsm.Rule {
	if s.selector == nil {
		return nil
	}
	return &fsm.Rule{Name: fsm.DefaultRuleName, Filter: fsm.RuleFilter{Kind: fsm.SQLFilter, SQL: fsm.SQLText{Text: s.selector.sql}}}
}

// description tells an administrator what a subscription is for.
func (s *subscription) description() string {
	text := fmt.Sprintf("JMS subscription %+q", s.name)
	if s.client != "" {
		text += fmt.Sprintf(" of client %+q", s.client)
	}
	return text[:min(len(text), metadataBytesMax)]
}

// settings returns the settings of a subscription that is created.
func (s *subscription) settings() fsm.EntitySettings {
	settings := fsm.DefaultSettings()
	settings.MaxMessageBytes = 0
	settings.UserMetadata = s.description()
	if !s.durable {
		settings.AutoDeleteOnIdle = fsm.Millis(temporaryIdle.Milliseconds())
	}
	return settings
}

// subscribe finds or creates the subscription of a consumer of a topic. mu is not held.
func (l *link) subscribe(ctx context.Context) (at fsm.EntityRef, cause refusal.Cause) {
	c := l.session.conn
	s := l.subscription
	at, err := c.resolvePath(ctx, s.topic)
	switch {
	case err != nil:
		cause = refusal.ReplyOf(refusal.CodeOf(err)).WithEntity(c.urlOf(s.topic)).Cause
	case at.Kind != fsm.TopicEntity:
		cause = refusal.New(wire.ConditionNotAllowed, "The %s '%s' is not a topic. Receive from it as from a queue.", at.Kind, at.Name)
	case s.name == "":
		if at, err = l.createTemporary(ctx, s.rule()); err != nil {
			cause = creationRefusal(err, s.topic)
		}
		return at, cause
	default:
		return l.subscribeByName(ctx)
	}
	if l.temporary {
		c.mu.Lock()
		defer c.unlock()
		l.forgetTemporary()
	}
	return at, cause
}

// subscribeByName finds or creates a subscription that has a name. mu is not held.
func (l *link) subscribeByName(ctx context.Context) (fsm.EntityRef, refusal.Cause) {
	c := l.session.conn
	s := l.subscription
	if own := fsm.SubscriptionPath(s.topic, s.name); s.durable && s.client == "" && !strings.Contains(s.name, "/") && !hasConsumerPrefix(s.name) {
		at, err := c.resolvePath(ctx, own) // one that an administrator created
		switch {
		case err == nil && s.selector != nil:
			return at, refusal.AfterChange(wire.ConditionNotAllowed, "An administrator created the subscription '%s', and its rules select its messages. Leave out the selector, or choose another name.", own)
		case err == nil:
			c.mu.Lock()
			defer c.unlock()
			l.path = own
			return at, refusal.Cause{}
		case refusal.CodeOf(err) != fsm.EntityNotFound:
			return at, refusal.ReplyOf(refusal.CodeOf(err)).WithEntity(c.urlOf(own)).Cause
		}
	}
	if s.durable {
		if cause := l.useSubscriptions(!s.shared, l.path); cause.Condition != "" {
			return fsm.EntityRef{}, cause
		}
	}
	at, err := c.resolvePath(ctx, l.path)
	switch {
	case err == nil:
		return at, refusal.Cause{}
	case refusal.CodeOf(err) != fsm.EntityNotFound:
		return at, refusal.ReplyOf(refusal.CodeOf(err)).WithEntity(c.urlOf(l.path)).Cause
	}
	cause := l.mayCreate(ctx)
	if cause.Condition != "" {
		return fsm.EntityRef{}, cause
	}
	at, err = l.createEntity(ctx, s.settings(), s.rule())
	if refusal.CodeOf(err) == fsm.EntityExists { // another client was faster
		at, err = c.resolvePath(ctx, l.path)
	}
	if err != nil {
		cause = creationRefusal(err, s.topic)
	}
	return at, cause
}

func hasConsumerPrefix(name string) bool {
	return len(name) >= len(consumerPrefix) && strings.EqualFold(name[:len(consumerPrefix)], consumerPrefix)
}

// mayCreate prepares the creation of the subscription of a link, or returns the reason why it is refused. mu is not held.
func (l *link) mayCreate(ctx context.Context) refusal.Cause {
	c := l.session.conn
	if l.subscription.durable {
		return l.replaceFormer(ctx)
	}
	c.mu.Lock()
	defer c.unlock()
	if c.volatiles >= volatilesMax {
		return refusal.AfterChange(wire.ConditionResourceLimitExceeded, "The connection has created %d shared subscriptions; more are not possible. Use other names again, or open another connection.", volatilesMax)
	}
	c.volatiles++
	return refusal.Cause{}
}

// replaceFormer deletes what a durable subscription takes the place of: one of the same name at the same topic with another
// selector. Names are per topic: otherwise who may listen at one topic could lock the clients of others out by
// taking their names. A durable subscription stays after its link, so the client needs the right to manage. mu is not held.
func (l *link) replaceFormer(ctx context.Context) refusal.Cause {
	c := l.session.conn
	s := l.subscription
	if cause := c.mayManage(ctx, l.path); cause.Condition != "" {
		return cause
	}
	former, err := c.findSubscriptions(ctx, s.code())
	if err != nil {
		return refusal.ReplyOf(refusal.CodeOf(err)).Cause
	}
	former = slices.DeleteFunc(former, func(path string) bool { return topicKey(path) != fsm.PathKey(s.topic) })
	for _, path := range former {
		if s.shared { // consumers of other members would lose its messages
			return refusal.AfterChange(wire.ConditionNotAllowed, "The name '%s' belongs to the shared subscription '%s', which has another selector. Unsubscribe from that first, or choose another name.", s.name, path)
		}
		if cause := c.mayManage(ctx, path); cause.Condition != "" {
			return cause
		}
	}
	return c.deleteSubscriptions(ctx, former)
}

// deleteSubscriptions deletes subscriptions by their paths. mu is not held.
func (c *conn) deleteSubscriptions(ctx context.Context, paths []string) refusal.Cause {
	for _, path := range paths {
		if err := c.deleteEntity(ctx, fsm.SubscriptionEntity, path); err != nil && refusal.CodeOf(err) != fsm.EntityNotFound {
			return refusal.ReplyOf(refusal.CodeOf(err)).WithEntity(c.urlOf(path)).Cause
		}
	}
	return refusal.Cause{}
}

// findSubscriptions returns the paths of the subscriptions that have a code. mu is not held.
func (c *conn) findSubscriptions(ctx context.Context, code string) ([]string, error) {
	c.mu.Lock()
	c.costs.countFind()
	c.unlock()
	ctx, cancel := context.WithTimeout(ctx, creationWithin)
	defer cancel()
	return c.config.Broker.FindSubscriptions(ctx, c.credentials.Namespace(), consumerPrefix, "."+code)
}

// mayManage returns the reason why a client may not create or delete the subscription at path, if there is one. mu is not held.
func (c *conn) mayManage(ctx context.Context, path string) refusal.Cause {
	c.mu.Lock()
	defer c.unlock()
	if c.credentials.Allows(ctx, path, fsm.Manage, time.Now()) {
		return refusal.Cause{}
	}
	c.credentials.AuditMissing(ctx, path, fsm.Manage, "")
	cause := login.Unauthorized(path, fsm.Manage)
	cause.Text = "A durable subscription is created and deleted with the right to manage. " + cause.Text
	return cause
}

// topicKey returns the topic of a subscription's path, as fsm.PathKey.
func topicKey(path string) string {
	topic, _, _ := fsm.SplitSubscriptionPath(path)
	return fsm.PathKey(topic)
}

// useSubscriptions counts a link as a consumer of its durable subscription, at the topics of all paths, until it ends.
// mu is not held.
func (l *link) useSubscriptions(exclusive bool, paths ...string) refusal.Cause {
	c := l.session.conn
	c.mu.Lock()
	defer c.unlock()
	for _, path := range paths {
		key := consumers.Key{Namespace: c.credentials.Namespace(), Topic: topicKey(path), Code: l.subscription.code()}
		if l.state != attaching || !c.consumers.Add(key, exclusive) { // resolve ignores the refusal if the link has ended
			l.endUse()
			return refusal.Later(wire.ConditionResourceLocked, "The subscription '%s' has an active consumer. Close that first.", l.subscription.name)
		}
		l.consumes = append(l.consumes, key)
	}
	return refusal.Cause{}
}

// endUse no longer counts a link as a consumer. mu is held.
func (l *link) endUse() {
	l.session.conn.consumers.Remove(l.consumes...)
	l.consumes = nil
}

// readUnsubscribe reads an attach without source: a client of JMS asks for the durable subscription that the link names,
// and deletes it by closing the link. The attach names no topic.
func (l *link) readUnsubscribe(a *wire.Attach) refusal.Cause {
	l.kind, l.right, l.subscription = subscriptionNode, fsm.Manage, &subscription{durable: true}
	return l.subscription.readName(a.Name, slices.Contains(a.DesiredCapabilities, globalCapability), l.session.conn.clientID)
}

// findSubscription finds the subscription that a client wants to delete. mu is not held.
func (l *link) findSubscription(ctx context.Context) refusal.Cause {
	c := l.session.conn
	s := l.subscription
	paths, err := c.findSubscriptions(ctx, s.code())
	switch {
	case err != nil:
		return refusal.ReplyOf(refusal.CodeOf(err)).Cause
	case len(paths) == 0:
		return refusal.New(wire.ConditionNotFound, "The client created no durable subscription '%s'. Check the name and the client id; an administrator deletes what an administrator created.", s.name)
	}
	var refused refusal.Cause
	paths = slices.DeleteFunc(paths, func(path string) bool { // at topics of others, the name belongs to others
		cause := c.mayManage(ctx, path)
		if cause.Condition != "" {
			refused = cause
		}
		return cause.Condition != ""
	})
	if len(paths) == 0 {
		return refused
	}
	if cause := l.useSubscriptions(true, paths...); cause.Condition != "" {
		return cause
	}
	c.mu.Lock()
	defer c.unlock()
	l.path, s.found = paths[0], paths
	topic, _, _ := fsm.SplitSubscriptionPath(l.path)
	durable, policy := uint32(2), wire.Symbol("never")
	l.reply.Source = &wire.Source{Address: topic, Durable: &durable, ExpiryPolicy: &policy, Capabilities: []wire.Symbol{topicCapability}}
	return refusal.Cause{}
}

// unsubscribe deletes the subscription of a link that the client has closed, and then answers with reply. mu is held.
func (l *outgoingLink) unsubscribe(reply *wire.Detach) {
	s, c, paths, keys := l.session, l.session.conn, l.subscription.found, l.consumes
	l.consumes = nil // nobody consumes until it is deleted
	l.drop()
	c.brokerCalls = append(c.brokerCalls, func() {
		go func() {
			ctx := context.Background()
			defer c.recovered(ctx)
			cause := c.deleteSubscriptions(ctx, paths)
			c.consumers.Remove(keys...)
			c.mu.Lock()
			defer c.unlock()
			if cause.Condition != "" {
				reply.Error = c.newError(ctx, cause, "link", l.name, "path", l.path)
			}
			if !s.ended && c.phase < phaseClosing {
				c.emit(s.channel, reply)
			}
		}()
	})
}
