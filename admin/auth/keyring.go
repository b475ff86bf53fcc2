package auth

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// The kinds of token that clients name in put-token.
const (
	KindSAS = "servicebus.windows.net:sastoken"
	KindJWT = "jwt"
)

// clockSkewMax is how long a token is accepted after its expiry, since clocks differ.
const clockSkewMax = 5 * time.Second

// Grant is the result of a verification: rights, and where they are valid.
type Grant struct {
	Rights fsm.Rights
	// Namespace and Path are where the grant is valid: there and below (fsm.PathAbove), and nowhere
	// else. Path is as that of a Target; "" is the whole namespace. Callers that store the grant
	// use these two and never parse the audience again.
	Namespace fsm.NamespaceID
	Path      string
	// OwnNamespace: Namespace comes from Config.OwnNamespace, and is not that of the Client.
	OwnNamespace bool
	Expires      time.Time // zero: never
	// Still reports whether the credential is still valid: its rule may have been removed, or its
	// secret changed. nil: it cannot be revoked. Cheap; may be called from any goroutine.
	Valid func() bool
	// Operator: valid for the cluster itself, not only for a namespace.
	Operator bool
	// Name is the access rule or the subject of the JWT, for the audit log.
	Name string
	// OfEntity says that the grant comes from an access rule of the entity that Path is at or
	// below, and is valid for that entity only, not for the namespace.
	EntityOnly bool
	// isStored says that the grant comes from an access rule of the cluster, not from the configuration.
	isStored bool
}

// Client is the client whose credential is verified.
type Client struct {
	Namespace fsm.NamespaceID
	Peer      net.Addr // nil: failures are not counted
	// Release, when not nil, is called before a call waits, perhaps several times: the caller
	// gives back there what other requests need, such as its place among the requests in flight.
	Release func()
	// Host is the host that the client asks for, without port; "" when it is not known.
	Host string
	// HostNamespace is the namespace that the host of the request selects, where the request names another
	// one; else 0. Operators may sign for that host.
	HostNamespace fsm.NamespaceID
}

// Rules are the access rules of the cluster. The methods are safe for concurrent use, and block only where they take a context.
type Rules interface {
	// Access returns the rules of the entity of a path (for a subscription those of its topic), and those of the
	// namespace. The caller must not change them.
	Access(namespace fsm.NamespaceID, path string) (own, shared []fsm.AccessRule)
	// NamespaceName returns the name of a namespace, "" when it does not exist.
	NamespaceName(namespace fsm.NamespaceID) string
	// NamespaceByHost returns the namespace that a host name selects, or the default one. Errors wrap ServerBusy.
	NamespaceByHost(ctx context.Context, host string) (fsm.NamespaceID, error)
	// NamesEntity reports whether a queue or topic of the namespace has this name, in any case.
	NamesEntity(namespace fsm.NamespaceID, name string) bool
	// AwaitConfirmed reports whether the rules may be believed: a member that has just started, or that is cut off from the
	// others, may have rules that were revoked. It may wait for seconds.
	AwaitConfirmed(ctx context.Context) bool
}

// Config of a keyring.
type Config struct {
	// Keys are the keys in the configuration of a member, 1 to 12, with unique names. They are valid in the default
	// namespace. Keys with Manage are those of operators: they are valid in every namespace and for the cluster itself.
	Keys []Key
	// OpenKey is the name of a key that is accepted with any secret, unless an access rule has its name: for development,
	// where the secrets of the keys are public. "": none.
	OpenKey string
	// OwnNamespace gives every key name that is not in use, with the secret DevKey, a namespace of its own, in which it has all
	// rights; for development. It returns the namespace and a function that reports whether the namespace still exists, which
	// is called while the credential is in use. Errors wrap an fsm.Code. nil: unknown names are refused.
	OwnNamespace func(ctx context.Context, keyName string) (fsm.NamespaceID, func() bool, error)
	// Rules are the access rules of the cluster; nil: none.
	Rules Rules
	// Issuer verifies JWTs; nil refuses them.
	Issuer *Issuer
	// Limits of failed logins; nil: DefaultLimits.
	Limits *Limits
	Audit  *slog.Logger     // refused logins; nil: nowhere
	Now    func() time.Time // the clock; nil: time.Now
}

// Validate returns an error that says how to correct the configuration.
func (c Config) Validate() error {
	if len(c.Keys) == 0 {
		return errors.New("no key is configured")
	}
	if len(c.Keys) > keysMax {
		return fmt.Errorf("%d keys are configured, at most %d are possible", len(c.Keys), keysMax)
	}
	seen := make(map[string]bool, len(c.Keys))
	for _, k := range c.Keys {
		if err := k.Validate(); err != nil {
			return err
		}
		if seen[k.Name] {
			return fmt.Errorf("key %q is configured twice", k.Name)
		}
		seen[k.Name] = true
	}
	if c.Limits != nil {
		return c.Limits.Validate()
	}
	return nil
}

// Keyring verifies credentials against the rules of the cluster and the configured keys. It is safe for concurrent use. A refusal takes up to Limits.DelayMax, a JWT
// with a key that is not known yet some seconds more.
type Keyring struct {
	keys    map[string]Key // never changed
	openKey string
	own     func(ctx context.Context, keyName string) (fsm.NamespaceID, func() bool, error)
	rules   Rules
	issuer  *Issuer
	limiter *limiter
	audit   *slog.Logger
	now     func() time.Time
}

// New returns a keyring.
func New(c Config) (*Keyring, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	k := &Keyring{keys: make(map[string]Key, len(c.Keys)), openKey: c.OpenKey, own: c.OwnNamespace, rules: c.Rules, issuer: c.Issuer, audit: c.Audit, now: c.Now}
	if k.now == nil {
		k.now = time.Now
	}
	if k.audit == nil {
		k.audit = slog.New(slog.DiscardHandler)
	}
	limits := DefaultLimits()
	if c.Limits != nil {
		limits = *c.Limits
	}
	k.limiter = newLimiter(limits, k.now)
	for _, key := range c.Keys {
		k.keys[key.Name] = key
	}
	return k, nil
}

// Token verifies a token that a client has put to $cbs. kind is [KindSAS] or [KindJWT], audience the URI that the client
// wants to use, with a host that selects its namespace. Errors wrap fsm.InvalidArgument when token or audience cannot be
// parsed or are for another namespace, fsm.Unauthorized when the token is not sufficient, and fsm.ServerBusy after too
// many failures. Their texts are for the client.
func (k *Keyring) Token(ctx context.Context, from Client, kind, token, audience string) (Grant, error) {
	asked, err := ParseAudience(audience)
	var selected fsm.NamespaceID
	if err == nil {
		selected, err = k.namespaceByHost(ctx, asked.Host)
	}
	if err == nil && selected != from.Namespace {
		err = fmt.Errorf("%w: the host %.100q of the audience selects another namespace than that of the connection: name the host that the connection was opened for", fsm.InvalidArgument, asked.Host)
	}
	if err != nil {
		return k.authenticate(ctx, from, kindName(kind), "", func() (Grant, error) { return Grant{}, err })
	}
	from.Host = asked.Host
	target := TargetOf(asked.Path)
	if hasOtherScheme(audience) {
		target.Written = audience // which clients sign as it is; a signed resource needs a known scheme otherwise
	}
	return k.TokenFor(ctx, from, kind, token, target)
}

// TokenFor verifies a token like Token, for a caller that knows the targets of the request. It verifies for the first of
// the targets that the token claims to be for; the Path of the grant tells which one that is. There must be at least one
// target.
func (k *Keyring) TokenFor(ctx context.Context, from Client, kind, token string, targets ...Target) (Grant, error) {
	switch kind {
	case KindSAS:
		s, err := parseSAS(token)
		return k.authenticate(ctx, from, kindName(kind), s.keyName, func() (Grant, error) {
			if err != nil {
				return Grant{}, fmt.Errorf("%w: %w", fsm.InvalidArgument, err)
			}
			return k.verifySAS(ctx, from, s, targets)
		})
	case KindJWT:
		return k.authenticate(ctx, from, kindName(kind), "", func() (Grant, error) {
			grant, err := k.verifyJWT(ctx, from, token)
			if err == nil {
				grant.Path = targets[0].Path
			}
			return grant, err
		})
	}
	return Grant{}, fmt.Errorf("%w: unknown kind of token", fsm.InvalidArgument)
}

// kindName returns the kind of a token for the audit log.
func kindName(kind string) string {
	switch kind {
	case KindSAS:
		return "sas"
	case KindJWT:
		return "jwt"
	}
	return "unknown"
}

// Password verifies SASL PLAIN: the name of a rule and one of its secrets. It does not try rules of single entities,
// since the entity is not known yet.
func (k *Keyring) Password(ctx context.Context, from Client, user, password string) (Grant, error) {
	return k.authenticate(ctx, from, "plain", user, func() (Grant, error) {
		// Hashed first, so that neither content nor length shows in the time it takes.
		given := sha256.Sum256([]byte(password))
		fits := func(secret string) bool {
			want := sha256.Sum256([]byte(secret))
			return hmac.Equal(given[:], want[:])
		}
		grant, ok := k.findRule(from.Namespace, "", user, fits) //nolint:contextcheck // Grant.Valid outlives the request
		switch {
		case ok:
			return grant, nil
		case k.mayOwnNamespace(from.Namespace, user, fits):
			return k.openOwnNamespace(ctx, user)
		}
		return Grant{}, fmt.Errorf("%w: unknown key name or wrong key", fsm.Unauthorized)
	})
}

// Certificate accepts SASL EXTERNAL: the common name of a verified certificate is the name of a rule, and the certificate
// replaces its secret.
func (k *Keyring) Certificate(ctx context.Context, from Client, certificate *x509.Certificate) (Grant, error) {
	name := certificate.Subject.CommonName
	return k.authenticate(ctx, from, "external", name, func() (Grant, error) { //nolint:contextcheck // Grant.Valid outlives the request
		grant, ok := k.findRule(from.Namespace, "", name, nil)
		if name == "" || !ok {
			return Grant{}, fmt.Errorf("%w: no key is called like the common name of the certificate", fsm.Unauthorized)
		}
		grant.Expires = certificate.NotAfter
		return grant, nil
	})
}

// authenticate verifies a credential. A valid one passes at once, whatever failed before. A failure is counted, its
// answer is delayed, and the audit log gets a line.
func (k *Keyring) authenticate(ctx context.Context, from Client, kind, name string, try func() (Grant, error)) (Grant, error) {
	isConfirmed := k.rules == nil || k.rules.AwaitConfirmed(ctx)
	grant, err := k.verify(ctx, from, try)
	var unknown *unknownKeyError
	if errors.As(err, &unknown) {
		switch newer, failed := k.refresh(ctx, from, unknown); {
		case failed != nil:
			err = failed
		case newer:
			grant, err = k.verify(ctx, from, try)
		}
	}
	if err == nil && (isConfirmed || !grant.isStored) {
		return grant, nil
	}
	if err == nil {
		err = errUnconfirmed // the rule may have been revoked
	}
	if errors.As(err, new(*ExpiredTokenError)) || errors.Is(err, fsm.ServerBusy) { // not an attempt to guess
		k.auditRefusal(ctx, from, kind, name, err.Error())
		return Grant{}, err
	}
	delay, tooMany := k.limiter.recordFailure(from.Peer, from.Namespace, name)
	reason := err.Error()
	if !isConfirmed {
		err = errUnconfirmed // the rule may have been made since
	}
	if tooMany != nil {
		err = tooMany
	}
	k.auditRefusal(ctx, from, kind, name, reason)
	if !k.delay(ctx, from, delay) && tooMany == nil {
		err = &TooManyFailuresError{After: delay}
	}
	return Grant{}, err
}

// verify runs a verification in one of the verification slots of the client.
func (k *Keyring) verify(ctx context.Context, from Client, try func() (Grant, error)) (Grant, error) {
	release, err := k.limiter.acquireVerification(ctx, from.Peer)
	if err != nil {
		return Grant{}, err
	}
	defer release()
	return try()
}

// delay waits before an answer, without a verification slot. It returns false at once when too many answers are being
// delayed.
func (k *Keyring) delay(ctx context.Context, from Client, delay time.Duration) bool {
	if delay <= 0 {
		return true
	}
	release, ok := k.limiter.acquireWait(from.Peer, delayedAnswer)
	if !ok {
		return false
	}
	defer release()
	if from.Release != nil {
		from.Release()
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return true
}

// refresh waits for newer keys of the identity provider, without a verification
// slot.
func (k *Keyring) refresh(ctx context.Context, from Client, tried *unknownKeyError) (newer bool, err error) {
	release, ok := k.limiter.acquireWait(from.Peer, awaitingKeys)
	if !ok {
		return false, fmt.Errorf("%w: too many tokens wait for the keys of the identity provider: try again", fsm.ServerBusy)
	}
	defer release()
	if from.Release != nil {
		from.Release()
	}
	return k.issuer.keys.refresh(ctx, tried)
}

// auditRefusal writes the audit line of a refused login.
func (k *Keyring) auditRefusal(ctx context.Context, from Client, kind, name, reason string) {
	peer := ""
	if from.Peer != nil {
		peer = from.Peer.String()
	}
	k.audit.WarnContext(ctx, "audit", "event", "login_refused", "kind", kind, "name", name, "peer", peer, "namespace", k.namespaceName(from.Namespace), "reason", reason)
}

func (k *Keyring) namespaceName(id fsm.NamespaceID) string {
	if k.rules == nil {
		return fsm.DefaultNamespaceName
	}
	return k.rules.NamespaceName(id)
}

// errUnconfirmed refuses keys that are not in the configuration while the member's access rules may be old.
var errUnconfirmed = fmt.Errorf("%w: this member cannot verify the key, because it does not reach the leader of the catalog: try again", fsm.ServerBusy)

var errAudience = errors.New("InvalidAudience")

// ExpiredTokenError refuses a token whose time is over, in the words of the service, which clients search for. It
// wraps fsm.Unauthorized.
type ExpiredTokenError struct {
	Expired time.Time // end of the token
	Now     time.Time // time of the check
}

// Error begins with the code of the service.
func (e *ExpiredTokenError) Error() string {
	return fmt.Sprintf("ExpiredToken: The token is expired. Expiration time: '%s', Current time: '%s'.",
		e.Expired.UTC().Format(http.TimeFormat), e.Now.UTC().Format(http.TimeFormat))
}

// ExpiredAt returns the end of the token.
func (e *ExpiredTokenError) ExpiredAt() time.Time { return e.Expired }

// Unwrap returns fsm.Unauthorized.
func (*ExpiredTokenError) Unwrap() error { return fsm.Unauthorized }

func (k *Keyring) verifySAS(ctx context.Context, from Client, s sasToken, targets []Target) (Grant, error) {
	target, signed, covered, err := s.selectTarget(targets)
	if err != nil {
		return Grant{}, err
	}
	fits := func(secret string) bool {
		return hmac.Equal([]byte(signature(secret, s.rawResource, s.rawExpiry)), []byte(s.signature))
	}
	grant, ok := k.findRule(from.Namespace, target.Entity, s.keyName, fits) //nolint:contextcheck // Grant.Valid outlives the request
	own := !ok && k.mayOwnNamespace(from.Namespace, s.keyName, fits)
	switch {
	case !ok && !own:
		return Grant{}, fmt.Errorf("%w: InvalidSignature: the token has an invalid signature or names an unknown key", fsm.Unauthorized)
	case !k.now().Before(s.expiry.Add(clockSkewMax)):
		return Grant{}, &ExpiredTokenError{Expired: s.expiry, Now: k.now()}
	case !covered:
		return Grant{}, fmt.Errorf("%w: %w: the token is for another resource", fsm.Unauthorized, errAudience)
	case s.isBare() && signed.Host != "":
		if !k.isHostSigned(from, signed.Host) {
			return Grant{}, fmt.Errorf("%w: %w: the token is for %.100q, which is not known to be a host: sign a URL like sb://host/entity", fsm.Unauthorized, errAudience, signed.Host)
		}
		grant.Operator = false
	}
	if err := k.checkHost(ctx, from, signed, grant.Operator); err != nil {
		return Grant{}, err
	}
	if own {
		if grant, err = k.openOwnNamespace(ctx, s.keyName); err != nil {
			return Grant{}, err
		}
	}
	grant.Expires, grant.Path = s.expiry, target.Path
	return grant, nil
}

// isHostSigned reports whether a resource that was signed without a scheme, which is one word, is surely a host and not the
// name of an entity: a token that was meant for one queue must not be valid for its namespace.
func (k *Keyring) isHostSigned(from Client, word string) bool {
	_, err := netip.ParseAddr(strings.Trim(word, "[]"))
	if err != nil && !strings.Contains(word, ".") && word != "localhost" && !strings.EqualFold(word, from.Host) {
		return false
	}
	return k.rules == nil || !k.rules.NamesEntity(from.Namespace, word)
}

// checkHost checks that a signed host, if there is one, selects the namespace of the client. The keys of operators are
// valid in every namespace, so a signature of theirs for the whole host of the request is also valid in
// the namespace that the request names.
func (k *Keyring) checkHost(ctx context.Context, from Client, signed Resource, operator bool) error {
	if signed.Host == "" {
		return nil
	}
	selected, err := k.namespaceByHost(ctx, signed.Host)
	if err != nil || selected == from.Namespace || operator && signed.Path == "" && selected == from.HostNamespace {
		return err
	}
	return fmt.Errorf("%w: %w: the token is for the host %.100q, which selects another namespace: sign for a host of this one", fsm.Unauthorized, errAudience, signed.Host)
}

// namespaceByHost returns the namespace that a host selects.
func (k *Keyring) namespaceByHost(ctx context.Context, host string) (fsm.NamespaceID, error) {
	if k.rules == nil {
		return fsm.DefaultNamespace, nil
	}
	return k.rules.NamespaceByHost(ctx, host)
}

// findRule finds a rule by name whose secret fits: of the entity, then of the namespace, then among the configured keys. fits
// is nil where the name alone is sufficient.
func (k *Keyring) findRule(namespace fsm.NamespaceID, path, name string, fits func(secret string) bool) (Grant, bool) {
	isRule := false
	if k.rules != nil {
		own, shared := k.rules.Access(namespace, path)
		for i, rules := range [][]fsm.AccessRule{own, shared} {
			if path == "" && i == 0 {
				continue
			}
			if secret, rights, ok := matchRule(rules, name, fits); ok {
				return Grant{Rights: rights, Namespace: namespace, Name: name, EntityOnly: i == 0, isStored: true, Valid: func() bool { return k.isCurrent(namespace, path, i, name, secret, rights) }}, true
			}
			isRule = isRule || name == k.openKey && slices.ContainsFunc(rules, func(r fsm.AccessRule) bool { return r.Name == name })
		}
	}
	key, known := k.keys[name]
	// An unknown name is checked against an empty key, and both secrets are always tried, so
	// that the answer takes as long whatever was wrong.
	good := true
	if fits != nil {
		primary, secondary := fits(key.Primary), fits(key.Secondary)
		good = primary || secondary && key.Secondary != ""
	}
	good = good || name == k.openKey && !isRule
	operator := key.Rights&fsm.Manage == fsm.Manage
	if !known || !good || !operator && namespace != fsm.DefaultNamespace {
		return Grant{}, false
	}
	return Grant{Rights: key.Rights, Namespace: namespace, Name: name, Operator: operator}, true
}

// mayOwnNamespace reports whether a key that no rule fits gets a namespace of its own: its name is new, and its secret is the
// public one.
func (k *Keyring) mayOwnNamespace(namespace fsm.NamespaceID, name string, fits func(secret string) bool) bool {
	if _, isConfigured := k.keys[name]; k.own == nil || isConfigured || namespace != fsm.DefaultNamespace || name == "" || len(name) > keyNameBytesMax || !fits(DevKey) {
		return false
	}
	if k.rules == nil {
		return true
	}
	_, shared := k.rules.Access(namespace, "")
	return !slices.ContainsFunc(shared, func(r fsm.AccessRule) bool { return r.Name == name })
}

// openOwnNamespace returns the grant of a key name in its own namespace.
func (k *Keyring) openOwnNamespace(ctx context.Context, name string) (Grant, error) {
	namespace, valid, err := k.own(ctx, name)
	return Grant{Rights: fsm.Manage, Namespace: namespace, OwnNamespace: true, Name: name, Valid: valid}, err
}

// matchRule finds a rule by name whose secret fits, and returns that secret. It tries two secrets also when no rule has the
// name, so that the time does not reveal which names exist.
func matchRule(rules []fsm.AccessRule, name string, fits func(secret string) bool) (secret string, rights fsm.Rights, ok bool) {
	var rule fsm.AccessRule
	i := slices.IndexFunc(rules, func(r fsm.AccessRule) bool { return r.Name == name })
	if i >= 0 {
		rule = rules[i]
	}
	primary, secondary := fits == nil, false
	if fits != nil {
		primary, secondary = fits(rule.Primary), fits(rule.Secondary)
	}
	switch {
	case i < 0:
	case primary:
		return rule.Primary, rule.Rights, true
	case secondary && rule.Secondary != "":
		return rule.Secondary, rule.Rights, true
	}
	return "", 0, false
}

// isCurrent reports whether an access rule has the same secret and rights as when it was used to sign in.
func (k *Keyring) isCurrent(namespace fsm.NamespaceID, path string, list int, name, secret string, rights fsm.Rights) bool {
	own, shared := k.rules.Access(namespace, path)
	for _, rule := range [][]fsm.AccessRule{own, shared}[list] {
		if rule.Name == name {
			return k.rules.AwaitConfirmed(context.Background()) && rule.Rights == rights && (rule.Primary == secret || rule.Secondary == secret)
		}
	}
	return false
}
