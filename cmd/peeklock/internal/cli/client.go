package cli

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/admin"
	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/config"
)

// Limits and times of requests to the control API.
const (
	ServerDefault   = "http://127.0.0.1:5300"
	requestTimeMax  = 40 * time.Second // the server answers or gives up within 30 s
	busyTimeMax     = 10 * time.Second // for a cluster that is busy or starting; then its refusal is reported
	signatureLife   = 5 * time.Minute  // of the SAS token of one request
	answerBytesMax  = 64 * 1024 * 1024 // the status of thousands of entities fits
	completionNames = 200              // entity names offered to the shell
	completionTime  = 2 * time.Second
)

// Client is a client of the control API.
type Client struct {
	Process
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

// flags adds the flags that every client command accepts. Values that are not given come from the environment.
func (c *Client) flags(root *cobra.Command) {
	f := root.PersistentFlags()
	f.StringSliceVar(&c.Servers, "server", nil, "control address of a member: http://, https://, or unix:// and the path of its control socket; several separated by commas (env PEEKLOCK_SERVER, default the control socket of PEEKLOCK_CONTROL_SOCKET or in PEEKLOCK_DIR, else "+ServerDefault+")")
	f.StringVar(&c.keyName, "key-name", "", "name of the access key (env PEEKLOCK_KEY_NAME, default "+auth.DevKeyName+")")
	f.StringVar(&c.key, "key", "", "secret of the access key (env PEEKLOCK_KEY; not needed for dev, nor for control commands over the socket)")
	f.StringVar(&c.caFile, "ca", "", "PEM file with the authorities to trust instead of the system's, for https:// servers (env PEEKLOCK_CA)")
	f.StringVar(&c.namespaceFlag, "namespace", "", "namespace (env PEEKLOCK_NAMESPACE, default the one that the host name of the server selects)")
	f.StringVarP(&c.form, "output", "o", "table", "output format: table, json or yaml")
}

// namespace returns the requested namespace, or "" if none was requested.
func (c *Client) namespace() string { return cmp.Or(c.namespaceFlag, c.Getenv("PEEKLOCK_NAMESPACE")) }

// Output returns the output in the requested format.
func (c *Client) Output() (*Output, error) { return NewOutput(c.Out, c.form) }

// credentials returns the key from the flags or the environment, or, for AMQP, the well-known key of the emulator.
func (c *Client) credentials() (name, key string, given bool) {
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
				return nil, Usagef("%q is not a server address: write it like unix:///data/%s", address, config.SocketName)
			}
			urls = append(urls, address)
			continue
		}
		if !strings.Contains(address, "://") {
			address = "http://" + address
		}
		u, err := url.Parse(address)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, Usagef("%q is not a server address: write it like %s", Printable(address, 100), ServerDefault)
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

// Call sends a request to the first member that answers. in and out may be nil. Call repeats a request that is
// refused because the cluster is busy, or still starting, for up to busyTimeMax: a member refuses it so only before
// the first change, and answers Timeout afterwards, which is not repeated. A GET is also repeated if its connection ends without
// an answer: a load balancer may still choose a member that is gone.
func (c *Client) Call(ctx context.Context, method, path string, in, out any) error {
	_, err := c.callVia(ctx, method, path, in, out)
	return err
}

// callVia is like Call and also returns the address that answered.
func (c *Client) callVia(ctx context.Context, method, path string, in, out any) (base string, err error) {
	for began := time.Now(); ; sleepContext(ctx, retryInterval) {
		base, err = c.callNow(ctx, method, path, in, out)
		mayRepeat := isBusy(err) || method == http.MethodGet && isCutOff(err)
		if !mayRepeat || time.Since(began) > busyTimeMax || ctx.Err() != nil {
			return base, err
		}
	}
}

// isBusy reports whether a member refused a request with the advice to repeat it.
func isBusy(err error) bool {
	var refused *refusedError
	return errors.As(err, &refused) && refused.status == http.StatusServiceUnavailable
}

// isCutOff reports whether a connection ended before an answer.
func isCutOff(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// errNoMember reports that no member could be reached, so that nothing was done.
var errNoMember = errors.New("no member answers")

// callNow is callVia without repetitions.
func (c *Client) callNow(ctx context.Context, method, path string, in, out any) (string, error) {
	urls, err := c.Addresses()
	if err != nil {
		return "", err
	}
	var body []byte
	if in != nil {
		if body, err = json.Marshal(in); err != nil {
			return "", fmt.Errorf("encode request: %w", err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeMax)
	defer cancel()
	path = inNamespace(path, c.namespace())
	var last error
	for _, base := range urls {
		last = c.callOnce(ctx, method, base, path, body, out)
		if dial := dialError(last); dial != nil {
			last = fmt.Errorf("%w at %s: %w", errNoMember, base, dial)
			continue // nothing was sent, so it is safe to try another member
		}
		return base, last
	}
	return "", last
}

// prepareHTTP creates the HTTP client, once, if it must trust other certificates than those of the system.
func (c *Client) prepareHTTP() error {
	file := cmp.Or(c.caFile, c.Getenv("PEEKLOCK_CA"))
	if c.http != nil || file == "" {
		return nil
	}
	trusted, err := config.ClientTLS(file)
	if err != nil {
		return UsageError{err}
	}
	c.trusted = trusted
	c.http = &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: trusted.Clone(), ForceAttemptHTTP2: true}}
	return nil
}

// dialError returns the reason why a connection could not be opened, or nil if err has another cause. A server whose
// certificate is not accepted, or that does not use TLS, received no request either.
func dialError(err error) error {
	var op *net.OpError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &op) && op.Op == "dial":
		return op.Err
	case errors.As(err, &certificate):
		return certificate
	case errors.Is(err, http.ErrSchemeMismatch):
		return http.ErrSchemeMismatch
	}
	return nil
}

// request returns a signed request to one member, for do.
func (c *Client) request(ctx context.Context, method, base, path string, body []byte) (*http.Request, error) {
	if socket, ok := socketPath(base); ok {
		ctx, base = context.WithValue(ctx, socketKey{}, socket), "http://"+SocketHost
	}
	r, err := http.NewRequestWithContext(ctx, method, base+path, bytes.NewReader(body))
	if err != nil {
		return nil, UsageError{err}
	}
	if len(body) > 0 {
		r.Header.Set("Content-Type", "application/json")
	}
	if name, key, given := c.credentials(); given {
		resource := base + "/"
		if namespace := r.URL.Query().Get("namespace"); namespace != "" {
			resource = "http://" + namespace + hostSuffix + "/" // a key is valid for hosts of its namespace
		}
		r.Header.Set("Authorization", auth.Sign(resource, name, key, time.Now().Add(signatureLife)))
	}
	return r, c.prepareHTTP()
}

func (c *Client) do(r *http.Request) (*http.Response, error) {
	if path, ok := r.Context().Value(socketKey{}).(string); ok {
		return socketClient(path).Do(r)
	}
	return cmp.Or(c.http, http.DefaultClient).Do(r)
}

func (c *Client) callOnce(ctx context.Context, method, base, path string, body []byte, out any) error {
	r, err := c.request(ctx, method, base, path, body)
	if err != nil {
		return err
	}
	response, err := c.do(r)
	if err != nil {
		if method != http.MethodGet && dialError(err) == nil {
			return unknownError{fmt.Errorf("no answer from %s: it may or may not have been done: %w", base, err)}
		}
		return err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(response.Body, answerBytesMax))
	if err != nil {
		return fmt.Errorf("read the answer of %s: %w", base, err)
	}
	if response.StatusCode >= 300 {
		return responseError(response.StatusCode, method, base, answer)
	}
	if out == nil || len(answer) == 0 {
		return nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("%s does not answer like a Peeklock member: %w", base, err)
	}
	return nil
}

// responseError turns a response whose status is not 2xx into an error. After a timeout inside the cluster the
// outcome of a change is unknown.
func responseError(status int, method, base string, body []byte) error {
	var p admin.Problem
	if json.Unmarshal(body, &p) != nil || p.Message == "" {
		return fmt.Errorf("%s does not answer like a Peeklock member: status %d", base, status)
	}
	if status == http.StatusGatewayTimeout && method != http.MethodGet {
		return unknownError{fmt.Errorf("it may or may not have been done: %w", &refusedError{p, status})}
	}
	return &refusedError{p, status}
}

// refusedError is a problem that the control API returned.
type refusedError struct {
	admin.Problem

	status int // of HTTP
}

// Error returns the text of the member.
func (e *refusedError) Error() string { return e.Message }

// IsNotFound reports whether a member answered that an entity does not exist.
func IsNotFound(err error) bool {
	var refused *refusedError
	return errors.As(err, &refused) && refused.Code == "EntityNotFound"
}

// Endpoints returns the AMQP addresses of the members, live members first.
func (c *Client) Endpoints(ctx context.Context) ([]string, error) {
	var list admin.Endpoints
	base, err := c.callVia(ctx, http.MethodGet, "/v1/endpoints", nil, &list)
	if err != nil {
		return nil, err
	}
	via, err := c.recordControlAddress(base, list)
	if err != nil {
		return nil, err
	}
	var alive, others []string
	for _, m := range list.Members {
		host, port, err := net.SplitHostPort(m.AMQP)
		if err != nil {
			continue // the member has not announced its address yet
		}
		// A member that listens on all addresses cannot know the name by which clients reach it.
		if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
			host = via
		}
		address := net.JoinHostPort(host, port)
		if m.State == "alive" {
			alive = append(alive, address)
		} else {
			others = append(others, address)
		}
	}
	if len(alive)+len(others) == 0 {
		return nil, fmt.Errorf("%s knows no AMQP address of any member", base)
	}
	return append(alive, others...), nil
}

// recordControlAddress records the address at which a member has answered and returns its host.
func (c *Client) recordControlAddress(base string, list admin.Endpoints) (host string, err error) {
	if _, ok := socketPath(base); ok {
		c.usesTLS, c.controlAddress = list.RequireTLS, ""
		return SocketHost, nil
	}
	via, err := url.Parse(base)
	if err != nil {
		return "", fmt.Errorf("parse %s: %w", base, err)
	}
	c.usesTLS, c.controlAddress = via.Scheme == "https", via.Host
	if via.Port() == "" {
		port := "80"
		if c.usesTLS {
			port = "443"
		}
		c.controlAddress = net.JoinHostPort(via.Hostname(), port)
	}
	return via.Hostname(), nil
}

// namePath appends a name to a path. Slashes in the name are not escaped.
func namePath(path, name string) string {
	parts := strings.Split(name, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return path + strings.Join(parts, "/")
}

// WithHTTP returns a copy of the client that uses another HTTP client.
func (c *Client) WithHTTP(h *http.Client) *Client {
	other := *c
	other.http = h
	return &other
}
