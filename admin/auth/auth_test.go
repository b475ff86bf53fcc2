package auth

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/peeklock/peeklock/fsm"
)

// somebody is a client of the default namespace on this machine.
var somebody = Client{Namespace: fsm.DefaultNamespace}

const audience = "amqp://localhost:5672/orders"

func noon() time.Time { return time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC) }

func newTestKeyring(t testing.TB) *Keyring {
	t.Helper()
	k, err := New(Config{Now: noon, Keys: []Key{
		{Name: DevKeyName, Primary: DevKey, Secondary: "second/+=", Rights: fsm.Manage},
		{Name: "reader", Primary: "r", Rights: fsm.Listen},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// The vectors were created with openssl, not with this package:
//
//	printf 'sb%3a%2f%2flocalhost%2forders\n1795176000' | openssl dgst -sha256 -hmac SAS_KEY_VALUE -binary | base64
func TestSignaturesEqualThoseOfOpenSSL(t *testing.T) {
	t.Parallel()
	for _, v := range []struct{ secret, resource, expires, want string }{
		{DevKey, "sb%3a%2f%2flocalhost%2forders", "1795176000", "zMg3Zb6rTqgTORVjuutrgFKA7ut9+P0RARmQq6PyJg8="},
		{"c2VjcmV0+/=", "http%3A%2F%2FHost%2F", "1", "6z3vz9Vu8lI96Ik0PpG214xP1Gwk0B461bMjKVd3LaQ="},
	} {
		if got := signature(v.secret, v.resource, v.expires); got != v.want {
			t.Errorf("signature(%q) = %s, want %s", v.resource, got, v.want)
		}
	}
}

func TestTokenOpensItsResourceUntilItExpires(t *testing.T) {
	t.Parallel()
	good := Sign("sb://localhost/", DevKeyName, DevKey, noon().Add(time.Hour))
	for _, c := range []struct {
		name, kind, token, audience string
		want                        fsm.Code
		rights                      fsm.Rights
	}{
		{"namespace covers entity", KindSAS, good, audience, fsm.OK, fsm.Manage},
		{"secondary key", KindSAS, Sign(audience, DevKeyName, "second/+=", noon().Add(time.Hour)), audience, fsm.OK, fsm.Manage},
		{"rights of the key", KindSAS, Sign(audience, "reader", "r", noon().Add(time.Hour)), audience + "/$management", fsm.OK, fsm.Listen},
		{"wrong key", KindSAS, Sign(audience, DevKeyName, "other", noon().Add(time.Hour)), audience, fsm.Unauthorized, 0},
		{"empty secondary is no key", KindSAS, Sign(audience, "reader", "", noon().Add(time.Hour)), audience, fsm.Unauthorized, 0},
		{"unknown key is not the empty key", KindSAS, Sign(audience, "nobody", "", noon().Add(time.Hour)), audience, fsm.Unauthorized, 0},
		{"expired", KindSAS, Sign(audience, DevKeyName, DevKey, noon().Add(-clockSkewMax)), audience, fsm.Unauthorized, 0},
		{"just not expired", KindSAS, Sign(audience, DevKeyName, DevKey, noon().Add(-clockSkewMax+time.Second)), audience, fsm.OK, fsm.Manage},
		{"other entity", KindSAS, Sign("sb://localhost/invoices", DevKeyName, DevKey, noon().Add(time.Hour)), audience, fsm.Unauthorized, 0},
		{"half a segment", KindSAS, Sign("sb://localhost/ord", DevKeyName, DevKey, noon().Add(time.Hour)), audience, fsm.Unauthorized, 0},
		{"another host of the namespace", KindSAS, Sign("sb://elsewhere/", DevKeyName, DevKey, noon().Add(time.Hour)), audience, fsm.OK, fsm.Manage},
		{"later expiry written in", KindSAS, strings.Replace(good, "se=", "se=9", 1), audience, fsm.Unauthorized, 0},
		{"other resource written in", KindSAS, strings.Replace(good, "localhost", "localhos", 1), audience, fsm.Unauthorized, 0},
		{"jwt", KindJWT, "a.b.c", audience, fsm.Unauthorized, 0},
		{"other kind", "x", good, audience, fsm.InvalidArgument, 0},
		{"not a token", KindSAS, "hello", audience, fsm.InvalidArgument, 0},
		{"twice", KindSAS, good + "&se=1", audience, fsm.InvalidArgument, 0},
		{"too long", KindSAS, good + "&x=" + strings.Repeat("y", tokenBytesMax), audience, fsm.InvalidArgument, 0},
		{"beyond the calendar", KindSAS, strings.Replace(good, "se=", "se=9999999999", 1), audience, fsm.InvalidArgument, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			grant, err := newTestKeyring(t).Token(context.Background(), somebody, c.kind, c.token, c.audience)
			check(t, err, c.want)
			if grant.Rights != c.rights {
				t.Errorf("rights %b, want %b", grant.Rights, c.rights)
			}
			if err == nil && grant.Expires.IsZero() {
				t.Error("the grant of a token must end")
			}
		})
	}
}

// Parameters may have any order (the JavaScript administration client changes it), and sr may be encoded with
// lower or upper case hexadecimal digits: the signature covers the text as sent.
func TestTokenParametersHaveAnyOrder(t *testing.T) {
	t.Parallel()
	for _, sr := range []string{"sb%3a%2f%2flocalhost%2forders", "sb%3A%2F%2FLOCALHOST%2Forders%2F", "http%3a%2f%2flocalhost%3a5300%2forders%3fapi-version%3d2021-05"} {
		sig := strings.ReplaceAll(signature(DevKey, sr, "1795176000"), "=", "%3d")
		token := "SharedAccessSignature sig=" + strings.ReplaceAll(sig, "/", "%2F") + "&se=1795176000&skn=" + DevKeyName + "&sr=" + sr
		if _, err := newTestKeyring(t).Token(context.Background(), somebody, KindSAS, token, "AMQP://LocalHost:5672/Orders/"); err != nil {
			t.Errorf("%s: %v", sr, err)
		}
	}
}

// The official SDK refuses a connection string without a usable key, so its parser must accept the one that
// dev prints.
func TestDevKeyPassesSDK(t *testing.T) {
	t.Parallel()
	text := "Endpoint=sb://localhost:5672;SharedAccessKeyName=" + DevKeyName + ";SharedAccessKey=" + DevKey + ";UseDevelopmentEmulator=true"
	if _, err := azservicebus.NewClientFromConnectionString(text, nil); err != nil {
		t.Fatal(err)
	}
}

func TestPasswordIsTheSecretOfAKey(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		user, password string
		want           fsm.Code
	}{
		{DevKeyName, DevKey, fsm.OK},
		{DevKeyName, "second/+=", fsm.OK},
		{"reader", "r", fsm.OK},
		{DevKeyName, "", fsm.Unauthorized},
		{"reader", "", fsm.Unauthorized},
		{"", "", fsm.Unauthorized},
		{"nobody", "", fsm.Unauthorized},
		{"reader", DevKey, fsm.Unauthorized},
	} {
		grant, err := newTestKeyring(t).Password(context.Background(), somebody, c.user, c.password)
		check(t, err, c.want)
		if !grant.Expires.IsZero() {
			t.Error("a password does not end")
		}
	}
}

// An open key is accepted with any secret, unless an access rule has its name. Expiry and resource still count.
func TestOpenKeyIsAcceptedWithAnySecret(t *testing.T) {
	t.Parallel()
	k, err := New(Config{Now: noon, OpenKey: DevKeyName, Keys: []Key{
		{Name: DevKeyName, Primary: DevKey, Rights: fsm.Manage}, {Name: "reader", Primary: "r", Rights: fsm.Listen},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		token string
		want  fsm.Code
	}{
		{Sign(audience, DevKeyName, "dummy", noon().Add(time.Hour)), fsm.OK},
		{Sign(audience, DevKeyName, DevKey, noon().Add(time.Hour)), fsm.OK},
		{Sign(audience, DevKeyName, "dummy", noon().Add(-time.Hour)), fsm.Unauthorized},
		{Sign("sb://localhost/invoices", DevKeyName, "dummy", noon().Add(time.Hour)), fsm.Unauthorized},
		{Sign(audience, "reader", "dummy", noon().Add(time.Hour)), fsm.Unauthorized},
		{Sign(audience, "nobody", "dummy", noon().Add(time.Hour)), fsm.Unauthorized},
	} {
		_, err := k.Token(t.Context(), somebody, KindSAS, c.token, audience)
		check(t, err, c.want)
	}
	_, err = k.Password(t.Context(), somebody, DevKeyName, "dummy")
	check(t, err, fsm.OK)
	k.rules = ruleNamed(DevKeyName)
	_, err = k.Password(t.Context(), somebody, DevKeyName, "dummy")
	check(t, err, fsm.Unauthorized)
}

// ruleNamed are the access rules of a namespace with one rule of that name.
type ruleNamed string

func (r ruleNamed) Access(fsm.NamespaceID, string) (own, shared []fsm.AccessRule) {
	return nil, []fsm.AccessRule{{Name: string(r), Primary: "the secret of the rule", Rights: fsm.Manage}}
}
func (ruleNamed) NamespaceName(fsm.NamespaceID) string { return fsm.DefaultNamespaceName }
func (ruleNamed) AwaitConfirmed(context.Context) bool  { return true }

func (ruleNamed) NamesEntity(fsm.NamespaceID, string) bool { return false }

func (ruleNamed) NamespaceByHost(context.Context, string) (fsm.NamespaceID, error) {
	return fsm.DefaultNamespace, nil
}

func TestKeysAreValidated(t *testing.T) {
	t.Parallel()
	good := Key{Name: "a", Primary: "secret-text", Rights: fsm.Send}
	many := make([]Key, keysMax+1)
	for i := range many {
		many[i] = good
		many[i].Name = strings.Repeat("k", i+1)
	}
	for name, keys := range map[string][]Key{
		"none":      nil,
		"twice":     {good, good},
		"too many":  many,
		"no name":   {{Primary: "x", Rights: fsm.Send}},
		"no secret": {{Name: "a", Rights: fsm.Send}},
		"no rights": {{Name: "a", Primary: "x"}},
		"long name": {{Name: strings.Repeat("n", keyNameBytesMax+1), Primary: "x", Rights: fsm.Send}},
		"long key":  {{Name: "a", Primary: strings.Repeat("n", keyBytesMax+1), Rights: fsm.Send}},
		"control":   {{Name: "a\n", Primary: "secret-text", Rights: fsm.Send}},
	} {
		_, err := New(Config{Keys: keys})
		if err == nil {
			t.Errorf("%s: accepted", name)
		} else if strings.Contains(err.Error(), "secret-text") {
			t.Errorf("%s: the error tells the secret", name)
		}
	}
	if _, err := New(Config{Keys: many[:keysMax]}); err != nil {
		t.Error(err)
	}
}

func TestRightsAreParsedAndPrinted(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]fsm.Rights{"send": fsm.Send, "Listen, Send": fsm.Send | fsm.Listen, "manage": fsm.Manage, "read": fsm.Read, "READ,send": fsm.Read | fsm.Send, "read,manage": fsm.Manage} {
		if got, err := ParseRights(text); err != nil || got != want {
			t.Errorf("%s: %b, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "admin", "send,"} {
		if _, err := ParseRights(text); err == nil {
			t.Errorf("%q accepted", text)
		}
	}
}

// No input causes a panic or gives a grant without the key, and a parsed resource is unchanged after it is
// signed again.
func FuzzToken(f *testing.F) {
	f.Add(Sign(audience, DevKeyName, "not the key", noon().Add(time.Hour)), audience)
	f.Add("SharedAccessSignature sr=%&sig=&se=-1&skn=a", "")
	f.Add("SharedAccessSignature sr=a&sig=b&se=1&skn=RootManageSharedAccessKey", "[::1]:5672/")
	f.Fuzz(func(t *testing.T, token, audience string) {
		if strings.Contains(token, DevKey) {
			return
		}
		if grant, err := newTestKeyring(t).Token(context.Background(), somebody, KindSAS, token, audience); err == nil {
			t.Fatalf("granted %b to %q", grant.Rights, token)
		}
		s, err := parseSAS(token)
		if err != nil {
			return
		}
		if again, err := parseSAS(Sign(s.resource, s.keyName, "k", s.expiry)); err != nil || again.resource != s.resource || again.keyName != s.keyName {
			t.Fatalf("%q does not survive: %v", token, err)
		}
	})
}

func BenchmarkToken(b *testing.B) {
	k, token := newTestKeyring(b), Sign(audience, DevKeyName, DevKey, noon().Add(time.Hour))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := k.Token(context.Background(), somebody, KindSAS, token, audience); err != nil {
			b.Fatal(err)
		}
	}
}

func check(t *testing.T, err error, want fsm.Code) {
	t.Helper()
	if want == fsm.OK {
		if err != nil {
			t.Error(err)
		}
		return
	}
	if !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}

func TestExpiredTokenIsNamedInTheWordsOfTheService(t *testing.T) {
	t.Parallel()
	err := &ExpiredTokenError{Expired: noon(), Now: noon().Add(time.Hour)}
	const want = "ExpiredToken: The token is expired. Expiration time: 'Fri, 20 Nov 2026 12:00:00 GMT', Current time: 'Fri, 20 Nov 2026 13:00:00 GMT'."
	if err.Error() != want || !errors.Is(err, fsm.Unauthorized) {
		t.Errorf("%q", err)
	}
}

// TestConfiguredKeysAreReplaced: while a key has two secrets, both verify. A grant ends when its secret is no longer configured.
func TestConfiguredKeysAreReplaced(t *testing.T) {
	t.Parallel()
	k := newTestKeyring(t)
	set := func(primary, secondary string) {
		t.Helper()
		if err := k.SetKeys([]Key{{Name: "root", Primary: primary, Secondary: secondary, Rights: fsm.Manage}}); err != nil {
			t.Fatal(err)
		}
	}
	login := func(secret string, want fsm.Code) Grant {
		t.Helper()
		grant, err := k.Password(t.Context(), somebody, "root", secret)
		check(t, err, want)
		return grant
	}
	set("old", "")
	before := login("old", fsm.OK)
	set("new", "old")
	after := login("new", fsm.OK)
	login("old", fsm.OK)
	if !before.Valid() || !after.Valid() {
		t.Error("a grant ended while its secret is configured")
	}
	set("new", "")
	if before.Valid() || !after.Valid() {
		t.Errorf("valid: old secret %v, new secret %v, want false and true", before.Valid(), after.Valid())
	}
	login("old", fsm.Unauthorized)
	if err := k.SetKeys(nil); err == nil || !after.Valid() {
		t.Errorf("no keys: %v; the keys before must stay in use", err)
	}
}
