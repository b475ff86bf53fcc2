package auth

import (
	"context"
	"crypto/hmac"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// errUnconfirmed refuses keys that are not in the configuration while the member's access rules may be old.
var errUnconfirmed = fmt.Errorf("%w: this member cannot verify the key, because it does not reach the leader of the catalog: try again", fsm.ServerBusy)

// clockSkewMax is how long a token is accepted after its expiry, since clocks differ.
const clockSkewMax = 5 * time.Second

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

// verifyJWT checks a token of the issuer and what its roles allow.
func (k *Keyring) verifyJWT(ctx context.Context, from Client, token string) (Grant, error) {
	if k.issuer == nil {
		return Grant{}, fmt.Errorf("%w: tokens of kind jwt are not accepted here: no identity provider is configured, use a shared access key", fsm.Unauthorized)
	}
	if len(token) > jwtBytesMax {
		return Grant{}, fmt.Errorf("%w: the token is longer than %d bytes", fsm.InvalidArgument, jwtBytesMax)
	}
	checked, err := k.issuer.verify(ctx, token)
	if err != nil {
		return Grant{}, err
	}
	var claims map[string]any
	if err := checked.Claims(&claims); err != nil {
		return Grant{}, fmt.Errorf("%w: InvalidToken: the claims of the token cannot be read", fsm.Unauthorized)
	}
	if !k.permitsNamespace(claims[namespacesClaim], from.Namespace) {
		return Grant{}, fmt.Errorf("%w: the token is for other namespaces: one for this has its name in the claim %s", fsm.Unauthorized, namespacesClaim)
	}
	grant := Grant{Namespace: from.Namespace, Expires: checked.Expiry, Name: checked.Subject}
	roles, _ := claimWords(claims[k.issuer.config.RolesClaim])
	grant.addRoles(roles)
	grant.addOperator(roles)
	for _, claim := range []string{"scp", "scope"} {
		scopes, _ := claimWords(claims[claim])
		grant.addRoles(scopes)
	}
	if grant.Rights == 0 {
		return Grant{}, fmt.Errorf("%w: the token has no role that gives rights here: let the identity provider give one of %q, %q, %q or, to read figures only, %q in the claim %q",
			fsm.Unauthorized, roleSender, roleReceiver, roleOwner, roleRead, k.issuer.config.RolesClaim)
	}
	return grant, nil
}

// permitsNamespace reports whether a token with this claim is for the namespace.
func (k *Keyring) permitsNamespace(claim any, namespace fsm.NamespaceID) bool {
	names, limited := claimWords(claim)
	if !limited {
		return namespace == fsm.DefaultNamespace || k.issuer.config.AllNamespaces
	}
	return slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, k.namespaceName(namespace)) })
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
	key, known := (*k.keys.Load())[name]
	// An unknown name is checked against an empty key, and both secrets are always tried, so
	// that the answer takes as long whatever was wrong.
	good, secret := true, ""
	if fits != nil {
		primary, secondary := fits(key.Primary), fits(key.Secondary)
		if good = primary || secondary && key.Secondary != ""; primary {
			secret = key.Primary
		} else if good {
			secret = key.Secondary
		}
	}
	good = good || name == k.openKey && !isRule
	operator := key.Rights&fsm.Manage == fsm.Manage
	if !known || !good || !operator && namespace != fsm.DefaultNamespace {
		return Grant{}, false
	}
	valid := func() bool { return k.isConfigured(name, secret, key.Rights) }
	return Grant{Rights: key.Rights, Namespace: namespace, Name: name, Operator: operator, Configured: true, Valid: valid}, true
}

// isConfigured reports whether a configured key has the same rights and, unless secret is "", still this secret.
func (k *Keyring) isConfigured(name, secret string, rights fsm.Rights) bool {
	key, known := (*k.keys.Load())[name]
	return known && key.Rights == rights && (secret == "" || key.Primary == secret || key.Secondary == secret)
}

// mayOwnNamespace reports whether a key that no rule fits gets a namespace of its own: its name is new, and its secret is the
// public one.
func (k *Keyring) mayOwnNamespace(namespace fsm.NamespaceID, name string, fits func(secret string) bool) bool {
	if _, isConfigured := (*k.keys.Load())[name]; k.own == nil || isConfigured || namespace != fsm.DefaultNamespace || name == "" || len(name) > keyNameBytesMax || !fits(DevKey) {
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
