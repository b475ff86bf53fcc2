package client

import (
	"cmp"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/contexts"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/config"
)

// unitSocket is the control socket of a member that the systemd unit runs. Only root and the user of the member can see it.
const unitSocket = "/var/lib/peeklock/" + config.SocketName

// target is the cluster that a command is for.
type target struct {
	addresses []string         // URLs without a trailing slash, and control sockets
	origin    string           // what named it, for errors
	context   contexts.Context // the context that named it; empty: none did
}

// target returns the target. The first of these decides: --server, --context, PEEKLOCK_SERVER, the context in use, the settings
// of a member in the environment, the socket of the member on this machine, the address of dev.
func (c *Client) target() (target, error) {
	if c.resolved != nil {
		return *c.resolved, nil
	}
	t, servers, err := c.findTarget()
	if err == nil {
		t.addresses, err = parseServers(servers)
	}
	if err != nil {
		return target{}, err
	}
	c.resolved = &t
	return t, nil
}

func (c *Client) findTarget() (target, []string, error) {
	asked := cmp.Or(c.contextName, c.Getenv("PEEKLOCK_CONTEXT"))
	fromEnvironment := c.Getenv("PEEKLOCK_SERVER")
	switch {
	case len(c.Servers) > 0 && c.contextName != "":
		return target{}, nil, cli.Usagef("give --server or --context, not both")
	case len(c.Servers) > 0:
		return target{origin: "--server"}, c.Servers, nil
	case fromEnvironment != "" && c.contextName == "":
		return target{origin: "PEEKLOCK_SERVER"}, strings.Split(fromEnvironment, ","), nil
	}
	set, err := contexts.Load(c.Process)
	if err != nil {
		return target{}, nil, err
	}
	if name := cmp.Or(asked, set.Current); name != "" {
		found, ok := set.Find(name)
		if !ok {
			return target{}, nil, cli.Usagef("there is no context %q: see peeklock context list", output.Printable(name, 100))
		}
		return target{origin: "context " + name, context: found}, found.Servers, nil
	}
	for _, name := range []string{"PEEKLOCK_CONTROL_SOCKET", "PEEKLOCK_DIR"} {
		path := c.Getenv(name)
		if path != "" && name == "PEEKLOCK_DIR" {
			path = filepath.Join(path, config.SocketName)
		}
		if path != "" {
			return target{origin: name}, []string{SocketScheme + path}, nil
		}
	}
	if _, err := os.Stat(unitSocket); err == nil {
		return target{origin: "the socket of the member on this machine"}, []string{SocketScheme + unitSocket}, nil
	}
	return target{origin: "the default; give --server or use a context"}, []string{ServerDefault}, nil
}

// parseServers returns the addresses as URLs without a trailing slash.
func parseServers(list []string) ([]string, error) {
	var urls []string
	for _, address := range list {
		address = strings.TrimSpace(address)
		if address == "" {
			continue
		}
		if path, ok := socketPath(address); ok {
			if path == "" {
				return nil, cli.Usagef("%q is not a server address: write it like unix:///data/%s", address, config.SocketName)
			}
			urls = append(urls, address)
			continue
		}
		if !strings.Contains(address, "://") {
			address = "http://" + address
		}
		u, err := url.Parse(address)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, cli.Usagef("%q is not a server address: write it like %s", output.Printable(address, 100), ServerDefault)
		}
		urls = append(urls, u.Scheme+"://"+u.Host)
	}
	if len(urls) == 0 {
		urls = []string{ServerDefault}
	}
	return urls, nil
}

// Addresses returns the control addresses as URLs without a trailing slash.
func (c *Client) Addresses() ([]string, error) {
	t, err := c.target()
	return t.addresses, err
}

// Target describes the cluster that a command is for, and what named it, for people.
func (c *Client) Target() (string, error) {
	t, err := c.target()
	return fmt.Sprintf("%s (%s)", strings.Join(t.addresses, ", "), t.origin), err
}

// Namespace returns the requested namespace, or "" if none was requested.
func (c *Client) Namespace() string {
	t, err := c.target()
	if err != nil { // the request will report it
		t = target{}
	}
	return cmp.Or(c.namespaceFlag, t.context.Namespace, c.Getenv("PEEKLOCK_NAMESPACE"))
}

// Credentials returns the key from the flags, the context or the environment, or, for AMQP, the well-known key of the
// emulator. The key of a context is for its own servers only.
func (c *Client) Credentials() (name, key string, given bool, err error) {
	t, err := c.target()
	if err != nil {
		return "", "", false, err
	}
	name = cmp.Or(c.keyName, t.context.KeyName, c.Getenv("PEEKLOCK_KEY_NAME"), auth.DevKeyName)
	switch {
	case c.key != "" && c.keyFile != "":
		return "", "", false, cli.Usagef("give --key or --key-file, not both")
	case c.key != "":
		key = c.key
	case c.keyFile != "":
		key, err = readKeyFile(c.keyFile)
	case t.context.Key != "":
		key = t.context.Key
	case t.context.KeyFile != "":
		key, err = readKeyFile(t.context.KeyFile)
	default: // during a rotation, the secret that a container gets in a variable has two lines, the newest first
		key, _, _ = strings.Cut(c.Getenv("PEEKLOCK_KEY"), "\n")
	}
	switch {
	case err != nil:
		return "", "", false, err
	case key == "":
		return name, auth.DevKey, false, nil
	}
	return name, key, true, nil
}

// readKeyFile returns the first secret in a file of the form that serve reads.
func readKeyFile(path string) (string, error) {
	secrets, err := config.ReadSecrets(path)
	if err != nil {
		return "", cli.Usage(err)
	}
	return secrets[0], nil
}

// authorities returns the file with the authorities to trust, "" for those of the system.
func (c *Client) authorities() (string, error) {
	t, err := c.target()
	return cmp.Or(c.caFile, t.context.CA, c.Getenv("PEEKLOCK_CA")), err
}

// targetError is an error of a request with the target that was asked.
type targetError struct {
	error

	base   string // the member that answered, "" if none did
	origin string
}

// Error returns the text with the origin of the target.
func (e targetError) Error() string {
	if e.base == "" {
		return fmt.Sprintf("%s (server from %s)", e.error, e.origin)
	}
	return fmt.Sprintf("%s (%s, from %s)", e.error, e.base, e.origin)
}

// Unwrap lets errors.Is and errors.As see the cause.
func (e targetError) Unwrap() error { return e.error }

// withTarget adds the target to an error. The user has just written --server, and a mistake in the command line concerns no
// server.
func (c *Client) withTarget(base string, err error) error {
	t, unknown := c.target()
	if err == nil || unknown != nil || t.origin == "--server" || cli.IsUsage(err) {
		return err
	}
	return targetError{err, base, t.origin}
}
