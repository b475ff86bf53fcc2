package fsm_test

import (
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
)

// topicID is the topic of the random histories; the two ids behind it are subscriptions.
const topicID = 4

// describe makes an entity with the id of a topic or subscription what it is to be.
func (h *history) describe(c fsm.PutEntity) fsm.PutEntity {
	switch {
	case c.Entity == topicID:
		c.Kind = fsm.TopicEntity
	case c.Entity > topicID:
		c.Kind, c.Topic = fsm.SubscriptionEntity, topicID
		if rapid.Bool().Draw(h.t, "own rule") {
			r := h.drawRule()
			c.Rule = &r
		}
	}
	return c
}

// subscribe makes a subscription if it is not there.
func (h *history) subscribe(*rapid.T) {
	id := fsm.EntityID(rapid.IntRange(topicID, topicID+2).Draw(h.t, "entity"))
	if h.model.queues[id] == nil {
		h.version++
		h.do(h.describe(fsm.PutEntity{Entity: id, Version: h.version, Settings: h.settings(id)}))
	}
}

func (h *history) drawRule() fsm.Rule {
	r := fsm.Rule{Name: rapid.SampledFrom([]string{"a", "b", "c", "d", fsm.DefaultRuleName}).Draw(h.t, "name")}
	r.Filter = modelRules[rapid.IntRange(0, len(modelRules)-1).Draw(h.t, "filter")].filter
	r.Action.Text = rapid.SampledFrom([]string{"", "", "", modelAction, modelAction, failingAction}).Draw(h.t, "action")
	return r
}

func (h *history) rule(*rapid.T) {
	h.do(fsm.PutRule{Subscription: h.address().Entity, Rule: h.drawRule(), Replace: rapid.Bool().Draw(h.t, "replace")})
}

func (h *history) dropRule(*rapid.T) {
	h.do(fsm.DropRule{Subscription: h.address().Entity, Name: h.drawRule().Name})
}

// properties draws the properties that rules read.
func (h *history) properties() []byte {
	list := []fsm.Property{{Name: filter.Property{Name: "n"}, Value: filter.Int(rapid.Int64Range(0, 3).Draw(h.t, "n"))}}
	if color := rapid.SampledFrom([]string{"", "red", "blue"}).Draw(h.t, "color"); color != "" {
		list = append(list, fsm.Property{Name: filter.Property{Name: "Color"}, Value: filter.Text(color)})
	}
	return fsm.AppendProperties(nil, list)
}

// publish sends one message to the topic.
func (h *history) publish(*rapid.T) {
	h.do(fsm.SendMessages{Entity: topicID, Messages: []fsm.Message{{Payload: []byte("topic"), Properties: h.properties()}}})
}

// move changes the locations of the bodies of the restored replica, as compaction does.
func (h *history) move(*rapid.T) {
	m := h.c.bodies
	for ref, b := range m.bodies {
		to := m.Append(b.owner, b.bytes)
		if !h.c.q.Move(b.owner, ref, to) {
			h.t.Fatalf("the body of %v at %v is not known as held", b.owner, ref)
		}
		m.Release(ref)
	}
}

// checkRules compares the rules of a subscription, by name.
func (h *history) checkRules(id fsm.EntityID) {
	var want []fsm.Rule
	q := h.model.queues[id]
	if q != nil {
		want = slices.SortedFunc(slices.Values(q.rules), func(a, b fsm.Rule) int {
			return strings.Compare(filter.Fold(a.Name), filter.Fold(b.Name))
		})
	}
	for _, r := range []*replica{h.a, h.c} {
		got, ok := r.q.Rules(id, 0, 100)
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), sameValue); diff != "" ||
			ok != (q != nil && q.kind == fsm.SubscriptionEntity) {
			h.t.Fatalf("rules of %d (-want +got):\n%s", id, diff)
		}
	}
}
