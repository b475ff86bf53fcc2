package amqp

import (
	"sync"

	"github.com/peeklock/peeklock/fsm"
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
