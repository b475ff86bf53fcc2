package fsm

// NamespaceID names a namespace for ever: the catalog draws it at creation and never
// reuses it.
type NamespaceID uint32

// DefaultNamespace is there from the founding of a cluster and cannot be deleted. Clients
// whose host name selects no other one are in it.
const DefaultNamespace NamespaceID = 1

// DefaultNamespaceName is what the default namespace is called, like every namespace by a
// label of its host names.
const DefaultNamespaceName = "default"

// Namespace is a set of entities with keys and limits of its own, chosen by the host name
// that a client opens with. Names of entities are unique within one.
type Namespace struct {
	ID NamespaceID `json:"ID"`
	// Name is a DNS label: 1 to 50 letters, digits and inner hyphens; unique, matched
	// without case. A host name whose first label it is selects the namespace.
	Name     string            `json:"Name"`
	Settings NamespaceSettings `json:"Settings"`
	// Access are the rules that clients of any entity in it may sign with, by name, at most
	// accessRulesMax.
	Access  []AccessRule `json:"Access"`
	Version uint64       `json:"Version"` // rises with every change of Settings or Access
	Created Instant      `json:"Created"`
	Updated Instant      `json:"Updated"`
}

// NamespaceSettings is what an operator chooses for a namespace. The zero value is
// complete: it has no host names of its own and no limits but those of the cluster.
type NamespaceSettings struct {
	// Hosts are further host names that select it, whole and in lower case, at most
	// namespaceHostsMax of at most hostBytesMax bytes each; no two namespaces share one.
	Hosts []string `json:"Hosts"`
	// MessageBytesMax is the tier: the largest MaxMessageBytes that an entity may have. 0: as
	// large as the cluster allows.
	MessageBytesMax uint32 `json:"MessageBytesMax"`
	// LockDurationMax is the longest LockDuration that an entity may have: up to 24 h, where
	// the cloud ends at five minutes. 0: five minutes.
	LockDurationMax Millis `json:"LockDurationMax"`
	// EntitiesMax bounds its queues and topics together. 0: no bound of its own.
	EntitiesMax  uint32 `json:"EntitiesMax"`
	UserMetadata string `json:"UserMetadata"` // UTF-8, at most 1024 bytes
}

// AccessRule is a named pair of secrets and what their holder may do: a shared access
// authorization rule. Two secrets, so that one can be changed while clients use the other.
type AccessRule struct {
	Name      string  `json:"Name"`      // 1 to 256 bytes, no control characters; compared exactly
	Primary   string  `json:"Primary"`   // 1 to 256 bytes of text, signed with as it is written
	Secondary string  `json:"Secondary"` // the same, or "": none
	Rights    Rights  `json:"Rights"`    // not zero
	Created   Instant `json:"Created"`
	Updated   Instant `json:"Updated"`
}

// CreateNamespace makes a namespace. Result: Namespace; EntityExists when the name or a
// host is taken, QuotaExceeded beyond namespacesMax.
type CreateNamespace struct {
	Name     string
	Settings NamespaceSettings
	Access   []AccessRule // Created and Updated are set by the machine
}

// UpdateNamespace changes the settings of a namespace. Entities that are over a new limit
// stay as they are. Result: Version; EntityNotFound, EntityExists (a host is taken).
type UpdateNamespace struct {
	Namespace NamespaceID
	Settings  NamespaceSettings
}

// DeleteNamespace removes a namespace that has no entities, dropping ones included:
// PreconditionFails when it has some, NotAllowed for the default one, EntityNotFound.
type DeleteNamespace struct{ Namespace NamespaceID }

// SetAccess replaces the access rules of an entity, or of a namespace where Entity is 0.
// Created of a rule whose name was there stays, Updated changes with the rule. Result:
// Version; EntityNotFound; PreconditionFails when Version is not 0 and not the one held
// (of the namespace, or of Entity.AccessVersion); InvalidArgument beyond accessRulesMax,
// for a name given twice, and for a subscription, which has none of its own.
type SetAccess struct {
	Namespace NamespaceID
	Entity    EntityID
	Version   uint64
	Rules     []AccessRule
}

func (CreateNamespace) command() {}
func (UpdateNamespace) command() {}
func (DeleteNamespace) command() {}
func (SetAccess) command()       {}
