package login

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// CheckEvery is how often the keys that links depend on are checked.
const CheckEvery = 10 * time.Second

// Conn is what Credentials need of their connection.
type Conn interface {
	// Lock locks the mutex that guards the Credentials; Unlock unlocks it.
	sync.Locker
	// URLOf returns the address of an entity as the service writes it in texts for the client.
	URLOf(path string) string
	// CountRefused counts a token that was refused.
	CountRefused()
	// Closing reports whether the connection is closing, so that it needs no more grants. The mutex is held.
	Closing() bool
	// Authenticated is called once, for the first credential that is accepted. key is the access rule or the subject
	// for which the memory and the work of the connection count. The mutex is held.
	Authenticated(key string)
	// GrantsChanged is called when NextCheck may have become earlier. The mutex is held.
	GrantsChanged()
	// RightsLost detaches the links that no grant covers any longer, after grants have ended. The mutex is held.
	RightsLost(ctx context.Context, now time.Time, lost Lost)
}

// Broker has the methods of amqp.Broker that Credentials call; the same rules apply to them.
type Broker interface {
	Namespace(ctx context.Context, host string) (fsm.NamespaceID, error)
	Resolve(ctx context.Context, namespace fsm.NamespaceID, path string) (fsm.EntityRef, error)
}

// Config configures the Credentials of one connection.
type Config struct {
	Conn       Conn
	Broker     Broker
	Authorizer Authorizer
	Log        *slog.Logger
	AuditLog   *slog.Logger        // records security events; see Credentials.Audit
	MissingLog *refusal.LogLimiter // limits the lines of Audit about missing rights
	Peer       net.Addr            // the client
	Origin     netip.Addr          // the address of the client that MissingLog counts
	// ForeignOrigin says that a web page of another host opened the connection. A browser presents the certificate of its
	// user to every host that asks for one, whatever page opens the WebSocket, so that the certificate proves nothing.
	ForeignOrigin bool
}

// Credentials are the credentials of one connection and the rights that they give. The mutex of the connection
// guards all fields below config.
type Credentials struct {
	config Config

	hostNamespace fsm.NamespaceID // that the host name selected; set before the first begin
	namespace     fsm.NamespaceID // hostNamespace, or that of the first credential; does not change once authenticated
	identity      identity        // that SASL accepted
	authenticated bool            // a credential was accepted
	grants        grants
	expired       grants    // that were removed because they had expired, by path; at most AudiencesMax
	checked       time.Time // when the grants were last checked for revoked keys
}

// New returns the Credentials of a connection that has presented none. It is in the default namespace.
func New(config Config) Credentials {
	return Credentials{config: config, hostNamespace: fsm.DefaultNamespace, namespace: fsm.DefaultNamespace, grants: make(grants)}
}

// LimitMissing replaces Config.MissingLog before the connection is used.
func (c *Credentials) LimitMissing(limiter *refusal.LogLimiter) { c.config.MissingLog = limiter }

// client returns the identity of the connection for the Authorizer.
func (c *Credentials) client() Client { return Client{Namespace: c.hostNamespace, Peer: c.config.Peer} }

// Namespace returns the namespace of the connection. It does not change once the connection is authenticated; until then
// the mutex is held.
func (c *Credentials) Namespace() fsm.NamespaceID { return c.namespace }

// Authenticated reports whether a credential was accepted. The mutex is held.
func (c *Credentials) Authenticated() bool { return c.authenticated }

// Grants returns the number of grants that are stored. The mutex is held.
func (c *Credentials) Grants() int { return len(c.grants) }

// add makes a credential valid for its scope. It returns false if there are too many. The mutex is held.
func (c *Credentials) add(ctx context.Context, add grant, now time.Time) bool {
	old, ok := c.grants.put(add)
	if !ok {
		c.check(ctx, now, false) // this removes expired grants
		if old, ok = c.grants.put(add); !ok {
			return false
		}
	}
	delete(c.expired, add.Path)
	if lost := old.Rights &^ add.Rights; lost != 0 {
		// Only the latest token for an audience is valid (docs/service-bus-protocol.md#token-lifetime).
		// Otherwise links that depend on rights of the previous one would never end.
		old.Rights = lost
		c.config.Conn.RightsLost(ctx, now, Lost{add.Path: {old, grantReplaced}})
	}
	if c.checked.IsZero() {
		c.checked = now
	}
	if !c.authenticated {
		c.authenticated = true
		c.config.Conn.Authenticated(cmp.Or(add.Name, add.name))
	}
	c.config.Conn.GrantsChanged()
	return true
}

// Covers reports whether the credentials of the connection give a right for path. revoked reports that the key of one of
// them is no longer valid: then the caller calls CheckKeys. The mutex is held.
func (c *Credentials) Covers(path string, right fsm.Rights, now time.Time) (ok, revoked bool) {
	return c.grants.allow(path, right, now)
}

// Allows reports whether the credentials of the connection give a right for path. If it finds that a key is
// no longer valid, it detaches the links of that key at once. The mutex is held.
func (c *Credentials) Allows(ctx context.Context, path string, right fsm.Rights, now time.Time) bool {
	ok, revoked := c.grants.allow(path, right, now)
	if revoked {
		c.check(ctx, now, true)
	}
	return ok
}

// CheckKeys removes the grants that have expired or whose key is no longer valid, and detaches the links that depend on
// them; the connection remains. The mutex is held.
func (c *Credentials) CheckKeys(ctx context.Context, now time.Time) { c.check(ctx, now, true) }

// check is CheckKeys, but checks the keys only with checkKeys. The mutex is held.
func (c *Credentials) check(ctx context.Context, now time.Time, checkKeys bool) {
	if checkKeys {
		c.checked = now
	}
	lost := c.grants.removeInvalid(now, checkKeys)
	if len(lost) == 0 {
		return
	}
	for path, l := range lost {
		if l.reason == grantExpired && len(c.expired) < AudiencesMax {
			if c.expired == nil {
				c.expired = make(grants)
			}
			c.expired[path] = l.grant
		}
		if l.reason == keyRevoked {
			c.Audit(ctx, slog.LevelWarn, auditKeyLost, slog.String("kind", l.kind), slog.String("name", l.name), slog.String("path", path))
		}
	}
	c.config.Conn.RightsLost(ctx, now, lost)
}

// Refusal returns the reason why a link has lost its right. A right of 0 means any right.
func (l Lost) Refusal(path string, right fsm.Rights) refusal.Cause {
	if right == 0 {
		right = fsm.Manage
	}
	was, ok := l.find(path, right)
	var text string
	switch {
	case !ok: // detected when another link lost its right
		return Unauthorized(path, right)
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

// Missing returns the refusal for a right that the credentials do not give now: expiredToken if one of them gave it
// (0 means any right). The mutex is held.
func (c *Credentials) Missing(path string, right fsm.Rights, now time.Time) refusal.Cause {
	for key := fsm.PathKey(path); ; key = fsm.PathAbove(key) {
		for _, held := range []grants{c.grants, c.expired} {
			if g, ok := held[key]; ok && g.expired(now) && g.kind != kindExternal && (right == 0 || g.Rights&right != 0) {
				return expiredToken(path, g.Expires)
			}
		}
		if key == "" {
			return Unauthorized(path, right)
		}
	}
}

// Unauthorized returns the refusal for a missing right, in the words of the cloud.
func Unauthorized(path string, right fsm.Rights) refusal.Cause {
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
	auditLogin        = "login"         // a password, certificate or token was accepted
	auditLoginRefused = "login_refused" // before or after the Authorizer was asked
	auditRightMissing = "right_missing" // for a link or a request to a management node
	auditKeyLost      = "key_lost"      // changed or removed while the connection used it
)

// Audit writes a line to the audit log. It never contains a secret.
func (c *Credentials) Audit(ctx context.Context, level slog.Level, event string, about ...slog.Attr) {
	if !c.config.AuditLog.Enabled(ctx, level) {
		return
	}
	all := append(make([]slog.Attr, 0, 8), slog.String("event", event),
		slog.String("peer", c.config.Peer.String()), slog.Uint64("namespace", uint64(c.namespace)))
	c.config.AuditLog.LogAttrs(ctx, level, "audit", append(all, about...)...)
}

// Who returns the kind and the name of the credential that gives rights for path: of the nearest grant, or of the login. The
// mutex is held.
func (c *Credentials) Who(path string) (kind, name string) {
	by := c.identity
	for path = fsm.PathKey(path); ; path = fsm.PathAbove(path) {
		if held, ok := c.grants[path]; ok {
			by = held.identity()
			break
		}
		if path == "" {
			break
		}
	}
	return by.kind, by.name
}

// auditLoginOnce records a credential that was accepted, but not the next token of the same key. The mutex is held.
func (c *Credentials) auditLoginOnce(ctx context.Context, held grant) {
	for _, other := range c.grants {
		if other.identity() == held.identity() {
			return
		}
	}
	by := held.identity()
	c.Audit(ctx, slog.LevelInfo, auditLogin, slog.String("kind", by.kind), slog.String("name", by.name), slog.String("path", held.Path))
}

// CheckDue removes the grants that have expired, and every CheckEvery those whose keys are no longer valid. The mutex is
// held.
func (c *Credentials) CheckDue(ctx context.Context, now time.Time) {
	c.check(ctx, now, now.Sub(c.checked) >= CheckEvery)
}

// NextCheck returns when CheckDue has to be called next; the zero Time if it need not be. The mutex is held.
func (c *Credentials) NextCheck() time.Time {
	first, revocable := c.grants.next()
	if check := c.checked.Add(CheckEvery); revocable && (first.IsZero() || check.Before(first)) {
		return check
	}
	return first
}

// AuditMissing records that a right was missing, a few times a second for each client, so that a client that
// repeats its requests does not fill the log.
func (c *Credentials) AuditMissing(ctx context.Context, path string, right fsm.Rights, operation string) {
	ok, before := c.config.MissingLog.Allow(c.config.Origin, time.Now())
	if !ok {
		return
	}
	about := []slog.Attr{slog.String("path", path), slog.String("right", claimText(right))}
	if operation != "" {
		about = append(about, slog.String("operation", operation))
	}
	if c.identity.kind != "" {
		about = append(about, slog.String("kind", c.identity.kind), slog.String("name", c.identity.name))
	}
	if before > 0 {
		about = append(about, slog.Int("not_logged", before))
	}
	c.Audit(ctx, slog.LevelWarn, auditRightMissing, about...)
}
