package fsm

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
	// accessRulesMax.
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
	EntitiesMax  uint32 `json:"EntitiesMax"`
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
