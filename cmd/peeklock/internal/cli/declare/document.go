package declare

import (
	"encoding/json"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm"
)

// Document declares the entities of a namespace. What a list does not name is left as it is, unless it is pruned.
type Document struct {
	Keys   []Key   `json:"keys,omitempty"` // of the namespace
	Queues []Queue `json:"queues,omitempty"`
	Topics []Topic `json:"topics,omitempty"`
}

// Key declares an access key. Secrets that are not given are generated when it is created; those of a key that exists stay.
type Key struct {
	Name         string   `json:"name"`
	Rights       []string `json:"rights"` // read, send, listen and manage, as entity.RightSend and so on
	PrimaryKey   string   `json:"primaryKey,omitempty"`
	SecondaryKey string   `json:"secondaryKey,omitempty"`
}

// Queue declares a queue. A setting that is not given has its default when the queue is created, and stays as it is later.
type Queue struct {
	Name string `json:"name"`
	entity.Settings
	Keys []Key `json:"keys,omitempty"`
}

// Topic declares a topic with its subscriptions.
type Topic struct {
	Name string `json:"name"`
	entity.Settings
	Keys          []Key          `json:"keys,omitempty"`
	Subscriptions []Subscription `json:"subscriptions,omitempty"`
}

// Subscription declares a subscription. Without Rules its rules stay as they are; with some the rule $Default goes if they do not
// name it.
type Subscription struct {
	Name string `json:"name"` // without its topic
	entity.Settings
	Rules []entity.Rule `json:"rules,omitempty"`
}

// check returns an error for a name that is missing, not valid, or given twice.
func (d *Document) check() error {
	seen := make(map[string]bool)
	one := func(kind fsm.EntityKind, name string) error {
		if err := entity.CheckName(kind, name); err != nil {
			return fmt.Errorf("%s %q: %w", kind, name, err)
		}
		if key := fsm.PathKey(name); seen[key] {
			return fmt.Errorf("%s %q is declared twice, or a queue and a topic have this name", kind, name)
		}
		seen[fsm.PathKey(name)] = true
		return nil
	}
	for i := range d.Queues {
		if err := one(fsm.QueueEntity, d.Queues[i].Name); err != nil {
			return err
		}
	}
	for i := range d.Topics {
		t := &d.Topics[i]
		if err := one(fsm.TopicEntity, t.Name); err != nil {
			return err
		}
		for j := range t.Subscriptions {
			s := &t.Subscriptions[j]
			if err := one(fsm.SubscriptionEntity, fsm.SubscriptionPath(t.Name, s.Name)); err != nil {
				return err
			}
			for k := range s.Rules {
				if _, err := s.Rules[k].Parse(); err != nil || s.Rules[k].Name == "" {
					return fmt.Errorf("rule %q of subscription %s of topic %s: a rule has a name and a valid filter: %w", s.Rules[k].Name, s.Name, t.Name, err)
				}
			}
		}
	}
	return nil
}

// marshal returns the document as YAML, with the fields in the order of the types.
func (d *Document) marshal() ([]byte, error) {
	encoded, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("encode the document: %w", err)
	}
	var node yaml.Node
	if err := yaml.Unmarshal(encoded, &node); err != nil { // JSON is YAML, and a node keeps the order
		return nil, fmt.Errorf("encode the document: %w", err)
	}
	plain(&node)
	var out strings.Builder
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(&node); err != nil {
		return nil, fmt.Errorf("encode the document: %w", err)
	}
	return []byte(out.String()), nil
}

// plain removes the flow style of JSON.
func plain(node *yaml.Node) {
	node.Style = 0
	for _, child := range node.Content {
		plain(child)
	}
}
