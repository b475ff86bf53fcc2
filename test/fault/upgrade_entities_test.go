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
	upgradeMessages      = 6 // messages of one kind
	upgradeScheduleDelay = 2 * time.Second
	upgradeLockDuration  = 5 * time.Minute
)

// upgradeEntities is one entity of every kind. put stores something in each at one member, take finds
// it at another: all of it, unchanged, in order where an order is promised, and nothing else.
// Both run all kinds at once; an error fails the test.
type upgradeEntities struct {
	*testing.T
	c     *harness.Cluster
	name  string // first part of the names of the entities
	kinds []upgradeKind

	holding *azservicebus.Client // of the receiver below, from store to check
	holder  *azservicebus.Receiver
	held    []*azservicebus.ReceivedMessage

	scheduled, deferred []int64 // sequence numbers, from store to check
}

type upgradeKind struct {
	name         string
	store, check func(context.Context, upgradeMember, int) error
}

// upgradeMember is the member at which store or check works.
type upgradeMember struct {
	*azservicebus.Client
	member *harness.Member
}

func newUpgradeEntities(t *testing.T, c *harness.Cluster, name string) *upgradeEntities {
	t.Helper()
	v := &upgradeEntities{T: t, c: c, name: name}
	v.kinds = []upgradeKind{
		{"locked", v.storeLocked, v.checkLocked},
		{"sessions", v.storeSession, v.checkSession},
		{"duplicates", v.storeDuplicates, v.checkDuplicates},
		{"partitioned", v.storePartitioned, v.checkPartitioned},
		{"topic", v.storeTopic, v.checkTopic},
		{"forwards", v.storeForwarded, v.checkForwarded},
		{"scheduled", v.storeScheduled, v.checkScheduled},
		{"deferred", v.storeDeferred, v.checkDeferred},
		{"dead", v.storeDeadLetters, v.checkDeadLetters},
		{"transactions", v.storeTransaction, v.checkTransaction},
	}
	more := map[string]harness.Fields{
		"sessions":   {"requiresSession": true},
		"duplicates": {"requiresDuplicateDetection": true}, "partitioned": {"enablePartitioning": true},
		"forwards": {"forwardTo": v.entity("forwarded")}, "transacted": nil,
		"locked": nil, "scheduled": nil, "deferred": nil, "dead": nil, "transactions": nil,
	}
	c.CreateQueue(t, v.entity("forwarded"), harness.Settings{LockDuration: upgradeLockDuration})
	for _, queue := range slices.Sorted(maps.Keys(more)) {
		c.CreateQueue(t, v.entity(queue), harness.Settings{LockDuration: upgradeLockDuration, More: more[queue]})
	}
	c.CreateTopic(t, v.entity("topic"), harness.Settings{})
	for name, rule := range map[string]harness.Rule{
		"all":         {Name: "all", True: true},
		"sql":         {Name: "sql", SQL: "number > 2 AND sys.Label LIKE 'message%'", Action: "SET taken = number + 1"},
		"correlation": {Name: "correlation", Conditions: harness.Fields{"sys.Label": "message 1"}},
	} {
		c.CreateSubscription(t, v.entity("topic"), name, harness.Settings{LockDuration: upgradeLockDuration}, rule)
	}
	return v
}

// entity returns the name of one of the entities.
func (v *upgradeEntities) entity(entity string) string { return v.name + "-" + entity }

// body returns the body of a message: all are different.
func (v *upgradeEntities) body(entity string, turn, i int) string {
	return fmt.Sprintf("%s, turn %d, message %d", v.entity(entity), turn, i)
}

// bodies returns the bodies of all messages of a turn.
func (v *upgradeEntities) bodies(entity string, turn int) (all []string) {
	for i := range upgradeMessages {
		all = append(all, v.body(entity, turn, i))
	}
	return all
}

// store stores messages of every kind at a member.
func (v *upgradeEntities) store(m *harness.Member, turn int) {
	v.Helper()
	v.all("put", m, turn, func(k upgradeKind) func(context.Context, upgradeMember, int) error { return k.store })
}

// check checks at a member that the messages of a turn are there, and no others.
func (v *upgradeEntities) check(m *harness.Member, turn int) {
	v.Helper()
	v.all("take", m, turn, func(k upgradeKind) func(context.Context, upgradeMember, int) error { return k.check })
	names := []string{v.entity("forwarded"), v.entity("transacted")}
	for _, k := range v.kinds {
		if k.name != "topic" {
			names = append(names, v.entity(k.name))
		}
	}
	for _, subscription := range []string{"all", "sql", "correlation"} {
		names = append(names, harness.SubscriptionPath(v.entity("topic"), subscription))
	}
	for _, name := range names {
		v.c.WaitCounts(v, name, harness.Counts{})
	}
}

func (v *upgradeEntities) all(what string, m *harness.Member, turn int, do func(upgradeKind) func(context.Context, upgradeMember, int) error) {
	v.Helper()
	client, err := azservicebus.NewClientFromConnectionString(m.ConnectionString(), &azservicebus.ClientOptions{
		RetryOptions: azservicebus.RetryOptions{MaxRetries: -1}, // report errors instead of retrying
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
			if err := do(k)(ctx, upgradeMember{client, m}, turn); err != nil {
				v.Errorf("%s %s at %s in turn %d: %v", what, k.name, m.Name, turn, err)
			}
		})
	}
	running.Wait()
	if v.Failed() {
		v.FailNow()
	}
}

// send sends the messages of a turn, each modified by fill.
func (v *upgradeEntities) send(ctx context.Context, at upgradeMember, entity string, turn int, fill func(int, *azservicebus.Message)) error {
	s, err := at.NewSender(v.entity(entity), nil)
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

// messageReceiver is a receiver of a queue or of a session.
type messageReceiver interface {
	ReceiveMessages(context.Context, int, *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
	CompleteMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.CompleteMessageOptions) error
	Close(context.Context) error
}

// receive receives n messages.
func receive(ctx context.Context, r messageReceiver, n int) (all []*azservicebus.ReceivedMessage, err error) {
	for len(all) < n {
		some, err := r.ReceiveMessages(ctx, n-len(all), nil)
		if err != nil {
			return all, fmt.Errorf("receive, %d of %d so far: %w", len(all), n, err)
		}
		all = append(all, some...)
	}
	return all, nil
}

// completeAndCompare completes messages and compares their bodies, in any order.
func completeAndCompare(ctx context.Context, r messageReceiver, messages []*azservicebus.ReceivedMessage, want []string) error {
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

// checkAll receives and completes messages, in any order.
func checkAll(ctx context.Context, r messageReceiver, err error, want []string) error {
	if err != nil {
		return err
	}
	messages, err := receive(ctx, r, len(want))
	if err != nil {
		return err
	}
	return errors.Join(completeAndCompare(ctx, r, messages, want), r.Close(ctx))
}
