package client

import (
	"path/filepath"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/contexts"
)

// GivenContext returns the context that the flags of the command line describe; flags replace what base has. Nothing comes from
// the environment. Paths become absolute.
func (c *Client) GivenContext(base contexts.Context) (contexts.Context, error) {
	if len(c.Servers) > 0 {
		servers, err := parseServers(c.Servers)
		if err != nil {
			return base, err
		}
		base.Servers = servers
	}
	if c.key != "" && c.keyFile != "" {
		return base, cli.Usagef("give --key or --key-file, not both")
	}
	if c.key != "" || c.keyFile != "" {
		base.Key, base.KeyFile = c.key, c.keyFile
	}
	for _, f := range []struct {
		to    *string
		given string
	}{{&base.KeyName, c.keyName}, {&base.CA, c.caFile}, {&base.Namespace, c.namespaceFlag}} {
		if f.given != "" {
			*f.to = f.given
		}
	}
	for _, path := range []*string{&base.KeyFile, &base.CA} {
		if *path == "" {
			continue
		}
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return base, cli.Usage(err)
		}
		*path = absolute
	}
	if base.KeyFile != "" {
		if _, err := readKeyFile(base.KeyFile); err != nil {
			return base, err
		}
	}
	if len(base.Servers) == 0 {
		return base, cli.Usagef("a context needs a connection string or --server")
	}
	return base, nil
}
