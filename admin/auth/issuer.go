package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/peeklock/peeklock/fsm"
)

// Limits of what is asked of an identity provider.
const (
	issuerTimeMax  = 10 * time.Second // one answer of it
	issuerRetryMin = 5 * time.Second  // between two tries to find out its keys
	rolesMax       = 256              // roles of a token that are looked at
)

// IssuerConfig says whose JWTs are taken.
type IssuerConfig struct {
	// URL is the issuer, as it stands in the claim iss; below it lies
	// .well-known/openid-configuration (OpenID Connect Discovery 1.0, 4).
	URL string
	// Audience is what the claim aud must name.
	Audience string
	// RolesClaim holds what the bearer may; default "roles". The words of scp and scope count
	// as well.
	RolesClaim string
	// AllNamespaces lets tokens without the claim of namespaces into all of them; else they are for the
	// default one.
	AllNamespaces bool
	Client        *http.Client     // nil: one of our own
	Now           func() time.Time // nil: time.Now
}

// The roles that say something: those of the cloud, and ours.
const (
	roleOwner    = "Azure Service Bus Data Owner"
	roleSender   = "Azure Service Bus Data Sender"
	roleReceiver = "Azure Service Bus Data Receiver"
	roleManage   = "peeklock.manage"
	roleSend     = "peeklock.send"
	roleListen   = "peeklock.listen"
	roleOperator = "peeklock.operator" // and the cluster itself
)

// namespacesClaim lists the namespaces that a token is for; without it, the default one or, as
// configured, all.
const namespacesClaim = "peeklock_namespaces"

// Issuer checks the JWTs of one identity provider. What that is like is found out at the
// first token and not before, so that a member starts without it; its keys may change at
// any time.
type Issuer struct {
	config IssuerConfig

	mu       sync.Mutex
	verifier *oidc.IDTokenVerifier
	tried    time.Time // the last failure
	failure  error
}

// NewIssuer makes an issuer. It asks nobody.
func NewIssuer(c IssuerConfig) (*Issuer, error) {
	switch {
	case !strings.HasPrefix(c.URL, "https://") && !strings.HasPrefix(c.URL, "http://"):
		return nil, fmt.Errorf("issuer %q: want a URL", c.URL)
	case c.Audience == "":
		return nil, errors.New("issuer: name the audience that tokens must be for")
	}
	if c.RolesClaim == "" {
		c.RolesClaim = "roles"
	}
	if c.Client == nil {
		c.Client = &http.Client{Timeout: issuerTimeMax}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Issuer{config: c}, nil
}

// discover asks the provider for its description, once.
func (i *Issuer) discover(ctx context.Context) (*oidc.IDTokenVerifier, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.verifier != nil {
		return i.verifier, nil
	}
	if i.failure != nil && i.config.Now().Sub(i.tried) < issuerRetryMin {
		return nil, i.failure
	}
	// The provider keeps this context for the keys that it will ask for later.
	ctx = oidc.ClientContext(context.WithoutCancel(ctx), i.config.Client)
	provider, err := oidc.NewProvider(ctx, i.config.URL)
	if err != nil {
		i.tried, i.failure = i.config.Now(), fmt.Errorf("%w: the identity provider does not answer: try again", fsm.ServerBusy)
		return nil, i.failure
	}
	i.verifier = provider.Verifier(&oidc.Config{ClientID: i.config.Audience, Now: i.config.Now})
	return i.verifier, nil
}

// jwt checks a token of the issuer and what its roles allow.
func (k *Keyring) jwt(ctx context.Context, from Client, token string) (Grant, error) {
	if k.issuer == nil {
		return Grant{}, fmt.Errorf("%w: tokens of kind jwt are not accepted here: no identity provider is configured, use a shared access key", fsm.Unauthorized)
	}
	if len(token) > jwtBytesMax {
		return Grant{}, fmt.Errorf("%w: the token is longer than %d bytes", fsm.InvalidArgument, jwtBytesMax)
	}
	verifier, err := k.issuer.discover(ctx)
	if err != nil {
		return Grant{}, err
	}
	checked, err := verifier.Verify(ctx, token)
	var late *oidc.TokenExpiredError
	switch {
	case errors.As(err, &late):
		return Grant{}, fmt.Errorf("%w: %w: the token ended at %s", fsm.Unauthorized, errExpired, late.Expiry.UTC().Format(time.RFC3339))
	case err != nil:
		// The library's words may quote the token.
		return Grant{}, fmt.Errorf("%w: InvalidToken: the token is not one of the identity provider's for this audience", fsm.Unauthorized)
	}
	var claims map[string]any
	if err := checked.Claims(&claims); err != nil {
		return Grant{}, fmt.Errorf("%w: InvalidToken: the claims of the token cannot be read", fsm.Unauthorized)
	}
	if !k.opens(claims[namespacesClaim], from.Namespace) {
		return Grant{}, fmt.Errorf("%w: the token is for other namespaces: one for this has its name in the claim %s", fsm.Unauthorized, namespacesClaim)
	}
	grant := Grant{Namespace: from.Namespace, Expires: checked.Expiry, Name: checked.Subject}
	for _, claim := range []string{k.issuer.config.RolesClaim, "scp", "scope"} {
		roles, _ := words(claims[claim])
		grant.add(roles)
	}
	if grant.Rights == 0 {
		return Grant{}, fmt.Errorf("%w: the token has no role for this: one of %q, %q, %q is needed", fsm.Unauthorized, roleSender, roleReceiver, roleOwner)
	}
	return grant, nil
}

// opens says whether a token with this claim of namespaces is for one of them.
func (k *Keyring) opens(claim any, namespace fsm.NamespaceID) bool {
	names, limited := words(claim)
	if !limited {
		return namespace == fsm.DefaultNamespace || k.issuer.config.AllNamespaces
	}
	return slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, k.namespace(namespace)) })
}

// add gives the rights of some roles.
func (g *Grant) add(roles []string) {
	for _, role := range roles {
		switch role {
		case roleOperator:
			g.Operator = true
			g.Rights |= fsm.Manage
		case roleOwner, roleManage:
			g.Rights |= fsm.Manage
		case roleSender, roleSend:
			g.Rights |= fsm.Send
		case roleReceiver, roleListen:
			g.Rights |= fsm.Listen
		}
	}
}

// words reads a claim that is a list of texts, or one text of words; false when it is not
// there. Names of roles have spaces, so a text counts as a whole too.
func words(claim any) (list []string, there bool) {
	switch claim := claim.(type) {
	case nil:
		return nil, false
	case string:
		return append(strings.Fields(claim), claim), true
	case []any:
		for _, item := range claim[:min(len(claim), rolesMax)] {
			if text, ok := item.(string); ok {
				list = append(list, text)
			}
		}
	}
	return list, true
}
