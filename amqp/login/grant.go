package login

import (
	"cmp"
	"slices"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// AudiencesMax limits the tokens kept for one connection. An SDK puts one for each entity and one for its
// management node; 500 entities on one connection are many.
const AudiencesMax = 1024

// Kinds of credentials, as named in the audit log.
const (
	kindSharedAccess = "sas"
	kindBearer       = "jwt"
	kindPlain        = "plain"
	kindExternal     = "external"
)

// identity is the identity that SASL accepted, for the audit log. The zero value means that there was none.
type identity struct{ kind, name string }

// grant is one credential that the Authorizer accepted, with the attributes that the audit log records.
type grant struct {
	Grant
	kind string // kindSharedAccess and so on
	name string // name of the access rule, if the gateway knows it: empty for tokens
}

// identity returns the kind and the name of the access rule, or of the subject of a JWT.
func (g *grant) identity() identity { return identity{g.kind, cmp.Or(g.Name, g.name)} }

// expired reports whether the credential has expired.
func (g *grant) expired(now time.Time) bool { return !g.Expires.IsZero() && !now.Before(g.Expires) }

// revoked reports whether the key of the credential was changed or removed.
func (g *grant) revoked() bool { return g.Valid != nil && !g.Valid() }

// grants holds the rights of the credentials of a connection by the authorized Path. The path "" is the
// namespace. The mutex of the connection guards it.
type grants map[string]grant

// put stores a grant in place of an older one for the same path, which it returns. It returns false if there
// are too many.
func (g grants) put(add grant) (old grant, ok bool) {
	old, known := g[add.Path]
	if !known && len(g) >= AudiencesMax {
		return grant{}, false
	}
	g[add.Path] = add
	return old, true
}

// allow reports whether the grants for path, for its entity, and for the namespace together give right.
// revoked reports that one of them is still stored although its key is no longer valid.
func (g grants) allow(path string, right fsm.Rights, now time.Time) (ok, revoked bool) {
	path = fsm.PathKey(path)
	var have fsm.Rights
	for {
		if grant, known := g[path]; known && !grant.expired(now) {
			if grant.revoked() {
				revoked = true
			} else {
				have |= grant.Rights
			}
		}
		if have&right == right {
			return true, revoked
		}
		if path == "" {
			return false, revoked
		}
		path = fsm.PathAbove(path)
	}
}

// lossReason is the reason why a grant is no longer valid.
type lossReason uint8

const (
	grantExpired  lossReason = iota
	keyRevoked               // its rule was removed, or its key changed
	grantReplaced            // by one with fewer rights
)

// Lost holds the grants that are no longer valid, by path.
type Lost map[string]lostGrant

type lostGrant struct {
	grant
	reason lossReason
}

// removeInvalid removes the grants that have expired and, with checkKeys, those whose key is no longer valid, and
// returns them.
func (g grants) removeInvalid(now time.Time, checkKeys bool) (lost Lost) {
	for path, held := range g {
		cause := grantExpired
		switch {
		case held.expired(now):
		case checkKeys && held.revoked():
			cause = keyRevoked
		default:
			continue
		}
		if lost == nil {
			lost = make(Lost)
		}
		lost[path] = lostGrant{held, cause}
		delete(g, path)
	}
	return lost
}

// find returns the grant that gave a right for path before.
func (l Lost) find(path string, right fsm.Rights) (lostGrant, bool) {
	for path = fsm.PathKey(path); ; path = fsm.PathAbove(path) {
		if lost, ok := l[path]; ok && lost.Rights&right != 0 {
			return lost, true
		}
		if path == "" {
			return lostGrant{}, false
		}
	}
}

// next returns when the next grant expires, the zero Time if none does, and whether there are keys to check.
func (g grants) next() (first time.Time, revocable bool) {
	for _, grant := range g {
		if e := grant.Expires; !e.IsZero() && (first.IsZero() || e.Before(first)) {
			first = e
		}
		revocable = revocable || grant.Valid != nil
	}
	return first, revocable
}

// namesMax limits the names that Names returns.
const namesMax = 8

// Names returns the names of the access rules and the subjects of the credentials that the connection has, ordered, at most
// 8. The mutex is held.
func (c *Credentials) Names() []string {
	var names []string
	for _, g := range c.grants {
		name := g.identity().name
		if at, known := slices.BinarySearch(names, name); name != "" && !known && len(names) < namesMax {
			names = slices.Insert(names, at, name)
		}
	}
	return names
}
