package gateway

import (
	"context"
	"crypto/tls"
	"fmt"

	"github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/contexts"
)

// DialString opens a session with the Service Bus namespace of a connection string: of Peeklock, of the cloud or of the emulator.
// Without TLS only if the string has UseDevelopmentEmulator=true. Errors do not contain the secret.
func DialString(ctx context.Context, text string) (*Session, error) {
	to, err := contexts.ParseConnectionString(text)
	if err != nil {
		return nil, err
	}
	scheme, address := "amqps://", to.AMQPAddress()
	if to.Plain {
		scheme = "amqp://"
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeMax)
	defer cancel()
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
