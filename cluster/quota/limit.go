package quota

import (
	"context"
	"fmt"
	"strings"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/catalog"
)

// warnAgainDivisor determines how far below a limit, divided by it, a namespace must fall before reaching the limit is logged
// again.
const warnAgainDivisor = 10

// use is what a namespace holds of a resource, and the limit in its settings, 0 for none.
type use struct {
	limit      limits
	held, most uint64
	unit       string
	name, flag string // of the limit, in the control API and on the command line
	free       string // how the namespace gets below it
}

func usesOf(u *fsm.Usage, s *fsm.NamespaceSettings) [3]use {
	return [...]use{
		{bytesLimit, u.DiskBytes, s.BytesMax, "bytes on disk", "maxBytes", "max-bytes", "Receive, purge or delete some of its messages"},
		{messagesLimit, u.Messages, s.MessagesMax, "messages", "maxMessages", "max-messages", "Receive, purge or delete some of them"},
		{rulesLimit, u.Rules, s.RulesMax, "rules", "maxRules", "max-rules", "Delete some of them or their subscriptions"},
	}
}

// findReached finds the namespaces that have reached limits of their settings, and logs the new ones. A limit is logged again
// only after the namespace has fallen well below it.
func (m *Monitor) findReached(ctx context.Context, before, s *state) {
	s.reached, s.warned = make(map[fsm.NamespaceID]limits), make(map[fsm.NamespaceID]limits)
	m.ViewCatalog(func(c *catalog.Machine) {
		for id, u := range s.usage {
			n, _ := c.NamespaceByID(id)
			for _, r := range usesOf(&u, &n.Settings) {
				switch warned := before.warned[id]&r.limit != 0; {
				case r.most == 0:
				case r.held >= r.most:
					s.reached[id] |= r.limit
					s.warned[id] |= r.limit
					if !warned {
						m.Logger.WarnContext(ctx, "namespace reached a limit of its settings: what adds to it is refused until it holds less; "+
							"receive, purge or delete some of it, or raise the limit with `peeklock namespace update`",
							"namespace_id", id, "limit", r.name, "held", r.held, "max", r.most)
					}
				case warned && r.held >= max(1, r.most-r.most/warnAgainDivisor-1):
					s.warned[id] |= r.limit
				}
			}
		}
	})
}

// growth is what a command that grows data adds, and to which namespace; 0 for none.
type growth struct {
	namespace fsm.NamespaceID
	adds      limits
}

// NamespaceOf returns the namespace of the entities of an encoded command, 0 if it has none or they are not known.
func (m *Monitor) NamespaceOf(info *fsm.CommandInfo, command []byte) fsm.NamespaceID {
	switch {
	case info.Entity != 0:
		return m.namespaceOf(info.Entity)
	case info.Kind == fsm.KindTransact || info.Kind == fsm.KindCreateEntity:
		return m.growthOf(command).namespace
	}
	return 0
}

// growthOf returns what an encoded command adds. All entities of a transaction are of one namespace.
func (m *Monitor) growthOf(command []byte) growth {
	info, _ := fsm.PeekCommand(command)
	if info.Entity != 0 {
		e := m.find(info.Entity)
		switch info.Kind { //nolint:exhaustive // the others add bytes only
		case fsm.KindSendMessages:
			return growth{e.Namespace, bytesLimit | messagesLimit}
		case fsm.KindTransferMessages:
			if e.Kind != fsm.TopicEntity {
				return growth{e.Namespace, 0} // its source has counted the messages, and is relieved of them
			}
			return growth{e.Namespace, bytesLimit | messagesLimit}
		case fsm.KindPutRule:
			if _, c, err := fsm.DecodeCommand(command); err == nil && !c.(fsm.PutRule).Replace { //nolint:forcetypeassert // its kind says so
				return growth{e.Namespace, bytesLimit | rulesLimit}
			}
		}
		return growth{e.Namespace, bytesLimit}
	}
	_, c, err := fsm.DecodeCommand(command)
	if err != nil {
		return growth{}
	}
	switch c := c.(type) {
	case fsm.CreateEntity:
		if c.Kind == fsm.SubscriptionEntity {
			return growth{m.find(c.Topic).Namespace, bytesLimit | rulesLimit}
		}
		return growth{c.Namespace, bytesLimit}
	case fsm.Transact:
		switch {
		case len(c.Sends) > 0:
			return growth{m.find(c.Sends[0].Entity).Namespace, bytesLimit | messagesLimit}
		case len(c.Transfers) > 0:
			return growth{m.find(c.Transfers[0].Via).Namespace, bytesLimit | messagesLimit}
		case len(c.States) > 0:
			return growth{m.find(c.States[0].Entity).Namespace, bytesLimit}
		case len(c.Settles) > 0:
			return growth{m.find(c.Settles[0].Address.Entity).Namespace, bytesLimit}
		}
	}
	return growth{}
}

// limitReasons returns, for clients, which limits a namespace has reached and what to do.
func (m *Monitor) limitReasons(id fsm.NamespaceID) string {
	s := m.state.Load()
	set := s.reached[id]
	if set == 0 {
		return ""
	}
	var n fsm.Namespace
	m.ViewCatalog(func(c *catalog.Machine) { n, _ = c.NamespaceByID(id) })
	var reasons []string
	u := s.usage[id]
	for _, r := range usesOf(&u, &n.Settings) {
		if set&r.limit != 0 {
			reasons = append(reasons, fmt.Sprintf("The namespace %s holds %d %s, and its limit %s is %d. %s, or have an operator raise the limit: peeklock namespace update %[1]s --%[7]s N (0: no limit).",
				n.Name, r.held, r.unit, r.name, r.most, r.free, r.flag))
		}
	}
	return strings.Join(reasons, " ")
}
