package transport

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/raft"
)

// A framed stream carries requests in one direction and their answers, in the same order, in the other. Each is a frame:
//
//	bytes that follow (4) ─ version (1) ─ kind (1) ─ fields
//
// Integers are big-endian, and bytes are preceded by their number (4). The fields of an answer begin with the text of
// an error, empty for none. Entries are the last field of their request; a snapshot follows the frame of its request.
const (
	frameVersion    = 1
	frameLength     = 4               // bytes of the length, which counts what follows it
	frameHeadBytes  = frameLength + 2 // length, version, kind
	frameBytesMax   = 1 << 30         // of a request; the journal appends no more at once
	frameAtOnceMax  = 8 << 20         // memory for the fields of a larger frame grows with what arrives
	answerBytesMax  = 64 << 10
	errorBytesMax   = 4 << 10 // of the text of an error; the rest is cut off
	frameEntriesMax = 1 << 10 // of one request; raft sends 64
	entryHeadBytes  = 8 + 8 + 1 + 8 + 4 + 4
)

// frameKind is the kind of a frame. The numbers are on the wire.
type frameKind byte

const (
	appendFrame  frameKind = 1
	voteFrame    frameKind = 2
	preVoteFrame frameKind = 3
	installFrame frameKind = 4
	timeoutFrame frameKind = 5
)

// answerFrame is set in the kind of an answer, beside that of its request.
const answerFrame = 0x80

// malformedError says in what respect bytes are not a frame of this version.
type malformedError string

func (e malformedError) Error() string { return "malformed frame: " + string(e) }

// coder writes the fields of a message, or reads them, so that one list of fields serves both.
type coder struct {
	reads bool
	b     []byte // what was written, or what remains to be read
	bad   bool   // a field did not fit
}

// take returns the next n bytes to be read, nil if there are not as many.
func (c *coder) take(n int) []byte {
	if c.bad || n > len(c.b) {
		c.bad = true
		return nil
	}
	taken := c.b[:n:n]
	c.b = c.b[n:]
	return taken
}

func (c *coder) uint64(v *uint64) {
	if !c.reads {
		c.b = binary.BigEndian.AppendUint64(c.b, *v)
	} else if b := c.take(8); b != nil {
		*v = binary.BigEndian.Uint64(b)
	}
}

func (c *coder) uint32(v *uint32) {
	if !c.reads {
		c.b = binary.BigEndian.AppendUint32(c.b, *v)
	} else if b := c.take(4); b != nil {
		*v = binary.BigEndian.Uint32(b)
	}
}

// bytes reads bytes without copying them; none are nil.
func (c *coder) bytes(v *[]byte) {
	n := uint32(len(*v))
	c.uint32(&n)
	if !c.reads {
		c.b = append(c.b, *v...)
	} else if *v = nil; n > 0 {
		*v = c.take(int(n))
	}
}

func (c *coder) bool(v *bool) {
	var n int
	if *v {
		n = 1
	}
	small(c, &n)
	if c.reads { // what is written belongs to others, too
		*v = n == 1
	}
	c.bad = c.bad || n > 1
}

// small codes an integer in one byte.
func small[T ~int | ~uint8](c *coder, v *T) {
	if !c.reads {
		c.bad = c.bad || *v < 0 || uint64(*v) > 0xff
		c.b = append(c.b, byte(*v))
	} else if b := c.take(1); b != nil {
		*v = T(b[0])
	}
}

func (c *coder) header(h *raft.RPCHeader) {
	small(c, &h.ProtocolVersion)
	c.bytes(&h.ID)
	c.bytes(&h.Addr)
}

// fields codes all fields of a message but its entries.
func (c *coder) fields(message any) {
	switch m := message.(type) {
	case *raft.AppendEntriesRequest:
		c.header(&m.RPCHeader)
		c.uint64(&m.Term)
		c.bytes(&m.Leader) //nolint:staticcheck // raft sends the deprecated fields
		c.uint64(&m.PrevLogEntry)
		c.uint64(&m.PrevLogTerm)
		c.uint64(&m.LeaderCommitIndex)
	case *raft.AppendEntriesResponse:
		c.header(&m.RPCHeader)
		c.uint64(&m.Term)
		c.uint64(&m.LastLog)
		c.bool(&m.Success)
		c.bool(&m.NoRetryBackoff)
	case *raft.RequestVoteRequest:
		c.header(&m.RPCHeader)
		c.uint64(&m.Term)
		c.bytes(&m.Candidate) //nolint:staticcheck // it names the replica that is asked
		c.uint64(&m.LastLogIndex)
		c.uint64(&m.LastLogTerm)
		c.bool(&m.LeadershipTransfer)
	case *raft.RequestVoteResponse:
		c.header(&m.RPCHeader)
		c.uint64(&m.Term)
		c.bytes(&m.Peers)
		c.bool(&m.Granted)
	case *raft.RequestPreVoteRequest:
		c.header(&m.RPCHeader)
		c.uint64(&m.Term)
		c.uint64(&m.LastLogIndex)
		c.uint64(&m.LastLogTerm)
	case *raft.RequestPreVoteResponse:
		c.header(&m.RPCHeader)
		c.uint64(&m.Term)
		c.bool(&m.Granted)
	case *raft.InstallSnapshotRequest:
		c.install(m)
	case *raft.InstallSnapshotResponse:
		c.header(&m.RPCHeader)
		c.uint64(&m.Term)
		c.bool(&m.Success)
	case *raft.TimeoutNowRequest:
		c.header(&m.RPCHeader)
	case *raft.TimeoutNowResponse:
		c.header(&m.RPCHeader)
	default:
		c.bad = true
	}
}

func (c *coder) install(m *raft.InstallSnapshotRequest) {
	c.header(&m.RPCHeader)
	small(c, &m.SnapshotVersion)
	c.uint64(&m.Term)
	c.bytes(&m.Leader)
	c.uint64(&m.LastLogIndex)
	c.uint64(&m.LastLogTerm)
	c.bytes(&m.Peers)
	c.bytes(&m.Configuration)
	c.uint64(&m.ConfigurationIndex)
	size := uint64(m.Size)
	c.uint64(&size)
	if c.reads {
		m.Size = int64(size)
	}
	c.bad = c.bad || int64(size) < 0
}

// newMessages returns an empty request of that kind and an empty answer to it; nil for an unknown kind.
func newMessages(kind frameKind) (request, answer any) {
	switch kind {
	case appendFrame:
		return new(raft.AppendEntriesRequest), new(raft.AppendEntriesResponse)
	case voteFrame:
		return new(raft.RequestVoteRequest), new(raft.RequestVoteResponse)
	case preVoteFrame:
		return new(raft.RequestPreVoteRequest), new(raft.RequestPreVoteResponse)
	case installFrame:
		return new(raft.InstallSnapshotRequest), new(raft.InstallSnapshotResponse)
	case timeoutFrame:
		return new(raft.TimeoutNowRequest), new(raft.TimeoutNowResponse)
	}
	return nil, nil
}

func kindOf(request any) frameKind {
	switch request.(type) {
	case *raft.AppendEntriesRequest:
		return appendFrame
	case *raft.RequestVoteRequest:
		return voteFrame
	case *raft.RequestPreVoteRequest:
		return preVoteFrame
	case *raft.InstallSnapshotRequest:
		return installFrame
	default:
		return timeoutFrame
	}
}

// writeRequest writes a request, without the snapshot of one, and returns its size. An error of the writer shows when
// it is flushed. Bytes of entries that do not fit into the writer's buffer pass it by.
func writeRequest(w *bufio.Writer, request any) (size int, err error) {
	c := coder{b: append(w.AvailableBuffer(), 0, 0, 0, 0, frameVersion, byte(kindOf(request)))}
	c.fields(request)
	var entries []*raft.Log
	if a, is := request.(*raft.AppendEntriesRequest); is {
		entries = a.Entries
		n := uint32(len(entries))
		c.uint32(&n)
	}
	size = len(c.b)
	for _, e := range entries {
		size += entryHeadBytes + len(e.Data) + len(e.Extensions)
	}
	if c.bad || size > frameBytesMax || len(entries) > frameEntriesMax {
		return 0, fmt.Errorf("send %T of %d bytes with %d entries: a frame cannot hold it", request, size, len(entries))
	}
	binary.BigEndian.PutUint32(c.b, uint32(size-frameLength))
	_, _ = w.Write(c.b)
	for _, e := range entries {
		_, _ = w.Write(appendEntryHead(w.AvailableBuffer(), e))
		_, _ = w.Write(e.Data)
		_, _ = w.Write(e.Extensions)
	}
	return size, nil
}

// appendEntryHead appends what precedes the data and the extensions of an entry.
func appendEntryHead(b []byte, e *raft.Log) []byte {
	var at uint64 // 0: not known
	if !e.AppendedAt.IsZero() {
		at = uint64(e.AppendedAt.UnixNano())
	}
	b = binary.BigEndian.AppendUint64(b, e.Index)
	b = binary.BigEndian.AppendUint64(b, e.Term)
	b = append(b, byte(e.Type))
	b = binary.BigEndian.AppendUint64(b, at)
	b = binary.BigEndian.AppendUint32(b, uint32(len(e.Data)))
	return binary.BigEndian.AppendUint32(b, uint32(len(e.Extensions)))
}

// entries reads the entries of a request. Their bytes are those of the frame.
func (c *coder) entries() []*raft.Log {
	var count uint32
	c.uint32(&count)
	if c.bad || count > frameEntriesMax || int(count)*entryHeadBytes > len(c.b) {
		c.bad = true
		return nil
	}
	if count == 0 {
		return nil
	}
	entries, pointers := make([]raft.Log, count), make([]*raft.Log, count)
	for i := range entries {
		e := &entries[i]
		pointers[i] = e
		var at uint64
		var data, extensions uint32
		c.uint64(&e.Index)
		c.uint64(&e.Term)
		small(c, &e.Type)
		c.uint64(&at)
		c.uint32(&data)
		c.uint32(&extensions)
		if at != 0 {
			e.AppendedAt = time.Unix(0, int64(at))
		}
		if data > 0 {
			e.Data = c.take(int(data))
		}
		if extensions > 0 {
			e.Extensions = c.take(int(extensions))
		}
	}
	return pointers
}

// readFrame reads a frame with at most so many bytes. Each has memory of its own, so that entries can share it. At the
// end of the stream it returns io.EOF.
func readFrame(r *bufio.Reader, most uint32) (kind frameKind, fields []byte, err error) {
	head, err := r.Peek(frameHeadBytes)
	if err != nil {
		if errors.Is(err, io.EOF) && len(head) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	size, version := binary.BigEndian.Uint32(head), head[frameLength]
	kind = frameKind(head[frameLength+1])
	switch {
	case size < frameHeadBytes-frameLength || size > most-frameLength:
		return 0, nil, malformedError(fmt.Sprintf("%d bytes", size))
	case version != frameVersion:
		return 0, nil, malformedError(fmt.Sprintf("version %d", version))
	}
	if _, err := r.Discard(frameHeadBytes); err != nil {
		return 0, nil, err
	}
	if size -= frameHeadBytes - frameLength; size <= frameAtOnceMax {
		fields = make([]byte, size)
		_, err = io.ReadFull(r, fields)
	} else {
		var grown bytes.Buffer
		_, err = io.CopyN(&grown, r, int64(size))
		fields = grown.Bytes()
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return kind, fields, err
}

// decodeRequest returns the request in the fields of a frame, and shares their memory.
func decodeRequest(kind frameKind, fields []byte) (any, error) {
	request, _ := newMessages(kind)
	c := coder{reads: true, b: fields}
	c.fields(request)
	if a, is := request.(*raft.AppendEntriesRequest); is {
		a.Entries = c.entries()
	}
	if c.bad || len(c.b) > 0 {
		return nil, malformedError(fmt.Sprintf("kind %d with %d bytes", kind, len(fields)))
	}
	return request, nil
}

// appendAnswer appends the frame that answers a request of that kind. Raft answers some requests with an error alone.
func appendAnswer(b []byte, kind frameKind, answer raft.RPCResponse) ([]byte, error) {
	message := answer.Response
	if message == nil {
		_, message = newMessages(kind)
	}
	var text []byte
	if answer.Error != nil {
		text = []byte(answer.Error.Error())
		text = text[:min(len(text), errorBytesMax)]
	}
	c := coder{b: append(b, 0, 0, 0, 0, frameVersion, byte(kind|answerFrame))}
	c.bytes(&text)
	c.fields(message)
	if c.bad || len(c.b)-len(b) > answerBytesMax {
		return nil, fmt.Errorf("send %T: a frame cannot hold it", message)
	}
	binary.BigEndian.PutUint32(c.b[len(b):], uint32(len(c.b)-len(b)-frameLength))
	return c.b, nil
}

// remoteError is the error with which a peer has answered a request. Raft reads the text of some.
type remoteError string

func (e remoteError) Error() string { return string(e) }

// decodeAnswer reads the answer to a request of that kind. It returns a remoteError if the peer has answered one.
func decodeAnswer(asked, kind frameKind, fields []byte, answer any) error {
	c := coder{reads: true, b: fields}
	var text []byte
	c.bytes(&text)
	c.fields(answer)
	switch {
	case kind != asked|answerFrame:
		return malformedError(fmt.Sprintf("kind %#x as the answer to kind %d", kind, asked))
	case c.bad || len(c.b) > 0:
		return malformedError(fmt.Sprintf("answer of kind %#x with %d bytes", kind, len(fields)))
	case len(text) > 0:
		return remoteError(text)
	}
	return nil
}
