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

// Limits of what is asked of an identity provider and taken from it.
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

// keys are what an identity provider signs with, as it said at one time. Never changed.
type keys struct {
	generation uint64 // rises with each answer; 0: it has not been asked yet
	algorithms []string
	list       []jose.JSONWebKey
}

// keySet holds the keys of one identity provider. It asks for them when a token wants others
// than it has, one request at a time and one each issuerRefreshMin: tokens that name keys
// without end cost the provider no more than that. It is safe for concurrent use.
type keySet struct {
	url    string
	client *http.Client
	now    func() time.Time // for the interval

	mu       sync.Mutex
	keys     *keys
	asked    time.Time     // when the last request began, and then when it ended
	failure  error         // of the last request
	inFlight chan struct{} // closed when the request under way ends; nil: there is none
}

// current are the keys to verify with. They may be of generation 0.
func (s *keySet) current() *keys {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys
}

// refresh waits until the keys are of a later generation than those that a token was
// verified with in vain: for the request under way, or for the next one that the interval
// allows, which it sends when nobody else does. A token whose key is known by name does not
// wait for the interval: newer is false then. Errors wrap fsm.ServerBusy.
func (s *keySet) refresh(ctx context.Context, vain *unknownKeyError) (newer bool, err error) {
	for {
		s.mu.Lock()
		if s.keys.generation > vain.generation {
			s.mu.Unlock()
			return true, nil
		}
		rest := issuerRefreshMin - s.now().Sub(s.asked)
		switch {
		case s.inFlight != nil:
		case rest > 0 && (s.failure != nil || vain.named):
			defer s.mu.Unlock()
			return false, s.failure
		case rest <= 0:
			s.inFlight, s.asked = make(chan struct{}), s.now()
			go s.fetch(context.WithoutCancel(ctx), s.inFlight)
		}
		inFlight := s.inFlight
		s.mu.Unlock()
		if err := wait(ctx, inFlight, rest); err != nil {
			return false, err
		}
	}
}

// wait waits for the end of a request, or where there is none for the interval to end.
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

// fetch is one request, on a goroutine of its own: others wait for it too.
func (s *keySet) fetch(ctx context.Context, done chan<- struct{}) {
	ctx, cancel := context.WithTimeout(ctx, issuerTimeMax)
	defer cancel()
	algorithms, list, err := s.ask(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight, s.failure = nil, nil
	s.asked = s.now() // the interval begins anew, or who waited for a slow failure would ask again
	if err != nil {
		s.failure = fmt.Errorf("%w: the identity provider does not answer: try again", fsm.ServerBusy)
	} else {
		s.keys = &keys{s.keys.generation + 1, algorithms, list}
	}
	close(done)
}

// ask finds out where the keys of the provider are, and what they are.
func (s *keySet) ask(ctx context.Context) (algorithms []string, list []jose.JSONWebKey, err error) {
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
	list, err = s.askKeys(ctx, described.Keys)
	return asymmetric(described.Algorithms), list, err
}

// askKeys gets a JSON Web Key Set. Keys that are of no use here are passed over (RFC 7517,
// 5): a provider may have others beside those of its tokens.
func (s *keySet) askKeys(ctx context.Context, url string) ([]jose.JSONWebKey, error) {
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

// asymmetric are those of some names that are algorithms to verify with; RS256, which every
// provider has to have, where none is.
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

// verification verifies the signature of one token with keys as they are; it asks nobody. It
// is an oidc.KeySet.
type verification struct {
	keys *keys
	// failed says that no key fits: a newer one may. named says that one of them has the id
	// that the token names, so that a newer one is not likely.
	failed, named bool
}

// VerifySignature gives the payload of a token that one of the keys has signed.
func (v *verification) VerifySignature(_ context.Context, token string) ([]byte, error) {
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
		v.named = v.named || id != ""
	}
	v.failed = true
	return nil, errors.New("no key of the identity provider fits the signature")
}
