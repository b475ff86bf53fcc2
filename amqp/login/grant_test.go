package login

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

func TestGrantsCoverWhatIsBelowTheirPath(t *testing.T) {
	t.Parallel()
	now := time.Now()
	g := make(grants)
	gone := false
	g.put(grant{Grant: Grant{Path: "orders", Rights: fsm.Send}})
	g.put(grant{Grant: Grant{Path: "orders/$management", Rights: fsm.Listen, Expires: now.Add(time.Hour)}})
	g.put(grant{Grant: Grant{Path: "topic", Rights: fsm.Listen}})
	g.put(grant{Grant: Grant{Path: "keyed", Rights: fsm.Send, Valid: func() bool { return !gone }}})
	for _, c := range []struct {
		path  string
		right fsm.Rights
		at    time.Duration
		want  bool
	}{
		{"orders", fsm.Send, 0, true},
		{"ORDERS/$DeadLetterQueue", fsm.Send, 0, true},
		{"orders", fsm.Listen, 0, false},
		{"orders2", fsm.Send, 0, false},
		{"orders/new", fsm.Send, 0, false}, // another entity
		{"orders/new/$management", fsm.Send, 0, false},
		{"orders/$Transfer/$DeadLetterQueue", fsm.Send, 0, true},
		{"Topic/Subscriptions/Sub/$DeadLetterQueue", fsm.Listen, 0, true},
		{"topic/subscriptions/sub/rules/r", fsm.Listen, 0, true},
		{"topic/other/sub", fsm.Listen, 0, false},
		{"keyed/$management", fsm.Send, 0, true},
		{"", fsm.Send, 0, false},
		{"orders/$management", fsm.Listen, 0, true},
		{"orders/$management", fsm.Send | fsm.Listen, 0, true},
		{"orders/$management", fsm.Listen, time.Hour, false},
		{"other", 0, 0, true},
	} {
		if got, stale := g.allow(c.path, c.right, now.Add(c.at)); got != c.want || stale {
			t.Errorf("%q %d: %v", c.path, c.right, got)
		}
	}
	if next, revocable := g.next(); !next.Equal(now.Add(time.Hour)) || !revocable {
		t.Errorf("next %v, revocable %v", next, revocable)
	}
	gone = true
	if ok, stale := g.allow("keyed/$management", fsm.Send, now); ok || !stale {
		t.Errorf("a key that is gone: allowed %v, stale %v", ok, stale)
	}
	if lost := g.removeInvalid(now, false); len(lost) != 0 {
		t.Errorf("lost %v", lost)
	}
	lost := g.removeInvalid(now.Add(2*time.Hour), true)
	if len(lost) != 2 || len(g) != 2 || lost["keyed"].reason != keyRevoked || lost["orders/$management"].reason != grantExpired {
		t.Errorf("lost %v, grants %v", lost, g)
	}
	if was, ok := lost.find("Keyed/$management", fsm.Send); !ok || was.reason != keyRevoked {
		t.Errorf("lost of keyed: %v, %v", was, ok)
	}
	if _, ok := lost.find("keyed", fsm.Listen); ok {
		t.Error("lost a right that was not there")
	}
	g.put(grant{Grant: Grant{Path: "", Rights: fsm.Manage}})
	if ok, _ := g.allow("whatever/there/is", fsm.Listen, now); !ok {
		t.Error("the namespace does not cover what is in it")
	}
}

// fakeConn is a connection without links.
type fakeConn struct{ sync.Mutex }

func (*fakeConn) URLOf(path string) string                    { return path }
func (*fakeConn) CountRefused()                               {}
func (*fakeConn) Closing() bool                               { return false }
func (*fakeConn) Authenticated(string)                        {}
func (*fakeConn) GrantsChanged()                              {}
func (*fakeConn) RightsLost(context.Context, time.Time, Lost) {}

func TestAudiencesAreBounded(t *testing.T) {
	t.Parallel()
	now := time.Now()
	c := New(Config{Conn: &fakeConn{}})
	hold := func(path string, now, expires time.Time) bool {
		return c.add(t.Context(), grant{Grant: Grant{Path: path, Expires: expires}}, now)
	}
	for i := range AudiencesMax {
		if !hold("q"+strconv.Itoa(i), now, now.Add(time.Minute)) {
			t.Fatalf("refused number %d", i)
		}
	}
	if hold("one more", now, time.Time{}) {
		t.Error("one too many")
	}
	if !hold("q0", now, time.Time{}) {
		t.Error("cannot renew")
	}
	if !hold("one more", now.Add(time.Hour), time.Time{}) {
		t.Error("expired ones still count")
	}
}
