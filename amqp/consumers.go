package amqp

import (
	"sync"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/topology"
)

// consumerKey identifies a durable subscription of JMS.
type consumerKey struct {
	namespace fsm.NamespaceID
	topic     string // as fsm.PathKey: the same name at another topic is another subscription
	code      string
}

// consumers counts the links of a member to durable subscriptions. Consumers at other members are not known: a
// client that lost its member must get its subscription at another at once.
type consumers struct {
	mu    sync.Mutex
	links map[consumerKey]int // -1: one, which has it alone
}

// add counts a link, and returns false if it or another one must be the only one.
func (s *consumers) add(key consumerKey, exclusive bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.links[key]
	switch {
	case n < 0 || exclusive && n > 0:
		return false
	case s.links == nil:
		s.links = make(map[consumerKey]int)
	}
	if s.links[key] = n + 1; exclusive {
		s.links[key] = -1
	}
	return true
}

// remove ends what add began.
func (s *consumers) remove(keys ...consumerKey) {
	if len(keys) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		if n := s.links[key]; n > 1 {
			s.links[key] = n - 1
		} else {
			delete(s.links, key)
		}
	}
}

// Consumers counts the links of this member's clients that receive from each entity, in any order, without those of browsers and
// those to dead-letter queues. It locks each connection for a moment: do not call it more than once a second.
func (s *Server) Consumers() []topology.Consumers {
	counts := make(map[topology.Consumers]int) // by entity: Links is 0
	for _, c := range s.connections() {
		c.countConsumers(counts)
	}
	list := make([]topology.Consumers, 0, len(counts))
	for of, links := range counts {
		of.Links = links
		list = append(list, of)
	}
	return list
}

// countConsumers adds the receiving links of the connection.
func (c *conn) countConsumers(counts map[topology.Consumers]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.sessions {
		for _, end := range s.links {
			if l, ok := end.(*outgoingLink); ok && l.kind == entityNode && !l.browses && l.entity.ID != 0 && l.entity.Sub == fsm.MainQueue {
				counts[topology.Consumers{Namespace: l.entity.Namespace, Kind: l.entity.Kind, Name: l.entity.Name}]++
			}
		}
	}
}
