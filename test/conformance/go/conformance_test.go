package conformance

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/peeklock/peeklock/test/conformance/scenario"
	"github.com/peeklock/peeklock/test/harness"
)

const (
	caseWithin  = 90 * time.Second       // of one case; generous, since all cases share two cores
	quiet       = 700 * time.Millisecond // how long "nothing comes" is watched
	lockMinimum = 5 * time.Second        // the shortest lock that a queue may have
)

// outcomes are those of all cases, for the matrix of clients and scenarios.
var outcomes scenario.Outcomes

// sideBySide is how many cases run at once, whatever the number of processors: most wait for
// a lock or a clock. With -short, which the race detector comes with, as many as processors.
const sideBySide = "5"

func TestMain(m *testing.M) {
	flag.Parse()
	if !testing.Short() {
		if err := flag.Set("test.parallel", sideBySide); err != nil {
			panic(err)
		}
	}
	harness.Main(m)
}

// suite is what a case works with: the members, a queue of its own, a deadline. The same with
// a topic or a subscription for queue is made by topic and subscription.
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
	runChecks(t, harness.Start(t, harness.Options{}), map[string][]check{
		"azservicebus":   slices.Concat(sendChecks(), settleChecks(), lockChecks(), editChecks(), keyChecks()),
		"time":           slices.Concat(lifeChecks(), scheduleChecks(), duplicateChecks()),
		"limits":         limitChecks(),
		"tools":          toolChecks(),
		"go-amqp":        slices.Concat(amqpChecks(), linkChecks(), shareChecks(), plainChecks()),
		"frames":         rawChecks(),
		"topics":         slices.Concat(topicChecks(), topicTimeChecks(), topicLimitChecks()),
		"rules":          ruleChecks(),
		"forwarding":     slices.Concat(forwardChecks(), transferChecks()),
		"replies":        replyChecks(),
		"administration": adminChecks(),
		"sessions":       slices.Concat(sessionChecks(), sessionMoreChecks()),
		"reconnect":      reconnectChecks(),
	})
}

// TestSecure lets cases loose on members that speak TLS, with the authority that `dev --tls` makes.
func TestSecure(t *testing.T) {
	t.Parallel()
	dev := harness.StartDev(t, "--tls")
	runChecks(t, dev, map[string][]check{"secure": secureChecks()})
	issuer := harness.NewIssuer(t)
	one := harness.Start(t, harness.Options{Members: 1, Args: append(issuer.Args(), dev.TLSArgs()...)})
	one.CA = dev.CA
	runChecks(t, one, map[string][]check{"identity": identityChecks(dev, issuer)})
}

// runChecks runs all cases side by side, each with a queue of its own.
func runChecks(t *testing.T, cluster *harness.Cluster, groups map[string][]check) {
	t.Helper()
	t.Cleanup(func() { writeOutcomes(t) })
	for group, checks := range groups {
		t.Run(group, func(t *testing.T) {
			t.Parallel()
			for _, c := range checks {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					t.Cleanup(func() { outcomes.Add(group+"/"+c.name, !t.Failed() && !t.Skipped()) })
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

// writeOutcomes writes what is known so far: the last test to end knows all.
func writeOutcomes(t *testing.T) {
	t.Helper()
	for _, client := range []string{"azservicebus", "go-amqp"} {
		cases, err := os.ReadFile(client + ".scenarios")
		if err = errors.Join(err, outcomes.Write(client, cases)); err != nil {
			t.Error(err)
		}
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
	client := s.client(member)
	var r *azservicebus.Receiver
	var err error
	if topic, subscription, ok := harness.SplitSubscriptionPath(s.queue); ok {
		r, err = client.NewReceiverForSubscription(topic, subscription, o)
	} else {
		r, err = client.NewReceiverForQueue(s.queue, o)
	}
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
	calls := 0
	for ; len(all) < n; calls++ {
		some, err := r.ReceiveMessages(s.ctx, n-len(all), nil)
		if err != nil {
			s.Fatalf("receive, %d of %d so far: %v", len(all), n, err)
		}
		all = append(all, some...)
	}
	if calls > 1 {
		inOrder(all)
	}
	return all
}

// inOrder sorts what took several calls: the client releases what arrives between two calls
// (GO: the releaser of receiver.go), and that comes again behind messages already under way.
func inOrder(all []*azservicebus.ReceivedMessage) {
	slices.SortStableFunc(all, func(a, b *azservicebus.ReceivedMessage) int { return cmp.Compare(*a.SequenceNumber, *b.SequenceNumber) })
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
