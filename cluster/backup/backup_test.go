package backup

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/kit"
)

// startServer returns a function that opens a stream of a Server. The Server ends with ctx.
func startServer(t *testing.T, ctx context.Context, groups map[fsm.PartitionID]*partition.Group) (*Server, func(fsm.PartitionID) net.Conn) { //nolint:revive // t comes first
	t.Helper()
	var running sync.WaitGroup
	s := &Server{
		Group:  func(id fsm.PartitionID) *partition.Group { return groups[id] },
		Go:     func(task func(context.Context)) bool { running.Go(func() { task(ctx) }); return true },
		Logger: discardLogger(),
	}
	t.Cleanup(running.Wait)
	return s, func(id fsm.PartitionID) net.Conn {
		ours, theirs := net.Pipe()
		t.Cleanup(func() { _ = ours.Close() })
		running.Go(func() { s.Serve(id, theirs) })
		return ours
	}
}

func TestStreamIsTheBackupOfThePartition(t *testing.T) {
	t.Parallel()
	_, dial := startServer(t, t.Context(), sourceGroups(t))
	stream, end, err := Read(t.Context(), dial(2))
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	info, err := partition.CheckBackup(stream)
	if err != nil || info.Partition != 2 || info.Bodies != 1 {
		t.Errorf("the stream is %+v, %v", info, err)
	}
}

func TestPartitionWithoutALeaderHereIsRefused(t *testing.T) {
	t.Parallel()
	s, dial := startServer(t, t.Context(), nil)
	if _, _, err := Read(t.Context(), dial(1)); !errors.Is(err, partition.ErrNotLeader) {
		t.Errorf("got %v, want ErrNotLeader", err)
	}
	kit.Eventually(t, "the refused backup is not counted", func() bool { return s.Running() == 0 })
}

func TestBackupsAboveTheLimitAreRefusedUntilOneEnds(t *testing.T) {
	t.Parallel()
	s, dial := startServer(t, t.Context(), sourceGroups(t))
	var ends []func()
	for range RunningMax {
		_, end, err := Read(t.Context(), dial(1)) // is not read: the backup goes on
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, end)
	}
	if _, _, err := Read(t.Context(), dial(1)); !errors.Is(err, fsm.ServerBusy) {
		t.Errorf("got %v, want ServerBusy", err)
	}
	ends[0]()
	kit.Eventually(t, "the backup ends with its reader", func() bool { return s.Running() < RunningMax })
	_, end, err := Read(t.Context(), dial(1))
	if err != nil {
		t.Fatal(err)
	}
	for _, end := range append(ends, end) {
		end()
	}
	kit.Eventually(t, "all backups have ended", func() bool { return s.Running() == 0 })
}

// A stream that ends early, because the node closes or a connection breaks, is no valid backup.
func TestStreamThatEndsEarlyIsNoBackup(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	s, dial := startServer(t, ctx, sourceGroups(t))
	stream, end, err := Read(t.Context(), dial(1))
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	head := make([]byte, 100)
	kit.Must(io.ReadFull(stream, head))(t)
	stop()
	kit.Eventually(t, "the backup ends with the node", func() bool { return s.Running() == 0 })
	rest, _ := io.ReadAll(stream)
	if _, err := partition.CheckBackup(io.MultiReader(bytes.NewReader(head), bytes.NewReader(rest))); err == nil {
		t.Error("the part of a backup counts as whole")
	}
}

func TestReadEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe() // the leader says nothing
	defer func() { _ = theirs.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := Read(ctx, ours); err == nil {
		t.Error("a backup was read from a leader that says nothing")
	}
}

func TestUnknownReplyAsksAnotherMember(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	go func() { _, _ = theirs.Write([]byte{0xff}); _ = theirs.Close() }()
	if _, _, err := Read(t.Context(), ours); !errors.Is(err, partition.ErrNotLeader) {
		t.Errorf("got %v, want ErrNotLeader", err)
	}
}

// A node that closes runs no further tasks: its peer sees the end of the stream.
func TestClosingNodeEndsTheStream(t *testing.T) {
	t.Parallel()
	s := &Server{Go: func(func(context.Context)) bool { return false }, Logger: discardLogger()}
	ours, theirs := net.Pipe()
	go s.Serve(1, theirs)
	if _, _, err := Read(t.Context(), ours); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want EOF", err)
	}
}
