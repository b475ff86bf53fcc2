package cluster

import (
	"context"
	"fmt"
	"io"
	"net"

	"github.com/peeklock/peeklock/cluster/backup"
	"github.com/peeklock/peeklock/cluster/compare"
	"github.com/peeklock/peeklock/cluster/peer"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/topology"
)

// backupBufferBytes is the size of one read and write of a backup.
const backupBufferBytes = 256 << 10

// Backup writes a consistent copy of a partition, 0 being the catalog: everything that was answered
// before the call, written by the leader, in the form that backup.Restore reads. It takes as long as w
// does; until then, what the copy shares with the leader's replica takes memory and disk space there.
// An error that wraps EntityNotFound or ServerBusy comes before anything is written. A later error
// leaves an incomplete copy, which Restore refuses.
func (o *Operator) Backup(ctx context.Context, id fsm.PartitionID, w io.Writer) error {
	var from io.Reader
	var end func()
	err := o.atPlacedLeader(ctx, id, func(leader fsm.MemberID) (err error) {
		from, end, err = o.node.openBackup(ctx, leader, id)
		return err
	})
	if err != nil {
		return fmt.Errorf("back up partition %d: %w", id, err)
	}
	defer end()
	size, err := io.CopyBuffer(struct{ io.Writer }{w}, from, make([]byte, backupBufferBytes))
	if err != nil {
		return fmt.Errorf("back up partition %d: %w", id, err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	o.node.backedUp.add(id, size)
	return nil
}

// openBackup asks a member, which may be this one, for a backup.
func (n *Node) openBackup(ctx context.Context, leader fsm.MemberID, id fsm.PartitionID) (io.Reader, func(), error) {
	var conn net.Conn
	if leader == n.self {
		ours, theirs := net.Pipe()
		conn = ours
		go n.backups.Serve(id, theirs) // ends with the stream
	} else {
		var err error
		if conn, err = n.peers.Dial(ctx, peer.BackupStream, leader, id); err != nil {
			return nil, nil, err
		}
	}
	return backup.Read(ctx, conn)
}

// Verify compares the whole state of all replicas of a partition, 0 being the catalog, at an index
// that all of them reach. It costs each replica as much as writing a snapshot, and blocks none of
// them. Replicas on binaries of different releases may differ without harm.
// Errors wrap EntityNotFound, ServerBusy (no leader) or Timeout.
func (o *Operator) Verify(ctx context.Context, id fsm.PartitionID) (v topology.Verification, err error) {
	err = o.atPlacedLeader(ctx, id, func(leader fsm.MemberID) (err error) {
		v, err = verifyReplicas.Ask(ctx, o.node.member(leader), compare.VerifyRequest{Partition: id})
		return err
	})
	if err != nil {
		return topology.Verification{}, fmt.Errorf("verify partition %d: %w", id, err)
	}
	return v, nil
}

// atPlacedLeader calls with the leader of a partition that exists. Errors wrap EntityNotFound for any
// other: the router would wait for its leader.
func (o *Operator) atPlacedLeader(ctx context.Context, id fsm.PartitionID, call func(leader fsm.MemberID) error) error {
	if placed := o.node.partitions.Load(); placed == nil {
		return fmt.Errorf("the catalog is not loaded yet: %w", fsm.ServerBusy)
	} else if int64(id) > int64(len(*placed)) {
		return fmt.Errorf("%w: there are %d partitions", fsm.EntityNotFound, len(*placed))
	}
	return o.router.AtLeader(ctx, id, call)
}
