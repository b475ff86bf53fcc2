package auth

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// A new key name with the public secret gets a namespace of its own. Names that are in use, other secrets, expired tokens and
// those for other resources do not.
func TestUnknownKeyNamesGetNamespacesOfTheirOwn(t *testing.T) {
	t.Parallel()
	const own fsm.NamespaceID = 7
	for _, c := range []struct {
		text, name, secret, host, audience string
		expires                            time.Duration
		want                               fsm.Code
		namespace                          fsm.NamespaceID // 0: none is opened
	}{
		{"a new name", "test-1", DevKey, "host", "orders", time.Hour, fsm.OK, own},
		{"a wrong secret", "test-1", "wrong", "host", "orders", time.Hour, fsm.Unauthorized, 0},
		{"a rule of the namespace", "app", DevKey, "host", "orders", time.Hour, fsm.Unauthorized, 0},
		{"a configured key", "plain", DevKey, "host", "orders", time.Hour, fsm.Unauthorized, 0},
		{"a host that selects a namespace", "test-1", DevKey, "ns2.host", "orders", time.Hour, fsm.Unauthorized, 0},
		{"an expired token", "test-1", DevKey, "host", "orders", -time.Hour, fsm.Unauthorized, 0},
		{"a namespace that cannot be made", "busy", DevKey, "host", "orders", time.Hour, fsm.ServerBusy, 0},
	} {
		t.Run(c.text, func(t *testing.T) {
			t.Parallel()
			opened := fsm.NamespaceID(0)
			k, _ := newKeyringWithRules(t, func(config *Config) {
				config.OwnNamespace = func(_ context.Context, name string) (fsm.NamespaceID, func() bool, error) {
					if name == "busy" {
						return 0, nil, fmt.Errorf("%w: try again", fsm.ServerBusy)
					}
					opened = own
					return own, func() bool { return true }, nil
				}
			})
			from := Client{Namespace: fsm.DefaultNamespace}
			if c.host != "host" {
				from.Namespace = other
			}
			grant, err := k.Token(t.Context(), from, KindSAS, Sign("sb://"+c.host+"/", c.name, c.secret, noon().Add(c.expires)), "sb://"+c.host+"/"+c.audience)
			check(t, err, c.want)
			if grant.Namespace != c.namespace || opened != c.namespace || grant.OwnNamespace != (c.namespace != 0) || grant.Operator {
				t.Errorf("grant %+v, opened %d, want namespace %d", grant, opened, c.namespace)
			}
			if c.expires < 0 || from.Namespace == other {
				return
			}
			grant, err = k.Password(t.Context(), from, c.name, c.secret)
			check(t, err, c.want)
			if grant.Namespace != c.namespace || c.namespace != 0 && (grant.Rights != fsm.Manage || grant.Valid == nil) {
				t.Errorf("grant of a password %+v, want namespace %d", grant, c.namespace)
			}
		})
	}
	k, _ := newKeyringWithRules(t, nil)
	_, err := k.Password(t.Context(), Client{Namespace: fsm.DefaultNamespace}, "test-1", DevKey)
	check(t, err, fsm.Unauthorized)
}
