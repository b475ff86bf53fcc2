package auth

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/peeklock/peeklock/fsm"
)

// provider is an identity provider on loopback.
type provider struct {
	*httptest.Server

	t    *testing.T
	key  atomic.Pointer[jose.JSONWebKey]
	down atomic.Bool
	hits atomic.Int64
	// asked counts the requests for keys.
	asked atomic.Int64
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	p := &provider{t: t}
	p.rotate("first")
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.hits.Add(1)
		if p.down.Load() {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		var answer any = map[string]any{"issuer": p.URL, "jwks_uri": p.URL + "/keys", "id_token_signing_alg_values_supported": []string{"RS256"}}
		if r.URL.Path == "/keys" {
			p.asked.Add(1)
			answer = jose.JSONWebKeySet{Keys: []jose.JSONWebKey{p.key.Load().Public()}}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *provider) rotate(id string) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		p.t.Fatal(err)
	}
	p.key.Store(&jose.JSONWebKey{Key: key, KeyID: id, Algorithm: "RS256", Use: "sig"})
}

// rename makes tokens name a key other than the one that signs them.
func (p *provider) rename(id string) {
	key := *p.key.Load()
	key.KeyID = id
	p.key.Store(&key)
}

// sign creates a token with these claims and the usual ones.
func (p *provider) sign(claims map[string]any) string {
	p.t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: p.key.Load()}, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	all := map[string]any{"iss": p.URL, "aud": "peeklock", "sub": "robot", "exp": noon().Add(time.Hour).Unix()}
	for name, value := range claims {
		all[name] = value
	}
	token, err := jwt.Signed(signer).Claims(all).Serialize()
	if err != nil {
		p.t.Fatal(err)
	}
	return token
}

func (p *provider) ring(claim string) *Keyring {
	p.t.Helper()
	issuer, err := NewIssuer(IssuerConfig{URL: p.URL, Audience: "peeklock", RolesClaim: claim, Now: noon})
	if err != nil {
		p.t.Fatal(err)
	}
	k, _ := newKeyringWithRules(p.t, func(c *Config) { c.Issuer = issuer })
	return k
}

func TestJWTGrantsWhatItsRolesAllow(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	k := p.ring("")
	type claims = map[string]any
	owner := []string{roleOwner}
	for _, c := range []struct {
		name     string
		claims   claims
		want     fsm.Code
		rights   fsm.Rights
		operator bool
	}{
		{"owner", claims{"roles": owner}, fsm.OK, fsm.Manage, false},
		{"sender", claims{"roles": []string{"else", roleSender}}, fsm.OK, fsm.Send, false},
		{"both", claims{"roles": []string{roleReceiver, roleSend}}, fsm.OK, fsm.Send | fsm.Listen, false},
		{"one text", claims{"roles": roleSender}, fsm.OK, fsm.Send, false},
		{"scope", claims{"scp": "openid peeklock.listen"}, fsm.OK, fsm.Listen, false},
		{"operator", claims{"roles": "peeklock.operator"}, fsm.OK, fsm.Manage, true},
		{"a scope makes no operator", claims{"scope": "peeklock.operator", "scp": "peeklock.operator"}, fsm.Unauthorized, 0, false},
		{"a scope with other rights", claims{"scp": "peeklock.operator peeklock.send"}, fsm.OK, fsm.Send, false},
		{"no role", claims{"roles": []string{"x"}}, fsm.Unauthorized, 0, false},
		{"no claim", claims{}, fsm.Unauthorized, 0, false},
		{"roles of another shape", claims{"roles": 7}, fsm.Unauthorized, 0, false},
		{"this namespace", claims{"roles": owner, namespacesClaim: []string{"x", "NS1"}}, fsm.OK, fsm.Manage, false},
		{"another namespace", claims{"roles": owner, namespacesClaim: []string{"ns2"}}, fsm.Unauthorized, 0, false},
		{"no namespace", claims{"roles": owner, namespacesClaim: []string{}}, fsm.Unauthorized, 0, false},
		{"another audience", claims{"roles": owner, "aud": "else"}, fsm.Unauthorized, 0, false},
		{"another issuer", claims{"roles": owner, "iss": "https://elsewhere"}, fsm.Unauthorized, 0, false},
		{"expired", claims{"roles": owner, "exp": noon().Add(-time.Hour).Unix()}, fsm.Unauthorized, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			grant, err := k.Token(t.Context(), somebody, KindJWT, p.sign(c.claims), "sb://host/a")
			check(t, err, c.want)
			if grant.Rights != c.rights || grant.Operator != c.operator {
				t.Errorf("grant %+v", grant)
			}
			if err == nil && (grant.Name != "robot" || !grant.Expires.Equal(noon().Add(time.Hour))) {
				t.Errorf("grant of %q until %s", grant.Name, grant.Expires)
			}
		})
	}
	good := p.sign(claims{"roles": owner})
	head, rest, _ := strings.Cut(good, ".")
	for name, token := range map[string]string{
		"not a token":  "hello",
		"tampered":     head + "." + strings.Replace(rest, ".", "A.", 1),
		"no signature": good[:strings.LastIndexByte(good, '.')+1],
		"unsigned":     "eyJhbGciOiJub25lIn0." + rest[:strings.IndexByte(rest, '.')] + ".",
	} {
		if _, err := k.Token(t.Context(), somebody, KindJWT, token, "sb://host/a"); err == nil {
			t.Errorf("%s: granted", name)
		} else if strings.Contains(err.Error(), rest[:20]) {
			t.Errorf("%s: the error quotes the token: %v", name, err)
		}
	}
	_, err := k.Token(t.Context(), somebody, KindJWT, strings.Repeat("x", jwtBytesMax+1), "sb://host/a")
	check(t, err, fsm.InvalidArgument)
	custom := p.ring("groups")
	_, err = custom.Token(t.Context(), somebody, KindJWT, p.sign(claims{"groups": owner}), "sb://host/a")
	check(t, err, fsm.OK)
}

// A token without a claim of namespaces is valid for the default one, unless the configuration adds others.
func TestJWTWithoutNamespaces(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	for _, c := range []struct {
		name string
		all  bool
		role string
		want fsm.Code
	}{
		{"the default", false, roleOwner, fsm.Unauthorized},
		{"an operator", false, roleOperator, fsm.Unauthorized},
		{"widened", true, roleOwner, fsm.OK},
	} {
		issuer, err := NewIssuer(IssuerConfig{URL: p.URL, Audience: "peeklock", Now: noon, AllNamespaces: c.all})
		if err != nil {
			t.Fatal(err)
		}
		k, _ := newKeyringWithRules(t, func(config *Config) { config.Issuer = issuer })
		in := func(namespace fsm.NamespaceID, host string, claims map[string]any) error {
			claims["roles"] = c.role
			_, err := k.Token(t.Context(), Client{Namespace: namespace}, KindJWT, p.sign(claims), "sb://"+host+"/a")
			return err
		}
		check(t, in(fsm.DefaultNamespace, "host", map[string]any{}), fsm.OK)
		check(t, in(other, "ns2.host", map[string]any{}), c.want)
		check(t, in(other, "ns2.host", map[string]any{namespacesClaim: "ns2"}), fsm.OK)
		check(t, in(other, "host", map[string]any{namespacesClaim: "ns2"}), fsm.InvalidArgument)
		check(t, in(fsm.DefaultNamespace, "host", map[string]any{namespacesClaim: "ns2"}), fsm.Unauthorized)
	}
}

func TestIssuerIsValidated(t *testing.T) {
	t.Parallel()
	for _, c := range []IssuerConfig{{URL: "x", Audience: "a"}, {URL: "https://x"}, {}} {
		if _, err := NewIssuer(c); err == nil {
			t.Errorf("%+v: accepted", c)
		}
	}
}
