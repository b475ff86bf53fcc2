package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/admin"
	"github.com/peeklock/peeklock/admin/auth"
)

// How the command line behaves towards the cluster.
const (
	serverDefault   = "http://127.0.0.1:5300"
	requestTimeMax  = 40 * time.Second // the server answers or gives up within 30 s
	signatureLife   = 5 * time.Minute  // of the SAS of one request
	answerBytesMax  = 64 * 1024 * 1024 // a status of thousands of entities fits
	completionNames = 200              // entity names offered by the shell
	completionTime  = 2 * time.Second
)

// client is the command line as a client of the control API.
type client struct {
	process
	servers []string // addresses of members, tried in order
	keyName string
	key     string
	form    string
}

// flags adds what every client command understands. Values that are not given come
// from the environment.
func (c *client) flags(root *cobra.Command) {
	f := root.PersistentFlags()
	f.StringSliceVar(&c.servers, "server", nil, "control address of a member, several by commas (env PEEKLOCK_SERVER, default "+serverDefault+")")
	f.StringVar(&c.keyName, "key-name", "", "name of the access key (env PEEKLOCK_KEY_NAME, default "+auth.DevKeyName+")")
	f.StringVar(&c.key, "key", "", "access key (env PEEKLOCK_KEY; none is needed for a member on this machine)")
	f.StringVarP(&c.form, "output", "o", "table", "table, json or yaml")
}

func (c *client) output() (*output, error) { return newOutput(c.out, c.form) }

// credentials are the flags, the environment, and for AMQP the emulator's well-known key.
func (c *client) credentials() (name, key string, given bool) {
	name, key = c.keyName, c.key
	if name == "" {
		name = c.getenv("PEEKLOCK_KEY_NAME")
	}
	if key == "" {
		key = c.getenv("PEEKLOCK_KEY")
	}
	if name == "" {
		name = auth.DevKeyName
	}
	if key == "" {
		return name, auth.DevKey, false
	}
	return name, key, true
}

// addresses are the control addresses as URLs without a trailing slash.
func (c *client) addresses() ([]string, error) {
	list := c.servers
	if len(list) == 0 {
		list = strings.Split(c.getenv("PEEKLOCK_SERVER"), ",")
	}
	var urls []string
	for _, address := range list {
		address = strings.TrimSpace(address)
		if address == "" {
			continue
		}
		if !strings.Contains(address, "://") {
			address = "http://" + address
		}
		u, err := url.Parse(address)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, usagef("%q is no server address: write it like %s", printable(address, 100), serverDefault)
		}
		urls = append(urls, u.Scheme+"://"+u.Host)
	}
	if len(urls) == 0 {
		urls = []string{serverDefault}
	}
	return urls, nil
}

// call asks the first member that answers. in may be nil; out may be nil.
func (c *client) call(ctx context.Context, method, path string, in, out any) error {
	_, err := c.callVia(ctx, method, path, in, out)
	return err
}

// callVia is call that also says which member answered.
func (c *client) callVia(ctx context.Context, method, path string, in, out any) (string, error) {
	urls, err := c.addresses()
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
	var last error
	for _, base := range urls {
		last = c.once(ctx, method, base, path, body, out)
		if dial := dialError(last); dial != nil {
			last = fmt.Errorf("no member answers at %s: %w", base, dial)
			continue // nothing was sent: another member may be asked
		}
		return base, last
	}
	return "", last
}

// dialError is why no connection came to be, nil when that is not what went wrong.
func dialError(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return op.Err
	}
	return nil
}

func (c *client) once(ctx context.Context, method, base, path string, body []byte, out any) error {
	r, err := http.NewRequestWithContext(ctx, method, base+path, bytes.NewReader(body))
	if err != nil {
		return usageError{err}
	}
	if len(body) > 0 {
		r.Header.Set("Content-Type", "application/json")
	}
	if name, key, given := c.credentials(); given {
		r.Header.Set("Authorization", auth.Sign(base+"/", name, key, time.Now().Add(signatureLife)))
	}
	response, err := http.DefaultClient.Do(r)
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
		return problem(response.StatusCode, method, base, answer)
	}
	if out == nil || len(answer) == 0 {
		return nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("%s does not answer like a Peeklock member: %w", base, err)
	}
	return nil
}

// problem turns an answer that is not 2xx into an error. Time that ran out inside
// the cluster leaves open what became of a change.
func problem(status int, method, base string, body []byte) error {
	var p admin.Problem
	if json.Unmarshal(body, &p) != nil || p.Message == "" {
		return fmt.Errorf("%s does not answer like a Peeklock member: status %d", base, status)
	}
	if status == http.StatusGatewayTimeout && method != http.MethodGet {
		return unknownError{fmt.Errorf("it may or may not have been done: %w", &refusedError{p})}
	}
	return &refusedError{p}
}

// refusedError is a problem that the control API answered.
type refusedError struct{ admin.Problem }

// Error is the member's text.
func (e *refusedError) Error() string { return e.Message }

// endpoints learns the AMQP addresses of the members, those that are alive first.
func (c *client) endpoints(ctx context.Context) ([]string, error) {
	var list admin.Endpoints
	base, err := c.callVia(ctx, http.MethodGet, "/v1/endpoints", nil, &list)
	if err != nil {
		return nil, err
	}
	via, err := url.Parse(base)
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", base, err)
	}
	var alive, others []string
	for _, m := range list.Members {
		host, port, err := net.SplitHostPort(m.AMQP)
		if err != nil {
			continue // a member that has not told yet
		}
		// A member that listens everywhere cannot know by which name it is reached.
		if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
			host = via.Hostname()
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

// queuePath is the path of a queue in the API.
func queuePath(name string) string { return namePath("/v1/queues/", name) }

// namePath puts a name behind a path. Slashes in the name stay slashes.
func namePath(path, name string) string {
	parts := strings.Split(name, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return path + strings.Join(parts, "/")
}

// queues walks all pages.
func (c *client) queues(ctx context.Context, counts bool) ([]admin.Queue, error) {
	all := []admin.Queue{}
	for after := ""; ; {
		var page admin.QueuePage
		path := "/v1/queues?max=1000&counts=" + strconv.FormatBool(counts) + "&after=" + url.QueryEscape(after)
		if err := c.call(ctx, http.MethodGet, path, nil, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Queues...)
		if page.Next == "" || page.Next == after {
			return all, nil
		}
		after = page.Next
	}
}

// completeQueue offers the names of queues to the shell; silent when nobody answers.
func (c *client) completeQueue(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
	defer cancel()
	var page admin.QueuePage
	if c.call(ctx, http.MethodGet, "/v1/queues?max="+strconv.Itoa(completionNames), nil, &page) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names := make([]string, len(page.Queues))
	for i, q := range page.Queues {
		names[i] = q.Name
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
