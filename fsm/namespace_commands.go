package fsm

import "encoding/binary"

// CreateNamespace creates a namespace. Result: Namespace; EntityExists if the name or a host is
// taken, QuotaExceeded beyond namespacesMax.
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
// Entity.AccessVersion); InvalidArgument beyond accessRulesMax, for a duplicate name, and for a
// subscription, which has none of its own.
type SetAccess struct {
	Namespace NamespaceID
	Entity    EntityID
	Version   uint64
	Rules     []AccessRule
}

func (CreateNamespace) command() {}

// accessBytesMin is the fewest bytes an access rule takes: three texts and the rights.
const accessBytesMin = 4

func appendCreateNamespace(dst []byte, c CreateNamespace) []byte {
	return appendAccess(appendNamespaceSettings(appendString(dst, c.Name), &c.Settings), c.Access)
}

func appendNamespaceSettings(dst []byte, s *NamespaceSettings) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s.Hosts)))
	for _, host := range s.Hosts {
		dst = appendString(dst, host)
	}
	dst = binary.AppendUvarint(dst, uint64(s.MessageBytesMax))
	dst = binary.AppendUvarint(dst, uint64(s.LockDurationMax))
	dst = binary.AppendUvarint(dst, uint64(s.EntitiesMax))
	return appendString(dst, s.UserMetadata)
}

func (r *reader) namespaceSettings() NamespaceSettings {
	var s NamespaceSettings
	if n := r.count(1); n > 0 {
		s.Hosts = make([]string, n)
		for i := range s.Hosts {
			s.Hosts[i] = r.string()
		}
	}
	s.MessageBytesMax, s.LockDurationMax = r.uint32(), r.millis()
	s.EntitiesMax, s.UserMetadata = r.uint32(), r.string()
	return s
}

func appendSetAccess(dst []byte, c SetAccess) []byte {
	dst = binary.AppendUvarint(dst, uint64(c.Namespace))
	dst = binary.AppendUvarint(dst, uint64(c.Entity))
	return appendAccess(binary.AppendUvarint(dst, c.Version), c.Rules)
}

// appendAccess leaves out when the rules were made and changed: the machine says that.
func appendAccess(dst []byte, rules []AccessRule) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(rules)))
	for i := range rules {
		dst = appendString(dst, rules[i].Name)
		dst = appendString(dst, rules[i].Primary)
		dst = append(appendString(dst, rules[i].Secondary), byte(rules[i].Rights))
	}
	return dst
}

func (r *reader) access() []AccessRule {
	n := r.count(accessBytesMin)
	if n == 0 {
		return nil
	}
	rules := make([]AccessRule, n)
	for i := range rules {
		rules[i] = AccessRule{Name: r.string(), Primary: r.string(), Secondary: r.string(), Rights: Rights(r.byte())}
	}
	return rules
}

func (UpdateNamespace) command() {}
func (DeleteNamespace) command() {}
func (SetAccess) command()       {}
