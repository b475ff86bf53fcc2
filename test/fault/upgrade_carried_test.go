package fault

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/peeklock/peeklock/test/harness"
)

const (
	carriedEach  = 6 // messages of one kind
	carriedAfter = 2 * time.Second
	carriedLock  = 5 * time.Minute
)

// carried is one entity of every kind. put stores something in each at one member, take finds
// it at another: all of it, unchanged, in order where an order is promised, and nothing else.
// Both run all kinds at once; an error fails the test.
type carried struct {
	*testing.T
	c     *harness.Cluster
	name  string // first part of the names of the entities
	kinds []carriedKind

	holding *azservicebus.Client // of the receiver below, from a put to its take
	holder  *azservicebus.Receiver
	held    []*azservicebus.ReceivedMessage

	scheduled, deferred []int64 // sequence numbers, from a put to its take
}

type carriedKind struct {
	name      string
	put, take func(context.Context, carriedAt, int) error
}

// carriedAt is the member at which a put or a take works.
type carriedAt struct {
	*azservicebus.Client
	member *harness.Member
}

func newCarried(t *testing.T, c *harness.Cluster, name string) *carried {
	t.Helper()
	v := &carried{T: t, c: c, name: name}
	v.kinds = []carriedKind{
		{"locked", v.putLocked, v.takeLocked},
		{"sessions", v.putSession, v.takeSession},
		{"duplicates", v.putDuplicates, v.takeDuplicates},
		{"partitioned", v.putPartitioned, v.takePartitioned},
		{"topic", v.putTopic, v.takeTopic},
		{"forwards", v.putForwarded, v.takeForwarded},
		{"scheduled", v.putScheduled, v.takeScheduled},
		{"deferred", v.putDeferred, v.takeDeferred},
		{"dead", v.putDead, v.takeDead},
		{"transactions", v.putTransaction, v.takeTransaction},
	}
	more := map[string]harness.Fields{
		"sessions":   {"requiresSession": true},
		"duplicates": {"requiresDuplicateDetection": true}, "partitioned": {"enablePartitioning": true},
		"forwards": {"forwardTo": v.at("forwarded")}, "transacted": nil,
		"locked": nil, "scheduled": nil, "deferred": nil, "dead": nil, "transactions": nil,
	}
	c.CreateQueue(t, v.at("forwarded"), harness.Settings{LockDuration: carriedLock})
	for _, queue := range slices.Sorted(maps.Keys(more)) {
		c.CreateQueue(t, v.at(queue), harness.Settings{LockDuration: carriedLock, More: more[queue]})
	}
	c.CreateTopic(t, v.at("topic"), harness.Settings{})
	for name, rule := range map[string]harness.Rule{
		"all":         {Name: "all", True: true},
		"sql":         {Name: "sql", SQL: "number > 2 AND sys.Label LIKE 'message%'", Action: "SET taken = number + 1"},
		"correlation": {Name: "correlation", Conditions: harness.Fields{"sys.Label": "message 1"}},
	} {
		c.CreateSubscription(t, v.at("topic"), name, harness.Settings{LockDuration: carriedLock}, rule)
	}
	return v
}

// at is the name of one of the entities.
func (v *carried) at(entity string) string { return v.name + "-" + entity }

// body is that of a message: no two are alike.
func (v *carried) body(entity string, turn, i int) string {
	return fmt.Sprintf("%s, turn %d, message %d", v.at(entity), turn, i)
}

// bodies are those of all messages of a turn.
func (v *carried) bodies(entity string, turn int) (all []string) {
	for i := range carriedEach {
		all = append(all, v.body(entity, turn, i))
	}
	return all
}

// put stores something of every kind at a member.
func (v *carried) put(m *harness.Member, turn int) {
	v.Helper()
	v.all("put", m, turn, func(k carriedKind) func(context.Context, carriedAt, int) error { return k.put })
}

// take finds at a member what was put in a turn, and that nothing else is there.
func (v *carried) take(m *harness.Member, turn int) {
	v.Helper()
	v.all("take", m, turn, func(k carriedKind) func(context.Context, carriedAt, int) error { return k.take })
	names := []string{v.at("forwarded"), v.at("transacted")}
	for _, k := range v.kinds {
		if k.name != "topic" {
			names = append(names, v.at(k.name))
		}
	}
	for _, subscription := range []string{"all", "sql", "correlation"} {
		names = append(names, harness.SubscriptionPath(v.at("topic"), subscription))
	}
	for _, name := range names {
		v.c.WaitCounts(v, name, harness.Counts{})
	}
}

func (v *carried) all(what string, m *harness.Member, turn int, do func(carriedKind) func(context.Context, carriedAt, int) error) {
	v.Helper()
	client, err := azservicebus.NewClientFromConnectionString(m.ConnectionString(), &azservicebus.ClientOptions{
		RetryOptions: azservicebus.RetryOptions{MaxRetries: -1}, // errors are to be seen
	})
	if err != nil {
		v.Fatal(err)
	}
	defer func() {
		if client != v.holding {
			_ = client.Close(context.Background())
		}
	}()
	ctx, cancel := context.WithTimeout(v.Context(), confirmsWithin)
	defer cancel()
	var running sync.WaitGroup
	for _, k := range v.kinds {
		running.Go(func() {
			if err := do(k)(ctx, carriedAt{client, m}, turn); err != nil {
				v.Errorf("%s %s at %s in turn %d: %v", what, k.name, m.Name, turn, err)
			}
		})
	}
	running.Wait()
	if v.Failed() {
		v.FailNow()
	}
}

// send sends the messages of a turn, each shaped by fill.
func (v *carried) send(ctx context.Context, at carriedAt, entity string, turn int, fill func(int, *azservicebus.Message)) error {
	s, err := at.NewSender(v.at(entity), nil)
	if err != nil {
		return err
	}
	for i, body := range v.bodies(entity, turn) {
		m := &azservicebus.Message{Body: []byte(body)}
		if fill != nil {
			fill(i, m)
		}
		if err := s.SendMessage(ctx, m, nil); err != nil {
			return fmt.Errorf("send: %w", err)
		}
	}
	return s.Close(ctx)
}

// carriedReceiver is a receiver of a queue or of a session.
type carriedReceiver interface {
	ReceiveMessages(context.Context, int, *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
	CompleteMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.CompleteMessageOptions) error
	Close(context.Context) error
}

// receive receives so many messages.
func receive(ctx context.Context, r carriedReceiver, n int) (all []*azservicebus.ReceivedMessage, err error) {
	for len(all) < n {
		some, err := r.ReceiveMessages(ctx, n-len(all), nil)
		if err != nil {
			return all, fmt.Errorf("receive, %d of %d so far: %w", len(all), n, err)
		}
		all = append(all, some...)
	}
	return all, nil
}

// same completes messages and compares their bodies, in any order.
func same(ctx context.Context, r carriedReceiver, messages []*azservicebus.ReceivedMessage, want []string) error {
	var got []string
	for _, m := range messages {
		if err := r.CompleteMessage(ctx, m, nil); err != nil {
			return fmt.Errorf("complete: %w", err)
		}
		got = append(got, string(m.Body))
	}
	slices.Sort(got)
	if want = slices.Sorted(slices.Values(want)); !slices.Equal(got, want) {
		return fmt.Errorf("received %q, want %q", got, want)
	}
	return nil
}

// takeAll receives and completes messages, in any order.
func takeAll(ctx context.Context, r carriedReceiver, err error, want []string) error {
	if err != nil {
		return err
	}
	messages, err := receive(ctx, r, len(want))
	if err != nil {
		return err
	}
	return errors.Join(same(ctx, r, messages, want), r.Close(ctx))
}
