package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// The limits of backups.
const (
	RunningMax    = 4                // backups that one member writes at a time
	writeTimeout  = time.Minute      // for the reader to accept the next part
	readTimeout   = 5 * time.Minute  // for the leader to measure what it will send
	leaderTimeout = 10 * time.Second // for the leader to make sure that it leads
)

// The first byte of a stream.
const (
	replyAccepted  byte = 1
	replyNotLeader byte = 2
	replyBusy      byte = 3
)

// replyError returns the meaning of the first byte of a stream.
func replyError(b byte) error {
	switch b {
	case replyAccepted:
		return nil
	case replyBusy:
		return fmt.Errorf("%w: the leader writes %d backups already", fsm.ServerBusy, RunningMax)
	}
	return partition.ErrNotLeader
}

// Read waits for the reply at the head of a stream and returns the backup that follows it. end closes
// conn, and so does the end of ctx. Errors wrap ServerBusy, or partition.ErrNotLeader where another
// member has to be asked; conn is then closed.
func Read(ctx context.Context, conn net.Conn) (backup io.Reader, end func(), err error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	end = func() { stop(); _ = conn.Close() }
	var reply [1]byte
	stream := timeoutConn{conn}
	_, err = io.ReadFull(stream, reply[:])
	if err == nil {
		err = replyError(reply[0])
	}
	if err != nil {
		end()
		return nil, nil, err
	}
	return stream, end, nil
}

// timeoutConn is a stream whose peer may be silent for a limited time.
type timeoutConn struct{ net.Conn }

// Read waits at most readTimeout.
func (c timeoutConn) Read(b []byte) (int, error) {
	// A pipe whose other end is closed accepts no deadline, and still has an end to be read.
	_ = c.SetReadDeadline(time.Now().Add(readTimeout))
	return c.Conn.Read(b)
}

// Write waits at most writeTimeout.
func (c timeoutConn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// Server writes backups of the replicas of this member. Its fields do not change once it is used; Serve
// may be called concurrently.
type Server struct {
	// Group returns the open replica of a partition, nil when there is none.
	Group func(fsm.PartitionID) *partition.Group
	// Go runs a task that the node waits for before it closes a replica; false when it closes already.
	Go     func(task func(ctx context.Context)) bool
	Logger *slog.Logger

	running atomic.Int32
}

// Serve writes a backup of the replica of a partition into conn and closes conn. It returns when the
// stream has ended.
func (s *Server) Serve(id fsm.PartitionID, conn net.Conn) {
	done := make(chan struct{})
	if s.Go(func(ctx context.Context) {
		defer close(done)
		defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
		if err := s.send(ctx, id, timeoutConn{conn}); err != nil {
			s.Logger.WarnContext(ctx, "failed to write a backup", "partition", id, "error", err)
		}
	}) {
		<-done
	}
	_ = conn.Close()
}

func (s *Server) send(ctx context.Context, id fsm.PartitionID, w io.Writer) error {
	refuse := func(b byte) error {
		_, err := w.Write([]byte{b})
		return err
	}
	defer s.running.Add(-1)
	if s.running.Add(1) > RunningMax {
		return refuse(replyBusy)
	}
	group := s.Group(id)
	if group == nil {
		return refuse(replyNotLeader)
	}
	checking, cancel := context.WithTimeout(ctx, leaderTimeout)
	err := group.Read(checking, func(partition.Machine) {})
	cancel()
	if err != nil {
		return errors.Join(err, refuse(replyNotLeader))
	}
	if _, err := w.Write([]byte{replyAccepted}); err != nil {
		return err
	}
	began := time.Now()
	info, err := group.Backup(ctx, w)
	if err == nil {
		s.Logger.InfoContext(ctx, "backup was written", "partition", id, "index", info.Index, "bytes", info.StreamBytes, "took", time.Since(began))
	}
	return err
}

// Running returns the number of backups that are being written.
func (s *Server) Running() int { return int(s.running.Load()) }
