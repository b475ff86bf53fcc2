package amqp

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/peeklock/peeklock/amqp/budget"
	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// The functions below store the rights that credentials give a connection, and detach links that have lost
// their right.

// addGrant makes a credential valid for its scope. It returns false if there are too many. mu is held.
func (c *conn) addGrant(ctx context.Context, add grant, now time.Time) bool {
	old, ok := c.grants.put(add)
	if !ok {
		c.checkGrants(ctx, now, false) // this removes expired grants
		if old, ok = c.grants.put(add); !ok {
			return false
		}
	}
	delete(c.expiredGrants, add.Path)
	if lost := old.Rights &^ add.Rights; lost != 0 {
		// Only the latest token for an audience is valid (docs/service-bus-protocol.md#token-lifetime).
		// Otherwise links that depend on rights of the previous one would never end.
		old.Rights = lost
		c.detachUnauthorized(ctx, now, lostGrants{add.Path: {old, grantReplaced}})
	}
	if c.grantsChecked.IsZero() {
		c.grantsChecked = now
	}
	c.setAuthenticated(cmp.Or(add.Name, add.name))
	c.resetTimer()
	return true
}

// setAuthenticated records that the connection is authenticated. From the first call on, the memory that the
// connection holds counts for a key, or a subject, of its namespace. mu is held.
func (c *conn) setAuthenticated(key string) {
	if c.authenticated {
		return
	}
	c.authenticated = true
	if c.openWork != nil {
		c.openWork(key)
	}
	c.memory.account.Assign(budget.Owner{Namespace: uint32(c.namespace), Key: key})
	if c.onAuthenticated != nil {
		c.onAuthenticated()
	}
}

// hasRight reports whether the credentials of the connection give a right for path. If it finds that a key is
// no longer valid, it detaches the links of that key at once. mu is held.
func (c *conn) hasRight(ctx context.Context, path string, right fsm.Rights, now time.Time) bool {
	ok, revoked := c.grants.allow(path, right, now)
	if revoked {
		c.checkGrants(ctx, now, true)
	}
	return ok
}

// checkGrants removes the grants that are no longer valid and detaches the links that depend on them; the
// connection remains. With checkKeys it also checks the keys. mu is held.
func (c *conn) checkGrants(ctx context.Context, now time.Time, checkKeys bool) {
	if checkKeys {
		c.grantsChecked = now
	}
	lost := c.grants.removeInvalid(now, checkKeys)
	if len(lost) == 0 {
		return
	}
	for path, l := range lost {
		if l.reason == grantExpired && len(c.expiredGrants) < audiencesMax {
			if c.expiredGrants == nil {
				c.expiredGrants = make(grants)
			}
			c.expiredGrants[path] = l.grant
		}
		if l.reason == keyRevoked {
			c.audit(ctx, slog.LevelWarn, auditKeyLost, slog.String("kind", l.kind), slog.String("name", l.name), slog.String("path", path))
		}
	}
	c.detachUnauthorized(ctx, now, lost)
}

// detachUnauthorized detaches the links that no grant covers any longer, including those whose attach is not
// complete. mu is held.
func (c *conn) detachUnauthorized(ctx context.Context, now time.Time, lost lostGrants) {
	for _, s := range c.sessions {
		for _, e := range s.links {
			l := e.base()
			if path, ok, _ := l.permitted(now); !ok {
				l.detach(ctx, e, lost.refusal(path, l.right))
			}
		}
	}
}

// refusal returns the reason why a link has lost its right. A right of 0 means any right.
func (l lostGrants) refusal(path string, right fsm.Rights) refusal.Cause {
	if right == 0 {
		right = fsm.Manage
	}
	was, ok := l.find(path, right)
	var text string
	switch {
	case !ok: // detected when another link lost its right
		return unauthorized(path, right)
	case was.reason == keyRevoked:
		text = "Unauthorized access to '%s': the key was changed or removed. Use one that is valid."
	case was.reason == grantReplaced:
		text = "Unauthorized access to '%s': the token was replaced by one with fewer rights. Put one on $cbs that has them all."
	case was.kind == kindExternal:
		text = "Unauthorized access to '%s': the client certificate has expired. Connect again with a new one."
	}
	if text == "" {
		return expiredToken(path, was.Expires)
	}
	return refusal.AfterChange(wire.ConditionUnauthorizedAccess, text, path)
}

// expiredToken returns the refusal for a right that a token gave, in the words for which clients search.
func expiredToken(path string, expired time.Time) refusal.Cause {
	return refusal.AfterChange(wire.ConditionUnauthorizedAccess, "ExpiredToken: The token for '%s' has expired. Expiration time: '%s'. Put a new one on $cbs.", path, expired.UTC().Format(http.TimeFormat))
}

// missingRight returns the refusal for a right that the credentials do not give now: expiredToken if one of them gave it
// (0 means any right). mu is held.
func (c *conn) missingRight(path string, right fsm.Rights, now time.Time) refusal.Cause {
	for key := fsm.PathKey(path); ; key = fsm.PathAbove(key) {
		for _, held := range []grants{c.grants, c.expiredGrants} {
			if g, ok := held[key]; ok && g.expired(now) && g.kind != kindExternal && (right == 0 || g.Rights&right != 0) {
				return expiredToken(path, g.Expires)
			}
		}
		if key == "" {
			return unauthorized(path, right)
		}
	}
}

// unauthorized returns the refusal for a missing right, in the words of the cloud.
func unauthorized(path string, right fsm.Rights) refusal.Cause {
	return refusal.AfterChange(wire.ConditionUnauthorizedAccess, "Unauthorized access. %s claim(s) are required to perform this operation. Resource: '%s'. Put a token on $cbs that has them.", claimText(right), path)
}

// claimText returns the name of a right as the messages of the cloud spell it.
func claimText(right fsm.Rights) string {
	if right == fsm.Send {
		return "'Send'"
	}
	if right == fsm.Listen {
		return "'Listen'"
	}
	if right == fsm.Manage {
		return "'Manage'"
	}
	return "'Send' or 'Listen'"
}

// Events of the audit log. The Authorizer records which tokens, passwords and certificates it refused; the
// events below are known only to a connection.
const (
	auditLogin        = "login"         // a password or certificate was accepted
	auditLoginRefused = "login_refused" // before or after the Authorizer was asked
	auditRightMissing = "right_missing" // for a link or a request to a management node
	auditKeyLost      = "key_lost"      // changed or removed while the connection used it

	// Entities that were created for a link, or deleted after it.
	auditTemporaryQueue = "temporary_queue"
	auditTemporaryTopic = "temporary_topic"
	auditSubscription   = "subscription"
)

// audit writes a line to the audit log. It never contains a secret.
func (c *conn) audit(ctx context.Context, level slog.Level, event string, about ...slog.Attr) {
	if !c.config.Audit.Enabled(ctx, level) {
		return
	}
	all := append(make([]slog.Attr, 0, 8), slog.String("event", event),
		slog.String("peer", c.peer.RemoteAddr().String()), slog.Uint64("namespace", uint64(c.namespace)))
	c.config.Audit.LogAttrs(ctx, level, "audit", append(all, about...)...)
}

// auditMissing records that a right was missing, a few times a second for each client, so that a client that
// repeats its requests does not fill the log.
func (c *conn) auditMissing(ctx context.Context, path string, right fsm.Rights, operation string) {
	ok, before := c.missingRightLog.Allow(c.origin, time.Now())
	if !ok {
		return
	}
	about := []slog.Attr{slog.String("path", path), slog.String("right", claimText(right))}
	if operation != "" {
		about = append(about, slog.String("operation", operation))
	}
	if c.login.kind != "" {
		about = append(about, slog.String("kind", c.login.kind), slog.String("name", c.login.name))
	}
	if before > 0 {
		about = append(about, slog.Int("not_logged", before))
	}
	c.audit(ctx, slog.LevelWarn, auditRightMissing, about...)
}
