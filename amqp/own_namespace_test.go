package amqp

import (
	"testing"

	"github.com/peeklock/peeklock/amqp/login"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// The first credential may move a connection to the namespace of its key. Credentials for other namespaces are refused from
// then on, by a login as by a token.
func TestFirstCredentialMovesTheConnectionToItsNamespace(t *testing.T) {
	t.Parallel()
	own := Grant{Rights: fsm.Manage, Namespace: secondNamespace, OwnNamespace: true}
	third := Grant{Rights: fsm.Manage, Namespace: secondNamespace + 1, OwnNamespace: true}
	shared := Grant{Rights: fsm.Manage}
	for name, c := range map[string]struct {
		first, next Grant
		login       bool
		entity      string
		status      int32 // of the next token
	}{
		"token, the same key":       {own, own, false, "two", 202},
		"token, another key":        {own, third, false, "two", 401},
		"token, a shared key":       {own, shared, false, "two", 401},
		"login, the same key":       {own, own, true, "two", 202},
		"login, another key":        {own, third, true, "two", 401},
		"shared key, then an own":   {shared, own, false, "one", 401},
		"shared login, then an own": {shared, own, true, "one", 401},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &scriptedAuthorizer{grants: map[string]Grant{ruleName: c.first, "sb://h/": c.first}}
			_, p := piped(t, newFakeBroker("one").addSecond("two"), g.through)
			mechanism := wire.Symbol(login.MechanismAnonymous)
			if c.login {
				mechanism = login.MechanismPlain
				if !c.first.OwnNamespace {
					g.give(ruleName, Grant{Rights: fsm.Manage, Namespace: fsm.DefaultNamespace})
				}
			}
			p.beginAt(mechanism, "\x00"+ruleName+"\x00"+ruleKey, "-", "localhost:5672")
			expect[*wire.Begin](p)
			if !c.login {
				p.putToken("sb://h/", 202)
			}
			p.sender(0, c.entity)
			g.give("sb://h/", c.next)
			p.putToken("sb://h/", c.status)
			p.sender(1, c.entity) // what was granted stays
		})
	}
}
