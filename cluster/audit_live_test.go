package cluster

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/topology"
)

// Every member shows the events of all members, newest first, page by page, and names the members that do not answer.
func TestAuditEventsAreMerged(t *testing.T) {
	inBubble(t, auditEventsAreMerged)
}

func auditEventsAreMerged(t *testing.T) {
	const each = 5
	c := newBubbleCluster(t, 3, 1)
	c.startAll()
	began := time.Now()
	for i, node := range c.nodes {
		node.ServeAudit(func(q topology.AuditQuery) (list []topology.AuditEvent) {
			for n := uint64(each); n > 0; n-- {
				at := began.Add(time.Duration(n) * time.Second) // the same at all members
				e := topology.AuditEvent{At: at, Member: fmt.Sprint(i), Number: n}
				before := q.Before == nil || at.Before(q.Before.At) || at.Equal(q.Before.At) && (e.Member < q.Before.Member)
				if before && len(list) < q.Max {
					list = append(list, e)
				}
			}
			return list
		})
	}
	var all []topology.AuditEvent
	for after := ""; ; {
		page, err := c.any().Operator().Audit(t.Context(), after, 4)
		if err != nil || len(page.Unreachable) > 0 {
			t.Fatalf("a page: %v, no answer from %v", err, page.Unreachable)
		}
		all = append(all, page.Events...)
		if after = page.Next; after == "" {
			break
		}
	}
	if len(all) != 3*each {
		t.Fatalf("got %d events, want %d", len(all), 3*each)
	}
	for i := range all {
		if want := uint64(each - i/3); all[i].Number != want || all[i].Member != fmt.Sprint(2-i%3) {
			t.Errorf("event %d is %+v, want number %d of member %d", i, all[i], want, 2-i%3)
		}
	}
	if _, err := c.any().Operator().Audit(t.Context(), "none", 4); !errors.Is(err, fsm.InvalidArgument) {
		t.Errorf("a text that is no cursor: %v, want %v", err, fsm.InvalidArgument)
	}
}
