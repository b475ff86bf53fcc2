package transport

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

const idleStreamsPerPeer = 3 // kept open for the next request

const (
	// Requests and what is read of them pass through buffers of this size: larger ones take more than one call of the
	// operating system, and the bytes of large entries are not copied.
	requestBufferBytes = 64 << 10
	answerBufferBytes  = 512
)

// requestWriters holds buffers for requests. A stream has one only while it writes.
var requestWriters = sync.Pool{ //nolint:gochecknoglobals // shared by all groups on purpose
	New: func() any { return bufio.NewWriterSize(nil, requestBufferBytes) },
}

// framedStream is a stream that this side opened, for requests.
type framedStream struct {
	conn    *trackedConn
	answers *bufio.Reader
	unused  bool // since the last closeUnused; guarded by the mutex of idleStreams
}

// write sends a request, and the snapshot that belongs to it, and returns the number of bytes.
func (s *framedStream) write(request any, snapshot io.Reader) (size int, err error) {
	w := requestWriters.Get().(*bufio.Writer) //nolint:forcetypeassert // nothing else is put there
	w.Reset(s.conn)
	defer func() {
		w.Reset(nil)
		requestWriters.Put(w)
	}()
	if size, err = writeRequest(w, request); err != nil {
		return 0, err
	}
	if install, is := request.(*raft.InstallSnapshotRequest); is {
		n, err := io.Copy(w, io.LimitReader(snapshot, install.Size))
		if err == nil && n != install.Size {
			err = fmt.Errorf("send snapshot: %d of %d bytes: %w", n, install.Size, io.ErrUnexpectedEOF)
		}
		if err != nil {
			return 0, err
		}
		size += int(n)
	}
	return size, w.Flush()
}

// call sends a request and reads its answer. After any error but a remoteError the stream is of no further use.
func (s *framedStream) call(request, answer any, snapshot io.Reader) error {
	size, err := s.write(request, snapshot)
	if err != nil {
		return err
	}
	within := answerTime(size)
	if snapshot != nil { // the follower syncs and loads it before it answers
		within = max(within, streamRequestTimeout*time.Duration(size/streamBytesPerSecondMin))
	}
	if err := s.conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	f, err := readFrame(s.answers, answerBytesMax)
	if err != nil {
		return err
	}
	return decodeAnswer(kindOf(request), &f, answer)
}

// idleStreams holds the streams that wait for the next request.
type idleStreams struct {
	mu   sync.Mutex
	kept map[raft.ServerAddress][]*framedStream
}

// take returns an idle stream, nil if there is none.
func (i *idleStreams) take(address raft.ServerAddress) *framedStream {
	i.mu.Lock()
	defer i.mu.Unlock()
	kept := i.kept[address]
	if len(kept) == 0 {
		return nil
	}
	last := len(kept) - 1
	s := kept[last]
	kept[last] = nil
	i.kept[address] = kept[:last]
	return s
}

// put keeps a stream, or closes it if enough are kept.
func (i *idleStreams) put(address raft.ServerAddress, s *framedStream) {
	i.mu.Lock()
	full := len(i.kept[address]) >= idleStreamsPerPeer
	if !full {
		s.unused = false
		i.kept[address] = append(i.kept[address], s)
	}
	i.mu.Unlock()
	if full {
		_ = s.conn.Close()
	}
}

// closeUnused closes the streams that no request has used since its last call. They lead to a replica that was removed, or
// to one that gets no requests because this replica does not lead.
func (i *idleStreams) closeUnused() {
	var unused []*framedStream
	i.mu.Lock()
	for _, address := range slices.Sorted(maps.Keys(i.kept)) {
		kept := slices.DeleteFunc(i.kept[address], func(s *framedStream) bool {
			if s.unused {
				unused = append(unused, s)
				return true
			}
			s.unused = true
			return false
		})
		if i.kept[address] = kept; len(kept) == 0 {
			delete(i.kept, address)
		}
	}
	i.mu.Unlock()
	for _, s := range unused {
		_ = s.conn.Close()
	}
}
