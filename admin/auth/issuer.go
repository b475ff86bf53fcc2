package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/peeklock/peeklock/fsm"
)

// rolesMax is how many roles of a token are read.
const rolesMax = 256

// IssuerConfig selects the identity provider whose JWTs are accepted.
type IssuerConfig struct {
	// URL is the issuer, as in the claim iss; its description is at .well-known/openid-configuration below it (OpenID Connect Discovery 1.0, 4).
	URL string
	// Audience is the value that the claim aud must have.
	Audience string
	// RolesClaim is the claim with the roles of the bearer; default "roles". The words of scp and scope are roles, too, except that of operators.
	RolesClaim string
	// AllNamespaces makes tokens without the claim of namespaces valid in all of them; else they are valid in the
	// default one.
	AllNamespaces bool
	Client        *http.Client     // nil: one with a timeout of 10 s
	Now           func() time.Time // nil: time.Now
}

// The roles that give rights: those of the cloud, and those of Peeklock.
const (
	roleOwner    = "Azure Service Bus Data Owner"
	roleSender   = "Azure Service Bus Data Sender"
	roleReceiver = "Azure Service Bus Data Receiver"
	roleManage   = "peeklock.manage"
	roleSend     = "peeklock.send"
	roleListen   = "peeklock.listen"
	roleRead     = "peeklock.read"
	roleOperator = "peeklock.operator" // also for the cluster itself
)

// namespacesClaim lists the namespaces that a token is for; without it, the default one or, as
// configured, all.
const namespacesClaim = "peeklock_namespaces"

// Issuer verifies the JWTs of one identity provider. It contacts the provider for the first token only, so a member starts
// without it. The provider's keys may change at any time; new
// ones are found within issuerRefreshMin. Issuer is safe for concurrent use.
type Issuer struct {
	config IssuerConfig
	keys   *keySet
}

// NewIssuer returns an issuer. It does not contact the provider.
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
	return &Issuer{c, &keySet{url: c.URL, client: c.Client, now: time.Now, keys: &signingKeys{}}}, nil
}

// errToken has no details: errors of the library may quote the token.
var errToken = fmt.Errorf("%w: InvalidToken: the token is not one of the identity provider's for this audience: its issuer and audience must be those of the settings oidc_issuer and oidc_audience", fsm.Unauthorized)

// verify verifies signature, issuer, audience and times of a token with the keys that are
// known; it fetches none. The error is an *unknownKeyError when newer keys may verify the token.
func (i *Issuer) verify(ctx context.Context, token string) (*oidc.IDToken, error) {
	known := i.keys.current()
	if known.generation == 0 {
		return nil, &unknownKeyError{}
	}
	signed := &signatureVerifier{keys: known}
	verifier := oidc.NewVerifier(i.config.URL, signed, &oidc.Config{ClientID: i.config.Audience, SupportedSigningAlgs: known.algorithms, Now: i.config.Now})
	checked, err := verifier.Verify(ctx, token)
	var late *oidc.TokenExpiredError
	switch {
	case signed.noKeyFits:
		return nil, &unknownKeyError{known.generation, signed.keyIDKnown}
	case errors.As(err, &late):
		return nil, &ExpiredTokenError{Expired: late.Expiry, Now: i.config.Now()}
	case err != nil:
		return nil, errToken
	}
	return checked, nil
}

// addRoles adds the rights of roles.
func (g *Grant) addRoles(roles []string) {
	for _, role := range roles {
		switch role {
		case roleOwner, roleManage:
			g.Rights |= fsm.Manage
		case roleSender, roleSend:
			g.Rights |= fsm.Send
		case roleReceiver, roleListen:
			g.Rights |= fsm.Listen
		case roleRead:
			g.Rights |= fsm.Read
		}
	}
}

// addOperator makes the bearer an operator if its roles say so. Scopes never do: they say what a user allowed an
// application to do, and who may ask for one is up to the application.
func (g *Grant) addOperator(roles []string) {
	if slices.Contains(roles, roleOperator) {
		g.Operator = true
		g.Rights |= fsm.Manage
	}
}

// claimWords reads a claim that is a list of texts, or one text with words; false when it is missing. Names of roles contain
// spaces, so a text is also a role as a whole.
func claimWords(claim any) (list []string, there bool) {
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
