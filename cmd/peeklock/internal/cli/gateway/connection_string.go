package gateway

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
)

// DialString opens a session with the Service Bus namespace of a connection string: of Peeklock, of the cloud or of the emulator.
// Without TLS only if the string has UseDevelopmentEmulator=true. Errors do not contain the secret.
func DialString(ctx context.Context, text string) (*Session, error) {
	fields := make(map[string]string)
	for part := range strings.SplitSeq(text, ";") {
		key, value, _ := strings.Cut(strings.TrimSpace(part), "=") // a secret may end with "="
		fields[strings.ToLower(key)] = value
	}
	endpoint, err := url.Parse(fields["endpoint"])
	name, key := fields["sharedaccesskeyname"], fields["sharedaccesskey"]
	if err != nil || endpoint.Scheme != "sb" || endpoint.Hostname() == "" || name == "" || key == "" {
		return nil, cli.Usagef("a connection string is Endpoint=sb://HOST/;SharedAccessKeyName=NAME;SharedAccessKey=SECRET")
	}
	scheme, port := "amqps://", "5671"
	if strings.EqualFold(fields["usedevelopmentemulator"], "true") {
		scheme, port = "amqp://", "5672"
	}
	if endpoint.Port() != "" {
		port = endpoint.Port()
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeMax)
	defer cancel()
	address := net.JoinHostPort(endpoint.Hostname(), port)
	conn, err := amqp.Dial(ctx, scheme+address, &amqp.ConnOptions{
		ContainerID: containerID, HostName: endpoint.Hostname(), SASLType: amqp.SASLTypePlain(name, key),
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, ServerName: endpoint.Hostname()},
	})
	if err != nil {
		return nil, fmt.Errorf("connect to %s with key %s: %w", address, name, err)
	}
	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("open a session with %s: %w", address, err)
	}
	return &Session{Conn: conn, Session: session}, nil
}
