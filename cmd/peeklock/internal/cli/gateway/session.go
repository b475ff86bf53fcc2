package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/config"
)

// Names and times of AMQP connections.
const (
	dialTimeMax = 5 * time.Second
	// containerID appears in the logs and traces of the members.
	containerID = "peeklock-cli"
	// connectionLife is the longest use of one of our connections: no command runs longer.
	connectionLife = 24 * time.Hour
)

// Session is a session with a member over AMQP.
type Session struct {
	Conn    *amqp.Conn
	Session *amqp.Session
}

// dial opens a session with the first member that answers. It authenticates with SASL PLAIN: putting tokens to
// $cbs would need two more links for the same result.
func dialFirst(ctx context.Context, c *client.Client, addresses []string) (*Session, error) {
	var all []error
	for _, address := range addresses {
		d, err := DialOne(ctx, c, address)
		if err == nil {
			return d, nil
		}
		all = append(all, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(all...)
}

// DialOne connects to one member. It uses TLS if the control API did: every port of a member accepts both.
func DialOne(ctx context.Context, c *client.Client, address string) (*Session, error) {
	name, key, as, err := amqpCredentials(c)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeMax)
	defer cancel()
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, cli.Usagef("%q is not an address: write host:port", address)
	}
	scheme, options := "amqp://", &amqp.ConnOptions{ContainerID: containerID, HostName: host, SASLType: amqp.SASLTypePlain(name, key)}
	if _, usesTLS := c.Reached(); usesTLS || ownCertificate(c) != "" {
		scheme = "amqps://"
		if options.TLSConfig, err = amqpTLS(c, host); err != nil {
			return nil, err
		}
	}
	if c.Namespace() != "" {
		options.HostName, options.SASLType = c.Namespace()+client.HostSuffix, amqp.SASLTypeAnonymous()
	}
	conn, err := amqp.Dial(ctx, scheme+address, options)
	if err != nil {
		return nil, fmt.Errorf("connect to %s with %s: %w", address, as, err)
	}
	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("open a session with %s: %w", address, err)
	}
	d := &Session{Conn: conn, Session: session}
	if c.Namespace() != "" {
		if err := d.PutToken(ctx, "amqp://"+options.HostName+"/", name, key); err != nil {
			d.Close()
			return nil, fmt.Errorf("sign in at %s with %s: %w", address, as, PlainError(err))
		}
	}
	return d, nil
}

// amqpCredentials returns a key and its description for errors. AMQP needs one also when the control API was reached over
// a control socket, where it needs none: then it is the one of the member whose settings are in the environment, as in its
// container.
func amqpCredentials(c *client.Client) (name, key, as string, err error) {
	name, key, given, err := c.Credentials()
	as = "key " + name
	file := c.Getenv("PEEKLOCK_KEY_FILE")
	switch {
	case err != nil:
		return "", "", "", err
	case given:
	case isLocal(c) && file != "":
		text, err := os.ReadFile(file) //nolint:gosec // the settings of the member name the file
		if err != nil {
			return "", "", "", fmt.Errorf("read the key of this member: %w", err)
		}
		return name, strings.TrimSpace(string(text)), as + " of " + file, nil
	default:
		as += " and the secret of dev, because no --key was given"
	}
	return name, key, as, nil
}

// ownCertificate returns the path of the certificate of the member whose settings are in the environment; "" if there is
// none, or if it does not apply. Such a member accepts TLS, so its key is never sent without.
func ownCertificate(c *client.Client) string {
	if c.Trusted() != nil || !isLocal(c) {
		return ""
	}
	return c.Getenv("PEEKLOCK_TLS_CERT")
}

// amqpTLS returns the TLS configuration for a host. In the container of a member, whose certificate need not have the
// addresses that members announce, it accepts exactly that certificate instead.
func amqpTLS(c *client.Client, host string) (*tls.Config, error) {
	if own := ownCertificate(c); own != "" {
		return config.PinnedTLS(own)
	}
	trusted := c.Trusted().Clone()
	if trusted == nil {
		trusted = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	trusted.ServerName = host // not the name that selects the namespace
	return trusted, nil
}

// isLocal reports whether the control API was reached over a control socket.
func isLocal(c *client.Client) bool {
	address, _ := c.Reached()
	return address == ""
}

// PutToken authenticates to a namespace. SASL PLAIN authenticates before the connection names its host, and
// go-amqp leaves the host name out of it, so a token is put afterwards.
func (d *Session) PutToken(ctx context.Context, audience, name, key string) error {
	const node, answers = "$cbs", "cbs-answers"
	sender, err := d.Session.NewSender(ctx, node, nil)
	if err != nil {
		return err
	}
	defer func() { _ = sender.Close(ctx) }()
	receiver, err := d.Session.NewReceiver(ctx, node, &amqp.ReceiverOptions{TargetAddress: answers, Credit: 1})
	if err != nil {
		return err
	}
	defer func() { _ = receiver.Close(ctx) }()
	replyTo := answers
	request := &amqp.Message{
		Value:                 auth.Sign(audience, name, key, time.Now().Add(connectionLife)),
		Properties:            &amqp.MessageProperties{MessageID: "1", ReplyTo: &replyTo},
		ApplicationProperties: map[string]any{"operation": "put-token", "type": auth.KindSAS, "name": audience},
	}
	if err := sender.Send(ctx, request, nil); err != nil {
		return err
	}
	answer, err := receiver.Receive(ctx, nil)
	if err != nil {
		return err
	}
	if err := receiver.AcceptMessage(ctx, answer); err != nil {
		return err
	}
	if status, _ := answer.ApplicationProperties["status-code"].(int32); status < 200 || status > 299 {
		return fmt.Errorf("%v (status %v)", answer.ApplicationProperties["status-description"], answer.ApplicationProperties["status-code"])
	}
	return nil
}

// Close closes the connection, which ends its links and its session.
func (d *Session) Close() { _ = d.Conn.Close() }

// Connect dials the address where the control API answered, which works from here, and then those that members announce:
// these may not resolve here, as those of members in containers and pods behind a forwarded port.
func Connect(ctx context.Context, c *client.Client) (*Session, error) {
	if c.IsReadOnly() {
		return nil, errors.New("no AMQP connection was opened: a dry run changes nothing")
	}
	addresses, err := c.Endpoints(ctx)
	if err != nil {
		return nil, err
	}
	if control, _ := c.Reached(); control != "" {
		addresses = slices.DeleteFunc(addresses, func(a string) bool { return a == control })
		addresses = slices.Insert(addresses, 0, control)
	}
	return dialFirst(ctx, c, addresses)
}

// Reachable returns the AMQP addresses of the members to which a session can be opened from here, in the order of
// Endpoints; if there is none, the address where the control API answered. It tries all at the same time.
func Reachable(ctx context.Context, c *client.Client) ([]string, error) {
	announced, err := c.Endpoints(ctx)
	if err != nil {
		return nil, err
	}
	errs := make([]error, len(announced))
	var group sync.WaitGroup
	for i, address := range announced {
		group.Go(func() {
			d, err := DialOne(ctx, c, address)
			if errs[i] = err; err == nil {
				d.Close()
			}
		})
	}
	group.Wait()
	var reachable []string
	for i, address := range announced {
		if errs[i] == nil {
			reachable = append(reachable, address)
		}
	}
	control, _ := c.Reached()
	switch {
	case len(reachable) > 0:
		return reachable, nil
	case control == "":
		return nil, errors.Join(errs...)
	}
	err = untilAccepted(ctx, func() error {
		d, err := DialOne(ctx, c, control)
		if err == nil {
			d.Close()
		}
		return err
	})
	if err != nil {
		return nil, errors.Join(errors.Join(errs...), err)
	}
	return []string{control}, nil
}

// acceptedTriesMin is how often untilAccepted dials at least: a single dial to a member whose node is gone takes three seconds,
// or dialTimeMax. A load balancer of three members chooses the one that is gone eight times in succession once in 6561 cases; four
// times, once in 81, has happened.
const acceptedTriesMin = 8

// untilAccepted repeats a dial to the address where the control API has answered while its connections are refused, end or time
// out, for up to BusyTimeMax: a load balancer there may still choose a member that is gone.
func untilAccepted(ctx context.Context, dial func() error) error {
	began := time.Now()
	for tries := 1; ; tries++ {
		err := dial()
		var op *net.OpError
		unreachable := errors.As(err, &op) && op.Op == "dial" || errors.Is(err, context.DeadlineExceeded) || client.IsCutOff(err)
		if !unreachable || tries >= acceptedTriesMin && time.Since(began) > client.BusyTimeMax || ctx.Err() != nil {
			return err
		}
		cli.Sleep(ctx, client.RetryInterval)
	}
}

// Receiver attaches a peek-lock or a receive-and-delete receiver. The settle modes are those of the official
// clients (second means: wait for the broker to confirm every settlement).
func (d *Session) Receiver(ctx context.Context, source string, credit int32, receiveAndDelete bool) (*amqp.Receiver, error) {
	return d.Session.NewReceiver(ctx, source, receiverOptions(credit, receiveAndDelete))
}

func receiverOptions(credit int32, receiveAndDelete bool) *amqp.ReceiverOptions {
	options := &amqp.ReceiverOptions{Credit: credit}
	if receiveAndDelete {
		options.RequestedSenderSettleMode = amqp.SenderSettleModeSettled.Ptr()
		options.SettlementMode = amqp.ReceiverSettleModeFirst.Ptr()
	} else {
		options.SettlementMode = amqp.ReceiverSettleModeSecond.Ptr()
	}
	return options
}
