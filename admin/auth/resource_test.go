package auth

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// Names that each official client puts on $cbs.
func TestAudiencesOfClients(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ client, text, host, path string }{
		{"Go, plain", "amqp://localhost:5672/Orders", "localhost", "orders"},
		{"Go, TLS", "amqps://ns.example.com/orders", "ns.example.com", "orders"},
		{"Go, management", "amqps://ns.example.com/orders/$management", "ns.example.com", "orders/$management"},
		{"Go, subscription", "amqps://ns.example.com/t/Subscriptions/s", "ns.example.com", "t/subscriptions/s"},
		{"Go, dead letters", "amqps://ns.example.com/t/Subscriptions/s/$DeadLetterQueue", "ns.example.com", "t/subscriptions/s/$deadletterqueue"},
		{".NET", "amqps://ns.example.com/orders", "ns.example.com", "orders"},
		{".NET, management", "amqps://ns.example.com/orders/$management", "ns.example.com", "orders/$management"},
		{".NET, emulator", "amqp://localhost:5672/orders", "localhost", "orders"},
		{".NET, a name with a slash", "amqps://ns.example.com/shop%2Forders", "ns.example.com", "shop/orders"},
		{".NET, web socket", "wss://ns.example.com/orders", "ns.example.com", "orders"},
		{"JavaScript", "sb://ns.example.com/orders", "ns.example.com", "orders"},
		{"JavaScript, emulator", "sb://localhost:5672/orders/$management", "localhost", "orders/$management"},
		{"Python", "sb://ns.example.com/orders", "ns.example.com", "orders"},
		{"Python, management", "sb://ns.example.com/t/Subscriptions/s/$management", "ns.example.com", "t/subscriptions/s/$management"},
		{"Java", "amqp://ns.example.com/orders", "ns.example.com", "orders"},
		{"Java, management", "amqp://ns.example.com/orders/$management", "ns.example.com", "orders/$management"},
		{"the namespace", "sb://ns.example.com/", "ns.example.com", ""},
		{"the namespace without a slash", "sb://NS.example.com", "ns.example.com", ""},
		{"a slash at the end", "sb://ns.example.com/orders/", "ns.example.com", "orders"},
		{"an address", "amqp://127.0.0.1:5672/orders", "127.0.0.1", "orders"},
		{"an IPv6 address", "amqp://[::1]:5672/orders", "[::1]", "orders"},
		{"an IPv6 address without port", "AMQP://[2001:DB8::1]/orders", "[2001:db8::1]", "orders"},
		{"a name of a container", "sb://my_broker-1/orders", "my_broker-1", "orders"},
	} {
		got, err := ParseAudience(c.text)
		if err != nil || got != (Resource{c.host, c.path}) {
			t.Errorf("%s: %q is %+v, %v", c.client, c.text, got, err)
		}
	}
}

// Resources that each official client signs, decoded, with its audiences.
func TestResourcesOfClients(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ client, text, host, path string }{
		{"Go, data: the audience, encoded, in lower case", "amqps://ns.example.com/orders/$management", "ns.example.com", "orders/$management"},
		{"JavaScript, data: the audience", "sb://ns.example.com/Orders", "ns.example.com", "orders"},
		{"Java and .NET, data: in lower case", "amqp://ns.example.com/orders", "ns.example.com", "orders"},
		{"Go, admin: the whole URL", "https://localhost:5300/Orders?api-version=2021-05", "localhost", "orders"},
		{"Go, admin: with two question marks", "https://ns.example.com/t/Subscriptions??$skip=0&api-version=2021-05", "ns.example.com", "t/subscriptions"},
		{"Go, admin: the default rule has no name yet", "https://ns.example.com/t/Subscriptions/s/Rules/?api-version=2021-05", "ns.example.com", "t/subscriptions/s/rules"},
		{"Go, admin: a rule", "https://ns.example.com/t/Subscriptions/s/Rules/a%3Fb%20c?api-version=2021-05", "ns.example.com", "t/subscriptions/s/rules/a?b c"},
		{"JavaScript, admin: the whole URL in lower case", "https://ns.example.com/$resources/queues?api-version=2021-05&$skip=0&$top=100", "ns.example.com", "$resources/queues"},
		{".NET, admin: the URL up to the path", "http://localhost:5300/orders", "localhost", "orders"},
		{"Python, admin: the namespace", "https://ns.example.com", "ns.example.com", ""},
		{"Java, admin: scheme and host", "https://ns.example.com", "ns.example.com", ""},
		{"JavaScript, forwarding: the host of the endpoint", "localhost:5672", "localhost", ""},
		{"Go, a signature in the connection string", "ns.example.com", "ns.example.com", ""},
		{"Go, forwarding to an absolute address", "sb://ns.example.com/orders", "ns.example.com", "orders"},
	} {
		got, err := parseSigned(c.text)
		if err != nil || got != (Resource{c.host, c.path}) {
			t.Errorf("%s: %q is %+v, %v", c.client, c.text, got, err)
		}
	}
}

// Forms that no client sends are refused as audience and as signed resource, with a text that names the error.
func TestFormsThatNoClientSendsAreRefused(t *testing.T) {
	t.Parallel()
	for text, why := range map[string]string{
		"?://localhost/mine":                   "after an unknown scheme",
		"theirs?://localhost/mine":             "after an unknown scheme",
		"sb://localhost/mine?x":                "query",
		"http://localhost?x=/mine":             "query",
		"sb://localhost/mine#theirs":           "must not be there",
		"sb://user@localhost/mine":             "host",
		"sb://user:pass@localhost/mine":        "port",
		"sb://localhost/mine/sb://localhost/a": "empty part",
		"sb://sb://localhost/mine":             "port",
		"://localhost/mine":                    "after an unknown scheme",
		"sb:///mine":                           "no host",
		"sb://localhost//mine":                 "empty part",
		"sb://localhost/mine//":                "empty part",
		"sb://localhost/a/../mine":             "empty part",
		"sb://localhost/%2e%2e/mine":           "empty part",
		"sb://localhost/./mine":                "empty part",
		"sb://localhost/%2Fmine":               "empty part",
		"sb://localhost/mine%":                 "percent-encoding",
		"sb://localhost/mine%00":               "control",
		"sb://localhost/%ff":                   "UTF-8",
		"sb://localhost/mi ne":                 "must not be there",
		"sb://localhost\\mine":                 "must not be there",
		"sb://localhost:x/mine":                "port",
		"sb://localhost:/mine":                 "port",
		"sb://localhost:99999/mine":            "port",
		"sb://[::1/mine":                       "brackets",
		"sb://[localhost]/mine":                "brackets",
		"sb://[::1]x/mine":                     "between its host",
		"sb://bücher/mine":                     "must not be there",
		"localhost/mine":                       "scheme",
		"/mine":                                "scheme",
		"":                                     "",
		"sb://localhost/" + strings.Repeat("x", resourceBytesMax): "longer",
	} {
		for name, parse := range map[string]func(string) (Resource, error){"audience": ParseAudience, "signed": parseSigned} {
			if r, err := parse(text); !errors.Is(err, fsm.InvalidArgument) || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), "sb://host/entity") {
				t.Errorf("%s %q: %+v, %v", name, text, r, err)
			}
		}
	}
	if r, err := parseSigned("kafka://localhost/mine"); !errors.Is(err, fsm.InvalidArgument) {
		t.Errorf("%+v %v", r, err)
	}
	for _, text := range []string{"localhost", "mine", "https://localhost/mine?api-version=1", "sb://localhost/a%3Fb", "sb://localhost/a%23b", "sb://localhost/u%40h"} {
		if r, err := ParseAudience(text); err == nil {
			t.Errorf("audience %q: %+v", text, r)
		}
	}
}

// An audience with an unknown scheme is authorized as sb:// with that host and path. A token may sign the same text, and
// otherwise needs a known scheme.
func TestAudienceMayHaveAnyScheme(t *testing.T) {
	t.Parallel()
	k, _ := newKeyringWithRules(t, nil)
	for _, c := range []struct {
		audience, signed string
		want             fsm.Code
	}{
		{"CheeseBurger://host/Orders", "sb://host/orders", fsm.OK},
		{"CheeseBurger://host/Orders", "CheeseBurger://host/Orders", fsm.OK},
		{"a+b-c.1://host/orders", "sb://host/", fsm.OK},
		{"CheeseBurger://host/other", "sb://host/orders", fsm.Unauthorized},
		{"CheeseBurger://host/orders", "kafka://host/orders", fsm.InvalidArgument},
		{"sb://host/orders", "CheeseBurger://host/orders", fsm.InvalidArgument},
		{"CheeseBurger://user@host/orders", "sb://host/orders", fsm.InvalidArgument},
		{"CheeseBurger://host/orders?x", "sb://host/orders", fsm.InvalidArgument},
		{"1a://host/orders", "sb://host/orders", fsm.InvalidArgument},
	} {
		grant, err := k.Token(t.Context(), somebody, KindSAS, Sign(c.signed, "orders", "two", noon().Add(time.Hour)), c.audience)
		if !errors.Is(err, c.want) && (err != nil || c.want != fsm.OK) || err == nil && grant.Path != "orders" {
			t.Errorf("%s signed %s: %+v %v, want %v", c.audience, c.signed, grant, err, c.want)
		}
	}
}

// The grant names the authorized resource, in one form for all spellings.
func TestGrantNamesItsPath(t *testing.T) {
	t.Parallel()
	k, _ := newKeyringWithRules(t, nil)
	for _, audience := range []string{"sb://host/Orders/$Management", "AMQPS://elsewhere:5671/orders%2f$management/"} {
		token := Sign("https://Third/ORDERS?api-version=1", "orders", "two", noon().Add(time.Hour))
		grant, err := k.Token(t.Context(), somebody, KindSAS, token, audience)
		check(t, err, fsm.OK)
		if grant.Namespace != fsm.DefaultNamespace || grant.Path != "orders/$management" || !grant.EntityOnly {
			t.Errorf("%s: %+v", audience, grant)
		}
	}
}

// Hosts that select the same namespace are equal for every key; others are not.
func TestHostsSelectTheNamespace(t *testing.T) {
	t.Parallel()
	k, _ := newKeyringWithRules(t, nil)
	for _, c := range []struct {
		name, key, secret, signed, audience string
		from                                Client
		want                                fsm.Code
	}{
		{"both elsewhere", "app", "four", "sb://ns2.a/", "sb://ns2.b:1/x", Client{Namespace: other}, fsm.OK},
		{"signed for another", "app", "four", "sb://host/", "sb://ns2.b/x", Client{Namespace: other}, fsm.Unauthorized},
		{"asked of another", "app", "four", "sb://ns2.b/", "sb://host/x", Client{Namespace: other}, fsm.InvalidArgument},
		{"an operator there", "root", "root-key", "sb://ns2.b/", "sb://ns2.b/x", Client{Namespace: other}, fsm.OK},
		{"an operator signs for another", "root", "root-key", "sb://host/", "sb://ns2.b/x", Client{Namespace: other}, fsm.Unauthorized},
		{"an operator through another", "root", "root-key", "sb://host/", "sb://ns2.b/x", Client{Namespace: other, HostNamespace: fsm.DefaultNamespace}, fsm.OK},
		{"of it only an entity", "root", "root-key", "sb://host/x", "sb://ns2.b/x", Client{Namespace: other, HostNamespace: fsm.DefaultNamespace}, fsm.Unauthorized},
		{"no operator through another", "app", "four", "sb://host/", "sb://ns2.b/x", Client{Namespace: other, HostNamespace: fsm.DefaultNamespace}, fsm.Unauthorized},
	} {
		_, err := k.Token(t.Context(), c.from, KindSAS, Sign(c.signed, c.key, c.secret, noon().Add(time.Hour)), c.audience)
		if !errors.Is(err, c.want) && (err != nil || c.want != fsm.OK) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// A word that was signed without a scheme is a host only if nothing else is likely: clients sign the host of their
// endpoint, and other programs sign the name of a queue, which must not become a token for the namespace.
func TestSignedWordIsAHostOnlyIfItLooksLikeOne(t *testing.T) {
	t.Parallel()
	k, rules := newKeyringWithRules(t, nil)
	rules.set(fsm.DefaultNamespace, "orders.v1", fsm.AccessRule{Name: "x", Primary: "five", Rights: fsm.Listen})
	rules.set(fsm.DefaultNamespace, "emulator", fsm.AccessRule{Name: "x", Primary: "five", Rights: fsm.Listen})
	for signed, want := range map[string]fsm.Code{
		"broker": fsm.OK, "BROKER:5672": fsm.OK, "localhost:5672": fsm.OK, "127.0.0.1": fsm.OK, "[::1]:5672": fsm.OK, "ns.example.com": fsm.OK,
		"orders": fsm.Unauthorized, "payments": fsm.Unauthorized, "orders.v1": fsm.Unauthorized, "Orders.V1:1": fsm.Unauthorized,
	} {
		grant, err := k.TokenFor(t.Context(), Client{Namespace: fsm.DefaultNamespace, Host: "broker"}, KindSAS, Sign(signed, "root", "root-key", noon().Add(time.Hour)), Target{Path: "payments"})
		check(t, err, want)
		if grant.Operator {
			t.Errorf("%s makes an operator", signed)
		}
	}
	_, err := k.TokenFor(t.Context(), Client{Namespace: fsm.DefaultNamespace, Host: "emulator"}, KindSAS, Sign("emulator", "root", "root-key", noon().Add(time.Hour)), Target{Path: "payments"})
	check(t, err, fsm.Unauthorized)
}

// The grant is for the first target that the token names.
func TestFirstCoveredTargetIsGranted(t *testing.T) {
	t.Parallel()
	k, _ := newKeyringWithRules(t, nil)
	entity, url := TargetOf("orders"), Target{Path: "v1/queues/orders"}
	for _, c := range []struct {
		key, secret, signed string
		targets             []Target
		want                fsm.Code
		path                string
	}{
		{"app", "one", "sb://h/", []Target{entity, url}, fsm.OK, "orders"},
		{"app", "one", "http://h:9/V1/Queues/orders?x=/y", []Target{entity, url}, fsm.OK, "v1/queues/orders"},
		{"app", "one", "http://h/v1", []Target{entity, url}, fsm.OK, "v1/queues/orders"},
		{"app", "one", "http://h/v", []Target{entity, url}, fsm.Unauthorized, ""},
		{"orders", "two", "sb://h/orders", []Target{entity, url}, fsm.OK, "orders"},
		{"orders", "two", "http://h/v1/queues/orders", []Target{entity, url}, fsm.Unauthorized, ""},
		{"app", "one", "some/name", []Target{{Path: "some/name", Written: "Some/name"}}, fsm.OK, "some/name"},
		{"app", "one", "some/name", []Target{{Path: "some/name"}}, fsm.InvalidArgument, ""},
		{"app", "one", "some/other", []Target{{Path: "some/name", Written: "some/name"}}, fsm.InvalidArgument, ""},
	} {
		token := Sign(c.signed, c.key, c.secret, noon().Add(time.Hour))
		grant, err := k.TokenFor(t.Context(), somebody, KindSAS, token, c.targets...)
		check(t, err, c.want)
		if grant.Path != c.path {
			t.Errorf("%s: granted %q, want %q", c.signed, grant.Path, c.path)
		}
		concerns := false
		for _, target := range c.targets {
			concerns = concerns || ClaimsTarget(KindSAS, token, target)
		}
		if concerns != (c.path != "" || c.key == "orders") {
			t.Errorf("%s: concerns %t", c.signed, concerns)
		}
	}
	if ClaimsTarget(KindSAS, "", entity) || ClaimsTarget(KindSAS, "SharedAccessSignature sr=%", entity) || ClaimsTarget(KindJWT, "", entity) || !ClaimsTarget(KindJWT, "a.b.c", entity) {
		t.Error("what is no token concerns something")
	}
}
