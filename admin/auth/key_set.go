package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"

	"github.com/peeklock/peeklock/fsm"
)

// Limits of requests to an identity provider and of its answers.
const (
	issuerTimeMax      = 10 * time.Second // one request to it
	issuerRefreshMin   = 5 * time.Second  // between two requests for its keys, whatever tokens name
	issuerBytesMax     = 1 << 20          // one answer of it
	issuerKeysMax      = 100              // of its keys that are kept; the others are ignored
	issuerAlgorithmMax = 16               // of the algorithms that it names, likewise
)

// algorithms are those that tokens may be signed by: the asymmetric ones.
func algorithms() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{
		jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
		jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
	}
}

// signingKeys are the signing keys of an identity provider from one answer of it. Immutable.
type signingKeys struct {
	generation uint64 // rises with each answer; 0: none has been fetched yet
	algorithms []string
	list       []jose.JSONWebKey
}

// keySet holds the keys of one identity provider. It fetches them when a token needs a key that
// it does not have, with one request at a time and at most one per issuerRefreshMin, however many
// tokens name unknown keys. It is safe for concurrent use.
type keySet struct {
	url    string
	client *http.Client
	now    func() time.Time // for the interval

	mu          sync.Mutex
	keys        *signingKeys
	lastRequest time.Time     // when the request in flight began, else when the last one ended
	failure     error         // of the last request
	inFlight    chan struct{} // closed when the request in flight ends; nil: there is none
}

// current returns the keys to verify with. Their generation may be 0.
func (s *keySet) current() *signingKeys {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys
}

// refresh waits until the keys are of a later generation than those that did not verify a
// token: for the request in flight, or for the next one that the interval allows, which it
// starts itself when there is none. If the key that the token names is known, refresh does not
// wait for the interval and newer is false. Errors wrap fsm.ServerBusy.
func (s *keySet) refresh(ctx context.Context, tried *unknownKeyError) (newer bool, err error) {
	for {
		s.mu.Lock()
		if s.keys.generation > tried.generation {
			s.mu.Unlock()
			return true, nil
		}
		rest := issuerRefreshMin - s.now().Sub(s.lastRequest)
		switch {
		case s.inFlight != nil:
		case rest > 0 && (s.failure != nil || tried.keyIDKnown):
			defer s.mu.Unlock()
			return false, s.failure
		case rest <= 0:
			s.inFlight, s.lastRequest = make(chan struct{}), s.now()
			go s.fetch(context.WithoutCancel(ctx), s.inFlight)
		}
		inFlight := s.inFlight
		s.mu.Unlock()
		if err := wait(ctx, inFlight, rest); err != nil {
			return false, err
		}
	}
}

// wait waits for the end of the request in flight, or of the interval when there is none.
func wait(ctx context.Context, inFlight <-chan struct{}, rest time.Duration) error {
	var due <-chan time.Time
	if inFlight == nil {
		timer := time.NewTimer(rest)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-inFlight:
	case <-due:
	case <-ctx.Done():
		return fmt.Errorf("%w: the keys of the identity provider are asked for once in %s: try again", fsm.ServerBusy, issuerRefreshMin)
	}
	return nil
}

// fetch makes one request. It runs on a goroutine of its own because several tokens wait for it.
func (s *keySet) fetch(ctx context.Context, done chan<- struct{}) {
	ctx, cancel := context.WithTimeout(ctx, issuerTimeMax)
	defer cancel()
	algorithms, list, err := s.discover(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight, s.failure = nil, nil
	s.lastRequest = s.now() // restart the interval, or tokens that waited for a slow failure would ask again at once
	if err != nil {
		s.failure = fmt.Errorf("%w: the identity provider does not answer: try again", fsm.ServerBusy)
	} else {
		s.keys = &signingKeys{s.keys.generation + 1, algorithms, list}
	}
	close(done)
}

// discover discovers the URL of the provider's keys and fetches them.
func (s *keySet) discover(ctx context.Context) (algorithms []string, list []jose.JSONWebKey, err error) {
	provider, err := oidc.NewProvider(oidc.ClientContext(ctx, s.client), s.url)
	if err != nil {
		return nil, nil, fmt.Errorf("discover the identity provider: %w", err)
	}
	var described struct {
		Keys       string   `json:"jwks_uri"`
		Algorithms []string `json:"id_token_signing_alg_values_supported"`
	}
	if err := provider.Claims(&described); err != nil {
		return nil, nil, fmt.Errorf("read the description of the identity provider: %w", err)
	}
	list, err = s.fetchKeys(ctx, described.Keys)
	return asymmetric(described.Algorithms), list, err
}

// fetchKeys fetches a JSON Web Key Set. It skips keys that it cannot use (RFC 7517, 5): a provider
// may have other keys beside those that sign tokens.
func (s *keySet) fetchKeys(ctx context.Context, url string) ([]jose.JSONWebKey, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("ask for keys: %w", err)
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask for keys: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, issuerBytesMax))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read keys: %w", err)
	case response.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("ask for keys: %s", response.Status)
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(body, &set); err != nil {
		return nil, fmt.Errorf("read keys: %w", err)
	}
	var list []jose.JSONWebKey
	for _, text := range set.Keys {
		var key jose.JSONWebKey
		if len(list) < issuerKeysMax && json.Unmarshal(text, &key) == nil && key.IsPublic() {
			list = append(list, key)
		}
	}
	return list, nil
}

// asymmetric returns the names that are supported algorithms; if there are none, RS256, which
// every provider has to support.
func asymmetric(names []string) []string {
	var known []string
	for _, name := range names[:min(len(names), issuerAlgorithmMax)] {
		if slices.Contains(algorithms(), jose.SignatureAlgorithm(name)) {
			known = append(known, name)
		}
	}
	if known == nil {
		return []string{oidc.RS256}
	}
	return known
}

// signatureVerifier verifies the signature of one token with the given keys and fetches none. It
// implements oidc.KeySet.
type signatureVerifier struct {
	keys *signingKeys
	// failed: no key fits the signature, a newer one may. named: one of the keys has the id
	// that the token names, so a newer key is unlikely to fit.
	noKeyFits, keyIDKnown bool
}

// VerifySignature returns the payload of a token that one of the keys has signed.
func (v *signatureVerifier) VerifySignature(_ context.Context, token string) ([]byte, error) {
	signed, err := jose.ParseSigned(token, algorithms())
	if err != nil || len(signed.Signatures) != 1 {
		return nil, errors.New("the token does not have one signature")
	}
	id := signed.Signatures[0].Header.KeyID
	for i := range v.keys.list {
		key := &v.keys.list[i]
		if id != "" && key.KeyID != id {
			continue
		}
		if payload, err := signed.Verify(key); err == nil {
			return payload, nil
		}
		v.keyIDKnown = v.keyIDKnown || id != ""
	}
	v.noKeyFits = true
	return nil, errors.New("no key of the identity provider fits the signature")
}

// unknownKeyError: no key fits the signature of a token. The client gets this error unless the
// provider has newer keys.
type unknownKeyError struct {
	generation uint64 // of the keys that were tried
	keyIDKnown bool   // one of them has the id that the token names
}

func (*unknownKeyError) Error() string { return errToken.Error() }

func (*unknownKeyError) Unwrap() error { return errToken }
