package client

import (
	"cmp"
	"crypto/tls"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/config"
)

// Limits and times of requests to the control API.
const (
	// ServerDefault is the address of a member without --server and without settings of a member: that of peeklock dev.
	ServerDefault  = "http://127.0.0.1:5300"
	requestTimeMax = 40 * time.Second // the server answers or gives up within 30 s
	// BusyTimeMax is how long a request is repeated while the cluster is busy or starting; then its refusal is reported.
	BusyTimeMax = 10 * time.Second
	// RetryInterval is the time before a retry when a member is busy or unreachable.
	RetryInterval = time.Second
	// UnreachableMax is the time without an answer after which a command gives up.
	UnreachableMax = 15 * time.Second
	signatureLife  = 5 * time.Minute  // of the SAS token of one request
	answerBytesMax = 64 * 1024 * 1024 // the status of thousands of entities fits
)

// HostSuffix is appended to the name of a namespace to make a host name, whose first label selects the namespace.
const HostSuffix = ".peeklock"

// Client is a client of the control API.
type Client struct {
	cli.Process
	Servers        []string // addresses of members, tried in order
	keyName        string
	key            string
	form           string
	namespaceFlag  string // "": the namespace of the host
	caFile         string
	http           *http.Client // nil: the default client
	trusted        *tls.Config  // set with http; nil: the default configuration
	usesTLS        bool         // the control API was reached over TLS
	controlAddress string       // host:port that has answered; it accepts AMQP, too. "": a control socket
}

// Flags adds the flags that every client command accepts. Values that are not given come from the environment.
func (c *Client) Flags(f *pflag.FlagSet) {
	f.StringSliceVar(&c.Servers, "server", nil, "control address of a member: http://, https://, or unix:// and the path of its control socket; several separated by commas (env PEEKLOCK_SERVER, default the control socket of PEEKLOCK_CONTROL_SOCKET or in PEEKLOCK_DIR, else "+ServerDefault+")")
	f.StringVar(&c.keyName, "key-name", "", "name of the access key (env PEEKLOCK_KEY_NAME, default "+auth.DevKeyName+")")
	f.StringVar(&c.key, "key", "", "secret of the access key (env PEEKLOCK_KEY; not needed for dev, nor for control commands over the socket)")
	f.StringVar(&c.caFile, "ca", "", "PEM file with the authorities to trust instead of the system's, for https:// servers (env PEEKLOCK_CA)")
	f.StringVar(&c.namespaceFlag, "namespace", "", "namespace (env PEEKLOCK_NAMESPACE, default the one that the host name of the server selects)")
	f.StringVarP(&c.form, "output", "o", "table", "output format: table, json or yaml")
}

// Namespace returns the requested namespace, or "" if none was requested.
func (c *Client) Namespace() string { return cmp.Or(c.namespaceFlag, c.Getenv("PEEKLOCK_NAMESPACE")) }

// Output returns the output in the requested format.
func (c *Client) Output() (*output.Output, error) { return output.NewOutput(c.Out, c.form) }

// Credentials returns the key from the flags or the environment, or, for AMQP, the well-known key of the emulator.
func (c *Client) Credentials() (name, key string, given bool) {
	name, key = c.keyName, c.key
	if name == "" {
		name = c.Getenv("PEEKLOCK_KEY_NAME")
	}
	if key == "" {
		key = c.Getenv("PEEKLOCK_KEY")
	}
	if name == "" {
		name = auth.DevKeyName
	}
	if key == "" {
		return name, auth.DevKey, false
	}
	return name, key, true
}

// Addresses returns the control addresses as URLs without a trailing slash.
func (c *Client) Addresses() ([]string, error) {
	list := c.Servers
	if len(list) == 0 {
		list = strings.Split(cmp.Or(c.Getenv("PEEKLOCK_SERVER"), c.localServer()), ",")
	}
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

// localServer returns the control socket of the member whose settings are in the environment, as in its container,
// or "" if there is none.
func (c *Client) localServer() string {
	if path := c.Getenv("PEEKLOCK_CONTROL_SOCKET"); path != "" {
		return SocketScheme + path
	}
	if dir := c.Getenv("PEEKLOCK_DIR"); dir != "" {
		return SocketScheme + filepath.Join(dir, config.SocketName)
	}
	return ""
}

// prepareHTTP creates the HTTP client, once, if it must trust other certificates than those of the system.
func (c *Client) prepareHTTP() error {
	file := cmp.Or(c.caFile, c.Getenv("PEEKLOCK_CA"))
	if c.http != nil || file == "" {
		return nil
	}
	trusted, err := config.ClientTLS(file)
	if err != nil {
		return cli.Usage(err)
	}
	c.trusted = trusted
	c.http = &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: trusted.Clone(), ForceAttemptHTTP2: true}}
	return nil
}

// Reached returns the address (host:port) where the control API has answered, "" for a control socket, and whether it was
// reached over TLS. Every port of a member accepts AMQP, too. [Client.Endpoints] sets both.
func (c *Client) Reached() (address string, usesTLS bool) { return c.controlAddress, c.usesTLS }

// Trusted returns the TLS configuration with the authorities that the user named, or nil.
func (c *Client) Trusted() *tls.Config { return c.trusted }

// InNamespace returns a copy of the client whose requests are about a namespace.
func (c *Client) InNamespace(namespace string) *Client {
	other := *c
	other.namespaceFlag = namespace
	return &other
}

// WithHTTP returns a copy of the client that uses another HTTP client.
func (c *Client) WithHTTP(h *http.Client) *Client {
	other := *c
	other.http = h
	return &other
}
