package transport

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm/fields"
	"github.com/peeklock/peeklock/partition/entrysum"
)

// A framed stream carries requests in one direction and their answers, in the same order, in the other. Each is a frame:
//
//	bytes that follow (4) ─ version (1) ─ kind (1) ─ checksum (4) ─ fields ─ data of the entries
//
// Numbers of a fixed size are little-endian, and the fields are those of package fsm/fields. The fields of an answer begin
// with the text of an error, empty for none. The heads of the entries are the last field of their request; a snapshot follows the
// frame of its request. The checksum is the CRC-32C of all that precedes it and of the fields; the head of an entry has that of
// its data, see package entrysum.
const (
	frameVersion    = 1
	frameLength     = 4               // bytes of the length, which counts what follows it
	frameSumAt      = frameLength + 2 // behind length, version, kind
	frameHeadBytes  = frameSumAt + 4
	frameBytesMax   = 1 << 30 // of a request; the journal appends no more at once
	frameAtOnceMax  = 8 << 20 // memory for the fields of a larger frame grows with what arrives
	answerBytesMax  = 64 << 10
	errorBytesMax   = 4 << 10 // of the text of an error; the rest is cut off
	frameEntriesMax = 1 << 10 // of one request; raft sends 64
	entryHeadBytes  = 8 + 8 + 1 + 8 + 4 + entrysum.Bytes
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli) //nolint:gochecknoglobals // read only

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

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

// entryHead is an entry without its data. The checksum of the data follows it.
type entryHead struct {
	index, term, at uint64 // at: ns, 0 if it is not known
	kind            raft.LogType
	data            uint32 // bytes
}

func (h *entryHead) fields(x *fields.Codec) {
	fields.Fixed64(x, &h.index)
	fields.Fixed64(x, &h.term)
	fields.Uint8(x, &h.kind)
	fields.Fixed64(x, &h.at)
	fields.Fixed32(x, &h.data)
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
	x := fields.Encoder(beginFrame(w.AvailableBuffer(), kindOf(request)))
	messageFields(&x, request)
	var entries []*raft.Log
	if a, is := request.(*raft.AppendEntriesRequest); is {
		entries = a.Entries
		fields.Len(&x, &entries, entryHeadBytes)
	}
	data := 0
	for _, e := range entries {
		appendEntryHead(&x, e)
		data += len(e.Data)
	}
	size = len(x.Buf) + data
	if x.Err() != nil || size > frameBytesMax || len(entries) > frameEntriesMax {
		return 0, fmt.Errorf("send %T of %d bytes with %d entries: a frame cannot hold it", request, size, len(entries))
	}
	endFrame(x.Buf, size)
	_, _ = w.Write(x.Buf)
	for _, e := range entries {
		_, _ = w.Write(e.Data)
	}
	return size, nil
}

// beginFrame appends the head of a frame. endFrame fills in the rest.
func beginFrame(b []byte, kind frameKind) []byte {
	return append(b, 0, 0, 0, 0, frameVersion, byte(kind), 0, 0, 0, 0)
}

// endFrame fills in the length and the checksum of a frame, of which b holds all but the data of entries.
func endFrame(b []byte, size int) {
	binary.LittleEndian.PutUint32(b, uint32(size-frameLength))
	sum := crc32.Update(checksum(b[:frameSumAt]), castagnoli, b[frameHeadBytes:])
	binary.LittleEndian.PutUint32(b[frameSumAt:], sum)
}

// appendEntryHead appends the head of an entry, with the checksum that the entry has from where its data comes from.
func appendEntryHead(x *fields.Codec, e *raft.Log) {
	h := entryHead{index: e.Index, term: e.Term, kind: e.Type, data: uint32(len(e.Data))}
	if !e.AppendedAt.IsZero() {
		h.at = uint64(e.AppendedAt.UnixNano())
	}
	h.fields(x)
	if len(e.Extensions) == entrysum.Bytes {
		x.Buf = append(x.Buf, e.Extensions...)
	} else {
		x.Buf = entrysum.Append(x.Buf, e.Data)
	}
}

// readEntryHeads reads the heads of the entries of a request. It returns the entries without their data, and the bytes of
// the heads, whose memory the checksums share.
func readEntryHeads(x *fields.Codec) (entries []*raft.Log, heads []byte) {
	count := x.Count(entryHeadBytes)
	x.Limit(count <= frameEntriesMax)
	if x.Err() != nil || count == 0 {
		return nil, nil
	}
	heads = x.Buf
	all := make([]raft.Log, count)
	entries = make([]*raft.Log, count)
	for i := range all {
		e := &all[i]
		entries[i] = e
		var h entryHead
		h.fields(x)
		e.Index, e.Term, e.Type, e.Extensions = h.index, h.term, h.kind, x.Take(entrysum.Bytes)
		if h.at != 0 {
			e.AppendedAt = time.Unix(0, int64(h.at))
		}
	}
	return entries, heads
}

// takeData gives the entries their data, which are bytes of the frame, and verifies the checksums.
func takeData(x *fields.Codec, entries []*raft.Log, heads []byte) {
	for i, e := range entries {
		if x.Err() != nil {
			return
		}
		length := binary.LittleEndian.Uint32(heads[(i+1)*entryHeadBytes-entrysum.Bytes-4:])
		e.Data = x.Take(int(length))
		if x.Err() == nil && !entrysum.Matches(e.Extensions, e.Data) {
			x.Fail(malformedError(fmt.Sprintf("the checksum of entry %d in term %d does not match its data", e.Index, e.Term)))
		}
	}
}

// frame is a frame that was read whole and whose content is not verified.
type frame struct {
	kind    frameKind
	body    []byte // what follows the head
	headSum uint32 // of what precedes the checksum
	sum     uint32 // the checksum that the frame carries
}

var errChecksum = malformedError("the checksum does not match")

// verify compares the checksum of a frame, whose fields are the first bytes of the body.
func (f *frame) verify(fieldsBytes int) error {
	if crc32.Update(f.headSum, castagnoli, f.body[:fieldsBytes]) != f.sum {
		return errChecksum
	}
	return nil
}

// readFrame reads a frame with at most so many bytes. Each has memory of its own, so that entries can share it. At the
// end of the stream it returns io.EOF.
func readFrame(r *bufio.Reader, most uint32) (f frame, err error) {
	head, err := r.Peek(frameHeadBytes)
	if err != nil {
		if errors.Is(err, io.EOF) && len(head) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return f, err
	}
	size, version := binary.LittleEndian.Uint32(head), head[frameLength]
	f = frame{kind: frameKind(head[frameLength+1]), headSum: checksum(head[:frameSumAt]), sum: binary.LittleEndian.Uint32(head[frameSumAt:])}
	switch {
	case size < frameHeadBytes-frameLength || size > most-frameLength:
		return f, malformedError(fmt.Sprintf("%d bytes", size))
	case version != frameVersion:
		return f, malformedError(fmt.Sprintf("version %d", version))
	}
	if _, err := r.Discard(frameHeadBytes); err != nil {
		return f, err
	}
	if size -= frameHeadBytes - frameLength; size <= frameAtOnceMax {
		f.body = make([]byte, size)
		_, err = io.ReadFull(r, f.body)
	} else {
		var grown bytes.Buffer
		_, err = io.CopyN(&grown, r, int64(size))
		f.body = grown.Bytes()
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return f, err
}

// decodeRequest returns the request of a frame, and shares its memory.
func decodeRequest(f *frame) (any, error) {
	request, _ := newMessages(f.kind)
	x := fields.Decoder(f.body)
	messageFields(&x, request)
	appends, hasEntries := request.(*raft.AppendEntriesRequest)
	var heads []byte
	if hasEntries {
		appends.Entries, heads = readEntryHeads(&x)
	}
	if x.Err() == nil {
		if err := f.verify(len(f.body) - len(x.Buf)); err != nil {
			x.Fail(err)
		}
	}
	if hasEntries {
		takeData(&x, appends.Entries, heads)
	}
	if err := x.End(); err != nil {
		return nil, malformedError(fmt.Sprintf("kind %d with %d bytes: %v", f.kind, len(f.body), err))
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
	x := fields.Encoder(beginFrame(b, kind|answerFrame))
	fields.Text(&x, &text)
	messageFields(&x, message)
	if x.Err() != nil || len(x.Buf)-len(b) > answerBytesMax {
		return nil, fmt.Errorf("send %T: a frame cannot hold it", message)
	}
	endFrame(x.Buf[len(b):], len(x.Buf)-len(b))
	return x.Buf, nil
}

// remoteError is the error with which a peer has answered a request. Raft reads the text of some.
type remoteError string

func (e remoteError) Error() string { return string(e) }

// decodeAnswer reads the answer to a request of that kind. It returns a remoteError if the peer has answered one.
func decodeAnswer(asked frameKind, f *frame, answer any) error {
	err := f.verify(len(f.body))
	x := fields.Decoder(f.body)
	var text remoteError
	if err == nil {
		fields.Text(&x, &text)
		messageFields(&x, answer)
		err = x.End()
	}
	switch {
	case err != nil:
		return malformedError(fmt.Sprintf("answer of kind %#x with %d bytes: %v", f.kind, len(f.body), err))
	case f.kind != asked|answerFrame:
		return malformedError(fmt.Sprintf("kind %#x as the answer to kind %d", f.kind, asked))
	case text != "":
		return text
	}
	return nil
}
