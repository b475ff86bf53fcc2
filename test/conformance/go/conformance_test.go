package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/peeklock/peeklock/test/harness"
)

const (
	caseWithin  = 90 * time.Second       // of one case; generous, since all cases share two cores
	quiet       = 700 * time.Millisecond // how long "nothing comes" is watched
	lockMinimum = 5 * time.Second        // the shortest lock that a queue may have
)

func TestMain(m *testing.M) { harness.Main(m) }

// suite is what a case works with: the members, a queue of its own, a deadline.
type suite struct {
	*harness.Cluster
	*testing.T
	ctx   context.Context
	queue string
}

// check is one case.
type check struct {
	name     string
	settings harness.Settings
	run      func(suite)
}

// TestClients starts three members and lets every case loose on them at once.
func TestClients(t *testing.T) {
	t.Parallel()
	cluster := harness.Start(t, harness.Options{})
	for group, checks := range map[string][]check{
		"azservicebus": slices.Concat(sendChecks(), settleChecks(), lockChecks(), editChecks()),
		"time":         slices.Concat(lifeChecks(), scheduleChecks(), duplicateChecks()),
		"limits":       limitChecks(),
		"tools":        toolChecks(),
		"go-amqp":      slices.Concat(amqpChecks(), linkChecks(), shareChecks()),
		"frames":       rawChecks(),
	} {
		t.Run(group, func(t *testing.T) {
			t.Parallel()
			for _, c := range checks {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					ctx, cancel := context.WithTimeout(t.Context(), caseWithin)
					t.Cleanup(cancel)
					queue := group + "-" + strings.ReplaceAll(c.name, " ", "-")
					cluster.CreateQueue(t, queue, c.settings)
					c.run(suite{Cluster: cluster, T: t, ctx: ctx, queue: queue})
				})
			}
		})
	}
}

// client opens an azservicebus client at member 1, 2 or 3, from the connection string
// that users of the emulator know.
func (s suite) client(member int) *azservicebus.Client {
	s.Helper()
	c, err := azservicebus.NewClientFromConnectionString(s.Members[member-1].ConnectionString(), nil)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// sender opens a sender to the queue of the case.
func (s suite) sender(member int) *azservicebus.Sender {
	s.Helper()
	sender, err := s.client(member).NewSender(s.queue, nil)
	if err != nil {
		s.Fatal(err)
	}
	return sender
}

// receiver opens a peek-lock receiver of the queue of the case, over a connection of its own.
func (s suite) receiver(member int) *azservicebus.Receiver {
	s.Helper()
	return s.receiverWith(member, nil)
}

// deadLetters opens a receiver of the dead-letter queue.
func (s suite) deadLetters(member int) *azservicebus.Receiver {
	s.Helper()
	return s.receiverWith(member, &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
}

func (s suite) receiverWith(member int, o *azservicebus.ReceiverOptions) *azservicebus.Receiver {
	s.Helper()
	r, err := s.client(member).NewReceiverForQueue(s.queue, o)
	if err != nil {
		s.Fatal(err)
	}
	return r
}

// send sends messages with the ids m1, m2, ... to member 1.
func (s suite) send(n int) {
	s.Helper()
	sender := s.sender(1)
	for i := range n {
		id := fmt.Sprintf("m%d", i+1)
		if err := sender.SendMessage(s.ctx, &azservicebus.Message{MessageID: &id, Body: []byte("body of " + id)}, nil); err != nil {
			s.Fatalf("send %s: %v", id, err)
		}
	}
}

// receive collects exactly n messages, over as many calls as it takes.
func (s suite) receive(r *azservicebus.Receiver, n int) []*azservicebus.ReceivedMessage {
	s.Helper()
	var all []*azservicebus.ReceivedMessage
	for len(all) < n {
		some, err := r.ReceiveMessages(s.ctx, n-len(all), nil)
		if err != nil {
			s.Fatalf("receive, %d of %d so far: %v", len(all), n, err)
		}
		all = append(all, some...)
	}
	return all
}

// receiveOne is receive for a single message.
func (s suite) receiveOne(r *azservicebus.Receiver) *azservicebus.ReceivedMessage {
	s.Helper()
	return s.receive(r, 1)[0]
}

// nothing asserts that a receiver gets no message for a while.
func (s suite) nothing(r *azservicebus.Receiver) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, quiet)
	defer cancel()
	if got, err := r.ReceiveMessages(ctx, 1, nil); len(got) != 0 {
		s.Fatalf("message %s came (error %v), none may", got[0].MessageID, err)
	}
}

// must fails the case on an error.
func (s suite) must(what string, err error) {
	s.Helper()
	if err != nil {
		s.Fatalf("%s: %v", what, err)
	}
}

// counts waits until every member counts these messages in the queue.
func (s suite) counts(want harness.Counts) {
	s.Helper()
	s.WaitCounts(s.T, s.queue, want)
}

// ids are the message ids in order.
func ids(messages []*azservicebus.ReceivedMessage) []string {
	out := make([]string, len(messages))
	for i, m := range messages {
		out[i] = m.MessageID
	}
	return out
}

// ptr is a pointer to a value.
func ptr[T any](v T) *T { return &v }
