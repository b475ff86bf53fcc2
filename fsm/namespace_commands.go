package fsm

import "github.com/peeklock/peeklock/fsm/fields"

// CreateNamespace creates a namespace. Result: Namespace; EntityExists if the name or a host is
// taken, QuotaExceeded beyond NamespacesMax.
type CreateNamespace struct {
	Name     string
	Settings NamespaceSettings
	Access   []AccessRule // Created and Updated are set by the state machine
}

// UpdateNamespace changes the settings of a namespace. Entities that exceed a new limit stay as
// they are. Result: Version; EntityNotFound, EntityExists (a host is taken).
type UpdateNamespace struct {
	Namespace NamespaceID
	Settings  NamespaceSettings
}

// DeleteNamespace deletes a namespace that has no entities, including those being deleted:
// PreconditionFails if it has some, NotAllowed for the default namespace, EntityNotFound.
type DeleteNamespace struct{ Namespace NamespaceID }

// SetAccess replaces the access rules of an entity, or of a namespace if Entity is 0. A rule whose
// name existed keeps Created; Updated changes with the rule. Result: Version; EntityNotFound;
// PreconditionFails if Version is not 0 and not the current one (of the namespace, or
// Entity.AccessVersion); InvalidArgument beyond AccessRulesMax, for a duplicate name, and for a
// subscription, which has none of its own.
type SetAccess struct {
	Namespace NamespaceID
	Entity    EntityID
	Version   uint64
	Rules     []AccessRule
}

// grows reports whether the command leaves any rule: to remove the last one, or all, frees data.
func (c SetAccess) grows() bool { return len(c.Rules) > 0 }

// AccessBytesMin is the minimum size of an access rule: three texts and the rights.
const AccessBytesMin = 4

func (CreateNamespace) kind() Kind                           { return KindCreateNamespace }
func (c CreateNamespace) encode(x fields.Codec) fields.Codec { c.fields(&x); return x }

// Check implements [Command].
func (c CreateNamespace) Check() Code {
	return CodeIf(ValidNamespaceName(c.Name) && c.Settings.Validate() == nil && validAccess(c.Access))
}

func (c *CreateNamespace) fields(x *fields.Codec) {
	fields.Text(x, &c.Name)
	c.Settings.Fields(x)
	fieldAccess(x, &c.Access)
}

func (UpdateNamespace) kind() Kind                           { return KindUpdateNamespace }
func (c UpdateNamespace) encode(x fields.Codec) fields.Codec { c.fields(&x); return x }

// Check implements [Command].
func (c UpdateNamespace) Check() Code {
	return CodeIf(c.Namespace != 0 && c.Settings.Validate() == nil)
}

func (c *UpdateNamespace) fields(x *fields.Codec) {
	fields.Uint32(x, &c.Namespace)
	c.Settings.Fields(x)
}

func (DeleteNamespace) kind() Kind                           { return KindDeleteNamespace }
func (c DeleteNamespace) encode(x fields.Codec) fields.Codec { c.fields(&x); return x }

// Check implements [Command].
func (c DeleteNamespace) Check() Code { return CodeIf(c.Namespace != 0) }

func (c *DeleteNamespace) fields(x *fields.Codec) {
	fields.Uint32(x, &c.Namespace)
}

func (SetAccess) kind() Kind                           { return KindSetAccess }
func (c SetAccess) encode(x fields.Codec) fields.Codec { c.fields(&x); return x }

// Check implements [Command].
func (c SetAccess) Check() Code { return CodeIf(c.Namespace != 0 && validAccess(c.Rules)) }

func (c *SetAccess) fields(x *fields.Codec) {
	fields.Uint32(x, &c.Namespace)
	fields.Uint64(x, &c.Entity)
	fields.Uint64(x, &c.Version)
	fieldAccess(x, &c.Rules)
}

// Fields lists the fields of the record for the codec.
func (s *NamespaceSettings) Fields(x *fields.Codec) {
	for i := range fields.Len(x, &s.Hosts, 1) {
		fields.Text(x, &s.Hosts[i])
	}
	fields.Uint32(x, &s.MessageBytesMax)
	fields.Int64(x, &s.LockDurationMax)
	fields.Uint32(x, &s.EntitiesMax)
	fields.Uint64(x, &s.BytesMax)
	fields.Uint64(x, &s.MessagesMax)
	fields.Uint64(x, &s.RulesMax)
	fields.Text(x, &s.UserMetadata)
}

// Fields of an access rule without its times, which the state machine sets.
func (a *AccessRule) Fields(x *fields.Codec) {
	fields.Text(x, &a.Name)
	fields.Text(x, &a.Primary)
	fields.Text(x, &a.Secondary)
	fields.Uint8(x, &a.Rights)
}

func fieldAccess(x *fields.Codec, rules *[]AccessRule) {
	for i := range fields.Len(x, rules, AccessBytesMin) {
		(*rules)[i].Fields(x)
	}
}
