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
	"github.com/peeklock/peeklock/test/kit"
)

const (
	caseWithin    = 5 * time.Minute        // of one try of a case; generous, because all cases share two cores
	noMessageWait = 700 * time.Millisecond // how long a case watches that nothing arrives
	lockMinimum   = 5 * time.Second        // the shortest lock duration of a queue
	lockLong      = 5 * time.Minute        // the longest: for long cases that do not test locks
)

// A case that must act before a certain moment sets that moment by its pace, which is paceFirst in
// the first try and, when the machine was too slow, longer in each further try.
const (
	paceFirst  = time.Second
	paceFactor = 4
	paceMost   = 16 * time.Second
)

// outcomes are the outcomes of all cases, for the matrix of clients and scenarios.
var outcomes scenario.Outcomes

// parallelCases is how many cases run at once, whatever the number of processors: most wait for
// a lock or a clock. With -short, which is used with the race detector, the number of processors applies.
const parallelCases = "5"

func TestMain(m *testing.M) {
	flag.Parse()
	if !testing.Short() {
		if err := flag.Set("test.parallel", parallelCases); err != nil {
			panic(err)
		}
	}
	harness.Main(m)
}

// suite is the environment of a case: the members, its own queue, a deadline. The methods topic and
// subscription return a suite that has a topic or a subscription as its queue.
type suite struct {
	*harness.Cluster
	*testing.T
	ctx   context.Context
	queue string
	pace  time.Duration // of this try, paceFirst to paceMost
	// moment is when the actions of this suite are too late; zero: never. See until.
	moment time.Time
}

// tooLate is the panic value that ends a try of a case that was too slow.
type tooLate struct{}

// until returns the suite for actions and observations that are valid only before a moment: its waits
// end at the moment, and a failure after it ends the try, because it proves nothing.
func (s suite) until(moment time.Time) suite {
	ctx, cancel := context.WithDeadline(s.ctx, moment)
	s.Cleanup(cancel)
	s.ctx, s.moment = ctx, moment
	return s
}

// inTime ends the try when the moment has passed. Call it in the goroutine of the case before
// checking results.
func (s suite) inTime() {
	s.Helper()
	if s.moment.IsZero() || time.Now().Before(s.moment) {
		return
	}
	if s.pace >= paceMost {
		s.Fatalf("this machine is too slow: not done in time with a pace of %v", s.pace)
	}
	panic(tooLate{})
}

// lock returns the lock duration of a queue whose settings ask for lockMinimum.
func (s suite) lock() time.Duration {
	times := int(s.pace / paceFirst)
	return lockMinimum * time.Duration(times)
}

// try runs a case, and says whether it completed.
func (s suite) try(c check) (done bool) {
	s.Helper()
	defer func() {
		if r := recover(); r != nil {
			if _, late := r.(tooLate); !late {
				panic(r)
			}
			s.Logf("was too late with a pace of %v", s.pace)
		}
	}()
	ctx, cancel := context.WithTimeout(s.Context(), caseWithin)
	s.Cleanup(cancel)
	s.ctx = ctx
	if c.settings.LockDuration == lockMinimum {
		c.settings.LockDuration = s.lock()
	}
	s.CreateQueue(s.T, s.queue, c.settings)
	c.run(s)
	return true
}

// check is one case.
type check struct {
	name     string
	settings harness.Settings
	run      func(suite)
}

// TestClients starts three members and runs all cases against them concurrently.
func TestClients(t *testing.T) {
	t.Parallel()
	runChecks(t, harness.Start(t, harness.Options{}), map[string][]check{
		"azservicebus":   slices.Concat(sendChecks(), settleChecks(), lockChecks(), editChecks(), keyChecks()),
		"time":           slices.Concat(timeToLiveChecks(), scheduleChecks(), duplicateChecks()),
		"limits":         limitChecks(),
		"tools":          toolChecks(),
		"go-amqp":        slices.Concat(amqpChecks(), linkChecks(), shareChecks(), plainChecks()),
		"frames":         rawChecks(),
		"topics":         slices.Concat(topicChecks(), topicTimeChecks(), topicLimitChecks()),
		"rules":          ruleChecks(),
		"forwarding":     slices.Concat(forwardChecks(), transferChecks()),
		"replies":        replyChecks(),
		"administration": adminChecks(),
		"frameworks":     frameworkChecks(),
		"sessions":       slices.Concat(sessionChecks(), sessionMoreChecks()),
		"reconnect":      reconnectChecks(),
	})
}

// TestClientsWorkOverTLS runs cases against members that use TLS, with the authority that `dev --tls` creates.
func TestClientsWorkOverTLS(t *testing.T) {
	t.Parallel()
	dev := harness.StartDev(t, "--tls")
	runChecks(t, dev, map[string][]check{"secure": secureChecks()})
	issuer := harness.NewIssuer(t)
	one := harness.Start(t, harness.Options{Members: 1, Args: append(issuer.Args(), dev.TLSArgs()...)})
	one.CA = dev.CA
	runChecks(t, one, map[string][]check{"identity": identityChecks(dev, issuer)})
}

// longCases lists the cases that take more than five seconds each, most of them because they wait for a moment. They
// take more than half of the total time.
func longCases() []string {
	return []string{
		"azservicebus/consumer that fails", "azservicebus/one delivery", "azservicebus/receive disabled", "azservicebus/token expires",
		"forwarding/fan in", "go-amqp/fair share", "go-amqp/many links", "go-amqp/pipelined", "rules/many",
		"sessions/lock ends", "sessions/lock ends unseen", "sessions/renew session", "sessions/two hundred sessions",
		"time/duplicate window", "time/expiry and locks", "tools/back-off of lock ends", "tools/redrive",
		"topics/fifty subscriptions", "topics/locks of copies", "topics/publish batches",
	}
}

// runChecks runs all cases concurrently, each with its own queue.
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
					if slices.Contains(longCases(), group+"/"+c.name) {
						kit.Long(t)
					}
					queue := group + "-" + strings.ReplaceAll(c.name, " ", "-")
					for pace := paceFirst; ; pace *= paceFactor {
						if (suite{Cluster: cluster, T: t, queue: queue, pace: pace}).try(c) {
							return
						}
						queue += "-again"
					}
				})
			}
		})
	}
}

// writeOutcomes writes the outcomes known so far: the last test to end writes all of them.
func writeOutcomes(t *testing.T) {
	t.Helper()
	for _, client := range []string{"azservicebus", "go-amqp"} {
		cases, err := os.ReadFile(client + ".scenarios")
		if err = errors.Join(err, outcomes.Write(client, cases)); err != nil {
			t.Error(err)
		}
	}
}

// client opens an azservicebus client at member 1, 2 or 3, with the connection string of the
// emulator.
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

// receiver opens a peek-lock receiver of the queue of the case over its own connection.
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

// receive returns exactly n messages, with as many calls as needed.
func (s suite) receive(r *azservicebus.Receiver, n int) []*azservicebus.ReceivedMessage {
	s.Helper()
	var all []*azservicebus.ReceivedMessage
	calls := 0
	for ; len(all) < n; calls++ {
		some, err := r.ReceiveMessages(s.ctx, n-len(all), nil)
		if err != nil {
			s.inTime()
			s.Fatalf("receive, %d of %d so far: %v", len(all), n, err)
		}
		all = append(all, some...)
	}
	if calls > 1 {
		inOrder(all)
	}
	return all
}

// inOrder sorts messages from several calls: the client releases messages that arrive between two calls
// (GO: the releaser of receiver.go), and these are delivered again after messages already under way.
func inOrder(all []*azservicebus.ReceivedMessage) {
	slices.SortStableFunc(all, func(a, b *azservicebus.ReceivedMessage) int { return cmp.Compare(*a.SequenceNumber, *b.SequenceNumber) })
}

// receiveOne is receive for a single message.
func (s suite) receiveOne(r *azservicebus.Receiver) *azservicebus.ReceivedMessage {
	s.Helper()
	return s.receive(r, 1)[0]
}

// nothing asserts that a receiver gets no message for noMessageWait.
func (s suite) nothing(r *azservicebus.Receiver) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, noMessageWait)
	defer cancel()
	if got, err := r.ReceiveMessages(ctx, 1, nil); len(got) != 0 {
		s.Fatalf("message %s came (error %v), none may", got[0].MessageID, err)
	}
}

// must fails the case on an error.
func (s suite) must(what string, err error) {
	s.Helper()
	if err != nil {
		s.inTime()
		s.Fatalf("%s: %v", what, err)
	}
}

// counts waits until every member reports these counts for the queue.
func (s suite) counts(want harness.Counts) {
	s.Helper()
	if s.moment.IsZero() {
		s.WaitCounts(s.T, s.queue, want)
		return
	}
	s.countsInTime(want, (*harness.Member).Queue)
}

// countsInTime is counts for a suite with a moment; look reads the counts.
func (s suite) countsInTime(want harness.Counts, look func(*harness.Member, context.Context, string) (harness.Queue, error)) {
	s.Helper()
	harness.Eventually(s.T, caseWithin, "counts of "+s.queue, func(ctx context.Context) error {
		for _, m := range s.Members {
			q, err := look(m, ctx, s.queue)
			if err == nil && q.Counts != want {
				err = fmt.Errorf("%s counts %+v, want %+v", m.Name, q.Counts, want)
			}
			if err != nil {
				s.inTime()
				return err
			}
		}
		return nil
	})
}

// ids returns the message ids in order.
func ids(messages []*azservicebus.ReceivedMessage) []string {
	out := make([]string, len(messages))
	for i, m := range messages {
		out[i] = m.MessageID
	}
	return out
}

// ptr returns a pointer to a value.
func ptr[T any](v T) *T { return &v }
