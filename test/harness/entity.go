package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/peeklock/peeklock/test/kit"
)

// Queue is a queue, topic or subscription as the control API shows it; only what tests read.
type Queue struct {
	Name      string `json:"name"`
	Partition uint32 `json:"partition"`
	Counts    Counts `json:"counts"`
}

// Counts are the numbers of messages of a queue or subscription, and those of a topic.
type Counts struct {
	Active             uint64 `json:"active"`
	Locked             uint64 `json:"locked"`
	Deferred           uint64 `json:"deferred"`
	Scheduled          uint64 `json:"scheduled"`
	DeadLetter         uint64 `json:"deadLetter"`
	Transfer           uint64 `json:"transfer"`           // waits to be forwarded, or is under way
	TransferDeadLetter uint64 `json:"transferDeadLetter"` // could not be forwarded
	Subscriptions      uint64 `json:"subscriptions"`      // of a topic
}

// Settings are those of an entity at its creation; zero means the default.
type Settings struct {
	LockDuration     time.Duration
	MaxDeliveryCount int
	More             Fields // any others, under the names of the control API
}

// Fields are settings of an entity as the control API reads them: lengths of time as texts.
type Fields map[string]any

// subscriptionWord separates topic and subscription in a path.
const subscriptionWord = "/Subscriptions/"

// SubscriptionPath is the name under which harness and clients know a subscription.
func SubscriptionPath(topic, subscription string) string {
	return topic + subscriptionWord + subscription
}

// SplitSubscriptionPath is the opposite; false for the name of a queue or topic.
func SplitSubscriptionPath(path string) (topic, subscription string, ok bool) {
	return strings.Cut(path, subscriptionWord)
}

// entityURL is where the control API has an entity: a subscription is known by its name.
func entityURL(noun, name string) string {
	if topic, subscription, ok := SplitSubscriptionPath(name); ok {
		return "/v1/subscriptions/" + url.PathEscape(topic) + subscriptionWord + url.PathEscape(subscription)
	}
	return "/v1/" + noun + "/" + url.PathEscape(name)
}

// CreateQueue creates a queue, or fails the test.
func (c *Cluster) CreateQueue(t testing.TB, name string, s Settings) {
	t.Helper()
	c.create(t, entityURL("queues", name), settingsJSON(s))
}

// CreateTopic creates a topic, or fails the test.
func (c *Cluster) CreateTopic(t testing.TB, name string, s Settings) {
	t.Helper()
	c.create(t, entityURL("topics", name), settingsJSON(s))
}

// CreateSubscription creates a subscription of a topic, or fails the test. With rules, it has these and no
// others; without any, it matches every message.
func (c *Cluster) CreateSubscription(t testing.TB, topic, name string, s Settings, rules ...Rule) {
	t.Helper()
	path := SubscriptionPath(topic, name)
	fields := settingsJSON(s)
	if len(rules) > 0 {
		fields["defaultRule"] = rules[0]
	}
	c.create(t, entityURL("", path), fields)
	for _, r := range rules[min(1, len(rules)):] {
		c.AddRule(t, path, r)
	}
}

// create creates an entity, and repeats the request when no member answered.
func (c *Cluster) create(t testing.TB, path string, fields any) {
	t.Helper()
	body := kit.Must(json.Marshal(fields))(t)
	var before error
	Eventually(t, convergeWithin, "make "+path, func(ctx context.Context) error {
		_, err := c.Running()[0].request(ctx, http.MethodPut, path, bytes.NewReader(body))
		if before != nil && errors.Is(err, errConflict) {
			return nil // the try before was done, and only its answer was lost
		}
		before = err
		return err
	})
}

// settingsJSON encodes settings and omits those that have their default.
func settingsJSON(s Settings) map[string]any {
	fields := map[string]any{}
	if s.LockDuration != 0 {
		fields["lockDuration"] = s.LockDuration.String()
	}
	if s.MaxDeliveryCount != 0 {
		fields["maxDeliveryCount"] = s.MaxDeliveryCount
	}
	maps.Copy(fields, s.More)
	return fields
}

// UpdateQueue changes settings of a queue or subscription through the first running member,
// and fails the test when it cannot. Once it returns, the change holds at every member.
func (c *Cluster) UpdateQueue(t testing.TB, name string, change Fields) {
	t.Helper()
	c.update(t, entityURL("queues", name), change)
}

// UpdateTopic is UpdateQueue for a topic.
func (c *Cluster) UpdateTopic(t testing.TB, name string, change Fields) {
	t.Helper()
	c.update(t, entityURL("topics", name), change)
}

func (c *Cluster) update(t testing.TB, path string, change Fields) {
	t.Helper()
	kit.OK(t, c.Running()[0].Call(t.Context(), http.MethodPatch, path, change, nil))
}

// DeleteQueue deletes a queue or subscription through the first running member.
func (c *Cluster) DeleteQueue(t testing.TB, name string) {
	t.Helper()
	c.deleteEntity(t, entityURL("queues", name))
}

// DeleteTopic deletes a topic and its subscriptions through the first running member.
func (c *Cluster) DeleteTopic(t testing.TB, name string) {
	t.Helper()
	c.deleteEntity(t, entityURL("topics", name))
}

func (c *Cluster) deleteEntity(t testing.TB, path string) {
	t.Helper()
	kit.Must(c.Running()[0].request(t.Context(), http.MethodDelete, path, nil))(t)
}

// Queue asks one member about a queue or subscription.
func (m *Member) Queue(ctx context.Context, name string) (Queue, error) {
	return m.entity(ctx, entityURL("queues", name))
}

// Topic asks one member about a topic.
func (m *Member) Topic(ctx context.Context, name string) (Queue, error) {
	return m.entity(ctx, entityURL("topics", name))
}

func (m *Member) entity(ctx context.Context, path string) (Queue, error) {
	var q Queue
	body, err := m.get(ctx, path)
	if err != nil {
		return q, err
	}
	return q, json.Unmarshal(body, &q)
}

// WaitCounts waits until every running member gives these counts of a queue or subscription.
func (c *Cluster) WaitCounts(t testing.TB, queue string, want Counts) {
	t.Helper()
	c.waitCounts(t, entityURL("queues", queue), want)
}

// WaitTopicCounts waits until every running member gives these counts of a topic.
func (c *Cluster) WaitTopicCounts(t testing.TB, topic string, want Counts) {
	t.Helper()
	c.waitCounts(t, entityURL("topics", topic), want)
}

func (c *Cluster) waitCounts(t testing.TB, path string, want Counts) {
	t.Helper()
	Eventually(t, convergeWithin, "counts of "+path, func(ctx context.Context) error {
		for _, m := range c.Running() {
			q, err := m.entity(ctx, path)
			if err != nil {
				return err
			}
			if q.Counts != want {
				return fmt.Errorf("%s counts %+v, want %+v", m.Name, q.Counts, want)
			}
		}
		return nil
	})
}
