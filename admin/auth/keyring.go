package auth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

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
		return fmt.Errorf("%d keys are configured, at most %d are supported", len(c.Keys), keysMax)
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
	keys    atomic.Pointer[map[string]Key] // by name; the map is never changed
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
	k := &Keyring{openKey: c.OpenKey, own: c.OwnNamespace, rules: c.Rules, issuer: c.Issuer, audit: c.Audit, now: c.Now}
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
	k.storeKeys(c.Keys)
	return k, nil
}

// SetKeys replaces the configured keys. Grants of secrets that are no longer configured end. The error is that of Config.Validate,
// and after it nothing has changed.
func (k *Keyring) SetKeys(keys []Key) error {
	if err := (Config{Keys: keys}).Validate(); err != nil {
		return err
	}
	k.storeKeys(keys)
	return nil
}

func (k *Keyring) storeKeys(keys []Key) {
	byName := make(map[string]Key, len(keys))
	for _, key := range keys {
		byName[key.Name] = key
	}
	k.keys.Store(&byName)
}

func (k *Keyring) namespaceName(id fsm.NamespaceID) string {
	if k.rules == nil {
		return fsm.DefaultNamespaceName
	}
	return k.rules.NamespaceName(id)
}

var errAudience = errors.New("InvalidAudience")
