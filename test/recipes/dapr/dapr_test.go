package dapr

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/dapr/components-contrib/bindings"
	"github.com/dapr/components-contrib/bindings/azure/servicebusqueues"
	"github.com/dapr/components-contrib/metadata"
	"github.com/dapr/components-contrib/pubsub"
	"github.com/dapr/components-contrib/pubsub/azure/servicebus/queues"
	"github.com/dapr/components-contrib/pubsub/azure/servicebus/topics"
	"github.com/dapr/kit/logger"

	"github.com/peeklock/peeklock/test/harness"
)

const caseWithin = time.Minute

func TestMain(m *testing.M) { harness.Main(m) }

// fixture is a cluster and what the components of a case need.
type fixture struct {
	*harness.Cluster
	*testing.T
	ctx context.Context
	log logger.Logger
	own map[string]string // metadata that every component of the case gets
}

// connectionString names a member by the host name that is in its certificate.
func (f fixture) connectionString(member int) string {
	return strings.Replace(f.Members[member-1].ConnectionString(), "127.0.0.1", "localhost", 1)
}

// component returns the metadata of a component at a member.
func (f fixture) component(member int, more map[string]string) metadata.Base {
	properties := map[string]string{
		"connectionString": f.connectionString(member), "consumerID": "worker", "maxDeliveryCount": "3", "lockDurationInSec": "30",
		"maxRetriableErrorsPerSec": "0", "minConnectionRecoveryInSec": "1", "maxConnectionRecoveryInSec": "2",
	}
	maps.Copy(properties, f.own)
	maps.Copy(properties, more)
	return metadata.Base{Name: "peeklock", Properties: properties}
}

// pubSub starts a component at a member, which ends with the case.
func (f fixture) pubSub(create func(logger.Logger) pubsub.PubSub, member int) pubsub.PubSub {
	f.Helper()
	p := create(f.log)
	f.must("start the component", p.Init(f.ctx, pubsub.Metadata{Base: f.component(member, nil)}))
	f.Cleanup(func() { f.must("close", p.Close()) })
	return p
}

// bulk returns the component as one for many messages at once.
func (f fixture) bulk(p pubsub.PubSub) interface {
	pubsub.BulkPublisher
	pubsub.BulkSubscriber
} {
	f.Helper()
	b, ok := p.(interface {
		pubsub.BulkPublisher
		pubsub.BulkSubscriber
	})
	if !ok {
		f.Fatalf("%T has no bulk operations", p)
	}
	return b
}

func (f fixture) must(what string, err error) {
	f.Helper()
	if err != nil {
		f.Fatalf("%s: %v", what, err)
	}
}

// publish publishes a message with a body and metadata.
func (f fixture) publish(p pubsub.PubSub, topic, body string, metadata map[string]string) {
	f.Helper()
	f.must("publish "+body, p.Publish(f.ctx, &pubsub.PublishRequest{Data: []byte(body), Topic: topic, Metadata: metadata}))
}

// next returns what comes from a channel next.
func next[T any](f fixture, from <-chan T) T {
	f.Helper()
	var got T
	select {
	case got = <-from:
	case <-f.ctx.Done():
		f.Fatal("nothing came in time")
	}
	return got
}

// subscribe delivers the messages of a topic or queue to a handler until the case ends.
func (f fixture) subscribe(p pubsub.PubSub, topic string, metadata map[string]string, handler pubsub.Handler) {
	f.Helper()
	f.must("subscribe to "+topic, p.Subscribe(f.ctx, pubsub.SubscribeRequest{Topic: topic, Metadata: metadata}, handler))
}

// errAgain is what an application answers for a message that it wants again.
var errAgain = errors.New("try again")

// TestComponents runs the components against `dev --tls`: they look for their entities and create them through the administration
// client, which always uses HTTPS, and trusts the authority in SSL_CERT_FILE.
func TestComponents(t *testing.T) {
	cluster := harness.StartDev(t, "--tls")
	t.Setenv("SSL_CERT_FILE", cluster.CA)
	runCases(t, cluster, nil, map[string]func(fixture){
		"message with metadata": messageWithMetadata,
		"dead letter":           deadLetter,
		"delay":                 delay,
		"bulk":                  bulk,
		"sessions":              sessions,
		"competing consumers":   competingConsumers,
		"binding":               binding,
	})
}

// TestComponentsOnExistingEntities runs components against three members without TLS, with the connection string of the emulator. The
// components are told not to create their entities.
func TestComponentsOnExistingEntities(t *testing.T) {
	cluster := harness.Start(t, harness.Options{})
	cluster.CreateTopic(t, "message-with-metadata", harness.Settings{})
	cluster.CreateSubscription(t, "message-with-metadata", "worker", harness.Settings{LockDuration: 30 * time.Second})
	cluster.CreateQueue(t, "binding", harness.Settings{LockDuration: 30 * time.Second})
	runCases(t, cluster, map[string]string{"disableEntityManagement": "true"}, map[string]func(fixture){
		"message with metadata": messageWithMetadata,
		"binding":               binding,
	})
}

func runCases(t *testing.T, cluster *harness.Cluster, own map[string]string, cases map[string]func(fixture)) {
	t.Helper()
	for name, run := range cases {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), caseWithin)
			defer cancel()
			run(fixture{Cluster: cluster, T: t, ctx: ctx, log: logger.NewLogger(name), own: own})
		})
	}
}

// messageWithMetadata: what a message carries arrives at a subscriber at another member, twice if its handler failed.
func messageWithMetadata(f fixture) {
	const topic = "message-with-metadata"
	subscriber, publisher := f.pubSub(topics.NewAzureServiceBusTopics, 2), f.pubSub(topics.NewAzureServiceBusTopics, 1)
	got := make(chan *pubsub.NewMessage, 1)
	var attempts atomic.Int32
	f.subscribe(subscriber, topic, nil, func(_ context.Context, m *pubsub.NewMessage) error {
		if attempts.Add(1) == 1 {
			return errAgain
		}
		got <- m
		return nil
	})
	sent := map[string]string{"MessageId": "order-1", "CorrelationId": "c", "Label": "order", "ReplyTo": "answers", "ContentType": "text/plain", "colour": "red"}
	given := maps.Clone(sent)
	given["ttlInSeconds"] = "3600"
	f.publish(publisher, topic, "one", given)
	m := next(f, got)
	for key, want := range sent {
		if m.Metadata["metadata."+key] != want {
			f.Errorf("%s is %q, want %q", key, m.Metadata["metadata."+key], want)
		}
	}
	if string(m.Data) != "one" || m.Metadata["metadata.DeliveryCount"] != "2" || m.Metadata["metadata.SequenceNumber"] == "" {
		f.Errorf("came %q with %v", m.Data, m.Metadata)
	}
	f.WaitCounts(f.T, harness.SubscriptionPath(topic, "worker"), harness.Counts{})
}

// deadLetter: a message whose handler always fails comes as often as its subscription says, and is a dead letter then.
func deadLetter(f fixture) {
	const topic = "dead-letter"
	subscriber, publisher := f.pubSub(topics.NewAzureServiceBusTopics, 3), f.pubSub(topics.NewAzureServiceBusTopics, 2)
	attempts := make(chan string, 10)
	f.subscribe(subscriber, topic, nil, func(_ context.Context, m *pubsub.NewMessage) error {
		attempts <- m.Metadata["metadata.DeliveryCount"]
		return errAgain
	})
	f.publish(publisher, topic, "poison", nil)
	for i := range 3 {
		if count := next(f, attempts); count != strconv.Itoa(i+1) {
			f.Errorf("attempt %d has the delivery count %s", i+1, count)
		}
	}
	f.WaitCounts(f.T, harness.SubscriptionPath(topic, "worker"), harness.Counts{DeadLetter: 1})
	client, err := azservicebus.NewClientFromConnectionString(f.connectionString(1), nil)
	f.must("client", err)
	defer func() { f.must("close", client.Close(context.WithoutCancel(f.ctx))) }()
	receiver, err := client.NewReceiverForSubscription(topic, "worker", &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
	f.must("receiver", err)
	dead, err := receiver.ReceiveMessages(f.ctx, 1, nil)
	f.must("receive", err)
	if string(dead[0].Body) != "poison" || dead[0].DeadLetterReason == nil || *dead[0].DeadLetterReason != "MaxDeliveryCountExceeded" {
		f.Errorf("dead letter %q, %+v", dead[0].Body, dead[0])
	}
	if len(attempts) > 0 {
		f.Error("a dead letter came to the application")
	}
}

// delay: a message with a time comes then, and not before those that were published after it.
func delay(f fixture) {
	const topic = "delay"
	subscriber, publisher := f.pubSub(topics.NewAzureServiceBusTopics, 1), f.pubSub(topics.NewAzureServiceBusTopics, 3)
	got := make(chan string, 2)
	f.subscribe(subscriber, topic, nil, func(_ context.Context, m *pubsub.NewMessage) error {
		got <- string(m.Data)
		return nil
	})
	due := time.Now().Add(5 * time.Second).Truncate(time.Second)
	f.publish(publisher, topic, "later", map[string]string{"ScheduledEnqueueTimeUtc": due.UTC().Format(time.RFC3339)})
	f.publish(publisher, topic, "now", nil)
	if first := next(f, got); first != "now" && time.Now().Before(due) {
		f.Errorf("%q came first", first)
	}
	next(f, got)
	if now := time.Now(); now.Before(due) {
		f.Errorf("the message of %v came at %v", due, now)
	}
}

// bulk: many messages are published and handled at once, and those that failed come again alone.
func bulk(f fixture) {
	const topic, messages = "bulk", 50
	subscriber, publisher := f.bulk(f.pubSub(topics.NewAzureServiceBusTopics, 2)), f.bulk(f.pubSub(topics.NewAzureServiceBusTopics, 1))
	var mutex sync.Mutex
	attempts, done := map[string]int{}, make(chan struct{})
	f.must("subscribe", subscriber.BulkSubscribe(f.ctx, pubsub.SubscribeRequest{Topic: topic, BulkSubscribeConfig: pubsub.BulkSubscribeConfig{MaxMessagesCount: 20}},
		func(_ context.Context, m *pubsub.BulkMessage) ([]pubsub.BulkSubscribeResponseEntry, error) {
			mutex.Lock()
			defer mutex.Unlock()
			var failed error
			answers := make([]pubsub.BulkSubscribeResponseEntry, len(m.Entries))
			for i, e := range m.Entries {
				attempts[string(e.Event)]++
				answers[i].EntryId = e.EntryId
				if strings.HasSuffix(string(e.Event), "7") && attempts[string(e.Event)] == 1 {
					answers[i].Error, failed = errAgain, errAgain
				}
			}
			total := 0
			for _, n := range attempts {
				total += n
			}
			if total == messages+messages/10 {
				close(done)
			}
			return answers, failed
		}))
	entries := make([]pubsub.BulkMessageEntry, messages)
	for i := range entries {
		entries[i] = pubsub.BulkMessageEntry{EntryId: strconv.Itoa(i), Event: []byte(strconv.Itoa(i)), ContentType: "text/plain"}
	}
	answer, err := publisher.BulkPublish(f.ctx, &pubsub.BulkPublishRequest{Topic: topic, Entries: entries})
	f.must("publish", err)
	if len(answer.FailedEntries) > 0 {
		f.Errorf("failed: %v", answer.FailedEntries)
	}
	next(f, done)
	f.WaitCounts(f.T, harness.SubscriptionPath(topic, "worker"), harness.Counts{})
}

// sessions: the messages of each session come in order, those of several sessions side by side.
func sessions(f fixture) {
	const topic, each = "sessions", 5
	subscriber, publisher := f.pubSub(topics.NewAzureServiceBusTopics, 3), f.pubSub(topics.NewAzureServiceBusTopics, 1)
	type message struct{ session, body string }
	got := make(chan message, 3*each)
	f.subscribe(subscriber, topic, map[string]string{"requireSessions": "true", "maxConcurrentSessions": "2", "sessionIdleTimeoutInSec": "2"},
		func(_ context.Context, m *pubsub.NewMessage) error {
			got <- message{m.Metadata["metadata.SessionId"], string(m.Data)}
			return nil
		})
	for i := range each {
		for _, session := range []string{"a", "b", "c"} {
			f.publish(publisher, topic, fmt.Sprint(session, i), map[string]string{"SessionId": session})
		}
	}
	of := map[string]int{}
	for range 3 * each {
		m := next(f, got)
		if m.body != fmt.Sprint(m.session, of[m.session]) {
			f.Errorf("%s came as number %d of session %s", m.body, of[m.session], m.session)
		}
		of[m.session]++
	}
	f.WaitCounts(f.T, harness.SubscriptionPath(topic, "worker"), harness.Counts{})
}

// competingConsumers: subscribers at three members share the messages of a queue.
func competingConsumers(f fixture) {
	const queue, messages = "competing", 60
	got := make(chan string, messages)
	for member := 1; member <= 3; member++ {
		f.subscribe(f.pubSub(queues.NewAzureServiceBusQueues, member), queue, nil, func(_ context.Context, m *pubsub.NewMessage) error {
			got <- string(m.Data)
			return nil
		})
	}
	publisher := f.pubSub(queues.NewAzureServiceBusQueues, 1)
	var want, seen []string
	for i := range messages {
		body := fmt.Sprintf("%02d", i)
		want = append(want, body)
		f.publish(publisher, queue, body, nil)
	}
	for range messages {
		seen = append(seen, next(f, got))
	}
	slices.Sort(seen)
	if !slices.Equal(seen, want) {
		f.Errorf("came %v", seen)
	}
	f.WaitCounts(f.T, queue, harness.Counts{})
}

// binding: the binding of a queue sends and reads, and a message whose handler failed comes again.
func binding(f fixture) {
	const queue = "binding"
	start := func(member int) bindings.InputOutputBinding {
		b := servicebusqueues.NewAzureServiceBusQueues(f.log)
		f.must("start the binding", b.Init(f.ctx, bindings.Metadata{Base: f.component(member, map[string]string{"queueName": queue})}))
		return b
	}
	in, out := start(2), start(1)
	ctx, cancel := context.WithCancel(f.ctx)
	defer func() {
		cancel()
		f.must("close", errors.Join(in.Close(), out.Close()))
	}()
	got := make(chan *bindings.ReadResponse, 1)
	var attempts atomic.Int32
	f.must("read", in.Read(ctx, func(_ context.Context, m *bindings.ReadResponse) ([]byte, error) {
		if attempts.Add(1) == 1 {
			return nil, errAgain
		}
		got <- m
		return nil, nil
	}))
	_, err := out.Invoke(f.ctx, &bindings.InvokeRequest{
		Operation: bindings.CreateOperation, Data: []byte("job"), Metadata: map[string]string{"id": "job-1", "correlationID": "c", "Label": "work", "colour": "red"},
	})
	f.must("send", err)
	m := next(f, got)
	want := map[string]string{"id": "job-1", "correlationID": "c", "label": "work", "colour": "red"}
	if string(m.Data) != "job" || !maps.Equal(m.Metadata, want) {
		f.Errorf("came %q with %v, want %v", m.Data, m.Metadata, want)
	}
	f.WaitCounts(f.T, queue, harness.Counts{})
}
