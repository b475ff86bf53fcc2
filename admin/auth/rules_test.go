package auth

import (
	"bytes"
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// fakeRules holds the rules of a cluster: by namespace and path, "" for those of the namespace.
type fakeRules struct {
	mu          sync.Mutex
	unconfirmed bool
	rules       map[fsm.NamespaceID]map[string][]fsm.AccessRule
}

func (s *fakeRules) Access(namespace fsm.NamespaceID, path string) (own, shared []fsm.AccessRule) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rules[namespace][path], s.rules[namespace][""]
}

func (s *fakeRules) NamespaceName(id fsm.NamespaceID) string { return fmt.Sprintf("ns%d", id) }

func (s *fakeRules) NamespaceByHost(_ context.Context, host string) (fsm.NamespaceID, error) {
	if label, _, _ := strings.Cut(host, "."); label == "ns2" {
		return other, nil
	}
	return fsm.DefaultNamespace, nil
}

func (s *fakeRules) NamesEntity(namespace fsm.NamespaceID, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return name != "" && s.rules[namespace][fsm.PathKey(name)] != nil
}

func (s *fakeRules) AwaitConfirmed(context.Context) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.unconfirmed
}

func (s *fakeRules) setConfirmed(confirmed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unconfirmed = !confirmed
}

func (s *fakeRules) set(namespace fsm.NamespaceID, path string, rules ...fsm.AccessRule) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rules[namespace] == nil {
		s.rules[namespace] = make(map[string][]fsm.AccessRule)
	}
	s.rules[namespace][path] = rules
}

const other fsm.NamespaceID = 2

// newKeyringWithRules returns a keyring with rules of two namespaces and of two queues. The name of one queue
// looks like a path below the other.
func newKeyringWithRules(t testing.TB, change func(*Config)) (*Keyring, *fakeRules) {
	t.Helper()
	s := &fakeRules{rules: make(map[fsm.NamespaceID]map[string][]fsm.AccessRule)}
	s.set(fsm.DefaultNamespace, "", fsm.AccessRule{Name: "app", Primary: "one", Rights: fsm.Send})
	s.set(fsm.DefaultNamespace, "orders", fsm.AccessRule{Name: "orders", Primary: "two", Secondary: "three", Rights: fsm.Listen})
	s.set(other, "", fsm.AccessRule{Name: "app", Primary: "four", Rights: fsm.Manage})
	config := Config{Now: noon, Rules: s, Keys: []Key{
		{Name: "root", Primary: "root-key", Rights: fsm.Manage},
		{Name: "plain", Primary: "plain-key", Rights: fsm.Send},
	}}
	if change != nil {
		change(&config)
	}
	k, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	return k, s
}

func TestRulesAreLookedUpInOrder(t *testing.T) {
	t.Parallel()
	k, _ := newKeyringWithRules(t, nil)
	for _, c := range []struct {
		name, key, secret, audience string
		namespace                   fsm.NamespaceID
		want                        fsm.Code
		rights                      fsm.Rights
		operator                    bool
	}{
		{"of the namespace", "app", "one", "sb://host/orders", 1, fsm.OK, fsm.Send, false},
		{"of the entity", "orders", "two", "sb://host/orders", 1, fsm.OK, fsm.Listen, false},
		{"second secret", "orders", "three", "sb://host/Orders", 1, fsm.OK, fsm.Listen, false},
		{"its management node", "orders", "two", "sb://host/orders/$management", 1, fsm.OK, fsm.Listen, false},
		{"its dead letters", "orders", "two", "sb://host/orders/$DeadLetterQueue/$management", 1, fsm.Unauthorized, 0, false},
		{"its subscription", "orders", "two", "sb://host/orders/Subscriptions/a/$management", 1, fsm.OK, fsm.Listen, false},
		{"its rules", "orders", "two", "http://host/orders/Subscriptions/a/Rules/x", 1, fsm.OK, fsm.Listen, false},
		{"another entity below its name", "orders", "two", "sb://host/orders/more", 1, fsm.Unauthorized, 0, false},
		{"not the namespace", "orders", "two", "sb://host/", 1, fsm.Unauthorized, 0, false},
		{"of another namespace", "app", "four", "sb://host/orders", 1, fsm.Unauthorized, 0, false},
		{"there it is good", "app", "four", "sb://host/orders", other, fsm.OK, fsm.Manage, false},
		{"and not here", "app", "one", "sb://host/orders", other, fsm.Unauthorized, 0, false},
		{"operators are everywhere", "root", "root-key", "sb://host/orders", other, fsm.OK, fsm.Manage, true},
		{"other configured keys are not", "plain", "plain-key", "sb://host/orders", other, fsm.Unauthorized, 0, false},
		{"but in the default namespace", "plain", "plain-key", "sb://host/orders", 1, fsm.OK, fsm.Send, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			audience, host := c.audience, "host"
			if c.namespace == other {
				host = "ns2.host:5672"
				audience = strings.Replace(audience, "//host", "//ns2.host", 1)
			}
			token := Sign("sb://"+host+"/", c.key, c.secret, noon().Add(time.Hour))
			if strings.Contains(audience, "$DeadLetterQueue") {
				audience = "sb://host/orders2/$DeadLetterQueue/$management"
			}
			grant, err := k.Token(t.Context(), Client{Namespace: c.namespace}, KindSAS, token, audience)
			check(t, err, c.want)
			if grant.Rights != c.rights || grant.Operator != c.operator {
				t.Errorf("grant %+v", grant)
			}
		})
	}
}

// TestWrongNamesCostAsMuchAsWrongSecrets checks that each refusal tries the same number of secrets, so that
// its time does not reveal which key names exist, in a list of rules or in the configuration.
func TestWrongNamesCostAsMuchAsWrongSecrets(t *testing.T) {
	t.Parallel()
	k, _ := newKeyringWithRules(t, nil)
	for path, want := range map[string]int{"": 4, "orders": 6, "none": 6} {
		for _, name := range []string{"none", "", "app", "orders", "root", "plain"} {
			tried := 0
			_, ok := k.findRule(fsm.DefaultNamespace, path, name, func(string) bool { tried++; return false })
			if ok || tried != want {
				t.Errorf("key %q at %q: %v, %d secrets tried, want %d", name, path, ok, tried, want)
			}
		}
	}
	// A secret that is tried for an unknown name gives no access, even if it matches.
	for _, path := range []string{"", "orders", "none"} {
		for _, name := range []string{"none", ""} {
			if grant, ok := k.findRule(fsm.DefaultNamespace, path, name, func(secret string) bool { return secret == "" }); ok {
				t.Errorf("key %q at %q: %+v", name, path, grant)
			}
		}
	}
}

// A grant ends with its rule, its secret or its rights; grants of configured keys remain.
func TestGrantIsValidWhileItsRuleIs(t *testing.T) {
	t.Parallel()
	for name, change := range map[string][]fsm.AccessRule{
		"removed":        nil,
		"other secret":   {{Name: "orders", Primary: "new", Secondary: "three", Rights: fsm.Listen}},
		"other rights":   {{Name: "orders", Primary: "two", Rights: fsm.Send}},
		"another's name": {{Name: "renamed", Primary: "two", Rights: fsm.Listen}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, s := newKeyringWithRules(t, nil)
			grant, err := k.Token(t.Context(), somebody, KindSAS, Sign("sb://host/orders", "orders", "two", noon().Add(time.Hour)), "sb://host/orders")
			check(t, err, fsm.OK)
			s.set(fsm.DefaultNamespace, "orders", fsm.AccessRule{Name: "orders", Primary: "changed", Secondary: "two", Rights: fsm.Listen})
			if !grant.Valid() {
				t.Error("the secret is the second one now, and still good")
			}
			s.set(fsm.DefaultNamespace, "orders", change...)
			if grant.Valid() {
				t.Error("it counts after the change")
			}
		})
	}
	k, _ := newKeyringWithRules(t, nil)
	grant, err := k.Password(t.Context(), somebody, "root", "root-key")
	check(t, err, fsm.OK)
	if !grant.Valid() {
		t.Error("the grant of a configured key is not valid, want valid while the configuration stays")
	}
}

func TestCertificateHasTheRightsOfItsRules(t *testing.T) {
	t.Parallel()
	k, _ := newKeyringWithRules(t, nil)
	end := noon().Add(time.Hour)
	for name, want := range map[string]fsm.Code{"app": fsm.OK, "root": fsm.OK, "nobody": fsm.Unauthorized, "": fsm.Unauthorized} {
		grant, err := k.Certificate(t.Context(), somebody, &x509.Certificate{Subject: pkix.Name{CommonName: name}, NotAfter: end})
		check(t, err, want)
		if err == nil && !grant.Expires.Equal(end) {
			t.Errorf("%s: ends at %s", name, grant.Expires)
		}
	}
}

// The audit log contains the key name, address and reason of a refused login, and no secret.
func TestRefusedLoginsAreAudited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { refusedLoginsAreWrittenDown(t) })
}

func refusedLoginsAreWrittenDown(t *testing.T) {
	t.Helper()
	var log bytes.Buffer
	k, _ := newKeyringWithRules(t, func(c *Config) { c.Audit = slog.New(slog.NewTextHandler(&log, nil)) })
	from := Client{Namespace: other, Peer: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 9), Port: 77}}
	_, err := k.Password(t.Context(), from, "app", "a-secret-guess")
	check(t, err, fsm.Unauthorized)
	token := Sign("sb://ns2.host/", "app", "another-guess", noon().Add(time.Hour))
	_, err = k.Token(t.Context(), from, KindSAS, token, "sb://ns2.host/a")
	check(t, err, fsm.Unauthorized)
	_, err = k.Token(t.Context(), from, KindSAS, "garbage", "sb://ns2.host/a")
	check(t, err, fsm.InvalidArgument)
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	want := [][]string{
		{"event=login_refused", "kind=plain", "name=app", "peer=192.0.2.9:77", "namespace=ns2"},
		{"kind=sas", "name=app", "InvalidSignature"},
		{"kind=sas", "SharedAccessSignature"},
	}
	if len(lines) != len(want) {
		t.Fatalf("%d lines: %s", len(lines), log.String())
	}
	for i, words := range want {
		for _, word := range words {
			if !strings.Contains(lines[i], word) {
				t.Errorf("%q is not in %s", word, lines[i])
			}
		}
	}
	if i := slices.IndexFunc([]string{"guess", token[30:60]}, func(s string) bool { return strings.Contains(log.String(), s) }); i >= 0 {
		t.Errorf("secret %d is in the log: %s", i, log.String())
	}
}

// TestUnconfirmedRulesAdmitNobody checks that a member whose rules may be old refuses the keys of the cluster as busy, those that
// it knows and those that it does not, and that the keys in its configuration stay valid.
func TestUnconfirmedRulesAdmitNobody(t *testing.T) {
	t.Parallel()
	k, rules := newKeyringWithRules(t, nil)
	signIn := func(name, secret string) (Grant, error) {
		return k.Password(t.Context(), Client{Namespace: fsm.DefaultNamespace}, name, secret)
	}
	held, err := signIn("app", "one")
	check(t, err, fsm.OK)
	rules.setConfirmed(false)
	_, err = signIn("app", "one")
	check(t, err, fsm.ServerBusy)
	_, err = signIn("made since", "x")
	check(t, err, fsm.ServerBusy)
	_, err = signIn("root", "root-key")
	check(t, err, fsm.OK)
	if held.Valid() {
		t.Error("a grant is valid although its rule may have been revoked")
	}
	rules.setConfirmed(true)
	_, err = signIn("app", "one")
	check(t, err, fsm.OK)
	_, err = signIn("made since", "x")
	check(t, err, fsm.Unauthorized)
	if !held.Valid() {
		t.Error("a grant is not valid although its rule is confirmed")
	}
}
