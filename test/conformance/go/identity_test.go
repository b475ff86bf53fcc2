package conformance

import (
	"context"
	"crypto/tls"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/test/harness"
)

// identityChecks are the cases of clients that prove their identity through a third party.
func identityChecks(authority *harness.Cluster, issuer *harness.Issuer) []check {
	return []check{
		{name: "jwt", run: func(s suite) { identityJWT(s, issuer) }},
		{name: "external", run: func(s suite) { identityExternal(s, authority) }},
	}
}

// bearer is a credential with a role from an identity provider.
type bearer struct {
	issuer *harness.Issuer
	role   string
}

const bearerLife = 10 * time.Minute

func (b bearer) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: b.issuer.Token(b.role, bearerLife), ExpiresOn: time.Now().Add(bearerLife)}, nil
}

// A token grants what its roles allow, and nothing else.
func identityJWT(s suite, issuer *harness.Issuer) {
	as := func(role string) *azservicebus.Client {
		c, err := azservicebus.NewClient("localhost", bearer{issuer, role}, &azservicebus.ClientOptions{
			CustomEndpoint: s.Members[0].AMQP, TLSConfig: s.trust(), RetryOptions: azservicebus.RetryOptions{MaxRetries: -1},
		})
		s.must("client", err)
		s.Cleanup(func() { _ = c.Close(context.Background()) })
		return c
	}
	s.roundTrip(as("Azure Service Bus Data Owner"))
	sender, err := as("Azure Service Bus Data Sender").NewSender(s.queue, nil)
	s.must("sender", err)
	s.must("send as sender", sender.SendMessage(s.ctx, &azservicebus.Message{}, nil))
	r, err := as("Azure Service Bus Data Sender").NewReceiverForQueue(s.queue, nil)
	s.must("receiver", err)
	_, err = r.ReceiveMessages(s.ctx, 1, nil)
	wantCode(s, "receive as sender", err, azservicebus.CodeUnauthorizedAccess)
	sender, err = as("Reader").NewSender(s.queue, nil)
	s.must("sender", err)
	wantCode(s, "send with a role of nobody's", sender.SendMessage(s.ctx, &azservicebus.Message{}, nil), azservicebus.CodeUnauthorizedAccess)
}

// A certificate in the name of a rule has the rights of its key; another name has none.
func identityExternal(s suite, authority *harness.Cluster) {
	dial := func(name string) (*amqp.Conn, error) {
		certificate, err := tls.LoadX509KeyPair(authority.ClientCertificate(s.T, name))
		s.must("load", err)
		trust := s.trust()
		trust.Certificates = []tls.Certificate{certificate}
		return amqp.Dial(s.ctx, "amqps://"+s.Members[0].AMQP, &amqp.ConnOptions{SASLType: amqp.SASLTypeExternal(""), TLSConfig: trust})
	}
	s.plainRoundTrip(dial(harness.KeyName))
	if conn, err := dial("Nobody"); err == nil {
		_ = conn.Close()
		s.Error("let in under a name that no rule has")
	}
}
