package api

import (
	"time"

	"github.com/peeklock/peeklock/admin/entity"
)

// Namespace is the JSON form of a namespace: a set of entities with keys and limits of its own.
type Namespace struct {
	Name string `json:"name"` // a DNS label, as spelled at creation; "default" always exists
	NamespaceSettings
	Version uint64    `json:"version"` // incremented by every change of settings or access rules
	Created time.Time `json:"createdAt"`
	Updated time.Time `json:"updatedAt"`
	// AccessRules, with their keys, are in the answer to a creation only; /v1/access shows them
	// later.
	AccessRules []AccessRule `json:"accessRules,omitempty"`
	// Usage is what it stores, in the answer to a request for one namespace only.
	Usage *NamespaceUsage `json:"usage,omitempty"`
}

// NamespaceUsage is what a namespace stores, added up by the leaders of its partitions within two seconds. MemoryBytes is
// estimated; each replica takes the bytes once.
type NamespaceUsage struct {
	// QueuesAndTopics is what maxEntities limits.
	QueuesAndTopics int    `json:"queuesAndTopics"`
	Entities        uint64 `json:"entities"` // with subscriptions; shards count one each
	Messages        uint64 `json:"messages"` // in all states; each copy in a subscription is one
	Rules           uint64 `json:"rules"`
	Sessions        uint64 `json:"sessions"`      // with messages or a state
	RememberedIDs   uint64 `json:"rememberedIds"` // message ids of duplicate detection
	MemoryBytes     uint64 `json:"memoryBytes"`
	DiskBytes       uint64 `json:"diskBytes"`
	// Shares are those of the member that answers.
	Shares []NamespaceShare `json:"shares"`
}

// NamespaceShare is what a namespace holds of a resource that namespaces or keys share at a member.
type NamespaceShare struct {
	// Resource is "memory" or "disk" for what is stored, in bytes, otherwise a resource that requests and links hold, such as
	// "links".
	Resource string `json:"resource"`
	Held     uint64 `json:"held"`
	// Share is the most that the namespace may hold now, and of what requests hold the most that one of its keys may; 0 if that
	// is not limited.
	Share uint64 `json:"share"`
	// Largest is the namespace that holds the most above its share at any member, so that it is refused first.
	Largest string `json:"largest,omitempty"`
}

// NamespaceSettings are the settings of a namespace. A field that is nil is kept by PATCH, and gets its default from PUT.
type NamespaceSettings struct {
	// Hosts are host names, whole and without port, that select the namespace beside those
	// whose first label is its name; at most 16. Not nil and empty: none.
	Hosts []string `json:"hosts,omitzero"`
	// MaxMessageBytes is the largest maxMessageBytes that an entity may have, 1 KiB to 100 MiB;
	// 0, the default: as large as the cluster allows.
	MaxMessageBytes *uint32 `json:"maxMessageBytes,omitempty"`
	// MaxLockDuration is the longest lockDuration that an entity may have, 5 s to 24 h; default 5
	// min, which "0s" chooses too.
	MaxLockDuration *entity.Duration `json:"maxLockDuration,omitempty"`
	MaxEntities     *uint32          `json:"maxEntities,omitempty"` // queues and topics together; 0, the default: no limit of its own
	// MaxBytes, MaxMessages and MaxRules limit diskBytes, messages and rules of the usage; 0, the default: no limit of its own.
	// Beyond them the namespace is refused more, by sums that are up to two seconds old.
	MaxBytes     *uint64 `json:"maxBytes,omitempty"`
	MaxMessages  *uint64 `json:"maxMessages,omitempty"`
	MaxRules     *uint64 `json:"maxRules,omitempty"`
	UserMetadata *string `json:"userMetadata,omitempty"` // at most 1024 bytes
}

// NamespaceRequest is the body of PUT /v1/namespaces/{name}.
type NamespaceRequest struct {
	NamespaceSettings
	// AccessRules are its first access rules; none: RootManageSharedAccessKey with all rights and random keys.
	AccessRules []entity.AccessRuleRequest `json:"accessRules,omitempty"`
}

// NamespacePage is one page of the list of namespaces. Next is the "after" of the next
// page, empty at the end.
type NamespacePage struct {
	Namespaces []Namespace `json:"namespaces"`
	Next       string      `json:"next,omitempty"`
}

// AccessRule is a named pair of keys with rights in a namespace or for one queue or topic. It is shown only to callers
// that may manage that.
type AccessRule struct {
	Name         string   `json:"name"`
	Rights       []string `json:"rights"` // entity.RightSend and so on; Manage is always with the other two
	PrimaryKey   string   `json:"primaryKey"`
	SecondaryKey string   `json:"secondaryKey,omitempty"`
	// The connection strings are complete: applications need nothing else. They name the host
	// by which this API was asked, and are left out when that cannot select the namespace.
	PrimaryConnectionString   string    `json:"primaryConnectionString,omitempty"`
	SecondaryConnectionString string    `json:"secondaryConnectionString,omitempty"`
	Created                   time.Time `json:"createdAt"`
	Updated                   time.Time `json:"updatedAt"`
}

// AccessPage answers GET /v1/access and GET /v1/access/{queue or topic} with all rules, by
// name; there are at most 12.
type AccessPage struct {
	Rules []AccessRule `json:"rules"`
}

// The keys of a rule, as RegenerateRequest calls them.
const (
	KeyPrimary   = "primary"
	KeySecondary = "secondary"
)

// RegenerateRequest is the body of POST /v1/regenerate and POST /v1/regenerate/{queue or
// topic}: it replaces a key by a new random one. The
// answer is the AccessRule. Credentials that were signed with the old key are invalid within ten seconds.
type RegenerateRequest struct {
	Rule  string `json:"rule"`
	Which string `json:"which"` // KeyPrimary or KeySecondary
}
