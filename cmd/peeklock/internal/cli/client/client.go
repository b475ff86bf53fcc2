package client

import (
	"crypto/tls"
	"net/http"
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
	contextName    string   // "": the one in use
	keyName        string
	key            string
	keyFile        string
	form           string
	readOnly       bool   // of a dry run
	namespaceFlag  string // "": the namespace of the host
	caFile         string
	http           *http.Client // nil: the default client
	trusted        *tls.Config  // set with http; nil: the default configuration
	usesTLS        bool         // the control API was reached over TLS
	resolved       *target      // nil: not yet
	controlAddress string       // host:port that has answered; it accepts AMQP, too. "": a control socket
}

// Flags adds the flags that every client command accepts. Values that are not given come from the environment.
func (c *Client) Flags(f *pflag.FlagSet) {
	f.StringSliceVar(&c.Servers, "server", nil, "control address of a member: http://, https://, or unix:// and the path of its control socket; several separated by commas (env PEEKLOCK_SERVER; default: see --context)")
	f.StringVar(&c.contextName, "context", "", "name of a context, which has servers and credentials (env PEEKLOCK_CONTEXT, default the one in use; without any, the control socket of PEEKLOCK_CONTROL_SOCKET, in PEEKLOCK_DIR, or of the member that systemd runs here, else "+ServerDefault+")")
	f.StringVar(&c.keyName, "key-name", "", "name of the access key (env PEEKLOCK_KEY_NAME, default "+auth.DevKeyName+")")
	f.StringVar(&c.key, "key", "", "secret of the access key (env PEEKLOCK_KEY; not needed for dev, nor for control commands over the socket)")
	f.StringVar(&c.keyFile, "key-file", "", "file whose first line is the secret of the access key")
	f.StringVar(&c.caFile, "ca", "", "PEM file with the authorities to trust instead of the system's, for https:// servers (env PEEKLOCK_CA)")
	f.StringVar(&c.namespaceFlag, "namespace", "", "namespace (env PEEKLOCK_NAMESPACE, default the one that the host name of the server selects)")
	f.StringVarP(&c.form, "output", "o", "table", "output format: table, json or yaml")
}

// Output returns the output in the requested format.
func (c *Client) Output() (*output.Output, error) { return output.NewOutput(c.Out, c.form) }

// prepareHTTP creates the HTTP client, once, if it must trust other certificates than those of the system.
func (c *Client) prepareHTTP() error {
	file, err := c.authorities()
	if err != nil || c.http != nil || file == "" {
		return err
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

// ReadOnly returns a copy of the client that refuses to change anything, for dry runs.
func (c *Client) ReadOnly() *Client {
	other := *c
	other.readOnly = true
	return &other
}

// IsReadOnly reports whether the client refuses to change anything.
func (c *Client) IsReadOnly() bool { return c.readOnly }

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
