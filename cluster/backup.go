package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/peeklock/peeklock/cluster/peer"
	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// The limits of backups.
const (
	backupsMax          = 4                // written at a time by one member
	backupWriteTimeout  = time.Minute      // for who wants it to take a piece
	backupReadTimeout   = 5 * time.Minute  // for the leader to measure what it will send
	backupLeaderTimeout = 10 * time.Second // for the leader to make sure that it leads
	backupBufferBytes   = 256 << 10
)

// A stream of a backup is one byte from the leader, and behind backupBegins the backup, as
// partition.Group.Backup writes it, to the end of the stream. The backup says itself whether it
// is whole.
const (
	backupAccepted  byte = 1
	backupNotLeader byte = 2
	backupBusy      byte = 3
)

// backupReply is such a byte as an error.
func backupReply(b byte) error {
	switch b {
	case backupAccepted:
		return nil
	case backupBusy:
		return fmt.Errorf("%w: the leader writes %d backups already", fsm.ServerBusy, backupsMax)
	}
	return rpc.ErrNotLeader
}

// Backup writes a consistent copy of a partition, 0 being the catalog: all that was answered
// before the call, made by the leader, in the form that Restore reads. It takes as long as w
// does; what the copy shares with the leader's replica takes memory and disk there until then.
// An error that wraps EntityNotFound or ServerBusy comes before anything is written. Whatever
// comes later leaves a part behind, which Restore refuses.
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
	if _, err := io.CopyBuffer(struct{ io.Writer }{w}, from, make([]byte, backupBufferBytes)); err != nil {
		return fmt.Errorf("back up partition %d: %w", id, err)
	}
	return ctx.Err()
}

// openBackup asks a member, which may be this one, for a backup.
func (n *Node) openBackup(ctx context.Context, leader fsm.MemberID, id fsm.PartitionID) (io.Reader, func(), error) {
	var conn net.Conn
	if leader == n.self {
		ours, theirs := net.Pipe()
		conn = ours
		go n.serveBackup(id, theirs) // ends with the stream
	} else {
		var err error
		if conn, err = n.peers.Dial(ctx, peer.BackupStream, leader, id); err != nil {
			return nil, nil, err
		}
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	end := func() { stop(); _ = conn.Close() }
	var reply [1]byte
	from := timeoutConn{conn}
	_, err := io.ReadFull(from, reply[:])
	if err == nil {
		err = backupReply(reply[0])
	}
	if err != nil {
		end()
		return nil, nil, err
	}
	return from, end, nil
}

// timeoutConn is a stream whose peer may be silent for a while, not for ever.
type timeoutConn struct{ net.Conn }

// Read waits backupSilentMax.
func (p timeoutConn) Read(b []byte) (int, error) {
	// A pipe whose other end is closed takes no deadline, and yet has an end to be read.
	_ = p.SetReadDeadline(time.Now().Add(backupReadTimeout))
	return p.Conn.Read(b)
}

// Write waits backupTakeMax.
func (p timeoutConn) Write(b []byte) (int, error) {
	if err := p.SetWriteDeadline(time.Now().Add(backupWriteTimeout)); err != nil {
		return 0, err
	}
	return p.Conn.Write(b)
}

// serveBackup writes a backup of our replica into a stream and closes that. It is a task of
// the node, so no replica is closed under it.
func (n *Node) serveBackup(id fsm.PartitionID, conn net.Conn) {
	done := make(chan struct{})
	if n.startTask(func(ctx context.Context) {
		defer close(done)
		defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
		if err := n.sendBackup(ctx, id, timeoutConn{conn}); err != nil {
			n.log.WarnContext(ctx, "backup broke off", "partition", id, "error", err)
		}
	}) {
		<-done
	}
	_ = conn.Close()
}

func (n *Node) sendBackup(ctx context.Context, id fsm.PartitionID, w io.Writer) error {
	refuse := func(b byte) error {
		_, err := w.Write([]byte{b})
		return err
	}
	defer n.backupsRunning.Add(-1)
	if n.backupsRunning.Add(1) > backupsMax {
		return refuse(backupBusy)
	}
	group := (*n.groups.Load())[id]
	if group == nil {
		return refuse(backupNotLeader)
	}
	checking, cancel := context.WithTimeout(ctx, backupLeaderTimeout)
	err := group.Read(checking, func(partition.Machine) {})
	cancel()
	if err != nil {
		return errors.Join(err, refuse(backupNotLeader))
	}
	if _, err := w.Write([]byte{backupAccepted}); err != nil {
		return err
	}
	began := time.Now()
	info, err := group.Backup(ctx, w)
	if err == nil {
		n.log.InfoContext(ctx, "backup written", "partition", id, "index", info.Index, "bytes", info.StreamBytes, "took", time.Since(began))
	}
	return err
}
