package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/peeklock/peeklock/cluster/move"
	"github.com/peeklock/peeklock/cluster/router"
	"github.com/peeklock/peeklock/fsm"
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

// HoldFormatLevel sets the format level above which the cluster does not rise, 0 for none. Errors wrap
// PreconditionFails if the cluster has a higher level already, ServerBusy or Timeout.
func (o *Operator) HoldFormatLevel(ctx context.Context, most uint32) error {
	_, err := o.router.Command(ctx, fsm.CatalogPartition, fsm.HoldLevel{Max: most})
	if errors.Is(err, fsm.PreconditionFails) {
		return fmt.Errorf("%w: the cluster has a higher format level than %d, and the level never falls", err, most)
	}
	return err
}
