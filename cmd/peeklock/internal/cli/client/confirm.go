package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
	"github.com/peeklock/peeklock/topology"
)

// Limits of a confirmation.
const (
	confirmBytesMax    = 1024            // of the typed name
	clusterNameTimeMax = 2 * time.Second // for its id; without it the address has to do
)

// Confirm asks for the confirmation of a command that cannot be undone: with --yes it has been given; on a terminal the user
// types the name; elsewhere it is a usage error. what says what will happen, such as "deletes queue orders and all its
// messages". On a terminal the cluster is shown in both cases.
func (c *Client) Confirm(ctx context.Context, yes bool, name, what string) error {
	if !yes && !c.Asks {
		return cli.Usagef("this %s, which cannot be undone: add --yes to do so", what)
	}
	if !c.Interactive {
		return nil
	}
	where, err := c.Target()
	if err != nil {
		return err
	}
	if id := c.clusterID(ctx); id != "" {
		where = "cluster " + output.Printable(id, 64) + " at " + where
	}
	if _, err := fmt.Fprintf(c.Err, "This %s in %s.\n", what, where); err != nil || yes {
		return err
	}
	if _, err := fmt.Fprintf(c.Err, "It cannot be undone. Type %s to confirm: ", name); err != nil {
		return err
	}
	line, err := bufio.NewReader(io.LimitReader(c.In, confirmBytesMax)).ReadString('\n')
	if strings.TrimSpace(line) != name {
		return cli.Usagef("not confirmed: nothing was done")
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the confirmation: %w", err)
	}
	return nil
}

// clusterID returns the id of the cluster, or "" if the credentials do not show it.
func (c *Client) clusterID(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, clusterNameTimeMax)
	defer cancel()
	var st topology.Status
	if _, err := c.CallOnce(ctx, http.MethodGet, "/v1/status", nil, &st); err != nil {
		return ""
	}
	return st.ClusterID
}
