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

// Unserved is a partition whose leader is unknown or not alive.
type Unserved struct {
	Partition fsm.PartitionID
	HasQuorum bool     // a majority of its replicas is on living members, which will elect a leader
	WaitsFor  []string // names of the members that are away and have replicas of it
}

// UnservedPartitions returns the partitions that nobody serves.
func UnservedPartitions(st topology.Status) (list []Unserved) {
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
		u := Unserved{Partition: p.ID}
		for _, holder := range p.Replicas {
			if name, isAway := away[holder]; isAway {
				u.WaitsFor = append(u.WaitsFor, name)
			}
		}
		u.HasQuorum = 2*len(u.WaitsFor) < len(p.Replicas)
		list = append(list, u)
	}
	return list
}

// Standstill says which partitions nobody serves and which members they wait for, "" if all have a leader.
func Standstill(st topology.Status) string {
	unserved := UnservedPartitions(st)
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
