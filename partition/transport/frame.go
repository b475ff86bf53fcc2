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

	"github.com/peeklock/peeklock/fsm/fields"
)

// A framed stream carries requests in one direction and their answers, in the same order, in the other. Each is a frame:
//
//	bytes that follow (4) ─ version (1) ─ kind (1) ─ fields
//
// The number of bytes is little-endian, and the fields are those of package fsm/fields. The fields of an answer begin
// with the text of an error, empty for none. Entries are the last field of their request; a snapshot follows the frame of
// its request.
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

// data is bytes, nil for none.
func data(x *fields.Codec, v *[]byte) {
	if fields.Bytes(x, v); len(*v) == 0 && !x.Encoding() {
		*v = nil
	}
}

// small is an integer in one byte.
func small[T ~int | ~uint8](x *fields.Codec, v *T) {
	b := uint8(*v)
	x.Limit(!x.Encoding() || T(b) == *v)
	if fields.Uint8(x, &b); !x.Encoding() { // what is written belongs to others, too
		*v = T(b)
	}
}

func headerFields(x *fields.Codec, h *raft.RPCHeader) {
	small(x, &h.ProtocolVersion)
	data(x, &h.ID)
	data(x, &h.Addr)
}

// messageFields lists all fields of a message but its entries.
func messageFields(x *fields.Codec, message any) {
	switch m := message.(type) {
	case *raft.AppendEntriesRequest:
		headerFields(x, &m.RPCHeader)
		fields.Uint64(x, &m.Term)
		data(x, &m.Leader) //nolint:staticcheck // raft sends the deprecated fields
		fields.Uint64(x, &m.PrevLogEntry)
		fields.Uint64(x, &m.PrevLogTerm)
		fields.Uint64(x, &m.LeaderCommitIndex)
	case *raft.AppendEntriesResponse:
		headerFields(x, &m.RPCHeader)
		fields.Uint64(x, &m.Term)
		fields.Uint64(x, &m.LastLog)
		fields.Bool(x, &m.Success)
		fields.Bool(x, &m.NoRetryBackoff)
	case *raft.RequestVoteRequest:
		headerFields(x, &m.RPCHeader)
		fields.Uint64(x, &m.Term)
		data(x, &m.Candidate) //nolint:staticcheck // raft sends the deprecated fields
		fields.Uint64(x, &m.LastLogIndex)
		fields.Uint64(x, &m.LastLogTerm)
		fields.Bool(x, &m.LeadershipTransfer)
	case *raft.RequestVoteResponse:
		headerFields(x, &m.RPCHeader)
		fields.Uint64(x, &m.Term)
		data(x, &m.Peers)
		fields.Bool(x, &m.Granted)
	case *raft.RequestPreVoteRequest:
		headerFields(x, &m.RPCHeader)
		fields.Uint64(x, &m.Term)
		fields.Uint64(x, &m.LastLogIndex)
		fields.Uint64(x, &m.LastLogTerm)
	case *raft.RequestPreVoteResponse:
		headerFields(x, &m.RPCHeader)
		fields.Uint64(x, &m.Term)
		fields.Bool(x, &m.Granted)
	case *raft.InstallSnapshotRequest:
		installFields(x, m)
	case *raft.InstallSnapshotResponse:
		headerFields(x, &m.RPCHeader)
		fields.Uint64(x, &m.Term)
		fields.Bool(x, &m.Success)
	case *raft.TimeoutNowRequest:
		headerFields(x, &m.RPCHeader)
	case *raft.TimeoutNowResponse:
		headerFields(x, &m.RPCHeader)
	default:
		x.Fail(malformedError("unknown kind"))
	}
}

func installFields(x *fields.Codec, m *raft.InstallSnapshotRequest) {
	headerFields(x, &m.RPCHeader)
	small(x, &m.SnapshotVersion)
	fields.Uint64(x, &m.Term)
	data(x, &m.Leader)
	fields.Uint64(x, &m.LastLogIndex)
	fields.Uint64(x, &m.LastLogTerm)
	data(x, &m.Peers)
	data(x, &m.Configuration)
	fields.Uint64(x, &m.ConfigurationIndex)
	x.Limit(m.Size >= 0)
	fields.Int64(x, &m.Size)
}

// entryHead precedes the data and the extensions of an entry.
type entryHead struct {
	index, term, at  uint64 // at: ns, 0 if it is not known
	kind             raft.LogType
	data, extensions uint32 // bytes
}

func (h *entryHead) fields(x *fields.Codec) {
	fields.Fixed64(x, &h.index)
	fields.Fixed64(x, &h.term)
	fields.Uint8(x, &h.kind)
	fields.Fixed64(x, &h.at)
	fields.Fixed32(x, &h.data)
	fields.Fixed32(x, &h.extensions)
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
	x := fields.Encoder(append(w.AvailableBuffer(), 0, 0, 0, 0, frameVersion, byte(kindOf(request))))
	messageFields(&x, request)
	var entries []*raft.Log
	if a, is := request.(*raft.AppendEntriesRequest); is {
		entries = a.Entries
		fields.Len(&x, &entries, entryHeadBytes)
	}
	size = len(x.Buf)
	for _, e := range entries {
		size += entryHeadBytes + len(e.Data) + len(e.Extensions)
	}
	if x.Err() != nil || size > frameBytesMax || len(entries) > frameEntriesMax {
		return 0, fmt.Errorf("send %T of %d bytes with %d entries: a frame cannot hold it", request, size, len(entries))
	}
	binary.LittleEndian.PutUint32(x.Buf, uint32(size-frameLength))
	_, _ = w.Write(x.Buf)
	for _, e := range entries {
		_, _ = w.Write(appendEntryHead(w.AvailableBuffer(), e))
		_, _ = w.Write(e.Data)
		_, _ = w.Write(e.Extensions)
	}
	return size, nil
}

// appendEntryHead appends what precedes the data and the extensions of an entry.
func appendEntryHead(b []byte, e *raft.Log) []byte {
	h := entryHead{index: e.Index, term: e.Term, kind: e.Type, data: uint32(len(e.Data)), extensions: uint32(len(e.Extensions))}
	if !e.AppendedAt.IsZero() {
		h.at = uint64(e.AppendedAt.UnixNano())
	}
	x := fields.Encoder(b)
	h.fields(&x)
	return x.Buf
}

// readEntries reads the entries of a request. Their bytes are those of the frame.
func readEntries(x *fields.Codec) []*raft.Log {
	count := x.Count(entryHeadBytes)
	x.Limit(count <= frameEntriesMax)
	if x.Err() != nil || count == 0 {
		return nil
	}
	entries, pointers := make([]raft.Log, count), make([]*raft.Log, count)
	for i := range entries {
		e := &entries[i]
		pointers[i] = e
		var h entryHead
		h.fields(x)
		e.Index, e.Term, e.Type = h.index, h.term, h.kind
		if h.at != 0 {
			e.AppendedAt = time.Unix(0, int64(h.at))
		}
		e.Data, e.Extensions = x.Take(int(h.data)), x.Take(int(h.extensions))
	}
	return pointers
}

// readFrame reads a frame with at most so many bytes. Each has memory of its own, so that entries can share it. At the
// end of the stream it returns io.EOF.
func readFrame(r *bufio.Reader, most uint32) (kind frameKind, body []byte, err error) {
	head, err := r.Peek(frameHeadBytes)
	if err != nil {
		if errors.Is(err, io.EOF) && len(head) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	size, version := binary.LittleEndian.Uint32(head), head[frameLength]
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
		body = make([]byte, size)
		_, err = io.ReadFull(r, body)
	} else {
		var grown bytes.Buffer
		_, err = io.CopyN(&grown, r, int64(size))
		body = grown.Bytes()
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return kind, body, err
}

// decodeRequest returns the request in the body of a frame, and shares its memory.
func decodeRequest(kind frameKind, body []byte) (any, error) {
	request, _ := newMessages(kind)
	x := fields.Decoder(body)
	messageFields(&x, request)
	if a, is := request.(*raft.AppendEntriesRequest); is {
		a.Entries = readEntries(&x)
	}
	if err := x.End(); err != nil {
		return nil, malformedError(fmt.Sprintf("kind %d with %d bytes: %v", kind, len(body), err))
	}
	return request, nil
}

// appendAnswer appends the frame that answers a request of that kind. Raft answers some requests with an error alone.
func appendAnswer(b []byte, kind frameKind, answer raft.RPCResponse) ([]byte, error) {
	message := answer.Response
	if message == nil {
		_, message = newMessages(kind)
	}
	text := ""
	if answer.Error != nil {
		text = answer.Error.Error()
		text = text[:min(len(text), errorBytesMax)]
	}
	x := fields.Encoder(append(b, 0, 0, 0, 0, frameVersion, byte(kind|answerFrame)))
	fields.Text(&x, &text)
	messageFields(&x, message)
	if x.Err() != nil || len(x.Buf)-len(b) > answerBytesMax {
		return nil, fmt.Errorf("send %T: a frame cannot hold it", message)
	}
	binary.LittleEndian.PutUint32(x.Buf[len(b):], uint32(len(x.Buf)-len(b)-frameLength))
	return x.Buf, nil
}

// remoteError is the error with which a peer has answered a request. Raft reads the text of some.
type remoteError string

func (e remoteError) Error() string { return string(e) }

// decodeAnswer reads the answer to a request of that kind. It returns a remoteError if the peer has answered one.
func decodeAnswer(asked, kind frameKind, body []byte, answer any) error {
	x := fields.Decoder(body)
	var text remoteError
	fields.Text(&x, &text)
	messageFields(&x, answer)
	err := x.End()
	switch {
	case kind != asked|answerFrame:
		return malformedError(fmt.Sprintf("kind %#x as the answer to kind %d", kind, asked))
	case err != nil:
		return malformedError(fmt.Sprintf("answer of kind %#x with %d bytes: %v", kind, len(body), err))
	case text != "":
		return text
	}
	return nil
}
