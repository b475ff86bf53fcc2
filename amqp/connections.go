package amqp

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
	"unique"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/topology"
)

// pageBytesMax bounds the texts of one page of connections; its first connection may have more.
const pageBytesMax = 2 << 20

// ConnectionList returns the connections of a query in the order in which they were accepted. Next is the number of the last
// one if there are more.
func (s *Server) ConnectionList(q topology.ConnectionQuery) topology.ConnectionPage {
	conns := slices.DeleteFunc(s.connections(), func(c *conn) bool { return c.number <= q.After })
	slices.SortFunc(conns, func(a, b *conn) int { return cmp.Compare(a.number, b.number) })
	page, bytes := topology.ConnectionPage{Connections: []topology.Connection{}}, 0
	for _, c := range conns {
		if len(page.Connections) > 0 && (len(page.Connections) >= min(max(q.Max, 1), topology.ConnectionsMax) || bytes >= pageBytesMax) {
			page.Next = page.Connections[len(page.Connections)-1].ID
			break
		}
		if described, ok := c.describe(q.Namespace); ok {
			page.Connections = append(page.Connections, described)
			bytes += textBytes(&described)
		}
	}
	return page
}

// textBytes estimates the size of a connection in a page.
func textBytes(c *topology.Connection) int {
	n := len(c.Container)
	for i := range c.Keys {
		n += len(c.Keys[i])
	}
	for i := range c.Links {
		n += 128 + len(c.Links[i].Name) + len(c.Links[i].Entity)
	}
	return n
}

// CloseConnection closes a connection with amqp:connection:forced, on which all SDKs connect again. It returns false if
// the namespace has no connection of this number.
func (s *Server) CloseConnection(ctx context.Context, q topology.CloseConnection) bool {
	for _, c := range s.connections() {
		if c.number != q.Number {
			continue
		}
		c.mu.Lock()
		found := c.phase < phaseClosing && (q.Namespace == 0 || q.Namespace == c.credentials.Namespace())
		c.mu.Unlock()
		if found {
			c.fail(ctx, &wire.Error{Condition: wire.ConditionConnectionForced, Description: "An administrator closed the connection. Connect again."})
		}
		return found
	}
	return false
}

// LockHolders returns the connections that hold the locks of messages. A lock that a client took over HTTP or through a
// management node is held by no connection.
func (s *Server) LockHolders(q topology.LockQuery) []topology.LockHolder {
	asked := make(map[fsm.SequenceNumber]struct{})
	for _, n := range q.Sequences[:min(len(q.Sequences), topology.LockHoldersMax)] {
		asked[n] = struct{}{}
	}
	var held []topology.LockHolder
	for _, c := range s.connections() {
		c.mu.Lock()
		for n := range c.locked(&q) {
			if _, ok := asked[n]; ok {
				held = append(held, topology.LockHolder{Sequence: n, Connection: c.id()})
				delete(asked, n)
			}
		}
		c.mu.Unlock()
	}
	return held
}

// locked yields the messages of an entity that the connection has locked, delivered or not. mu is held.
func (c *conn) locked(q *topology.LockQuery) func(yield func(fsm.SequenceNumber) bool) {
	return func(yield func(fsm.SequenceNumber) bool) {
		of := func(l *link) bool {
			return l.kind == entityNode && l.entity.Partition == q.Partition && l.entity.ID == q.Entity && l.entity.Sub == q.Sub
		}
		for _, s := range c.sessions {
			for _, u := range s.unsettled {
				if of(&u.link.link) && !yield(u.lock.Sequence) {
					return
				}
			}
			for _, e := range s.links {
				out, ok := e.(*outgoingLink)
				if !ok || out.browses || !of(&out.link) {
					continue
				}
				for i := range out.queue {
					if !yield(out.queue[i].delivery.Lock.Sequence) {
						return
					}
				}
			}
		}
	}
}

// id returns the id of the connection among those of all members.
func (c *conn) id() string { return fmt.Sprintf("%s-%x", c.config.ContainerID, c.number) }

// describe returns the state of the connection; false if it is closing or in another namespace than that one, unless that is 0.
func (c *conn) describe(namespace fsm.NamespaceID) (topology.Connection, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase >= phaseClosing || namespace != 0 && namespace != c.credentials.Namespace() {
		return topology.Connection{}, false
	}
	d := topology.Connection{
		ID: c.id(), Number: c.number, Member: c.config.ContainerID, NamespaceID: c.credentials.Namespace(), Since: c.started.UTC(),
		LastRead: time.Unix(0, c.lastRead.Load()).UTC(), Remote: c.peer.RemoteAddr().String(), TLS: tlsState(c.peer).HandshakeComplete,
		Keys: c.credentials.Names(), Container: c.clientID, Sessions: len(c.sessions), LinkCount: c.links.open, Links: []topology.Link{},
		MemoryBytes: c.heldBytes(), Restricted: c.memory.restricted(),
	}
	d.Received, d.Delivered = c.stats.Messages()
	if c.library != (unique.Handle[clientLibrary]{}) {
		d.Product, d.Version = c.library.Value().product, c.library.Value().version
	}
	for _, channel := range slices.Sorted(maps.Keys(c.sessions)) {
		s := c.sessions[channel]
		unsettled := make(map[*outgoingLink]int)
		for _, u := range s.unsettled {
			unsettled[u.link]++
		}
		for _, handle := range slices.Sorted(maps.Keys(s.links)) {
			if len(d.Links) == topology.ConnectionLinksMax {
				return d, true
			}
			d.Links = append(d.Links, describeLink(s.links[handle], unsettled))
		}
	}
	return d, true
}

// describeLink returns the state of a link.
func describeLink(e endpoint, unsettled map[*outgoingLink]int) topology.Link {
	l := topology.Link{Name: e.base().name, Entity: e.base().path, Role: topology.Sender}
	switch e := e.(type) {
	case *incomingLink:
		l.Credit, l.Unsettled = e.credit.left, int(e.credit.unstored)
	case *outgoingLink:
		l.Role, l.Credit, l.Unsettled = topology.Receiver, e.credit.left, unsettled[e]
		if e.messageSession != nil {
			name := e.messageSession.Name()
			l.Session = &name
		}
	}
	return l
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
