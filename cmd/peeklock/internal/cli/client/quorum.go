package client

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/peeklock/peeklock/admin/condition"
	"github.com/peeklock/peeklock/topology"
)

// causeTimeMax is the time for the cause of an error.
const causeTimeMax = 3 * time.Second

// WithCause adds to the error of a request that got no answer that partitions have no leader, if they have none and if the
// credentials show it. It may use a new context: that of the request may have ended.
func (c *Client) WithCause(err error) error {
	ctx, cancel := context.WithTimeout(context.Background(), causeTimeMax)
	defer cancel()
	var st topology.Status
	if _, failed := c.CallOnce(ctx, http.MethodGet, "/v1/status", nil, &st); failed != nil {
		return err
	}
	if text := Standstill(st); text != "" {
		return fmt.Errorf("%w: %s", err, text)
	}
	return err
}

// Standstill says which partitions nobody serves and which members they wait for, "" if all have a leader.
func Standstill(st topology.Status) string {
	unserved := condition.UnservedPartitions(st)
	if len(unserved) == 0 {
		return ""
	}
	hasQuorum := true
	var waitsFor []string
	for _, u := range unserved {
		hasQuorum = hasQuorum && u.HasQuorum
		waitsFor = append(waitsFor, u.WaitsFor...)
	}
	if hasQuorum {
		return fmt.Sprintf("NO LEADER: %d of %d partitions; the other members elect one within seconds", len(unserved), len(st.Partitions))
	}
	slices.Sort(waitsFor)
	return fmt.Sprintf("NO QUORUM: %d of %d partitions; waiting for %s", len(unserved), len(st.Partitions), strings.Join(slices.Compact(waitsFor), ", "))
}
