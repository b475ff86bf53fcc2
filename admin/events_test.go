package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/fsm"
)

// stream is a stream of events that a test reads without a network.
type stream struct {
	t     *testing.T
	lines *bufio.Reader
	out   *io.PipeWriter
	ended chan error
}

// pipeRecorder is the connection of a stream.
type pipeRecorder struct {
	http.ResponseWriter
	out *io.PipeWriter
}

func (p pipeRecorder) Write(b []byte) (int, error) { return p.out.Write(b) }
func (pipeRecorder) Flush()                        {}

// openStream opens a stream at a server with the credential of v.
func openStream(t *testing.T, s *controlAPI, query, address string, v *requestContext) *stream {
	t.Helper()
	in, out := io.Pipe()
	r := httptest.NewRequest(http.MethodGet, "/v1/events"+query, nil)
	r.RemoteAddr = address
	r = r.WithContext(context.WithValue(r.Context(), requestContextKey{}, v))
	opened := &stream{t, bufio.NewReader(in), out, make(chan error, 1)}
	go func() {
		err := s.events(pipeRecorder{httptest.NewRecorder(), out}, r)
		_ = out.Close()
		opened.ended <- err
	}()
	return opened
}

// next reads a line.
func (s *stream) next() (e api.Event) {
	s.t.Helper()
	line, err := s.lines.ReadBytes('\n')
	if err != nil {
		s.t.Fatalf("read a line: %v, want one", err)
	}
	if err := json.Unmarshal(line, &e); err != nil {
		s.t.Fatalf("line %s: %v", line, err)
	}
	return e
}

// end waits until the handler has returned.
func (s *stream) end() {
	if err := <-s.ended; err != nil {
		s.t.Errorf("the stream ends with %v, want no error", err)
	}
}

// leave ends the stream as a viewer that has gone.
func (s *stream) leave() {
	_ = s.out.CloseWithError(net.ErrClosed)
	s.end()
}

// newEventsAPI returns an API for streams, in a bubble.
func newEventsAPI(t *testing.T) (*controlAPI, *fakeControl) {
	t.Helper()
	control := newFakeControl()
	for i, name := range []string{"Orders", "a", "b"} {
		control.entities[strings.ToLower(name)] = fsm.Entity{ID: fsm.EntityID(i + 1), Kind: fsm.QueueEntity, Name: name}
	}
	s := &controlAPI{&core{config: Config{Control: control}, streams: newStreams(control)}}
	t.Cleanup(s.streams.running.Wait)
	return s, control
}

const viewerAddress = "10.0.0.1:1"

// Viewers of one scope share a snapshot each second, and get the rows that they named; without viewers none is taken.
func TestViewersShareSnapshots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, control := newEventsAPI(t)
		began := time.Now()
		operator := openStream(t, s, "?entities=ORDERS,none", viewerAddress, &requestContext{namespace: fsm.DefaultNamespace, operator: true})
		first := operator.next()
		if len(first.Rows) != 1 || first.Rows[0].Name != "Orders" || first.Figures.Queues != 3 || first.Rates == nil || first.Rates.Total == nil || len(first.Cluster.Members) != 3 || first.Cluster.Conditions[0].Condition != "PartitionWithoutLeader" {
			t.Errorf("the first line is %+v, want one row with rates, members and conditions", first)
		}
		other := openStream(t, s, "?entities=a,b", viewerAddress, &requestContext{namespace: fsm.DefaultNamespace, operator: true})
		synctest.Wait()
		second, ofOther := operator.next(), other.next()
		if second.At.Sub(began) != snapshotEvery || second.Rates != nil || second.Cluster != nil || len(second.Rows) != 1 {
			t.Errorf("the second line is %+v, want figures and a row after %s", second, snapshotEvery)
		}
		if len(ofOther.Rows) != 2 || ofOther.Rates == nil || ofOther.Cluster == nil || ofOther.Rows[0].Active != second.Rows[0].Active {
			t.Errorf("the line of the other viewer is %+v, want two rows of the same snapshot as %+v", ofOther, second)
		}
		other.leave()
		manager := openStream(t, s, "", viewerAddress, &requestContext{namespace: fsm.DefaultNamespace})
		if e := manager.next(); e.Cluster != nil || e.Rates == nil || len(e.Rows) != 0 {
			t.Errorf("a key of the namespace sees %+v, want no members", e)
		}
		manager.leave()
		operator.leave()
		synctest.Wait()
		taken := control.figured
		<-time.After(time.Hour)
		if control.figured != taken || len(s.streams.broadcasts) != 0 || s.streams.total != 0 || len(s.streams.sources) != 0 {
			t.Errorf("%d snapshots in an hour without viewers, %d streams are open, want none", control.figured-taken, s.streams.total)
		}
	})
}

// A stream ends with its credential, soon after its key is revoked, after the number of lines that it asks for, and when the member closes.
func TestStreamsEnd(t *testing.T) {
	t.Parallel()
	const revokedWithin = 10 * time.Second
	synctest.Test(t, func(t *testing.T) {
		s, _ := newEventsAPI(t)
		of := func(change func(*requestContext)) *requestContext {
			v := &requestContext{namespace: fsm.DefaultNamespace}
			change(v)
			return v
		}
		last := func(reader *stream) (api.Event, time.Duration) {
			began := time.Now()
			for {
				e := reader.next()
				if e.End != "" {
					reader.end()
					return e, time.Since(began)
				}
			}
		}
		if e, after := last(openStream(t, s, "", viewerAddress, of(func(v *requestContext) { v.expires = time.Now().Add(90 * time.Second) }))); e.End != api.EndExpired || after != 90*time.Second {
			t.Errorf("the end is %q after %s, want %q after 90 s", e.End, after, api.EndExpired)
		}
		var revoked atomic.Bool
		reader := openStream(t, s, "", viewerAddress, of(func(v *requestContext) { v.valid = func() bool { return !revoked.Load() } }))
		<-time.After(time.Minute)
		revoked.Store(true)
		if e, after := last(reader); e.End != api.EndRevoked || after > revokedWithin {
			t.Errorf("the end is %q %s after the key was revoked, want %q within %s", e.End, after, api.EndRevoked, revokedWithin)
		}
		two := openStream(t, s, "?max=2", viewerAddress, of(func(*requestContext) {}))
		two.next()
		two.next()
		if _, err := two.lines.ReadByte(); err != io.EOF {
			t.Errorf("after two lines of two: %v, want %v", err, io.EOF)
		}
		two.end()
		reader = openStream(t, s, "", viewerAddress, of(func(*requestContext) {}))
		reader.next()
		s.streams.close()
		if e, after := last(reader); e.End != api.EndClosing || after != 0 {
			t.Errorf("the end is %q %s after the member closed, want %q at once", e.End, after, api.EndClosing)
		}
		if err := <-openStream(t, s, "", viewerAddress, of(func(*requestContext) {})).ended; codeOf(err) != fsm.ServerBusy {
			t.Errorf("a stream of a member that closes: %v, want %v", err, fsm.ServerBusy)
		}
	})
}

// A member refuses more streams than its limits, in total and of an address, and counts those that have ended no longer.
func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _ := newEventsAPI(t)
		of := scope{namespace: fsm.DefaultNamespace}
		var open []*viewer
		for i := range streamsMax {
			v, err := s.streams.open(of, netip.AddrFrom4([4]byte{10, 0, 0, byte(i / streamsPerAddressMax)}), nil)
			if err != nil {
				t.Fatalf("stream %d: %v", i, err)
			}
			open = append(open, v)
		}
		if _, err := s.streams.open(of, netip.MustParseAddr("10.0.1.1"), nil); codeOf(err) != fsm.ServerBusy {
			t.Errorf("a stream above %d: %v, want %v", streamsMax, err, fsm.ServerBusy)
		}
		open[0].close()
		open[streamsMax-1].close()
		if _, err := s.streams.open(of, netip.MustParseAddr("10.0.0.1"), nil); codeOf(err) != fsm.ServerBusy || !strings.Contains(err.Error(), "your address") {
			t.Errorf("a stream above %d of an address: %v, want %v", streamsPerAddressMax, err, fsm.ServerBusy)
		}
		for range 2 {
			v, err := s.streams.open(of, netip.Addr{}, nil)
			if err != nil {
				t.Fatalf("a stream in the place of one that has ended: %v", err)
			}
			open = append(open, v)
		}
		for i, v := range open {
			if i != 0 && i != streamsMax-1 {
				v.close()
			}
		}
	})
	for names, ok := range map[int]bool{0: true, streamRowsMax: true, streamRowsMax + 1: false} {
		rows, err := rowsOf(strings.TrimSuffix(strings.Repeat("q,", names), ","))
		if (err == nil) != ok || len(rows) > 1 {
			t.Errorf("%d names: %d rows, %v; want an error: %t", names, len(rows), err, !ok)
		}
	}
}

// A viewer that does not read a line in time is closed; what it did not read is not kept.
func TestSlowViewersAreClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _ := newEventsAPI(t)
		here, there := net.Pipe()
		defer func() { _ = there.Close() }()
		began := time.Now()
		r := httptest.NewRequest(http.MethodGet, "/v1/events", nil)
		if err := s.events(connWriter{httptest.NewRecorder(), here}, r); err != nil {
			t.Errorf("got %v, want no answer for a viewer that has gone", err)
		}
		if took := time.Since(began); took != streamWriteMax || s.streams.total != 0 {
			t.Errorf("a viewer that does not read is closed after %s, and %d streams are open; want %s and none", took, s.streams.total, streamWriteMax)
		}
	})
}

// A viewer that reads each line just in time finds a newer one whenever it has read one, and its stream ends with its credential, too.
func TestStreamsOfSlowViewersEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for end, v := range map[string]*requestContext{
			api.EndExpired: {namespace: fsm.DefaultNamespace, expires: time.Now().Add(time.Minute)},
			api.EndRevoked: {namespace: fsm.DefaultNamespace, valid: func() bool { return false }},
		} {
			s, _ := newEventsAPI(t)
			reader, began := openStream(t, s, "", viewerAddress, v), time.Now()
			for reader.next().End != end {
				if time.Since(began) > 2*time.Minute {
					t.Errorf("the stream goes on, want %q", end)
					reader.leave()
					return
				}
				<-time.After(2 * snapshotEvery)
			}
			reader.end()
		}
	})
}

// connWriter writes an answer to a connection.
type connWriter struct {
	http.ResponseWriter
	conn net.Conn
}

func (c connWriter) Write(b []byte) (int, error)         { return c.conn.Write(b) }
func (c connWriter) SetWriteDeadline(at time.Time) error { return c.conn.SetWriteDeadline(at) }

// Lines reach a viewer when they are written, over the whole path of a request.
func TestLinesAreSentAtOnce(t *testing.T) {
	t.Parallel()
	r := newTestServer(t)
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", r.server.config.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, "GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	lines := bufio.NewReader(answer.Body)
	for i := range 2 {
		if line, err := lines.ReadString('\n'); err != nil || !strings.HasPrefix(line, `{"at":`) || answer.Header.Get("Content-Type") != "application/x-ndjson" {
			t.Fatalf("line %d is %q, %v of type %s", i, line, err, answer.Header.Get("Content-Type"))
		}
	}
	r.server.CloseStreams()
	rest, err := io.ReadAll(lines)
	if err != nil || !strings.Contains(string(rest), `"end":"closing"`) {
		t.Errorf("the rest is %q, %v, want the end of the stream", rest, err)
	}
	if len(r.server.requests) != 0 {
		t.Errorf("%d slots are held, want none", len(r.server.requests))
	}
}
