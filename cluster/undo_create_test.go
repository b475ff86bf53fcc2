package cluster

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// TestSubscriptionIsUndoneWhenItsRuleIsRefused checks that a subscription that its partition refuses, because the
// topic has its maximum number of rules, does not exist afterwards. Without undoCreate it would stay in the
// catalog, with a name that nothing else could use.
func TestSubscriptionIsUndoneWhenItsRuleIsRefused(t *testing.T) {
	inBubble(t, subscriptionIsUndoneWhenItsRuleIsRefused)
}

func subscriptionIsUndoneWhenItsRuleIsRefused(t *testing.T) {
	c := newBubbleCluster(t, 1, 1)
	c.startAll()
	c.ready()
	topic := c.make(fsm.TopicEntity, "full", nil)
	sub := c.make(fsm.SubscriptionEntity, fsm.SubscriptionPath("full", "one"), nil)
	router := c.any().Router()
	const atATime = 32 // in one log transaction
	var adding sync.WaitGroup
	for first := range atATime {
		adding.Go(func() {
			for i := first; i < 2000-1 && !t.Failed(); i += atATime {
				rule := fsm.Rule{Name: fmt.Sprint("r", i), Filter: fsm.RuleFilter{Kind: fsm.FalseFilter}}
				if err := router.AddRule(t.Context(), sub, rule); err != nil {
					t.Error(i, err)
				}
			}
		})
	}
	adding.Wait()
	path := fsm.SubscriptionPath("full", "two")
	_, err := router.In(fsm.DefaultNamespace).CreateEntity(t.Context(), fsm.SubscriptionEntity, path, testSettings, nil, nil)
	if !errors.Is(err, fsm.QuotaExceeded) || !strings.Contains(err.Error(), "2000 others") {
		t.Errorf("one rule too many: %v", err)
	}
	listed, err := router.In(fsm.DefaultNamespace).Entities(t.Context(), fsm.SubscriptionEntity, topic.Name, "", 10)
	if err != nil || len(listed) != 1 {
		t.Errorf("%d subscriptions are listed (%v)", len(listed), err)
	}
	kit.OK(t, router.RemoveRule(t.Context(), sub, "r0"))
	if _, err := router.In(fsm.DefaultNamespace).CreateEntity(t.Context(), fsm.SubscriptionEntity, path, testSettings, nil, nil); err != nil {
		t.Errorf("below the maximum of rules: %v", err)
	}
}
