package auth

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

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
