package cli

import (
	"testing"

	"github.com/peeklock/peeklock/admin"
)

// The state of a member in tables: a member that accepts no messages is shown as such everywhere.
func TestMemberThatAcceptsNoMessagesIsShown(t *testing.T) {
	t.Parallel()
	for want, m := range map[string]admin.Member{
		"alive":                     {MemberStatus: admin.MemberStatus{State: "alive"}},
		"alive, clock off":          {MemberStatus: admin.MemberStatus{State: "alive", ClockOff: true}},
		"alive, read-only":          {MemberStatus: admin.MemberStatus{State: "alive", ReadOnly: true}},
		"alive, read-only, drained": {MemberStatus: admin.MemberStatus{State: "alive", ReadOnly: true, Drained: true}},
		"dead":                      {MemberStatus: admin.MemberStatus{State: "dead", ReadOnly: true}},
		"removed":                   {MemberStatus: admin.MemberStatus{State: "left", Drained: true}, Removed: true},
	} {
		if got := memberStateText(m); got != want {
			t.Errorf("%+v is %q, want %q", m, got, want)
		}
	}
}
