package declare

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/entities"
	"github.com/peeklock/peeklock/fsm"
)

// The actions of a Change.
const (
	actionCreate = "create"
	actionUpdate = "update"
	actionDelete = "delete"
)

// Change is one difference between a document and a namespace, with the request that removes it.
type Change struct {
	Action string   `json:"action"` // create, update or delete
	Kind   string   `json:"kind"`   // queue, topic, subscription, rule or key
	Name   string   `json:"name"`
	Fields []string `json:"fields,omitempty"` // of an update: name: from -> to

	method, path string
	body         any
}

// line returns the change for a person.
func (c *Change) line() string {
	sign := map[string]string{actionCreate: "+", actionUpdate: "~", actionDelete: "-"}[c.Action]
	line := fmt.Sprintf("%s %s %s", sign, c.Kind, c.Name)
	if len(c.Fields) > 0 {
		line += "  " + strings.Join(c.Fields, ", ")
	}
	return line
}

// losesMessages reports whether the change deletes messages.
func (c *Change) losesMessages() bool { return c.Action == actionDelete && c.Kind != "rule" }

// planner collects the changes.
type planner struct {
	prune   bool
	changes []Change
}

// plan returns the changes that make the namespace as the document declares it: entities before what belongs to them,
// deletions last.
func plan(want, have *Document, prune bool) ([]Change, error) {
	p := &planner{prune: prune}
	p.keys("", want.Keys, have.Keys)
	queues, topics := make(map[string]*Queue), make(map[string]*Topic)
	for i := range have.Queues {
		queues[fsm.PathKey(have.Queues[i].Name)] = &have.Queues[i]
	}
	for i := range have.Topics {
		topics[fsm.PathKey(have.Topics[i].Name)] = &have.Topics[i]
	}
	for i := range want.Queues {
		q, found := &want.Queues[i], queues[fsm.PathKey(want.Queues[i].Name)]
		if found == nil {
			found = &Queue{}
		}
		if err := p.entity("queue", q.Name, &q.Settings, &found.Settings, found.Name != ""); err != nil {
			return nil, err
		}
		p.keys(q.Name, q.Keys, found.Keys)
		delete(queues, fsm.PathKey(q.Name))
	}
	for i := range want.Topics {
		t, found := &want.Topics[i], topics[fsm.PathKey(want.Topics[i].Name)]
		if found == nil {
			found = &Topic{}
		}
		if err := p.entity("topic", t.Name, &t.Settings, &found.Settings, found.Name != ""); err != nil {
			return nil, err
		}
		p.keys(t.Name, t.Keys, found.Keys)
		if err := p.subscriptions(t, found); err != nil {
			return nil, err
		}
		delete(topics, fsm.PathKey(t.Name))
	}
	if prune {
		for _, key := range slices.Sorted(maps.Keys(queues)) {
			p.remove("queue", queues[key].Name)
		}
		for _, key := range slices.Sorted(maps.Keys(topics)) {
			p.remove("topic", topics[key].Name)
		}
	}
	slices.SortStableFunc(p.changes, func(a, b Change) int { return order(&a) - order(&b) })
	return p.changes, nil
}

// order puts deletions last.
func order(c *Change) int {
	if c.Action == actionDelete {
		return 1
	}
	return 0
}

// fields returns the settings by name.
func fields(s *entity.Settings) (map[string]any, error) {
	encoded, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode settings: %w", err)
	}
	var all map[string]any
	err = json.Unmarshal(encoded, &all)
	return all, err //nolint:wrapcheck // it was encoded above
}

// entity plans the creation of an entity, or the update of the settings that are declared and differ.
func (p *planner) entity(kind, name string, want, have *entity.Settings, exists bool) error {
	wanted, err := fields(want)
	if err != nil {
		return err
	}
	path := client.NamePath("/v1/"+kind+"s/", name)
	if !exists {
		p.changes = append(p.changes, Change{Action: actionCreate, Kind: kind, Name: name, method: http.MethodPut, path: path, body: wanted})
		return nil
	}
	present, err := fields(have)
	if err != nil {
		return err
	}
	c := Change{Action: actionUpdate, Kind: kind, Name: name, method: http.MethodPatch, path: path}
	differs := make(map[string]any)
	for _, field := range slices.Sorted(maps.Keys(wanted)) {
		if present[field] != wanted[field] {
			differs[field] = wanted[field]
			c.Fields = append(c.Fields, fmt.Sprintf("%s: %v -> %v", field, present[field], wanted[field]))
		}
	}
	if c.body = differs; len(differs) > 0 {
		p.changes = append(p.changes, c)
	}
	return nil
}

// keys plans the keys of an entity, of the namespace where its name is "". A key that is not declared stays.
func (p *planner) keys(of string, want, have []Key) {
	for _, k := range want {
		path, name := accessPath(of, k.Name), k.Name
		if of != "" {
			name += " of " + of
		}
		c := Change{Action: actionCreate, Kind: "key", Name: name, method: http.MethodPut, path: path, body: entity.AccessRuleRequest{Rights: k.Rights, PrimaryKey: k.PrimaryKey, SecondaryKey: k.SecondaryKey}}
		if at := slices.IndexFunc(have, func(h Key) bool { return h.Name == k.Name }); at >= 0 {
			if sameRights(k.Rights, have[at].Rights) {
				continue
			}
			c.Action, c.path, c.body = actionUpdate, path+"&replace=true", entity.AccessRuleRequest{Rights: k.Rights}
			c.Fields = []string{fmt.Sprintf("rights: %s -> %s", strings.Join(have[at].Rights, "+"), strings.Join(k.Rights, "+"))}
		}
		p.changes = append(p.changes, c)
	}
}

// sameRights compares lists of rights; Manage includes all others.
func sameRights(a, b []string) bool {
	whole := func(list []string) []string {
		set := make(map[string]bool)
		for _, r := range list {
			if set[strings.ToLower(r)] = true; strings.EqualFold(r, entity.RightManage) {
				set[strings.ToLower(entity.RightSend)], set[strings.ToLower(entity.RightListen)] = true, true
				set[strings.ToLower(entity.RightRead)] = true
			}
		}
		return slices.Sorted(maps.Keys(set))
	}
	return slices.Equal(whole(a), whole(b))
}

// subscriptions plans the subscriptions of a topic with their rules.
func (p *planner) subscriptions(want, have *Topic) error {
	present := make(map[string]*Subscription)
	for i := range have.Subscriptions {
		present[fsm.PathKey(have.Subscriptions[i].Name)] = &have.Subscriptions[i]
	}
	for i := range want.Subscriptions {
		s := &want.Subscriptions[i]
		name, found := fsm.SubscriptionPath(want.Name, s.Name), present[fsm.PathKey(s.Name)]
		exists := found != nil
		if !exists {
			found = &Subscription{}
		}
		if err := p.entity("subscription", name, &s.Settings, &found.Settings, exists); err != nil {
			return err
		}
		if !exists && len(s.Rules) > 0 { // no message may arrive by the rule $Default
			p.changes[len(p.changes)-1].body.(map[string]any)["defaultRule"] = s.Rules[0] //nolint:forcetypeassert // as entity sets it
			found.Rules = s.Rules[:1]
		}
		if err := p.rules(name, s.Rules, found.Rules); err != nil {
			return err
		}
		delete(present, fsm.PathKey(s.Name))
	}
	if p.prune {
		for _, key := range slices.Sorted(maps.Keys(present)) {
			p.remove("subscription", fsm.SubscriptionPath(have.Name, present[key].Name))
		}
	}
	return nil
}

// rules plans the rules of a subscription.
func (p *planner) rules(subscription string, want, have []entity.Rule) error {
	if len(want) == 0 {
		return nil
	}
	for i := range want {
		c := Change{Action: actionCreate, Kind: "rule", Name: want[i].Name + " of " + subscription, method: http.MethodPut, path: entities.RulePath(subscription, want[i].Name), body: want[i]}
		if at := slices.IndexFunc(have, func(h entity.Rule) bool { return strings.EqualFold(h.Name, want[i].Name) }); at >= 0 {
			same, err := sameRule(&want[i], &have[at])
			if err != nil {
				return err
			}
			if same {
				continue
			}
			c.Action, c.path = actionUpdate, c.path+"&replace=true"
		}
		p.changes = append(p.changes, c)
	}
	for i := range have {
		declared := slices.ContainsFunc(want, func(w entity.Rule) bool { return strings.EqualFold(w.Name, have[i].Name) })
		if !declared && (p.prune || have[i].Name == fsm.DefaultRuleName) {
			p.changes = append(p.changes, Change{
				Action: actionDelete, Kind: "rule", Name: have[i].Name + " of " + subscription, method: http.MethodDelete, path: entities.RulePath(subscription, have[i].Name),
			})
		}
	}
	return nil
}

// sameRule compares rules as the member stores them.
func sameRule(a, b *entity.Rule) (bool, error) {
	var texts [2]string
	for i, r := range []*entity.Rule{a, b} {
		parsed, err := r.Parse()
		if err != nil {
			return false, fmt.Errorf("rule %s: %w", r.Name, err)
		}
		described := entity.DescribeRule(parsed)
		described.Created, described.Name = nil, ""
		text, err := json.Marshal(described)
		if err != nil {
			return false, fmt.Errorf("encode rule: %w", err)
		}
		texts[i] = string(text)
	}
	return texts[0] == texts[1], nil
}

func (p *planner) remove(kind, name string) {
	p.changes = append(p.changes, Change{Action: actionDelete, Kind: kind, Name: name, method: http.MethodDelete, path: client.NamePath("/v1/"+kind+"s/", name)})
}

// accessPath returns the path of a key of an entity, of the namespace where its name is "".
func accessPath(of, key string) string {
	path := "/v1/access"
	if of != "" {
		path = client.NamePath("/v1/access/", of)
	}
	return path + "?rule=" + url.QueryEscape(key)
}

// Answer is what apply and diff print with -o json.
type Answer struct {
	Changes []Change `json:"changes"`
	Applied int      `json:"applied"`
}
