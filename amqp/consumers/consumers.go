package consumers

import (
	"sync"

	"github.com/peeklock/peeklock/fsm"
)

// Key identifies a durable subscription of JMS.
type Key struct {
	Namespace fsm.NamespaceID
	Topic     string // as fsm.PathKey: the same name at another topic is another subscription
	Code      string // see the names of subscriptions in docs/service-bus-protocol.md
}

// Set counts the links of a member to durable subscriptions. It is safe for concurrent use.
type Set struct {
	mu    sync.Mutex
	links map[Key]int // -1: one, which has it alone
}

// Add counts a link, and returns false if it or another one must be the only one.
func (s *Set) Add(key Key, exclusive bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.links[key]
	switch {
	case n < 0 || exclusive && n > 0:
		return false
	case s.links == nil:
		s.links = make(map[Key]int)
	}
	if s.links[key] = n + 1; exclusive {
		s.links[key] = -1
	}
	return true
}

// Remove ends what Add began.
func (s *Set) Remove(keys ...Key) {
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
