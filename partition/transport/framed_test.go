package transport

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm/fields"
	"github.com/peeklock/peeklock/partition/entrysum"
	"github.com/peeklock/peeklock/test/golden"
	"github.com/peeklock/peeklock/test/kit"
)

// sampleHeader is that of raft's requests and answers.
func sampleHeader() raft.RPCHeader {
	return raft.RPCHeader{ProtocolVersion: 3, ID: []byte("A.1"), Addr: []byte("A")}
}

// sampleRequests are requests of every kind with every field set, and an empty one.
//
//nolint:staticcheck // deprecated fields are sent, too
func sampleRequests() []any {
	h := sampleHeader()
	return []any{
		&raft.AppendEntriesRequest{
			RPCHeader: h, Term: 2, Leader: []byte("L"), PrevLogEntry: 3, PrevLogTerm: 4, LeaderCommitIndex: 5,
			Entries: []*raft.Log{
				{Index: 6, Term: 7, Type: raft.LogCommand, Data: []byte("data"), Extensions: entrysum.Append(nil, []byte("data")), AppendedAt: time.Unix(8, 9)},
				{Index: 10, Term: 11, Type: raft.LogConfiguration, Extensions: entrysum.Append(nil, nil)},
			},
		},
		&raft.RequestVoteRequest{RPCHeader: h, Term: 2, Candidate: []byte("C"), LastLogIndex: 3, LastLogTerm: 4, LeadershipTransfer: true},
		&raft.RequestPreVoteRequest{RPCHeader: h, Term: 2, LastLogIndex: 3, LastLogTerm: 4},
		&raft.InstallSnapshotRequest{
			RPCHeader: h, SnapshotVersion: 1, Term: 2, Leader: []byte("L"), LastLogIndex: 3, LastLogTerm: 4, Peers: []byte("P"),
			Configuration: []byte("conf"), ConfigurationIndex: 5, Size: 6,
		},
		&raft.TimeoutNowRequest{RPCHeader: h},
		&raft.AppendEntriesRequest{},
	}
}

// sampleAnswers are the answers to them.
func sampleAnswers() []raft.RPCResponse {
	h := sampleHeader()
	return []raft.RPCResponse{
		{Response: &raft.AppendEntriesResponse{RPCHeader: h, Term: 2, LastLog: 3, Success: true, NoRetryBackoff: true}},
		{Response: &raft.RequestVoteResponse{RPCHeader: h, Term: 2, Peers: []byte("P"), Granted: true}},
		{Response: &raft.RequestPreVoteResponse{RPCHeader: h, Term: 2, Granted: true}},
		{Response: &raft.InstallSnapshotResponse{RPCHeader: h, Term: 2, Success: true}},
		{Response: &raft.TimeoutNowResponse{RPCHeader: h}},
		{Error: errors.New("unexpected command")},
	}
}

func frameOf(t testing.TB, request any) []byte {
	t.Helper()
	var out bytes.Buffer
	w := bufio.NewWriter(&out)
	size, err := writeRequest(w, request)
	if err != nil || w.Flush() != nil || size != out.Len() {
		t.Fatalf("%T: %d bytes of %d, %v", request, out.Len(), size, err)
	}
	return out.Bytes()
}

// TestFrameBytes: members of other releases read these bytes.
func TestFrameBytes(t *testing.T) {
	t.Parallel()
	var written []byte
	answers := sampleAnswers()
	names := []string{"append two entries", "vote", "pre-vote", "install snapshot", "timeout now", "append with empty fields, refused"}
	for i, request := range sampleRequests() {
		answer := kit.Must(appendAnswer(nil, kindOf(request), answers[i]))(t)
		written = fmt.Appendf(written, "%s: %x\n", names[i], frameOf(t, request))
		written = fmt.Appendf(written, "answer: %x\n", answer)
	}
	golden.Compare(t, "testdata/frames.golden", written)
}

// TestFramesAreReadBack: a message arrives as it was sent, and a frame that is cut or carries more is refused.
func TestFramesAreReadBack(t *testing.T) {
	t.Parallel()
	answers := sampleAnswers()
	for i, want := range sampleRequests() {
		frame := frameOf(t, want)
		read := kit.Must(readFrame(bufio.NewReader(bytes.NewReader(frame)), frameBytesMax))(t)
		kind, fields := read.kind, read.body
		if got, err := decodeRequest(&read); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%T came back as %+v, %v", want, got, err)
		}
		for cut := range frame {
			_, err := readFrame(bufio.NewReader(bytes.NewReader(frame[:cut])), frameBytesMax)
			if want := io.ErrUnexpectedEOF; cut > 0 && !errors.Is(err, want) || cut == 0 && !errors.Is(err, io.EOF) {
				t.Fatalf("%T cut at %d: %v", want, cut, err)
			}
		}
		for cut := range fields {
			if _, err := decodeRequest(withSums(kind, fields[:cut])); err == nil {
				t.Errorf("%T with %d of %d bytes was taken", want, cut, len(fields))
			}
		}
		if _, err := decodeRequest(withSums(kind, append(bytes.Clone(fields), 0))); err == nil {
			t.Errorf("%T with a byte too many was taken", want)
		}
		checkAnswer(t, kind, answers[i])
	}
}

// withSums returns a frame with that body in which all checksums match that can be computed.
func withSums(kind frameKind, body []byte) *frame {
	f := &frame{kind: kind, body: bytes.Clone(body), headSum: 1}
	fieldsBytes := len(f.body)
	if request, _ := newMessages(kind); kind == appendFrame {
		x := fields.Decoder(f.body)
		messageFields(&x, request)
		entries, heads := readEntryHeads(&x)
		if x.Err() == nil {
			fieldsBytes -= len(x.Buf)
		}
		for i, e := range entries {
			if x.Err() != nil {
				break
			}
			if data := x.Take(int(binary.LittleEndian.Uint32(heads[(i+1)*entryHeadBytes-entrysum.Bytes-4:]))); x.Err() == nil {
				copy(e.Extensions, entrysum.Append(nil, data))
			}
		}
	}
	f.sum = crc32.Update(f.headSum, castagnoli, f.body[:fieldsBytes])
	return f
}

// readBackAnswer writes and reads the frame of an answer.
func readBackAnswer(t *testing.T, asked frameKind, answer raft.RPCResponse) *frame {
	t.Helper()
	frame := kit.Must(appendAnswer(nil, asked, answer))(t)
	f := kit.Must(readFrame(bufio.NewReader(bytes.NewReader(frame)), answerBytesMax))(t)
	return &f
}

func checkAnswer(t *testing.T, asked frameKind, answer raft.RPCResponse) {
	t.Helper()
	f := readBackAnswer(t, asked, answer)
	_, want := newMessages(asked)
	if answer.Response != nil {
		want = answer.Response
	}
	_, got := newMessages(asked)
	err := decodeAnswer(asked, f, got)
	if !reflect.DeepEqual(got, want) || fmt.Sprint(err) != fmt.Sprint(answer.Error) {
		t.Errorf("%+v came back as %+v, %v", answer, got, err)
	}
	malformed := malformedError("")
	if err := decodeAnswer(asked^1, f, got); !errors.As(err, &malformed) {
		t.Errorf("an answer to another kind of request: %v", err)
	}
	for cut := range f.body {
		if err := decodeAnswer(asked, withSums(f.kind, f.body[:cut]), got); !errors.As(err, &malformed) {
			t.Errorf("%T with %d of %d bytes: %v", got, cut, len(f.body), err)
		}
	}
}

// TestFramesAreBounded: no frame makes a member allocate more than it has sent, and none is sent that would be refused.
func TestFramesAreBounded(t *testing.T) {
	t.Parallel()
	head := func(size uint32, version byte) *bufio.Reader {
		return bufio.NewReader(bytes.NewReader(append(binary.LittleEndian.AppendUint32(nil, size), version, byte(appendFrame), 0, 0, 0, 0)))
	}
	malformed := malformedError("")
	for name, r := range map[string]*bufio.Reader{
		"no kind": head(5, frameVersion), "too long": head(frameBytesMax-frameLength+1, frameVersion), "another version": head(6, frameVersion+1),
	} {
		if _, err := readFrame(r, frameBytesMax); !errors.As(err, &malformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	longest := head(frameBytesMax-frameLength, frameVersion)
	if f, err := readFrame(longest, frameBytesMax); !errors.Is(err, io.ErrUnexpectedEOF) || cap(f.body) > frameAtOnceMax {
		t.Errorf("a frame of which nothing arrives: %d bytes, %v", cap(f.body), err)
	}
	many := &raft.AppendEntriesRequest{}
	for range frameEntriesMax + 1 {
		many.Entries = append(many.Entries, &raft.Log{})
	}
	if piece, next := pieceOf(many, 0); next != frameEntriesMax {
		t.Errorf("%d entries in a request", next)
	} else {
		frameOf(t, piece)
	}
	if _, err := writeRequest(bufio.NewWriter(io.Discard), many); err == nil {
		t.Error("too many entries were sent")
	}
	// The count of a frame claims entries that are not there.
	bare := frameOf(t, &raft.AppendEntriesRequest{})[frameHeadBytes:]
	bare = binary.AppendUvarint(bare[:len(bare)-1], frameEntriesMax)
	if _, err := decodeRequest(withSums(appendFrame, bare)); !errors.As(err, &malformed) {
		t.Errorf("entries that are not there: %v", err)
	}
	long := raft.RPCResponse{Error: errors.New(strings.Repeat("x", 2*answerBytesMax))}
	if err := decodeAnswer(appendFrame, readBackAnswer(t, appendFrame, long), new(raft.AppendEntriesResponse)); len(err.Error()) != errorBytesMax {
		t.Errorf("a long error has %d bytes", len(err.Error()))
	}
}

// FuzzFrames: whatever arrives is refused, or is what would be sent for the message that it decodes to.
func FuzzFrames(f *testing.F) {
	answers := sampleAnswers()
	for i, request := range sampleRequests() {
		answer, err := appendAnswer(nil, kindOf(request), answers[i])
		if err != nil {
			f.Fatal(err)
		}
		f.Add(append(frameOf(f, request), answer...))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		r := bufio.NewReader(bytes.NewReader(stream))
		for {
			read, err := readFrame(r, frameBytesMax)
			if err != nil {
				return
			}
			kind, whole := read.kind, withSums(read.kind, read.body)
			fields := whole.body
			if kind&answerFrame != 0 {
				asked := kind &^ answerFrame
				_, message := newMessages(asked)
				err := decodeAnswer(asked, whole, message)
				if malformed := malformedError(""); errors.As(err, &malformed) {
					continue
				}
				again, encodeErr := appendAnswer(nil, asked, raft.RPCResponse{Response: message, Error: err})
				if encodeErr == nil && !bytes.Equal(again[frameHeadBytes:], fields) && len(fmt.Sprint(err)) <= errorBytesMax {
					t.Fatalf("%x comes back as %x", fields, again[frameHeadBytes:])
				}
				continue
			}
			request, err := decodeRequest(whole)
			if err == nil && !bytes.Equal(frameOf(t, request)[frameHeadBytes:], fields) {
				t.Fatalf("%x comes back as %x", fields, frameOf(t, request)[frameHeadBytes:])
			}
		}
	})
}

// TestRequestsArriveInFrames: every kind of request reaches raft as it was sent, its answer comes back, and the text of
// an error, too; the stream is used again.
func TestRequestsArriveInFrames(t *testing.T) {
	t.Parallel()
	m := new(mesh)
	candidate, f := m.open(t, "A", nil), m.open(t, "B", func(c *Config) {
		c.Receive = func(_ *raft.InstallSnapshotRequest, from io.Reader) (io.Reader, func(), error) {
			b, err := io.ReadAll(from)
			return bytes.NewReader(b), func() {}, err
		}
	})
	var refuse atomic.Bool
	refusal := errors.New("unexpected command")
	var arrived atomic.Uint32 // kind of the last request
	serve(t, f, func(rpc raft.RPC) {
		arrived.Store(uint32(kindOf(rpc.Command)))
		if refuse.Load() {
			rpc.Respond(nil, refusal)
			return
		}
		_, answer := newMessages(kindOf(rpc.Command))
		if granted, is := answer.(*raft.RequestPreVoteResponse); is {
			granted.Granted = true
		}
		rpc.Respond(answer, nil)
	})
	for _, want := range []error{nil, refusal} {
		refuse.Store(want != nil)
		for _, request := range sampleRequests() {
			err := ask(candidate, request)
			if fmt.Sprint(err) != fmt.Sprint(want) || frameKind(arrived.Load()) != kindOf(request) {
				t.Errorf("%T arrived as kind %d, answered %v, want %v", request, arrived.Load(), err, want)
			}
		}
	}
}

// ask sends a request of any kind to replica B.1.
func ask(tr Transport, request any) error {
	switch q := request.(type) {
	case *raft.AppendEntriesRequest:
		return tr.sendEntries("B.1", "B", q, new(raft.AppendEntriesResponse))
	case *raft.RequestVoteRequest:
		return tr.RequestVote("B.1", "B", q, new(raft.RequestVoteResponse))
	case *raft.RequestPreVoteRequest:
		return tr.RequestPreVote("B.1", "B", q, new(raft.RequestPreVoteResponse))
	case *raft.InstallSnapshotRequest:
		return tr.InstallSnapshot("B.1", "B", q, new(raft.InstallSnapshotResponse), strings.NewReader("123456"))
	case *raft.TimeoutNowRequest:
		return tr.TimeoutNow("B.1", "B", q, new(raft.TimeoutNowResponse))
	}
	return errors.New("no request")
}

// TestPipelineKeepsOrder: requests of all sizes arrive in order, their answers belong to them, and no more than
// requestsInFlight are under way.
func TestPipelineKeepsOrder(t *testing.T) {
	t.Parallel()
	m := new(mesh)
	const requests = 300
	leader := m.open(t, "A", nil)
	f := &follower{}
	serve(t, m.open(t, "B", nil), f.handle)
	p := kit.Must(leader.AppendEntriesPipeline("B.1", "B"))(t)
	defer func() { _ = p.Close() }()
	sent := make(chan error, 1)
	go func() {
		for i := range uint64(requests) {
			request := &raft.AppendEntriesRequest{Term: 1, PrevLogEntry: i, PrevLogTerm: 1, LeaderCommitIndex: i}
			request.Entries = []*raft.Log{{Index: i + 1, Term: 1, Data: make([]byte, rand.IntN(200<<10))}}
			if _, err := p.AppendEntries(request, new(raft.AppendEntriesResponse)); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	for i := range uint64(requests) {
		got := <-p.Consumer()
		if got.Error() != nil || !got.Response().Success || got.Response().LastLog != i || got.Request().PrevLogEntry != i || got.Start().IsZero() {
			t.Fatalf("answer %d: %+v to %+v, %v", i, got.Response(), got.Request(), got.Error())
		}
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
}

// TestPipelineEndsWithItsStream: when the peer is gone, raft gets a failed answer to what is in flight, and the next
// request fails although nothing is in flight.
func TestPipelineEndsWithItsStream(t *testing.T) {
	t.Parallel()
	m := new(mesh)
	leader, f := m.open(t, "A", nil), m.open(t, "B", nil)
	arrived := make(chan raft.RPC, 1)
	serve(t, f, func(rpc raft.RPC) { arrived <- rpc })
	p := kit.Must(leader.AppendEntriesPipeline("B.1", "B"))(t)
	defer func() { _ = p.Close() }()
	request := &raft.AppendEntriesRequest{Term: 1, PrevLogEntry: 1, LeaderCommitIndex: 1}
	kit.Must(p.AppendEntries(request, new(raft.AppendEntriesResponse)))(t)
	<-arrived
	_ = f.cfg.Streams.Close()
	if got := <-p.Consumer(); got.Response().Success || got.Error() == nil || got.Request() != request {
		t.Errorf("answered %+v, %v", got.Response(), got.Error())
	}
	kit.Eventually(t, "the sender gets an error", func() bool {
		_, err := p.AppendEntries(request, new(raft.AppendEntriesResponse))
		return err != nil
	})
}

// flipBit returns a request for two entries with one bit changed in the byte at that position, from the end if negative.
func flipBit(t *testing.T, at int) string {
	t.Helper()
	frame := frameOf(t, sampleRequests()[0])
	if at < 0 {
		at += len(frame)
	}
	frame[at] ^= 4
	return string(frame)
}

// TestFlippedBitIsFound: a frame of which any single bit has changed is refused, a request and an answer.
func TestFlippedBitIsFound(t *testing.T) {
	t.Parallel()
	answers := sampleAnswers()
	for i, request := range sampleRequests() {
		answer := kit.Must(appendAnswer(nil, kindOf(request), answers[i]))(t)
		for _, sent := range [][]byte{frameOf(t, request), answer} {
			for bit := range 8 * len(sent) {
				sent[bit/8] ^= 1 << (bit % 8)
				f, err := readFrame(bufio.NewReader(bytes.NewReader(sent)), frameBytesMax)
				if err == nil && f.kind&answerFrame == 0 {
					_, err = decodeRequest(&f)
				} else if err == nil {
					_, message := newMessages(kindOf(request))
					err = decodeAnswer(kindOf(request), &f, message)
				}
				malformed := malformedError("")
				if !errors.As(err, &malformed) && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Fatalf("%T or its answer with bit %d changed: %v", request, bit, err)
				}
				sent[bit/8] ^= 1 << (bit % 8)
			}
		}
	}
}

// TestMalformedFrameEndsItsStream: raft gets nothing of it, and the peer sees the end of the stream.
func TestMalformedFrameEndsItsStream(t *testing.T) {
	t.Parallel()
	var m mesh
	f := m.open(t, "B", nil)
	serve(t, f, func(raft.RPC) { t.Error("raft got a request") })
	for name, sent := range map[string]string{
		"another protocol": "GET / HTTP/1.1\r\n\r\n", "another version": "\x06\x00\x00\x00\x02\x01\x00\x00\x00\x00", "an unknown kind": "\x06\x00\x00\x00\x01\x09\x00\x00\x00\x00",
		"no fields": "\x06\x00\x00\x00\x01\x01\x00\x00\x00\x00", "a flipped bit": flipBit(t, 6), "a flipped bit in the data of an entry": flipBit(t, -1),
	} {
		conn := kit.Must(m.dial(t.Context(), "B", 1, "B.1"))(t)
		kit.Must(io.WriteString(conn, sent))(t)
		if b, err := io.ReadAll(conn); len(b) > 0 || err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("%s: answered %x, %v", name, b, err)
		}
		_ = conn.Close()
	}
}

// BenchmarkAppendEntries measures one request with one entry and its answer.
func BenchmarkAppendEntries(b *testing.B) {
	var m mesh
	for _, size := range []int{100, 16 << 10, 200 << 10} {
		b.Run(fmt.Sprintf("%d bytes", size), func(b *testing.B) { benchmarkPipeline(b, &m, size) })
	}
}

func benchmarkPipeline(b *testing.B, m *mesh, size int) {
	leader, f := m.open(b, "A", nil), m.open(b, "B", nil)
	serve(b, f, func(rpc raft.RPC) {
		rpc.Respond(&raft.AppendEntriesResponse{RPCHeader: sampleHeader(), Term: 1, Success: true}, nil)
	})
	p, err := leader.AppendEntriesPipeline("B.1", "B")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	request := &raft.AppendEntriesRequest{RPCHeader: sampleHeader(), Term: 1, PrevLogEntry: 1, PrevLogTerm: 1, LeaderCommitIndex: 1}
	request.Entries = []*raft.Log{{Index: 2, Term: 1, Data: make([]byte, size), AppendedAt: time.Unix(1, 0)}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.AppendEntries(request, new(raft.AppendEntriesResponse)); err != nil {
			b.Fatal(err)
		}
		if !(<-p.Consumer()).Response().Success {
			b.Fatal("refused")
		}
	}
}
