package abuse

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/test/harness"
	"github.com/peeklock/peeklock/test/rawamqp"
)

// Rules that cost as much as rules may, and messages that make them.

const (
	filterTopic     = "abuse-filters"
	filterRules     = 100    // of one subscription
	filterRulesFull = 500    // with all of `make abuse`
	longestProperty = 30_000 // characters of the property that filters look at
	sendPace        = 250 * time.Millisecond
)

// createTopicWithRules makes a topic with one subscription that has a number of rules.
func createTopicWithRules(a *abuseRun, rule func(i int) harness.Rule) {
	a.createTopic(filterTopic, a.sized(filterRules, filterRulesFull), rule)
}

// createTopic creates a topic of the attackers with one subscription that has a number of rules.
func (a *abuseRun) createTopic(name string, n int, rule func(i int) harness.Rule) {
	a.t.Helper()
	a.callOwn(http.MethodPut, ownPath("topics/"+name), nil)
	a.callOwn(http.MethodPut, ownPath("subscriptions/"+subscriptionOf(name)), harness.Fields{"defaultRule": rule(0)})
	path := func(i int) string { return ownPath(fmt.Sprintf("rules/%s?name=rule-%d", subscriptionOf(name), i)) }
	a.callOwn(http.MethodPut, path(1), rule(1)) // waits until what the attack before has stored counts no longer
	const atOnce = 16
	var adding sync.WaitGroup
	for first := range atOnce {
		adding.Go(func() {
			for i := 2 + first; i < n; i += atOnce {
				if err := a.Members[0].Call(a.t.Context(), http.MethodPut, path(i), rule(i), nil); err != nil {
					a.t.Error(err)
					return
				}
			}
		})
	}
	adding.Wait()
}

func subscriptionOf(topic string) string { return topic + "/Subscriptions/s" }

func deleteTopic(name string) func(*abuseRun) { return deleteOwn("topics/" + name) }

// worstFilters have patterns that a text nearly matches at every position, and patterns with
// as many ways to match as there may be.
func worstFilters(a *abuseRun) {
	patterns := []string{"%" + strings.Repeat("_", 900) + "b", strings.Repeat("%a", 450) + "b"}
	createTopicWithRules(a, func(i int) harness.Rule {
		return harness.Rule{SQL: fmt.Sprintf("a LIKE '%s%d'", patterns[i%len(patterns)], i)}
	})
}

// wideLists have as many values as fit into the text of a filter.
func wideLists(a *abuseRun) {
	createTopicWithRules(a, func(i int) harness.Rule {
		var values []string
		for j := range 200 {
			values = append(values, fmt.Sprint(100+(i+j)%900))
		}
		return harness.Rule{SQL: "a IN ('" + strings.Join(values, "','")[:900] + "')"}
	})
}

// wideCorrelation compare as many properties as they may.
func wideCorrelation(a *abuseRun) {
	createTopicWithRules(a, func(i int) harness.Rule {
		conditions := harness.Fields{}
		for j := range 64 {
			conditions[fmt.Sprintf("property-%d", j)] = fmt.Sprintf("%0200d", i)
		}
		return harness.Rule{Conditions: conditions}
	})
}

// longMessage has properties that all of these filters look at, and that none takes.
func longMessage() []byte {
	b := wire.AppendSectionDescriptor(nil, wire.SectionApplicationProperties)
	b = wire.AppendMapOf(b, func(b []byte) ([]byte, int) {
		b = wire.AppendString(wire.AppendString(b, "a"), strings.Repeat("a", longestProperty))
		for j := range 63 {
			b = wire.AppendString(wire.AppendString(b, fmt.Sprintf("property-%d", j)), strings.Repeat("9", 200))
		}
		return b, 64
	})
	return append(b, rawamqp.Message([]byte("body"))...)
}

// sendLong sends such messages to the topic.
func sendLong(ctx context.Context, at *target) error {
	message := longMessage()
	return at.swarm(ctx, at.attackers(4, 12), func(ctx context.Context, _ int, c *rawamqp.Conn) error {
		if err := signIn(c, sendKey); err != nil {
			return err
		}
		if err := c.Attach(rawamqp.Sender(0, filterTopic)); err != nil {
			return err
		}
		go discard(c)
		id := uint32(0)
		return every(ctx, sendPace, func() error {
			at.countHit()
			t := &wire.Transfer{Handle: 0, DeliveryID: ptr(id), DeliveryTag: []byte{byte(id)}, MessageFormat: new(uint32), Payload: message}
			id++
			return c.Send(0, t)
		})
	})
}
