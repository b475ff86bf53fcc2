package auth

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// The kinds of token that clients name in put-token.
const (
	KindSAS = "servicebus.windows.net:sastoken"
	KindJWT = "jwt"
)

// clockSkewMax is how long after its expiry a token is still taken: clocks differ.
const clockSkewMax = 5 * time.Second

// Grant is what a credential allows.
type Grant struct {
	Rights  fsm.Rights
	Expires time.Time // zero: never
}

// Config of a keyring.
type Config struct {
	Keys []Key            // 1 to 12, names unique
	Now  func() time.Time // the clock; nil: time.Now
}

// Validate says what is wrong with the configuration.
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
	return nil
}

// Keyring checks credentials against the configured keys. It does not change after New,
// so every method may be called from any goroutine.
type Keyring struct {
	keys map[string]Key
	now  func() time.Time
}

// New makes a keyring.
func New(c Config) (*Keyring, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	k := &Keyring{keys: make(map[string]Key, len(c.Keys)), now: c.Now}
	if k.now == nil {
		k.now = time.Now
	}
	for _, key := range c.Keys {
		k.keys[key.Name] = key
	}
	return k, nil
}

// Token checks what a client put to $cbs: kind is [KindSAS] or [KindJWT], audience the
// URI that it wants to use. Errors wrap fsm.InvalidArgument when the token cannot be
// read and fsm.Unauthorized when it is not good enough, and are fit for the client.
func (k *Keyring) Token(_ context.Context, kind, token, audience string) (Grant, error) {
	switch kind {
	case KindSAS:
		return k.sas(token, audience)
	case KindJWT:
		return Grant{}, fmt.Errorf("%w: tokens of kind jwt are not accepted here: no identity provider is configured, use a shared access key", fsm.Unauthorized)
	}
	return Grant{}, fmt.Errorf("%w: unknown kind of token", fsm.InvalidArgument)
}

func (k *Keyring) sas(token, audience string) (Grant, error) {
	s, err := parseSAS(token)
	if err != nil {
		return Grant{}, fmt.Errorf("%w: %w", fsm.InvalidArgument, err)
	}
	key, known := k.keys[s.key]
	// An unknown name is checked against an empty key, and both secrets are always
	// tried, so that the answer takes as long whatever was wrong.
	primary := hmac.Equal([]byte(signature(key.Primary, s.signed, s.expires)), []byte(s.signature))
	secondary := hmac.Equal([]byte(signature(key.Secondary, s.signed, s.expires)), []byte(s.signature))
	matches := primary || secondary && key.Secondary != ""
	if !known || !matches {
		return Grant{}, fmt.Errorf("%w: InvalidSignature: the token has an invalid signature or names an unknown key", fsm.Unauthorized)
	}
	if !k.now().Before(s.expiry.Add(clockSkewMax)) {
		return Grant{}, fmt.Errorf("%w: ExpiredToken: the token ended at %s", fsm.Unauthorized, s.expiry.UTC().Format(time.RFC3339))
	}
	if !under(audience, s.resource) {
		return Grant{}, fmt.Errorf("%w: InvalidAudience: the token is for another resource", fsm.Unauthorized)
	}
	return Grant{Rights: key.Rights, Expires: s.expiry}, nil
}

// Password checks SASL PLAIN: the name of a key and one of its secrets.
func (k *Keyring) Password(_ context.Context, user, password string) (Grant, error) {
	key, known := k.keys[user]
	// Hashed first, so that neither content nor length shows in the time it takes.
	given := sha256.Sum256([]byte(password))
	first, second := sha256.Sum256([]byte(key.Primary)), sha256.Sum256([]byte(key.Secondary))
	primary, secondary := hmac.Equal(given[:], first[:]), hmac.Equal(given[:], second[:])
	matches := primary || secondary && key.Secondary != ""
	if !known || !matches {
		return Grant{}, fmt.Errorf("%w: unknown key name or wrong key", fsm.Unauthorized)
	}
	return Grant{Rights: key.Rights}, nil
}
