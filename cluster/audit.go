package cluster

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/topology"
)

// askAudit asks a member for its audit events, newest first.
var askAudit = rpc.Query[topology.AuditQuery, []topology.AuditEvent]{Kind: rpc.QueryAudit} //nolint:gochecknoglobals // never changed

// AuditEvents returns events of this member before a cursor, newest first. It is safe for concurrent use and does not block.
type AuditEvents func(topology.AuditQuery) []topology.AuditEvent

// ServeAudit tells the node where the audit events of this member are. Until it is called there are none.
func (n *Node) ServeAudit(events AuditEvents) { n.audit.Store(&events) }

// localAudit answers askAudit.
func (n *Node) localAudit(q topology.AuditQuery) []topology.AuditEvent {
	if events := n.audit.Load(); events != nil {
		return (*events)(q)
	}
	return nil
}

// Audit returns the events that all living members have kept, newest first: at most most (1 to topology.AuditPageMax), from the first
// after the cursor ("": the newest). It asks them at the same time, each for up to 2 s. Errors wrap InvalidArgument, for a text that is
// no cursor.
func (o *Operator) Audit(ctx context.Context, after string, most int) (topology.AuditPage, error) {
	page := topology.AuditPage{Events: []topology.AuditEvent{}}
	q := topology.AuditQuery{Max: most}
	if after != "" {
		text, err := base64.RawURLEncoding.DecodeString(after)
		if err == nil {
			err = json.Unmarshal(text, &q.Before)
		}
		if err != nil || q.Before == nil {
			return page, fmt.Errorf("%w: %.100q is not the next of a page of audit events", fsm.InvalidArgument, after)
		}
	}
	members := o.livingMembers()
	parts, failed := make([][]topology.AuditEvent, len(members)), make([]bool, len(members))
	var asking sync.WaitGroup
	for i := range members {
		asking.Go(func() {
			part, err := askMember(ctx, o.node, members[i].ID, askAudit, q)
			parts[i], failed[i] = part, err != nil
		})
	}
	asking.Wait()
	for i := range members {
		if failed[i] {
			page.Unreachable = append(page.Unreachable, members[i].Name)
		}
	}
	page.Events = append(page.Events, slices.Concat(parts...)...)
	slices.SortFunc(page.Events, func(a, b topology.AuditEvent) int {
		return cmp.Or(b.At.Compare(a.At), strings.Compare(b.Member, a.Member), cmp.Compare(b.Number, a.Number))
	})
	if len(page.Events) >= most {
		page.Events = page.Events[:most]
		last := &page.Events[most-1]
		cursor, err := json.Marshal(topology.AuditCursor{At: last.At, Member: last.Member, Number: last.Number})
		if err != nil {
			return page, fmt.Errorf("encode cursor: %w", err)
		}
		page.Next = base64.RawURLEncoding.EncodeToString(cursor)
	}
	return page, nil
}
