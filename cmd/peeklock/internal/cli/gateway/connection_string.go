package gateway

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
)

// ConnectionString is the content of a connection string of Service Bus clients.
type ConnectionString struct {
	Host, Port   string // Port is "" if it is not given
	KeyName, Key string
	Plain        bool // UseDevelopmentEmulator=true: without TLS
}

// ParseConnectionString reads a connection string. Errors are usage errors, without the secret.
func ParseConnectionString(text string) (ConnectionString, error) {
	fields := make(map[string]string)
	for part := range strings.SplitSeq(text, ";") {
		key, value, _ := strings.Cut(strings.TrimSpace(part), "=") // a secret may end with "="
		fields[strings.ToLower(key)] = value
	}
	endpoint, err := url.Parse(fields["endpoint"])
	name, key := fields["sharedaccesskeyname"], fields["sharedaccesskey"]
	if err != nil || endpoint.Scheme != "sb" || endpoint.Hostname() == "" || name == "" || key == "" {
		return ConnectionString{}, cli.Usagef("a connection string is Endpoint=sb://HOST/;SharedAccessKeyName=NAME;SharedAccessKey=SECRET")
	}
	return ConnectionString{endpoint.Hostname(), endpoint.Port(), name, key, strings.EqualFold(fields["usedevelopmentemulator"], "true")}, nil
}

// DialString opens a session with the Service Bus namespace of a connection string: of Peeklock, of the cloud or of the emulator.
// Without TLS only if the string has UseDevelopmentEmulator=true. Errors do not contain the secret.
func DialString(ctx context.Context, text string) (*Session, error) {
	to, err := ParseConnectionString(text)
	if err != nil {
		return nil, err
	}
	scheme, port := "amqps://", cmp.Or(to.Port, "5671")
	if to.Plain {
		scheme, port = "amqp://", cmp.Or(to.Port, "5672")
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeMax)
	defer cancel()
	address := net.JoinHostPort(to.Host, port)
	conn, err := amqp.Dial(ctx, scheme+address, &amqp.ConnOptions{
		ContainerID: containerID, HostName: to.Host, SASLType: amqp.SASLTypePlain(to.KeyName, to.Key),
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, ServerName: to.Host},
	})
	if err != nil {
		return nil, fmt.Errorf("connect to %s with key %s: %w", address, to.KeyName, err)
	}
	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("open a session with %s: %w", address, err)
	}
	return &Session{Conn: conn, Session: session}, nil
}
