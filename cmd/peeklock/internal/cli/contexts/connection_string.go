package contexts

import (
	"net"
	"net/url"
	"strings"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
)

// Ports that a connection string without a port means. Every client port of a member also serves the control API.
const (
	portTLS   = "5671"
	portPlain = "5672"
)

// FromConnectionString returns the context, without a name, that a connection string of the Service Bus clients describes.
// Errors do not contain its secret.
func FromConnectionString(text string) (Context, error) {
	fields := make(map[string]string)
	for part := range strings.SplitSeq(text, ";") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		key, value, found := strings.Cut(part, "=") // a secret may end with "="
		if !found {
			return Context{}, cli.Usagef("a connection string is Endpoint=sb://HOST/;SharedAccessKeyName=NAME;SharedAccessKey=SECRET: a part has no =")
		}
		fields[strings.ToLower(strings.TrimSpace(key))] = strings.TrimSpace(value)
	}
	endpoint, err := url.Parse(fields["endpoint"])
	switch {
	case err != nil, endpoint.Scheme != "sb", endpoint.Hostname() == "":
		return Context{}, cli.Usagef("a connection string begins with Endpoint=sb://HOST/")
	case fields["sharedaccesskeyname"] == "", fields["sharedaccesskey"] == "":
		return Context{}, cli.Usagef("the connection string has no SharedAccessKeyName or no SharedAccessKey")
	}
	scheme, port := "https://", portTLS
	if strings.EqualFold(fields["usedevelopmentemulator"], "true") {
		scheme, port = "http://", portPlain
	}
	if endpoint.Port() != "" {
		port = endpoint.Port()
	}
	return Context{
		Servers: []string{scheme + net.JoinHostPort(endpoint.Hostname(), port)},
		KeyName: fields["sharedaccesskeyname"], Key: fields["sharedaccesskey"],
	}, nil
}
