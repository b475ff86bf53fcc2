package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/topology"
)

// askMemberMax is how long one member is waited for.
const askMemberMax = 2 * time.Second

// Clients is the interface of a node to the connections of clients at this member. The gateway implements it; its methods
// are safe for concurrent use and do not wait for clients.
type Clients interface {
	// ConnectionList returns the connections of a query in the order of their numbers. Next of the page is the id of the last one
	// if there are more.
	ConnectionList(q topology.ConnectionQuery) topology.ConnectionPage
	// CloseConnection closes a connection, and returns false if there is none of this number in the namespace.
	CloseConnection(ctx context.Context, q topology.CloseConnection) bool
	// LockHolders returns which connections hold the locks of messages; a lock that no connection holds is missing.
	LockHolders(q topology.LockQuery) []topology.LockHolder
	// Consumers counts the links that receive from each entity, in any order.
	Consumers() []topology.Consumers
}

// The queries between nodes about connections of clients.
//
//nolint:gochecknoglobals // never changed
var (
	listConnections = rpc.Query[topology.ConnectionQuery, topology.ConnectionPage]{Kind: rpc.QueryConnections}
	closeConnection = rpc.Query[topology.CloseConnection, bool]{Kind: rpc.QueryCloseConnection}
	findLockHolders = rpc.Query[topology.LockQuery, []topology.LockHolder]{Kind: rpc.QueryLockHolders}
)

// ServeClients tells the node the connections of clients at this member. Until it is called the member has none, and no consumers.
func (n *Node) ServeClients(c Clients) { n.clients.Store(&c) }

// registerClientQueries registers the answers to the queries about connections.
func (n *Node) registerClientQueries() {
	listConnections.Handle(n.queries, func(_ context.Context, q topology.ConnectionQuery) (topology.ConnectionPage, error) {
		if c := n.clients.Load(); c != nil {
			return (*c).ConnectionList(q), nil
		}
		return topology.ConnectionPage{}, nil
	})
	closeConnection.Handle(n.queries, func(ctx context.Context, q topology.CloseConnection) (bool, error) {
		c := n.clients.Load()
		return c != nil && (*c).CloseConnection(ctx, q), nil
	})
	findLockHolders.Handle(n.queries, func(_ context.Context, q topology.LockQuery) ([]topology.LockHolder, error) {
		if c := n.clients.Load(); c != nil {
			return (*c).LockHolders(q), nil
		}
		return nil, nil
	})
}

// livingMembers returns the members that gossip considers alive, by name.
func (o *Operator) livingMembers() []topology.Member {
	alive := slices.DeleteFunc(o.node.knownMembers(), func(m topology.Member) bool { return m.State != topology.Alive })
	slices.SortFunc(alive, func(a, b topology.Member) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return alive
}

// splitConnectionID returns the member and the number in the id of a connection.
func splitConnectionID(id string) (member string, number uint64, err error) {
	at := strings.LastIndexByte(id, '-')
	if at > 0 {
		if number, err = strconv.ParseUint(id[at+1:], 16, 64); err == nil {
			return id[:at], number, nil
		}
	}
	return "", 0, fmt.Errorf("%w: %.100q is not the id of a connection, which is the name of a member, a hyphen and a hexadecimal number", fsm.InvalidArgument, id)
}

// Connections returns at most most (1 to topology.ConnectionsMax) connections of a namespace, 0 for all, by member and age, from
// the first after the given id ("": the first of all). It asks the living members, each for up to 2 s, until the page is full.
// Errors wrap InvalidArgument, for an id that cannot be one.
func (o *Operator) Connections(ctx context.Context, namespace fsm.NamespaceID, after string, most int) (topology.ConnectionPage, error) {
	page := topology.ConnectionPage{Connections: []topology.Connection{}}
	first, number := "", uint64(0)
	if after != "" {
		var err error
		if first, number, err = splitConnectionID(after); err != nil {
			return page, err
		}
	}
	for _, m := range o.livingMembers() {
		if m.Name < first {
			continue
		}
		q := topology.ConnectionQuery{Namespace: namespace, Max: most - len(page.Connections)}
		if m.Name == first {
			q.After = number
		}
		if q.Max <= 0 {
			page.Next = page.Connections[len(page.Connections)-1].ID
			break
		}
		part, err := askMember(ctx, o.node, m.ID, listConnections, q)
		if err != nil {
			page.Unreachable = append(page.Unreachable, m.Name)
			continue
		}
		page.Connections = append(page.Connections, part.Connections...)
		if part.Next != "" {
			page.Next = part.Next
			break
		}
	}
	return page, nil
}

// askMember sends a query to one member, which may be this one, and waits for its answer for up to 2 s.
func askMember[Q, R any](ctx context.Context, n *Node, id fsm.MemberID, query rpc.Query[Q, R], q Q) (R, error) {
	ctx, cancel := context.WithTimeout(ctx, askMemberMax)
	defer cancel()
	return query.Ask(ctx, n.member(id), q)
}

// askAlive sends a query to all living members, and returns what those answer with that do so within 2 s.
func askAlive[Q, R any](ctx context.Context, n *Node, query rpc.Query[Q, []R], q Q) []R {
	alive := n.gossip.Alive()
	answers := make([][]R, len(alive))
	var asking sync.WaitGroup
	for i, member := range alive {
		asking.Go(func() { answers[i], _ = askMember(ctx, n, member, query, q) })
	}
	asking.Wait()
	return slices.Concat(answers...)
}

// CloseConnection closes a connection of a namespace, 0 for any; its client is told to connect again. Errors wrap
// InvalidArgument for an id that cannot be one, EntityNotFound if there is no such connection (any more), or ServerBusy if its
// member does not answer.
func (o *Operator) CloseConnection(ctx context.Context, namespace fsm.NamespaceID, id string) error {
	name, number, err := splitConnectionID(id)
	if err != nil {
		return err
	}
	for _, m := range o.livingMembers() {
		if m.Name != name {
			continue
		}
		closed, err := askMember(ctx, o.node, m.ID, closeConnection, topology.CloseConnection{Number: number, Namespace: namespace})
		if err != nil {
			return fmt.Errorf("%w: the member %s did not answer, and the connection may be open: try again", fsm.ServerBusy, name)
		}
		if closed {
			return nil
		}
	}
	return fmt.Errorf("%w: there is no connection %s (any more): list them again", fsm.EntityNotFound, id)
}

// LockHolders returns which connections hold the locks of messages, as all living members that answer within 2 s know it.
func (o *Operator) LockHolders(ctx context.Context, q topology.LockQuery) []topology.LockHolder {
	return askAlive(ctx, o.node, findLockHolders, q)
}
