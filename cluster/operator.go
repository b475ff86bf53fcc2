package cluster

import (
	"github.com/peeklock/peeklock/cluster/move"
	"github.com/peeklock/peeklock/cluster/router"
)

// Operator implements the operations on a whole cluster: members, placement and moves of partitions,
// verification and backups. Its methods may be called concurrently.
type Operator struct {
	*move.Operator
	node   *Node
	router *router.Router // finds the leaders
}

// Operator returns the interface for the operators of the cluster.
func (n *Node) Operator() *Operator { return n.operator }
