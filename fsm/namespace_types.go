package fsm

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// NamespaceID identifies a namespace permanently: the catalog assigns it at creation and never
// reuses it.
type NamespaceID uint32

// DefaultNamespace exists from the bootstrap of a cluster on and cannot be deleted. Clients whose host
// name selects no other namespace use it.
const DefaultNamespace NamespaceID = 1

// DefaultNamespaceName is the name of the default namespace.
const DefaultNamespaceName = "default"

// Namespace is a set of entities with access rules and limits of its own, selected by the host name
// that a client connects to. Names of entities are unique within a namespace.
type Namespace struct {
	ID NamespaceID `json:"ID"`
	// Name is a DNS label: 1 to 50 letters, digits and inner hyphens; unique, matched
	// case-insensitively. A host name with this first label selects the namespace.
	Name     string            `json:"Name"`
	Settings NamespaceSettings `json:"Settings"`
	// Access are the access rules for all entities of the namespace, by name, at most
	// AccessRulesMax.
	Access  []AccessRule `json:"Access"`
	Version uint64       `json:"Version"` // rises with every change of Settings or Access
	Created Instant      `json:"Created"`
	Updated Instant      `json:"Updated"`
}

// NamespaceSettings are the settings of a namespace. The zero value is complete: no host names of
// its own and no limits but those of the cluster.
type NamespaceSettings struct {
	// Hosts are further host names that select it, complete and in lower case, at most
	// namespaceHostsMax of at most hostBytesMax bytes each; no two namespaces share one.
	Hosts []string `json:"Hosts"`
	// MessageBytesMax is the largest MaxMessageBytes that an entity can have (the tier). 0: the
	// limit of the cluster.
	MessageBytesMax uint32 `json:"MessageBytesMax"`
	// LockDurationMax is the longest LockDuration that an entity can have: up to 24 h; Azure
	// Service Bus allows five minutes. 0: five minutes.
	LockDurationMax Millis `json:"LockDurationMax"`
	// EntitiesMax is the maximum number of queues and topics together. 0: no limit of its own.
	EntitiesMax uint32 `json:"EntitiesMax"`
	// BytesMax, MessagesMax and RulesMax limit DiskBytes, Messages and Rules of the Usage of all its entities. 0: no limit
	// of its own. Leaders refuse before they propose, by sums of the last seconds: the state machine does not count.
	BytesMax     uint64 `json:"BytesMax"`
	MessagesMax  uint64 `json:"MessagesMax"`
	RulesMax     uint64 `json:"RulesMax"`
	UserMetadata string `json:"UserMetadata"` // UTF-8, at most 1024 bytes
}

// AccessRule is a shared access authorization rule: a named pair of secrets and the rights of their
// holder. With two secrets, one can be changed while clients use the other.
type AccessRule struct {
	Name      string  `json:"Name"`      // 1 to 256 bytes, no control characters; compared exactly
	Primary   string  `json:"Primary"`   // 1 to 256 bytes of text, used for signatures as it is written
	Secondary string  `json:"Secondary"` // the same, or "": none
	Rights    Rights  `json:"Rights"`    // not zero
	Created   Instant `json:"Created"`
	Updated   Instant `json:"Updated"`
}

// Validate returns InvalidArgument, as an error, unless every field is in the range that
// [NamespaceSettings] documents.
func (s NamespaceSettings) Validate() error {
	valid := s.MessageBytesMax <= MessageBytesMax && len(s.Hosts) <= namespaceHostsMax &&
		(s.LockDurationMax == 0 || s.LockDurationMax >= lockDurationMin && s.LockDurationMax <= lockDurationMax) &&
		len(s.UserMetadata) <= UserMetadataBytesMax && utf8.ValidString(s.UserMetadata)
	for i, host := range s.Hosts {
		valid = valid && validHost(host) && !slices.Contains(s.Hosts[:i], host)
	}
	if !valid {
		return InvalidArgument
	}
	return nil
}

// Equal reports whether two settings are the same.
func (s NamespaceSettings) Equal(t *NamespaceSettings) bool {
	return s.MessageBytesMax == t.MessageBytesMax && s.LockDurationMax == t.LockDurationMax && s.EntitiesMax == t.EntitiesMax &&
		s.BytesMax == t.BytesMax && s.MessagesMax == t.MessagesMax && s.RulesMax == t.RulesMax &&
		s.UserMetadata == t.UserMetadata && slices.Equal(s.Hosts, t.Hosts)
}

// localhost is a name of every machine: it selects no namespace.
const localhost = "localhost"

// ValidNamespaceName reports whether a name is valid for a namespace.
func ValidNamespaceName(name string) bool {
	return len(name) <= namespaceNameBytesMax && validLabel(NameKey(name), false) && CompareKey(localhost, name) != 0
}

// validHost reports whether a host name can select a namespace. Addresses cannot: all namespaces
// share the addresses of a machine.
func validHost(host string) bool {
	if len(host) > hostBytesMax || host == localhost || IsAddress(host) {
		return false
	}
	for label := range strings.SplitSeq(host, ".") {
		if !validLabel(label, true) {
			return false
		}
	}
	return true
}

// validLabel reports whether text is a label of a host name (RFC 1123 section 2.1), in lower case.
// Some host names have underscores.
func validLabel(label string, underscore bool) bool {
	if label == "" || len(label) > hostLabelBytesMax || label[0] == '-' || label[len(label)-1] == '-' {
		return false
	}
	for i := range len(label) {
		c := label[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && (c != '_' || !underscore) {
			return false
		}
	}
	return true
}

// IsAddress reports whether a host, without port, is an IPv4 address or ends in a number, which no
// host name does: no top-level domain is a number.
func IsAddress(host string) bool {
	last := host[strings.LastIndexByte(host, '.')+1:]
	for i := range len(last) {
		if last[i] < '0' || last[i] > '9' {
			return false
		}
	}
	return last != ""
}

// Validate returns InvalidArgument, as an error, unless every field is in the range that
// [AccessRule] documents. Rights are some of Send, Listen and Read, or Manage.
func (a AccessRule) Validate() error {
	if a.Name == "" || len(a.Name) > accessNameBytesMax || !utf8.ValidString(a.Name) || strings.ContainsFunc(a.Name, isControl) ||
		!validSecret(a.Primary) || a.Secondary != "" && !validSecret(a.Secondary) ||
		a.Rights == 0 || a.Rights&^(Send|Listen|Read) != 0 && a.Rights != Manage {
		return InvalidArgument
	}
	return nil
}

// isControl reports whether a character must not be repeated in a log or header.
func isControl(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }

func validSecret(text string) bool {
	return text != "" && len(text) <= accessSecretBytesMax && utf8.ValidString(text)
}

// validAccess reports whether these can be the access rules of an entity or namespace.
func validAccess(rules []AccessRule) bool {
	if len(rules) > AccessRulesMax {
		return false
	}
	for i := range rules {
		if rules[i].Validate() != nil || slices.ContainsFunc(rules[:i], func(a AccessRule) bool { return a.Name == rules[i].Name }) {
			return false
		}
	}
	return true
}

// Usage is what stored data takes: that of one entity, or of all entities of a namespace.
type Usage struct {
	Entities uint64 `json:"entities"` // shards count one each
	Messages uint64 `json:"messages"` // in all states and sub-queues; each copy in a subscription is one
	Rules    uint64 `json:"rules"`
	Sessions uint64 `json:"sessions"` // with messages or a state
	// RememberedIDs are the message ids of duplicate detection.
	RememberedIDs uint64 `json:"rememberedIds"`
	// MemoryBytes is what every replica holds in memory, estimated: records of messages, patches, sessions, remembered ids,
	// and parsed rules, but no bodies.
	MemoryBytes uint64 `json:"memoryBytes"`
	// DiskBytes is what every replica holds on disk: payloads, changes of messages by settlements and actions, states of
	// sessions, and the part of its image. Logs and space to be reclaimed are not in it.
	DiskBytes uint64 `json:"diskBytes"`
}

// Add adds other to u.
func (u *Usage) Add(other Usage) {
	u.Entities += other.Entities
	u.Messages += other.Messages
	u.Rules += other.Rules
	u.Sessions += other.Sessions
	u.RememberedIDs += other.RememberedIDs
	u.MemoryBytes += other.MemoryBytes
	u.DiskBytes += other.DiskBytes
}
