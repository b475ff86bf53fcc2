package operate

import (
	"testing"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/topology"
)

// The state of a member in tables: a member that accepts no messages is shown as such everywhere.
func TestMemberThatAcceptsNoMessagesIsShown(t *testing.T) {
	t.Parallel()
	for want, m := range map[string]api.Member{
		"alive":                     {Member: topology.Member{State: "alive"}},
		"alive, clock off":          {Member: topology.Member{State: "alive", ClockOff: true}},
		"alive, read-only":          {Member: topology.Member{State: "alive", ReadOnly: true}},
		"alive, read-only, drained": {Member: topology.Member{State: "alive", ReadOnly: true, Drained: true}},
		"dead":                      {Member: topology.Member{State: "dead", ReadOnly: true}},
		"removed":                   {Member: topology.Member{State: "left", Drained: true}, Removed: true},
	} {
		if got := memberStateText(m); got != want {
			t.Errorf("%+v is %q, want %q", m, got, want)
		}
	}
}
