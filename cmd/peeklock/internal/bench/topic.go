package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/entities"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
)

// Limits of a benchmark with a topic: those of the broker.
const (
	benchSubscriptionsMax    = 2000
	benchSQLRulesMax         = 2000
	benchCorrelationRulesMax = 100_000
	benchRuleWorkers         = 64 // concurrent requests: half of what a member accepts
)

// benchTopic has the flags of bench for a topic. Without subscriptions there is no topic.
//
// Rule i belongs to subscription i mod subscriptions. Of each kind of rule, the first ones (matching of them)
// match every message, and the others match none.
type benchTopic struct {
	subscriptions    int
	sqlRules         int
	correlationRules int
	matching         int
}

func (b *benchTopic) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.IntVar(&b.subscriptions, "topic", 0, "send to the topic PREFIX-topic with this many subscriptions instead of queues; missing ones are created")
	f.IntVar(&b.sqlRules, "sql-rules", 0, "SQL rules, distributed over the created subscriptions instead of a rule that matches all messages")
	f.IntVar(&b.correlationRules, "correlation-rules", 0, "correlation rules, distributed in the same way")
	f.IntVar(&b.matching, "matching", 0, "number of these rules that match all messages; the others match none (default: one per subscription)")
}

func (b *benchTopic) rules() int { return b.sqlRules + b.correlationRules }

// prepare sets the options that depend on other flags.
func (b *benchTopic) prepare() {
	if b.matching == 0 {
		b.matching = b.subscriptions
	}
}

func (b *benchTopic) check(queues int) error {
	for _, f := range []struct {
		flag        string
		value, high int
	}{
		{"--topic", b.subscriptions, benchSubscriptionsMax},
		{"--sql-rules", b.sqlRules, benchSQLRulesMax},
		{"--correlation-rules", b.correlationRules, benchCorrelationRulesMax},
	} {
		if f.value < 0 || f.value > f.high {
			return cli.Usagef("%s is 0 to %d, not %d", f.flag, f.high, f.value)
		}
	}
	most := max(b.sqlRules, b.correlationRules)
	switch {
	case b.subscriptions == 0 && (b.rules() > 0 || b.matching > 0):
		return cli.Usagef("--sql-rules, --correlation-rules and --matching need --topic")
	case b.subscriptions > 0 && queues > 1:
		return cli.Usagef("give --topic or --queues, not both")
	case b.rules() > 0 && most < b.subscriptions:
		return cli.Usagef("%d rules leave some of %d subscriptions without any", most, b.subscriptions)
	case b.rules() > 0 && (b.matching < 1 || b.matching > most):
		return cli.Usagef("--matching is 1 to %d, not %d", most, b.matching)
	}
	return nil
}

// copies returns how many subscriptions match every message, or one without a topic.
func (b *benchTopic) copies() int {
	switch {
	case b.subscriptions == 0:
		return 1
	case b.rules() == 0:
		return b.subscriptions
	}
	return min(b.matching, b.subscriptions)
}

// Properties that the rules refer to.
const (
	benchLabel  = "order"
	benchRegion = "eu"
)

// setProperties sets the properties that the rules refer to.
func (b *benchTopic) setProperties(m *amqp.Message) {
	if b.rules() == 0 {
		return
	}
	label := benchLabel
	m.Properties = &amqp.MessageProperties{Subject: &label}
	m.ApplicationProperties = map[string]any{"customer": int64(0), "region": benchRegion}
}

// customer returns the customer that rule i matches; all messages have customer 0.
func (b *benchTopic) customer(i int) int {
	if i < b.matching {
		return 0
	}
	return i + 1
}

func (b *benchTopic) sqlRule(i int) entity.Rule {
	return entity.Rule{Name: "sql-" + strconv.Itoa(i), Filter: entity.Filter{
		Kind: entity.FilterSQL, Expression: fmt.Sprintf("customer = %d AND region = '%s'", b.customer(i), benchRegion),
	}}
}

func (b *benchTopic) correlationRule(i int) entity.Rule {
	value := func(json string) (v entity.Value) {
		_ = v.UnmarshalJSON([]byte(json)) // the argument is constant and valid
		return v
	}
	return entity.Rule{Name: "correlation-" + strconv.Itoa(i), Filter: entity.Filter{
		Kind: entity.FilterCorrelation,
		Conditions: map[string]entity.Value{
			"sys.Label": value(strconv.Quote(benchLabel)), "customer": value(strconv.Itoa(b.customer(i))),
		},
	}}
}

// firstRule returns the first rule of subscription i, or nil for the rule that matches all messages.
func (b *benchTopic) firstRule(i int) *entity.Rule {
	var rule entity.Rule
	switch {
	case i < b.sqlRules:
		rule = b.sqlRule(i)
	case i < b.correlationRules:
		rule = b.correlationRule(i)
	default:
		return nil
	}
	return &rule
}

// createTopic creates the missing entities and returns the API paths of those that must be deleted afterwards. It
// does not change the rules of existing subscriptions.
func createTopic(ctx context.Context, c *client.Client, o *benchOptions, settings entity.Settings) ([]string, error) {
	// The default client keeps two idle connections and would open a new one for most requests.
	transport := &http.Transport{MaxIdleConnsPerHost: benchRuleWorkers}
	defer transport.CloseIdleConnections()
	return createTopicWith(ctx, c.WithHTTP(&http.Client{Transport: transport}), o, settings)
}

func createTopicWith(ctx context.Context, c *client.Client, o *benchOptions, settings entity.Settings) ([]string, error) {
	var made []string
	var topic api.Topic
	isNew, err := ensureEntity(ctx, c, o, entities.TopicPath(o.topicName()), entity.Settings{
		EnablePartitioning: settings.EnablePartitioning, MaxSizeInMegabytes: settings.MaxSizeInMegabytes, MaxMessageBytes: settings.MaxMessageBytes,
	}, &topic)
	if err != nil {
		return nil, fmt.Errorf("topic %s: %w", o.topicName(), err)
	}
	if isNew {
		made = append(made, entities.TopicPath(o.topicName())) // its subscriptions are deleted with it
	}
	fresh := make([]bool, o.topic.subscriptions)
	locks := make([]time.Duration, o.topic.subscriptions)
	err = parallel(ctx, o.topic.subscriptions, func(ctx context.Context, i int) error {
		path := entities.SubscriptionPath(o.subscription(i))
		var s api.Subscription
		isFresh, err := ensureEntity(ctx, c, o, path, api.SubscriptionRequest{
			Settings: entity.Settings{LockDuration: settings.LockDuration}, DefaultRule: o.topic.firstRule(i),
		}, &s)
		if s.LockDuration != nil {
			locks[i] = time.Duration(*s.LockDuration)
		}
		fresh[i] = isFresh
		return err
	})
	for i := range fresh {
		o.lockDuration = max(o.lockDuration, locks[i])
		if fresh[i] && !isNew {
			made = append(made, entities.SubscriptionPath(o.subscription(i)))
		}
	}
	if err != nil {
		return made, fmt.Errorf("subscriptions of %s: %w", o.topicName(), err)
	}
	return made, addRules(ctx, c, o, fresh)
}

// addRules adds the rules that were not created together with their subscriptions.
func addRules(ctx context.Context, c *client.Client, o *benchOptions, fresh []bool) error {
	b := &o.topic
	m := output.NewMeter(c.Process, "adding rules", b.rules())
	err := parallel(ctx, b.rules(), func(ctx context.Context, i int) error {
		defer m.Add(1)
		rule := b.correlationRule
		if i < b.sqlRules {
			rule = b.sqlRule
		} else {
			i -= b.sqlRules
		}
		at, made := i%b.subscriptions, rule(i)
		if first := b.firstRule(at); !fresh[at] || first != nil && first.Name == made.Name {
			return nil
		}
		return c.Call(ctx, http.MethodPut, entities.RulePath(o.subscription(at), made.Name), made, nil)
	})
	m.End(err != nil)
	if err != nil {
		return fmt.Errorf("rules of the subscriptions of %s: %w", o.topicName(), err)
	}
	return nil
}

// ensureEntity gets an entity, or creates it if it is missing and the run sends.
func ensureEntity(ctx context.Context, c *client.Client, o *benchOptions, path string, body, out any) (made bool, err error) {
	err = c.Call(ctx, http.MethodGet, path, nil, out)
	if !o.sends() || !client.IsNotFound(err) {
		return false, err
	}
	return true, c.Call(ctx, http.MethodPut, path, body, out)
}

// parallel calls do for n indexes, several at a time, and stops at the first error.
func parallel(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work := make(chan int)
	var workers sync.WaitGroup
	for range min(n, benchRuleWorkers) {
		workers.Go(func() {
			for i := range work {
				if err := do(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := 0; i < n && ctx.Err() == nil; i++ {
		select {
		case work <- i:
		case <-ctx.Done():
		}
	}
	close(work)
	workers.Wait()
	return context.Cause(ctx)
}

// storedBytes returns the size of the payloads that the broker reports for all queues, or for the topic.
func storedBytes(ctx context.Context, c *client.Client, o *benchOptions) (uint64, error) {
	if o.topic.subscriptions > 0 {
		var t api.Topic
		err := c.Call(ctx, http.MethodGet, entities.TopicPath(o.topicName()), nil, &t)
		if err == nil && t.Counts == nil {
			err = errors.New("the member reported no counts")
		}
		if err != nil {
			return 0, fmt.Errorf("topic %s: %w", o.topicName(), err)
		}
		return t.Counts.Bytes, nil
	}
	var total uint64
	for i := range o.queues {
		counts, err := entities.CountsOf(ctx, c, o.queue(i))
		if err != nil {
			return 0, fmt.Errorf("queue %s: %w", o.queue(i), err)
		}
		if counts != nil {
			total += counts.Bytes
		}
	}
	return total, nil
}
