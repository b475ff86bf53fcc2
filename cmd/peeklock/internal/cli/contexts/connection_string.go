package contexts

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
)

// Ports that a connection string without a port means for AMQP. Every client port of a member also serves the control API.
const (
	portTLS   = "5671"
	portPlain = "5672"
)

// connectionStringBytesMax bounds a connection string that is read from standard input.
const connectionStringBytesMax = 64 << 10

// ConnectionString is the content of a connection string of the Service Bus clients.
type ConnectionString struct {
	Host, Port   string // Port is "" if it is not given
	KeyName, Key string
	Plain        bool // UseDevelopmentEmulator=true: without TLS
}

// ReadConnectionString reads a connection string that an argument holds, or standard input if the argument is "-", so that other users
// of the machine do not see it. Errors do not contain its secret.
func ReadConnectionString(argument string, in io.Reader) (ConnectionString, error) {
	if argument == "-" {
		read, err := io.ReadAll(io.LimitReader(in, connectionStringBytesMax))
		if err != nil {
			return ConnectionString{}, fmt.Errorf("read the connection string: %w", err)
		}
		argument = string(read)
	}
	return ParseConnectionString(argument)
}

// ParseConnectionString reads a connection string. Errors are usage errors and do not contain its secret.
func ParseConnectionString(text string) (ConnectionString, error) {
	fields := make(map[string]string)
	for part := range strings.SplitSeq(text, ";") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		key, value, found := strings.Cut(part, "=") // a secret may end with "="
		if !found {
			return ConnectionString{}, cli.Usagef("a connection string is Endpoint=sb://HOST/;SharedAccessKeyName=NAME;SharedAccessKey=SECRET: a part has no =")
		}
		fields[strings.ToLower(strings.TrimSpace(key))] = strings.TrimSpace(value)
	}
	endpoint, err := url.Parse(fields["endpoint"])
	name, key := fields["sharedaccesskeyname"], fields["sharedaccesskey"]
	switch {
	case err != nil, endpoint.Scheme != "sb", endpoint.Hostname() == "":
		return ConnectionString{}, cli.Usagef("a connection string begins with Endpoint=sb://HOST/")
	case name == "", key == "":
		return ConnectionString{}, cli.Usagef("the connection string has no SharedAccessKeyName or no SharedAccessKey")
	}
	return ConnectionString{endpoint.Hostname(), endpoint.Port(), name, key, strings.EqualFold(fields["usedevelopmentemulator"], "true")}, nil
}

// AMQPAddress returns the host:port of AMQP.
func (c ConnectionString) AMQPAddress() string {
	port := portTLS
	if c.Plain {
		port = portPlain
	}
	return net.JoinHostPort(c.Host, cmp.Or(c.Port, port))
}

// Context returns the context, without a name, that the connection string describes.
func (c ConnectionString) Context() Context {
	scheme := "https://"
	if c.Plain {
		scheme = "http://"
	}
	return Context{Servers: []string{scheme + c.AMQPAddress()}, KeyName: c.KeyName, Key: c.Key}
}
