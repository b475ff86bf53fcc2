package amqp

import (
	"slices"
	"strings"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// Capabilities of a receiver that shares a durable subscription, as Qpid JMS names them.
const (
	sharedCapability    = wire.Symbol("shared")
	globalCapability    = wire.Symbol("global") // the name does not depend on the container id
	sharedSubscriptions = wire.Symbol("SHARED-SUBS")
)

// sharedSubscription returns the path of the subscription that a receiver at a topic shares, or path if it shares
// none. JMS names the subscription by the link: up to the first '|', which the client appends. An administrator
// creates the subscription; a link neither creates nor deletes it.
func (l *link) sharedSubscription(path string, a *wire.Attach) string {
	s := a.Source
	name, _, _ := strings.Cut(a.Name, "|")
	if _, _, named := fsm.SplitSubscriptionPath(path); named || name == "" || strings.Contains(name, "/") || s.Durable == nil || *s.Durable == 0 ||
		!slices.Contains(s.Capabilities, sharedCapability) || !slices.Contains(s.Capabilities, globalCapability) {
		return path
	}
	l.reply.OfferedCapabilities = []wire.Symbol{sharedSubscriptions} // otherwise the client detaches
	return fsm.SubscriptionPath(path, name)
}
