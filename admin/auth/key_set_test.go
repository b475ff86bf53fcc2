package auth

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/peeklock/peeklock/fsm"
)

// RoundTrip answers without a network, so that time can be virtual.
func (p *provider) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	p.Config.Handler.ServeHTTP(w, r)
	return w.Result(), nil
}

// inBubble returns a keyring that queries the provider without a network.
func (p *provider) inBubble(t *testing.T) *Keyring {
	t.Helper()
	issuer, err := NewIssuer(IssuerConfig{URL: p.URL, Audience: "peeklock", Now: noon, Client: &http.Client{Transport: p}})
	if err != nil {
		t.Fatal(err)
	}
	k, _ := newKeyringWithRules(t, func(c *Config) { c.Issuer = issuer })
	return k
}

func (p *provider) owner() string { return p.sign(map[string]any{"roles": roleOwner}) }

func try(k *Keyring, token string) error {
	_, err := k.Token(context.Background(), clientAt("192.0.2.1"), KindJWT, token, "sb://host/a")
	return err
}

// Tokens that name unknown keys without end cost the provider one request per interval, and a new key is found
// within one interval; a token of a known key does not wait.
func TestUnknownKeysAreRequestedOncePerInterval(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	synctest.Test(t, func(t *testing.T) {
		k := p.inBubble(t)
		check(t, try(k, p.owner()), fsm.OK)
		good, first := p.owner(), p.key.Load()
		before := p.asked.Load()
		var all sync.WaitGroup
		for range keyWaitersPerClientMax {
			p.rename("made up")
			token := p.owner()
			all.Go(func() {
				if err := try(k, token); err == nil {
					t.Error("a key that was made up is good")
				}
			})
		}
		p.key.Store(first)
		synctest.Wait()
		if p.asked.Load() != before {
			t.Error("asked before the interval was over")
		}
		began := time.Now()
		check(t, try(k, good), fsm.OK)
		if time.Since(began) != 0 {
			t.Error("a known key waited")
		}
		check(t, try(k, good+"A"), fsm.ServerBusy) // too many are waiting already
		all.Wait()
		if n := p.asked.Load() - before; n != 1 {
			t.Errorf("asked %d times", n)
		}
		// The same with a new key that exists.
		p.rotate("second")
		began = time.Now()
		check(t, try(k, p.owner()), fsm.OK)
		if took := time.Since(began); took > issuerRefreshMin {
			t.Errorf("the new key was found after %s", took)
		}
		if err := try(k, good); err == nil {
			t.Error("the old key is still good")
		}
	})
}

// A wrong signature under a known key does not wait for the interval, but if a provider gives a new key the
// old name, it is queried again after the interval.
func TestNewKeyWithAKnownIDIsFound(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	synctest.Test(t, func(t *testing.T) {
		k := p.inBubble(t)
		check(t, try(k, p.owner()), fsm.OK)
		before := p.asked.Load()
		p.rotate("first")
		began := time.Now()
		check(t, try(k, p.owner()), fsm.Unauthorized)
		if took := time.Since(began); took != delayMin || p.asked.Load() != before {
			t.Errorf("refused after %s, asked %d times", took, p.asked.Load()-before)
		}
		time.Sleep(issuerRefreshMin) //nolint:forbidigo // in a bubble
		check(t, try(k, p.owner()), fsm.OK)
	})
}

// A provider may be unavailable when a member starts; it is not queried again at once, and failures to query
// it do not count as failures of the client.
func TestIssuerMayBecomeAvailableLater(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	synctest.Test(t, func(t *testing.T) {
		k := p.inBubble(t)
		p.down.Store(true)
		check(t, try(k, p.owner()), fsm.ServerBusy)
		before, began := p.hits.Load(), time.Now()
		check(t, try(k, p.owner()), fsm.ServerBusy)
		if p.hits.Load() != before || time.Since(began) != 0 {
			t.Error("it was asked again at once")
		}
		p.down.Store(false)
		time.Sleep(issuerRefreshMin) //nolint:forbidigo // in a bubble
		check(t, try(k, p.owner()), fsm.OK)
		p.down.Store(true)
		p.rotate("second")
		check(t, try(k, p.owner()), fsm.ServerBusy)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		p.down.Store(false)
		time.Sleep(issuerRefreshMin) //nolint:forbidigo // in a bubble
		from := Client{Namespace: fsm.DefaultNamespace, Peer: &net.UnixAddr{Name: "socket"}}
		_, err := k.Token(gone, from, KindJWT, p.owner(), "sb://host/a")
		check(t, err, fsm.ServerBusy) // the caller has given up; the keys are fetched all the same
		synctest.Wait()
		check(t, try(k, p.owner()), fsm.OK)
	})
}

// Entries that are not keys for tokens are skipped, and so are entries above the limit.
func TestUnusableProviderKeysAreSkipped(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	public, err := json.Marshal(p.key.Load().Public())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		body string
		keys int
		bad  bool
	}{
		"one":           {`{"keys":[` + string(public) + `]}`, 1, false},
		"beside others": {`{"keys":[{"kty":"OKP","crv":"X448","x":"AA"},{"kty":"oct","k":"c2VjcmV0"},7,` + string(public) + `]}`, 1, false},
		"none":          {`{}`, 0, false},
		"too many":      {`{"keys":[` + strings.Repeat(string(public)+",", issuerKeysMax) + string(public) + `]}`, issuerKeysMax, false},
		"no JSON":       {`<html>`, 0, true},
		"too large":     {`{"keys":[` + strings.Repeat(" ", issuerBytesMax) + `]}`, 0, true},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(c.body)) }))
		s := &keySet{client: server.Client()}
		list, err := s.fetchKeys(t.Context(), server.URL)
		server.Close()
		if len(list) != c.keys || (err != nil) != c.bad {
			t.Errorf("%s: %d keys, %v", name, len(list), err)
		}
	}
	for _, c := range []struct{ names, want []string }{
		{nil, []string{"RS256"}}, {[]string{"none", "HS256"}, []string{"RS256"}}, {[]string{"HS256", "ES256", "PS512"}, []string{"ES256", "PS512"}},
	} {
		if got := asymmetric(c.names); strings.Join(got, " ") != strings.Join(c.want, " ") {
			t.Errorf("of %v: %v", c.names, got)
		}
	}
	if _, err := (&signatureVerifier{keys: &signingKeys{list: []jose.JSONWebKey{p.key.Load().Public()}}}).VerifySignature(t.Context(), "a.b.c"); err == nil {
		t.Error("garbage has a signature")
	}
}
