package topology

import (
	"testing"

	"github.com/peeklock/peeklock/fsm/filter"
	"github.com/peeklock/peeklock/test/golden"
)

// TestConnectionFormats checks the JSON of connections, which members of neighbouring releases exchange (rpc.QueryConnections,
// QueryCloseConnection and QueryLockHolders) and which the control API shows.
func TestConnectionFormats(t *testing.T) {
	t.Parallel()
	golden.JSON(t, "testdata/connections.golden", []golden.Format{
		{Name: "27 connections, query", Of: ConnectionQuery{}},
		{Name: "27 connections, reply", Of: ConnectionPage{}},
		{Name: "28 close connection, query", Of: CloseConnection{}},
		{Name: "28 close connection, reply", Of: false},
		{Name: "29 lock holders, query", Of: LockQuery{}},
		{Name: "29 lock holders, reply", Of: []LockHolder{}},
		{Name: "31 figures, query", Of: FiguresQuery{}},
		{Name: "31 figures, reply", Of: []Figures{}},
		{Name: "32 audit, query", Of: AuditQuery{}},
		{Name: "32 audit, reply", Of: []AuditEvent{}},
		{Name: "33 storage, query", Of: struct{}{}},
		{Name: "33 storage, reply", Of: Storage{}},
		{Name: "audit cursor", Of: AuditCursor{}},
		{Name: "audit page", Of: AuditPage{}},
	}, filter.Text("value"))
}
