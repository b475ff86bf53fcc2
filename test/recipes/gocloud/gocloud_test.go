package gocloud

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"gocloud.dev/gcerrors"
	"gocloud.dev/pubsub"
	"gocloud.dev/pubsub/azuresb"

	"github.com/peeklock/peeklock/test/harness"
)

const (
	caseWithin    = 2 * time.Minute
	noMessageWait = 3 * time.Second // longer than one receive of azuresb, which lasts 2 s
)

func TestMain(m *testing.M) { harness.Main(m) }

// opener opens the URLs of a program at one member, as gocloud.dev does with $SERVICEBUS_CONNECTION_STRING.
func opener(m *harness.Member) *azuresb.URLOpener {
	return &azuresb.URLOpener{ConnectionString: m.ConnectionString()}
}

func openTopic(ctx context.Context, t *testing.T, m *harness.Member, name string) *pubsub.Topic {
	t.Helper()
	topic, err := opener(m).OpenTopicURL(ctx, parse(t, "azuresb://"+name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shutdown(t, topic) })
	return topic
}

func openSubscription(ctx context.Context, t *testing.T, m *harness.Member, rest string) *pubsub.Subscription {
	t.Helper()
	subscription, err := opener(m).OpenSubscriptionURL(ctx, parse(t, "azuresb://"+rest))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shutdown(t, subscription) })
	return subscription
}

// shutdown ends a topic or a subscription; what they still settle must be settled.
func shutdown(t *testing.T, s interface{ Shutdown(context.Context) error }) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), caseWithin)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}

// TestWorkersShareASubscription sends 200 messages at one member to a topic with two subscriptions. Three workers at
// different members share one of them and fail at some messages; an auditor reads the other. Each message arrives at
// both with its metadata, those that failed arrive again, and nothing is left.
func TestWorkersShareASubscription(t *testing.T) {
	t.Parallel()
	const messages, workers = 200, 3
	cluster := harness.Start(t, harness.Options{})
	cluster.CreateTopic(t, "orders", harness.Settings{})
	cluster.CreateSubscription(t, "orders", "work", harness.Settings{LockDuration: time.Minute})
	cluster.CreateSubscription(t, "orders", "audit", harness.Settings{LockDuration: time.Minute},
		harness.Rule{Name: "tens", SQL: "tens = 'yes'"})
	ctx, cancel := context.WithTimeout(t.Context(), caseWithin)
	defer cancel()

	topic := openTopic(ctx, t, cluster.Members[0], "orders")
	var senders sync.WaitGroup
	for i := range messages {
		senders.Go(func() {
			tens := map[bool]string{true: "yes", false: "no"}[i%10 == 0]
			err := topic.Send(ctx, &pubsub.Message{
				Body: []byte(strconv.Itoa(i)), Metadata: map[string]string{"tens": tens, "order": strconv.Itoa(i)},
				BeforeSend: func(as func(any) bool) error {
					var m *azservicebus.Message
					if !as(&m) {
						return errors.New("no message of azservicebus")
					}
					id := "order-" + strconv.Itoa(i)
					m.MessageID = &id
					return nil
				},
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	senders.Wait()

	var mutex sync.Mutex
	attempts, done := map[string]int{}, 0
	working, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	for i := range workers {
		subscription := openSubscription(ctx, t, cluster.Members[i], "orders?subscription=work&max_recv_batch_size=10")
		all.Go(func() {
			for {
				m, err := subscription.Receive(working)
				if err != nil {
					if working.Err() == nil {
						t.Error(err)
					}
					return
				}
				var received *azservicebus.ReceivedMessage
				if !m.As(&received) || received.MessageID != "order-"+string(m.Body) || m.Metadata["order"] != string(m.Body) {
					t.Errorf("message %s has the metadata %v and is %+v", m.Body, m.Metadata, received)
				}
				mutex.Lock()
				attempts[string(m.Body)]++
				failed := m.Metadata["tens"] == "yes" && attempts[string(m.Body)] == 1
				switch {
				case failed:
					m.Nack()
				default:
					m.Ack()
					if done++; done == messages {
						stop()
					}
				}
				mutex.Unlock()
			}
		})
	}
	all.Wait()
	for i := range messages {
		want := 1
		if i%10 == 0 {
			want = 2
		}
		if got := attempts[strconv.Itoa(i)]; got != want {
			t.Errorf("message %d: %d attempts, want %d", i, got, want)
		}
	}

	audit := openSubscription(ctx, t, cluster.Members[2], "orders?subscription=audit&listener_timeout=1s")
	var tens []int
	for range messages / 10 {
		m, err := audit.Receive(ctx)
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(string(m.Body))
		if err != nil {
			t.Fatal(err)
		}
		tens = append(tens, n)
		m.Ack()
	}
	slices.Sort(tens)
	for i, n := range tens {
		if n != 10*i {
			t.Fatalf("the filter selected %v", tens)
		}
	}
	for _, name := range []string{"work", "audit"} {
		cluster.WaitCounts(t, harness.SubscriptionPath("orders", name), harness.Counts{})
	}
}

// TestMessageThatAlwaysFailsIsDeadLettered refuses one message until the broker dead-letters it. The program then reads it from
// the dead-letter queue through azuresb, with the receiver of the official client. It also shows the errors of gocloud.dev for
// an entity that does not exist and for a key without the right.
func TestMessageThatAlwaysFailsIsDeadLettered(t *testing.T) {
	t.Parallel()
	const attempts = 3
	dev := harness.StartDev(t)
	dev.CreateTopic(t, "jobs", harness.Settings{})
	dev.CreateSubscription(t, "jobs", "runner", harness.Settings{LockDuration: time.Minute, MaxDeliveryCount: attempts})
	ctx, cancel := context.WithTimeout(t.Context(), caseWithin)
	defer cancel()

	topic := openTopic(ctx, t, dev.Members[0], "jobs")
	if err := topic.Send(ctx, &pubsub.Message{Body: []byte("poison"), Metadata: map[string]string{"try": "again"}}); err != nil {
		t.Fatal(err)
	}
	runner := openSubscription(ctx, t, dev.Members[1], "jobs?subscription=runner")
	for i := range attempts {
		m, err := runner.Receive(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var received *azservicebus.ReceivedMessage
		if !m.As(&received) || received.DeliveryCount != uint32(i+1) {
			t.Fatalf("attempt %d: %+v", i+1, received)
		}
		m.Nack()
	}
	waiting, done := context.WithTimeout(ctx, noMessageWait)
	defer done()
	if m, err := runner.Receive(waiting); err == nil {
		t.Fatalf("%s came after attempt %d", m.Body, attempts)
	}

	client, err := azuresb.NewClientFromConnectionString(dev.Members[2].ConnectionString(), nil)
	if err != nil {
		t.Fatal(err)
	}
	receiver, err := azuresb.NewReceiver(client, "jobs", "runner", &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
	if err != nil {
		t.Fatal(err)
	}
	dead, err := azuresb.OpenSubscription(ctx, client, receiver, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shutdown(t, dead) })
	m, err := dead.Receive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var received *azservicebus.ReceivedMessage
	if !m.As(&received) || received.DeadLetterReason == nil || *received.DeadLetterReason != "MaxDeliveryCountExceeded" ||
		string(m.Body) != "poison" || m.Metadata["try"] != "again" {
		t.Errorf("dead letter %s: %+v", m.Body, received)
	}
	m.Ack()
	dev.WaitCounts(t, harness.SubscriptionPath("jobs", "runner"), harness.Counts{})

	missing := openSubscription(ctx, t, dev.Members[0], "jobs?subscription=nobody")
	if _, err := missing.Receive(ctx); gcerrors.Code(err) != gcerrors.NotFound {
		t.Errorf("a subscription that does not exist: %v", fmt.Sprint(gcerrors.Code(err), ": ", err))
	}
}

func parse(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
