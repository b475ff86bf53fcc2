package amqp

import (
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// audiencesMax bounds the tokens kept for one connection. An SDK puts one for each
// entity and one for its management node; 500 entities on a connection are many.
const audiencesMax = 1024

// The kinds of credentials, as the audit log calls them.
const (
	kindSharedAccess = "sas"
	kindBearer       = "jwt"
	kindPlain        = "plain"
	kindExternal     = "external"
)

// grant is one credential that the Authorizer took, and what the audit log tells of it.
type grant struct {
	Grant
	kind string // kindSharedAccess and so on
	name string // of the rule, where the gateway knows it: not of tokens
}

// expired says whether the credential has run out by itself.
func (g *grant) expired(now time.Time) bool { return !g.Expires.IsZero() && !now.Before(g.Expires) }

// revoked says whether the key behind it was changed or removed.
func (g *grant) revoked() bool { return g.Valid != nil && !g.Valid() }

// grants is what the credentials put on a connection allow, by the Path that was authorized. The path
// "" is the namespace. Owned by the connection's mutex.
type grants map[string]grant

// put keeps a grant in place of an older one for the same path, which it returns. False when there
// are too many.
func (g grants) put(add grant) (old grant, ok bool) {
	old, known := g[add.Path]
	if !known && len(g) >= audiencesMax {
		return grant{}, false
	}
	g[add.Path] = add
	return old, true
}

// allow says whether the grants for path, for the entity that it is a part of, and for the
// namespace give right together. stale says that one of them counts no more because its key
// is gone, and is still here.
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

// lossReason is why a grant counts no more.
type lossReason uint8

const (
	grantExpired  lossReason = iota
	keyRevoked               // its rule was removed, or its key changed
	grantReplaced            // by one with fewer rights
)

// lostGrants are grants that count no more, by path.
type lostGrants map[string]lostGrant

type lostGrant struct {
	grant
	reason lossReason
}

// removeInvalid takes out the grants that have run out and, with ask, those whose key is gone, and
// returns them.
func (g grants) removeInvalid(now time.Time, checkKeys bool) (lost lostGrants) {
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
			lost = make(lostGrants)
		}
		lost[path] = lostGrant{held, cause}
		delete(g, path)
	}
	return lost
}

// find is the grant that gave a right for path before.
func (l lostGrants) find(path string, right fsm.Rights) (lostGrant, bool) {
	for path = fsm.PathKey(path); ; path = fsm.PathAbove(path) {
		if lost, ok := l[path]; ok && lost.Rights&right != 0 {
			return lost, true
		}
		if path == "" {
			return lostGrant{}, false
		}
	}
}

// next is when the next grant runs out, the zero Time when none does; and whether there are
// keys to ask about.
func (g grants) next() (first time.Time, revocable bool) {
	for _, grant := range g {
		if e := grant.Expires; !e.IsZero() && (first.IsZero() || e.Before(first)) {
			first = e
		}
		revocable = revocable || grant.Valid != nil
	}
	return first, revocable
}
