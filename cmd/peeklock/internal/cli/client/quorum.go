package client

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/topology"
)

// Standstill says which partitions nobody serves and which members they wait for, "" if all have a leader.
func Standstill(st topology.Status) string {
	if p := findLeaderless(st); len(p.partitions) > 0 {
		return p.text(len(st.Partitions))
	}
	return ""
}

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

// leaderless are the partitions that nobody serves.
type leaderless struct {
	partitions []fsm.PartitionID
	hasQuorum  bool     // every one of them has a majority of living members, which will elect a leader
	waitsFor   []string // names of the members that are away and have replicas of them
}

// findLeaderless finds the partitions whose leader is unknown or not alive.
func findLeaderless(st topology.Status) leaderless {
	found := leaderless{hasQuorum: true}
	away := make(map[fsm.MemberID]string)
	for _, m := range st.Members {
		if m.State != topology.Alive {
			away[m.ID] = cmp.Or(m.Name, string(m.ID))
		}
	}
	for _, p := range st.Partitions {
		if _, isAway := away[p.Leader]; p.Leader != "" && !isAway {
			continue
		}
		found.partitions = append(found.partitions, p.ID)
		missing := 0
		for _, holder := range p.Replicas {
			if name, isAway := away[holder]; isAway {
				missing++
				found.waitsFor = append(found.waitsFor, name)
			}
		}
		found.hasQuorum = found.hasQuorum && 2*missing < len(p.Replicas)
	}
	slices.Sort(found.waitsFor)
	found.waitsFor = slices.Compact(found.waitsFor)
	return found
}

func (l leaderless) text(all int) string {
	if l.hasQuorum {
		return fmt.Sprintf("NO LEADER: %d of %d partitions; the other members elect one within seconds", len(l.partitions), all)
	}
	return fmt.Sprintf("NO QUORUM: %d of %d partitions; waiting for %s", len(l.partitions), all, strings.Join(l.waitsFor, ", "))
}
