package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
)

// Call sends a request to the first member that answers. in and out may be nil. Call repeats a request that is
// refused because the cluster is busy, or still starting, for up to BusyTimeMax: a member refuses it so only before
// the first change, and answers Timeout afterwards, which is not repeated. A GET is also repeated if its connection ends without
// an answer: a load balancer may still choose a member that is gone.
func (c *Client) Call(ctx context.Context, method, path string, in, out any) error {
	_, err := c.callVia(ctx, method, path, in, out)
	return err
}

// callVia is like Call and also returns the address that answered.
func (c *Client) callVia(ctx context.Context, method, path string, in, out any) (base string, err error) {
	for began := time.Now(); ; cli.Sleep(ctx, RetryInterval) {
		base, err = c.CallOnce(ctx, method, path, in, out)
		mayRepeat := IsBusy(err) || method == http.MethodGet && IsCutOff(err)
		if !mayRepeat || time.Since(began) > BusyTimeMax || ctx.Err() != nil {
			return base, c.withTarget(base, err)
		}
	}
}

// CallOnce is like Call without repetitions. It also returns the address that answered.
func (c *Client) CallOnce(ctx context.Context, method, path string, in, out any) (string, error) {
	if c.readOnly && method != http.MethodGet {
		return "", fmt.Errorf("%s %s was not sent: a dry run changes nothing", method, path)
	}
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
	path = inNamespace(path, c.Namespace())
	var last error
	for _, base := range urls {
		last = c.send(ctx, method, base, path, body, out)
		if dial := dialError(last); dial != nil {
			last = fmt.Errorf("%w at %s: %w", ErrNoMember, base, dial)
			continue // nothing was sent, so it is safe to try another member
		}
		return base, last
	}
	return "", last
}

// request returns a signed request to one member, for do.
func (c *Client) request(ctx context.Context, method, base, path string, body []byte) (*http.Request, error) {
	if socket, ok := socketPath(base); ok {
		ctx, base = context.WithValue(ctx, socketKey{}, socket), "http://"+SocketHost
	}
	r, err := http.NewRequestWithContext(ctx, method, base+path, bytes.NewReader(body))
	if err != nil {
		return nil, cli.Usage(err)
	}
	if len(body) > 0 {
		r.Header.Set("Content-Type", "application/json")
	}
	name, key, given, err := c.Credentials()
	if err != nil {
		return nil, err
	}
	if given {
		resource := base + "/"
		if namespace := r.URL.Query().Get("namespace"); namespace != "" {
			resource = "http://" + namespace + HostSuffix + "/" // a key is valid for hosts of its namespace
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

func (c *Client) send(ctx context.Context, method, base, path string, body []byte, out any) error {
	r, err := c.request(ctx, method, base, path, body)
	if err != nil {
		return err
	}
	response, err := c.do(r)
	if err != nil {
		if method != http.MethodGet && dialError(err) == nil {
			return cli.Unknown(fmt.Errorf("no answer from %s: it may or may not have been done: %w", base, err))
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

// Download writes the body of a response as it arrives, without a limit of time or size.
func (c *Client) Download(ctx context.Context, path string, to io.Writer) (n int64, err error) {
	urls, err := c.Addresses()
	if err != nil {
		return 0, err
	}
	for _, base := range urls {
		r, err := c.request(ctx, http.MethodGet, base, path, nil)
		if err != nil {
			return 0, err
		}
		response, err := c.do(r)
		if dialError(err) != nil && base != urls[len(urls)-1] {
			continue
		}
		if err != nil {
			return 0, err
		}
		defer func() { _ = response.Body.Close() }()
		if response.StatusCode != http.StatusOK {
			body, err := io.ReadAll(io.LimitReader(response.Body, answerBytesMax))
			if err != nil {
				return 0, err
			}
			return 0, responseError(response.StatusCode, http.MethodGet, base, body)
		}
		return io.Copy(to, response.Body)
	}
	return 0, ErrNoMember
}

// NamePath appends a name to a path. Slashes in the name are not escaped.
func NamePath(path, name string) string {
	parts := strings.Split(name, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return path + strings.Join(parts, "/")
}

// inNamespace adds the requested namespace to the path of a request. Requests about the whole cluster have no
// namespace, and inNamespace must not look for one there: a variable in the environment would prevent the creation
// of the namespace that it names.
func inNamespace(path, namespace string) string {
	if namespace == "" {
		return path
	}
	for _, whole := range []string{"namespaces", "status", "members", "partitions", "moves", "rebalance", "format-level", "confirm-time", "verify", "backup"} {
		if rest, found := strings.CutPrefix(path, "/v1/"+whole); found && (rest == "" || strings.ContainsAny(rest[:1], "/?")) {
			return path
		}
	}
	separator := "?"
	if strings.Contains(path, "?") {
		separator = "&"
	}
	return path + separator + "namespace=" + url.QueryEscape(namespace)
}

// MemberPath returns the path of a member, or of an action on it if verb is not "".
func MemberPath(name, verb string) string {
	path := "/v1/members/" + url.PathEscape(name)
	if verb != "" {
		path += "/" + verb
	}
	return path
}
