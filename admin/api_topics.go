package admin

import (
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// Topic is a topic as the API shows it.
type Topic struct {
	Name string `json:"name"` // as spelled at creation
	Settings
	Partition fsm.PartitionID `json:"partition"` // its subscriptions are there too
	Version   uint64          `json:"version"`   // rises with every change of the settings
	Created   time.Time       `json:"createdAt"`
	Updated   time.Time       `json:"updatedAt"`
	Counts    *TopicCounts    `json:"counts,omitempty"` // nil: not asked for
}

// TopicCounts is what a topic holds itself; what its subscriptions hold, they say.
type TopicCounts struct {
	Scheduled     uint64 `json:"scheduled"` // messages whose time has not come
	Bytes         uint64 `json:"bytes"`     // each payload once, however many subscriptions share it
	Subscriptions uint64 `json:"subscriptions"`
}

// TopicPage is one answer of the list of topics. Next is the "after" of the next page,
// empty at the end.
type TopicPage struct {
	Topics []Topic `json:"topics"`
	Next   string  `json:"next,omitempty"`
}

// Subscription is a subscription as the API shows it.
type Subscription struct {
	Name             string `json:"name"` // topic/Subscriptions/name: how clients and this API call it
	TopicName        string `json:"topicName"`
	SubscriptionName string `json:"subscriptionName"`
	Settings
	Partition fsm.PartitionID `json:"partition"`
	Version   uint64          `json:"version"` // rises with every change of the settings
	Created   time.Time       `json:"createdAt"`
	Updated   time.Time       `json:"updatedAt"`
	Counts    *Counts         `json:"counts,omitempty"` // nil: not asked for
}

// SubscriptionRequest is the body of PUT /v1/subscriptions/{topic}/Subscriptions/{name}.
type SubscriptionRequest struct {
	Settings
	// DefaultRule is the first rule. Without it, one named $Default takes everything.
	DefaultRule *Rule `json:"defaultRule,omitempty"`
}

// SubscriptionPage is one answer of the list of the subscriptions of a topic. Next is the
// "after" of the next page, empty at the end.
type SubscriptionPage struct {
	Subscriptions []Subscription `json:"subscriptions"`
	Next          string         `json:"next,omitempty"`
}

// The kinds of filters, as the API calls them.
const (
	FilterSQL         = "sql"
	FilterCorrelation = "correlation"
	FilterTrue        = "true"
	FilterFalse       = "false"
)

// Rule is a rule of a subscription: which messages of the topic it takes, and how its
// copies differ.
type Rule struct {
	Name    string     `json:"name,omitempty"` // 1 to 50 characters; in a request as in its path, or left out
	Filter  Filter     `json:"filter"`
	Action  *SQLText   `json:"action,omitempty"`    // nil: none
	Created *time.Time `json:"createdAt,omitempty"` // the member's; of no effect in a request
}

// Filter is the condition of a rule.
type Filter struct {
	Kind string `json:"kind"` // FilterSQL and so on
	// Expression and Parameters belong to FilterSQL.
	Expression string           `json:"expression,omitempty"`
	Parameters map[string]Value `json:"parameters,omitempty"` // by name without @
	// Conditions belong to FilterCorrelation: what each property must be. "sys.Label" and its
	// like are what Service Bus defines, other names are application properties, before
	// which "user." may stand.
	Conditions map[string]Value `json:"conditions,omitempty"`
}

// SQLText is the action of a rule: a text of the language with values of its parameters.
type SQLText struct {
	Expression string           `json:"expression"`
	Parameters map[string]Value `json:"parameters,omitempty"`
}

// RulePage is one answer of the list of rules, in the order of their making. Next is the
// "skip" of the next page, 0 at the end.
type RulePage struct {
	Rules []Rule `json:"rules"`
	Next  int    `json:"next,omitempty"`
}
