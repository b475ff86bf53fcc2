package rpc

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/cluster/clocks"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
	"github.com/peeklock/peeklock/test/fakegroup"
	"github.com/peeklock/peeklock/test/kit"
)

const waitMax = kit.WaitMax

func testLogger() *slog.Logger { return slog.New(slog.DiscardHandler) }

// fakeHost serves one group as every partition except 9.
type fakeHost struct{ group *fakegroup.Group }

func (h fakeHost) LocalReplica(id fsm.PartitionID) Group {
	if id == 9 {
		return nil
	}
	return h.group
}

func (h fakeHost) Clocks() clocks.Reading {
	return clocks.Reading{Clock: time.UnixMilli(1_700_000_000_123), Steady: time.UnixMilli(1_700_000_000_099), Confirmed: 2}
}

func (h fakeHost) AnswerQuery(_ context.Context, kind QueryKind, arguments []byte) Reply {
	if kind == QueryPeek {
		return Reply{Status: StatusOK, Body: make([]byte, FrameBytesMax)}
	}
	return Reply{Status: StatusOK, Body: append([]byte{byte(kind)}, arguments...)}
}

// answers collects the answers to attempts.
type answers chan answered

type answered struct {
	tag    uint64
	answer partition.Answer
	hint   fsm.MemberID
}

func (a answers) HandleAnswer(tag uint64, answer partition.Answer, hint fsm.MemberID) {
	a <- answered{tag, answer, hint}
}

func (a answers) next(t *testing.T) answered {
	t.Helper()
	select {
	case got := <-a:
		return got
	case <-time.After(waitMax):
		t.Fatal("no answer")
		return answered{}
	}
}

// pair connects a client to a server over loopback.
func pair(t *testing.T, host Host) (*Client, func() net.Conn) {
	t.Helper()
	listener := kit.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	var mu sync.Mutex
	var last net.Conn
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			last = conn
			mu.Unlock()
			serving.Go(func() { Serve(context.Background(), host, testLogger(), "asker", conn) })
		}
	})
	f := NewClient(testLogger(), 100*time.Millisecond, func(ctx context.Context, to fsm.MemberID) (net.Conn, error) {
		if to != "server" {
			return nil, errors.New("no such member")
		}
		return new(net.Dialer).DialContext(ctx, "tcp", listener.Addr().String())
	})
	t.Cleanup(func() {
		f.Close()
		_ = listener.Close()
		serving.Wait()
	})
	return f, func() net.Conn {
		mu.Lock()
		defer mu.Unlock()
		return last
	}
}

func pulseCommand() []byte { return fsm.AppendCommand(nil, fsm.Header{}, fsm.Pulse{}) }

func sendCommand() []byte {
	return fsm.AppendCommand(nil, fsm.Header{Incarnation: 1, Serial: 1}, fsm.SendMessages{Entity: 1, Messages: []fsm.Message{{Payload: make([]byte, 100)}}})
}

func lockCommand(header fsm.Header) []byte {
	return fsm.AppendCommand(nil, header, fsm.LockMessages{Address: fsm.Address{Entity: 1}, Max: 3, MaxBytes: 100})
}

func TestSubmitIsAnsweredByTheOtherMember(t *testing.T) {
	t.Parallel()
	group := &fakegroup.Group{State: partition.Status{Leader: "somebody"}}
	f, _ := pair(t, fakeHost{group})
	got := make(answers, 8)
	f.Conn("server").Submit(1, pulseCommand(), got, 7)
	group.Await(t, 1, 0)
	if !bytes.Equal(group.Submits[0].Command, pulseCommand()) {
		t.Fatal("the command changed on the way")
	}
	want := fsm.Result{Code: fsm.OK, Sequence: 5, Deliveries: []fsm.Delivery{{Lock: fsm.LockID{Sequence: 5, Epoch: 1}, Payload: []byte("p")}}}
	group.Submits[0].Done(partition.Answer{Outcome: partition.Done, Result: want})
	a := got.next(t)
	if a.tag != 7 || a.answer.Outcome != partition.Done || a.answer.Result.Sequence != 5 || string(a.answer.Result.Deliveries[0].Payload) != "p" {
		t.Fatalf("answered %+v", a)
	}
	// A refusal names the leader; a partition without a replica on this member is refused too.
	f.Conn("server").Submit(1, pulseCommand(), got, 8)
	group.Await(t, 2, 0)
	group.Submits[1].Done(partition.Answer{Outcome: partition.Refused})
	if a := got.next(t); a.answer.Outcome != partition.Refused || a.answer.Final || a.hint != "somebody" {
		t.Fatalf("answered %+v", a)
	}
	f.Conn("server").Submit(1, pulseCommand(), got, 10)
	group.Await(t, 3, 0)
	group.Submits[2].Done(partition.Answer{Outcome: partition.Refused, Final: true})
	if a := got.next(t); a.answer.Outcome != partition.Refused || !a.answer.Final || a.hint != "somebody" {
		t.Fatalf("a firm refusal: %+v", a)
	}
	f.Conn("server").Submit(1, pulseCommand(), got, 11)
	group.Await(t, 4, 0)
	group.Submits[3].Done(partition.Answer{Outcome: partition.Refused, Final: true, Result: fsm.Result{Code: fsm.NamespaceFull}})
	if a := got.next(t); a.answer.Outcome != partition.Refused || !a.answer.Final || a.answer.Result.Code != fsm.NamespaceFull || a.hint != "somebody" {
		t.Fatalf("a firm refusal with a reason: %+v", a)
	}
	f.Conn("server").Submit(9, pulseCommand(), got, 9)
	if a := got.next(t); a.answer.Outcome != partition.Refused || a.tag != 9 {
		t.Fatalf("answered %+v", a)
	}
}

func TestLockWaitsAtTheOtherMemberUntilCancelled(t *testing.T) {
	t.Parallel()
	group := &fakegroup.Group{}
	f, _ := pair(t, fakeHost{group})
	got := make(answers, 8)
	header := fsm.Header{Incarnation: 4, Receiver: 3, Serial: 2, Low: 2}
	conn := f.Conn("server")
	id := conn.Lock(1, time.Minute, lockCommand(header), got, 1)
	group.Await(t, 0, 1)
	lock := group.Locks[0]
	if wait := time.Until(lock.Until); lock.Header != header || lock.Lock.Max != 3 || wait > time.Minute || wait < 50*time.Second {
		t.Fatalf("arrived as %+v, to wait %v", lock, wait)
	}
	conn.Cancel(id)
	if a := got.next(t); a.answer.Outcome != partition.Done || len(a.answer.Result.Deliveries) != 0 {
		t.Fatalf("cancelled with %+v", a)
	}
	conn.Cancel(id) // cancelling an ended request has no effect
}

func TestBrokenConnectionEndsRequestsAsUnknown(t *testing.T) {
	t.Parallel()
	group := &fakegroup.Group{}
	f, last := pair(t, fakeHost{group})
	got := make(answers, 8)
	conn := f.Conn("server")
	conn.Submit(1, pulseCommand(), got, 1)
	conn.Lock(1, time.Minute, lockCommand(fsm.Header{Incarnation: 1, Receiver: 1, Serial: 1, Low: 1}), got, 2)
	group.Await(t, 1, 1)
	_ = last().Close()
	for range 2 {
		if a := got.next(t); a.answer.Outcome != partition.Unknown {
			t.Fatalf("broke with %+v", a)
		}
	}
	kit.Eventually(t, "the lock of the broken connection is cancelled", func() bool {
		group.Mu.Lock()
		defer group.Mu.Unlock()
		return group.Cancels == 1
	})
	// The next request opens a new connection.
	kit.Eventually(t, "a new connection", func() bool { return f.Conn("server") != conn })
	f.Conn("server").Submit(1, pulseCommand(), got, 3)
	group.Await(t, 2, 1)
	// Nothing is sent to an unreachable member.
	f.Conn("nobody").Submit(1, pulseCommand(), got, 4)
	if a := got.next(t); a.answer.Outcome != partition.Refused || a.tag != 4 {
		t.Fatalf("unreachable: %+v", a)
	}
}

func TestQueryIsAnsweredByTheOtherMember(t *testing.T) {
	t.Parallel()
	f, _ := pair(t, fakeHost{&fakegroup.Group{}})
	reply, err := f.Conn("server").Query(t.Context(), QueryCounts, []byte("abc"))
	if err != nil || string(reply.Body) != string([]byte{byte(QueryCounts)})+"abc" {
		t.Fatalf("replied %q, %v", reply.Body, err)
	}
	// A reply that exceeds a frame ends the query, not the connection.
	reply, err = f.Conn("server").Query(t.Context(), QueryPeek, nil)
	if err != nil || reply.Status != StatusFailed || reply.Code != fsm.Internal {
		t.Fatalf("replied %+v, %v", reply, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Conn("server").Query(ctx, QueryCounts, nil); !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled: %v", err)
	}
}

// TestSilentMemberIsDisconnected: the client closes a connection whose server accepts it and sends nothing.
func TestSilentMemberIsDisconnected(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	defer func() { _ = theirs.Close() }()
	var reading sync.WaitGroup
	reading.Go(func() { _, _ = io.Copy(io.Discard, theirs) })
	defer reading.Wait()
	f := NewClient(testLogger(), 10*time.Millisecond, func(context.Context, fsm.MemberID) (net.Conn, error) { return ours, nil })
	defer f.Close()
	got := make(answers, 1)
	f.Conn("server").Submit(1, pulseCommand(), got, 1)
	kit.Eventually(t, "the silent member is given up", func() bool {
		f.PingAll(time.Now())
		return len(got) == 1
	})
	if a := got.next(t); a.answer.Outcome != partition.Unknown {
		t.Fatalf("silent: %+v", a)
	}
	_ = theirs.Close()
}

// TestSlowConnectionIsKept: a request and a reply that each take far longer than a member may be silent arrive,
// because their bytes show that the other member lives. It runs in a bubble, where a busy machine is not silent.
func TestSlowConnectionIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const ping = 200 * time.Millisecond
		const frameBytes = 2 << 20 // takes two seconds, more than three times pingIntervalsSilentMax pings
		ours, theirs := net.Pipe()
		var serving sync.WaitGroup
		serving.Go(func() {
			Serve(context.Background(), fakeHost{&fakegroup.Group{}}, testLogger(), "asker", kit.SlowConn(theirs, frameBytes/2))
		})
		f := NewClient(testLogger(), ping, func(context.Context, fsm.MemberID) (net.Conn, error) {
			return kit.SlowConn(ours, frameBytes/2), nil
		})
		stop := make(chan struct{})
		serving.Go(func() {
			for tick := time.NewTicker(ping); ; {
				select {
				case now := <-tick.C:
					f.PingAll(now)
				case <-stop:
					return
				}
			}
		})
		begun := time.Now()
		reply, err := f.Conn("server").Query(t.Context(), QueryCounts, make([]byte, frameBytes))
		if err != nil || len(reply.Body) != frameBytes+1 {
			t.Errorf("replied %d bytes, %v", len(reply.Body), err)
		}
		if took := time.Since(begun); took < 2*pingIntervalsSilentMax*ping {
			t.Errorf("the connection was not slow: %v", took)
		}
		close(stop)
		f.Close()
		serving.Wait()
	})
}

// TestWriteDeadlineIsForProgress: what was collected may take long to write, so no deadline is for all of it.
func TestWriteDeadlineIsForProgress(t *testing.T) {
	t.Parallel()
	o := newFrameWriter(answerBufferBytes)
	buf := kit.Must(o.begin(frameReply, 1))(t)
	kit.OK(t, o.end(append(buf, make([]byte, 10*writeChunkBytes)...)))
	conn := &deadlineConn{}
	if err := o.writeTo(conn); !errors.Is(err, io.ErrShortWrite) {
		t.Fatal(err)
	}
	if conn.chunks != 10 || conn.unbounded != 0 {
		t.Errorf("%d chunks, %d of them too large or without a deadline of their own", conn.chunks, conn.unbounded)
	}
}

// deadlineConn counts writes, and fails after ten.
type deadlineConn struct {
	net.Conn
	armed             bool
	chunks, unbounded int
}

func (c *deadlineConn) SetWriteDeadline(time.Time) error {
	c.armed = true
	return nil
}

func (c *deadlineConn) Write(p []byte) (int, error) {
	if c.chunks == 10 {
		return 0, io.ErrShortWrite
	}
	c.chunks++
	if !c.armed || len(p) > writeChunkBytes {
		c.unbounded++
	}
	c.armed = false
	return len(p), nil
}

func frame(kind frameKind, id uint64, body []byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(FrameHeaderBytes+len(body)))
	b = append(b, byte(kind))
	b = binary.LittleEndian.AppendUint64(b, id)
	return append(b, body...)
}

func TestFrameReaderReturnsWholeFrames(t *testing.T) {
	t.Parallel()
	var stream []byte
	sizes := []int{0, 1, 100, readChunkBytes - 13, readChunkBytes, 3 * readChunkBytes, 5, 1 << 20, 0}
	for i, size := range sizes {
		stream = append(stream, frame(frameSubmit, uint64(i), bytes.Repeat([]byte{byte(i)}, size))...)
	}
	for _, step := range []int{1 << 30, 1000, 7} {
		reader := frameReader{from: &oneByteReader{stream, step}, part: func() error { return nil }}
		var bodies [][]byte
		for i := range sizes {
			kind, id, body, err := reader.next()
			if err != nil || kind != frameSubmit || id != uint64(i) {
				t.Fatalf("frame %d: kind %d, id %d, %v", i, kind, id, err)
			}
			bodies = append(bodies, body)
		}
		for i, size := range sizes { // later reads left the earlier frames unchanged
			if !bytes.Equal(bodies[i], bytes.Repeat([]byte{byte(i)}, size)) {
				t.Fatalf("body %d of %d bytes was written over", i, size)
			}
		}
		if _, _, _, err := reader.next(); !errors.Is(err, io.EOF) {
			t.Fatalf("at the end: %v", err)
		}
	}
}

// oneByteReader reads a limited number of bytes at a time.
type oneByteReader struct {
	left []byte
	step int
}

func (s *oneByteReader) Read(p []byte) (int, error) {
	if len(s.left) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), s.step)], s.left)
	s.left = s.left[n:]
	return n, nil
}

func TestFrameReaderRefusesMalformedFrames(t *testing.T) {
	t.Parallel()
	for name, bytes := range map[string][]byte{
		"4 GiB":     {0xff, 0xff, 0xff, 0xff, 1},
		"too short": {8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0},
		"over":      binary.LittleEndian.AppendUint32(nil, FrameBytesMax+1),
	} {
		reader := frameReader{from: &oneByteReader{bytes, 100}, part: func() error { return nil }}
		if _, _, _, err := reader.next(); !errors.Is(err, ErrFrame) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The largest allowed length without following bytes allocates no memory.
	reader := frameReader{from: &oneByteReader{binary.LittleEndian.AppendUint32(nil, FrameBytesMax), 100}, part: func() error { return nil }}
	if _, _, _, err := reader.next(); !errors.Is(err, io.EOF) || len(reader.chunk) > readChunkBytes {
		t.Errorf("empty promise: %v, %d bytes taken", err, len(reader.chunk))
	}
}

// TestServerRefusesMalformedFrames sends the server frames that no member sends: the server ends only
// the connection.
func TestServerRefusesMalformedFrames(t *testing.T) {
	t.Parallel()
	for name, bytes := range map[string][]byte{
		"unknown kind":    frame(77, 1, nil),
		"an answer":       frame(frameAnswer, 1, []byte{1, 0}),
		"short submit":    frame(frameSubmit, 1, []byte{0x81}),
		"bad command":     frame(frameSubmit, 1, []byte{1, 99}),
		"cut command":     frame(frameSubmit, 1, append([]byte{1}, sendCommand()[:40]...)),
		"wrong machine":   frame(frameSubmit, 1, append([]byte{0}, sendCommand()...)),
		"lock in catalog": frame(frameLock, 1, append(make([]byte, 2), lockCommand(fsm.Header{Incarnation: 1, Serial: 1})...)),
		"short lock":      frame(frameLock, 1, []byte{1}),
		"lock of a pulse": frame(frameLock, 1, append([]byte{1, 0}, pulseCommand()...)),
		"empty query":     frame(frameQuery, 1, nil),
		"not a frame":     []byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ours, theirs := net.Pipe()
			group := &fakegroup.Group{}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				Serve(context.Background(), fakeHost{group}, testLogger(), "peer", theirs)
			}()
			_, _ = ours.Write(bytes)
			select {
			case <-ended:
			case <-time.After(waitMax):
				t.Fatal("the connection is still served")
			}
			if len(group.Submits)+len(group.Locks) > 0 {
				t.Fatal("it reached the group")
			}
			_ = ours.Close()
		})
	}
}

// TestServerBoundsOutstandingRequests: the outstanding requests of one member are bounded in number and bytes.
func TestServerBoundsOutstandingRequests(t *testing.T) {
	t.Parallel()
	s := &server{}
	if !s.acquire(serveBytesMax) || s.acquire(1) {
		t.Fatal("bytes are not bounded")
	}
	s.release(serveBytesMax)
	for range serveRequestsMax {
		if !s.acquire(0) {
			t.Fatal("refused below the limit")
		}
	}
	if s.acquire(0) {
		t.Fatal("requests are not bounded")
	}
}

func TestFrameWriterBoundsItsBuffer(t *testing.T) {
	t.Parallel()
	o := newFrameWriter(100)
	for range 2 {
		buf := kit.Must(o.begin(frameSubmit, 1))(t)
		kit.OK(t, o.end(append(buf, make([]byte, 60)...)))
	}
	if _, err := o.begin(frameSubmit, 1); !errors.Is(err, errBufferFull) {
		t.Fatalf("full: %v", err)
	}
	big := newFrameWriter(100)
	buf, _ := big.begin(frameReply, 1)
	if err := big.end(append(buf, make([]byte, FrameBytesMax)...)); !errors.Is(err, errBufferFull) || len(big.pending) != 0 {
		t.Fatalf("a frame over the limit: %v, %d bytes left", err, len(big.pending))
	}
	big.close()
	if _, err := big.begin(frameReply, 1); !errors.Is(err, ErrClosed) {
		t.Fatalf("closed: %v", err)
	}
}

// TestAnswersPassLongReplies: an answer waits for the long reply that is being written, but not for those behind it. All of them
// count toward the limit.
func TestAnswersPassLongReplies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		serving := &server{log: testLogger(), writer: newFrameWriter(3 * longFrameBytes)}
		long := Reply{Status: StatusOK, Body: make([]byte, longFrameBytes+1)}
		for id := range uint64(3) {
			serving.reply(id, long)
		}
		if err := serving.write(3, long); !errors.Is(err, errBufferFull) {
			t.Errorf("a reply above the limit: got %v, want %v", err, errBufferFull)
		}
		ours, theirs := net.Pipe()
		written := make(chan error, 1)
		go func() { written <- serving.writer.writeTo(ours) }()
		synctest.Wait() // it writes the first reply
		serving.answer(9, nil, partition.Answer{Outcome: partition.Done})
		reader := frameReader{from: theirs, part: func() error { return nil }}
		var got []uint64
		for range 4 {
			_, id, _, err := reader.next()
			kit.OK(t, err)
			got = append(got, id)
		}
		if want := []uint64{0, 9, 1, 2}; !slices.Equal(got, want) {
			t.Errorf("got the frames %v, want %v", got, want)
		}
		serving.writer.close()
		kit.OK(t, <-written)
		if n := serving.writer.longBytes; n != 0 {
			t.Errorf("%d bytes of long frames are counted at the end, want 0", n)
		}
	})
}

// TestPongsCarryTheClocks: the client learns the clocks of the other member with each ping that is answered.
func TestPongsCarryTheClocks(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	var serving sync.WaitGroup
	serving.Go(func() { Serve(context.Background(), fakeHost{&fakegroup.Group{}}, testLogger(), "asker", theirs) })
	f := NewClient(testLogger(), time.Minute, func(context.Context, fsm.MemberID) (net.Conn, error) { return ours, nil })
	seen := make(chan clocks.Reading, 100)
	f.OnClock(func(member fsm.MemberID, read clocks.Reading, roundTrip time.Duration) {
		if member != "server" || roundTrip < 0 || roundTrip > time.Minute {
			t.Errorf("got the clock of %s after %v, want that of server after at most a minute", member, roundTrip)
		}
		seen <- read
	})
	f.Conn("server")
	kit.Eventually(t, "a ping is answered", func() bool {
		f.PingAll(time.Now())
		return len(seen) > 0
	})
	if got, want := <-seen, (fakeHost{}).Clocks(); got != want {
		t.Errorf("got the clocks %+v, want %+v", got, want)
	}
	f.Close()
	_ = theirs.Close()
	serving.Wait()
}

// TestPongsBetweenSmallFrames: a ping may wait behind many small requests, none of which is answered soon. The member
// that serves them shows meanwhile that it lives.
func TestPongsBetweenSmallFrames(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		var serving sync.WaitGroup
		serving.Go(func() { Serve(t.Context(), fakeHost{&fakegroup.Group{}}, testLogger(), "asker", theirs) })
		pongs := make(chan struct{}, 100)
		serving.Go(func() {
			frames := frameReader{from: ours, part: func() error { return nil }}
			for {
				kind, _, _, err := frames.next()
				if err != nil {
					return
				}
				if kind == framePong {
					pongs <- struct{}{}
				}
			}
		})
		cancel := binary.LittleEndian.AppendUint32(nil, FrameHeaderBytes)
		cancel = append(cancel, byte(frameCancel))
		cancel = binary.LittleEndian.AppendUint64(cancel, 1) // of a lock that has ended: no answer
		const frames = 100
		for range frames {
			kit.Must(ours.Write(cancel))(t)
			time.Sleep(partPongInterval / 10) //nolint:forbidigo // in a bubble
		}
		synctest.Wait()
		if n := len(pongs); n < frames/10-1 || n > frames/10+1 {
			t.Errorf("%d pongs during %d intervals", n, frames/10)
		}
		_ = ours.Close()
		serving.Wait()
	})
}
