package api

import (
	"time"

	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm"
)

// Topic is the JSON form of a topic.
type Topic struct {
	Name string `json:"name"` // as spelled at creation
	entity.Settings
	Partition fsm.PartitionID `json:"partition"` // also of its subscriptions
	Version   uint64          `json:"version"`   // rises with every change of the settings
	Created   time.Time       `json:"createdAt"`
	Updated   time.Time       `json:"updatedAt"`
	Counts    *TopicCounts    `json:"counts,omitempty"` // nil: not asked for
}

// TopicCounts counts what the topic itself holds, without its subscriptions.
type TopicCounts struct {
	Scheduled     uint64 `json:"scheduled"` // messages that are not yet enqueued
	Bytes         uint64 `json:"bytes"`     // each payload once, also when several subscriptions share it
	Subscriptions uint64 `json:"subscriptions"`
}

// TopicPage is one page of the list of topics. Next is the "after" of the next page,
// empty at the end.
type TopicPage struct {
	Topics []Topic `json:"topics"`
	Next   string  `json:"next,omitempty"`
}

// Subscription is the JSON form of a subscription.
type Subscription struct {
	Name             string `json:"name"` // topic/Subscriptions/name, as clients and this API name it
	TopicName        string `json:"topicName"`
	SubscriptionName string `json:"subscriptionName"`
	entity.Settings
	Partition fsm.PartitionID `json:"partition"`
	Version   uint64          `json:"version"` // rises with every change of the settings
	Created   time.Time       `json:"createdAt"`
	Updated   time.Time       `json:"updatedAt"`
	Counts    *Counts         `json:"counts,omitempty"` // nil: not asked for
}

// SubscriptionRequest is the body of PUT /v1/subscriptions/{topic}/Subscriptions/{name}.
type SubscriptionRequest struct {
	entity.Settings
	// DefaultRule is the first rule. Without it, the rule $Default matches all messages.
	DefaultRule *entity.Rule `json:"defaultRule,omitempty"`
}

// SubscriptionPage is one page of the list of the subscriptions of a topic. Next is the
// "after" of the next page, empty at the end.
type SubscriptionPage struct {
	Subscriptions []Subscription `json:"subscriptions"`
	Next          string         `json:"next,omitempty"`
}

// RulePage is one page of the list of rules, by name. Next is the
// "skip" of the next page, 0 at the end.
type RulePage struct {
	Rules []entity.Rule `json:"rules"`
	Next  int           `json:"next,omitempty"`
}
