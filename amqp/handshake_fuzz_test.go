package amqp

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/peeklock/peeklock/amqp/login"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// closedBroker is a broker that records whether a client got access: it is called only for a link or a request
// that needs a right.
type closedBroker struct {
	*fakeBroker
	entered atomic.Bool
}

func (h *closedBroker) Resolve(ctx context.Context, in fsm.NamespaceID, path string) (fsm.EntityRef, error) {
	h.entered.Store(true)
	return h.fakeBroker.Resolve(ctx, in, path)
}

// Whatever bytes a client without a credential sends, it gets no access, causes no panic, and its connection
// ends. It receives only frames.
func FuzzHandshake(f *testing.F) {
	attach := wire.AppendFrame(nil, wire.FrameAMQP, 0, &wire.Attach{Name: "r", Role: wire.RoleReceiver, Source: &wire.Source{Address: "orders"}, Target: &wire.Target{}})
	session := wire.AppendFrame(wire.AppendFrame(nil, wire.FrameAMQP, 0, &wire.Open{ContainerID: "c", Hostname: ptr("second.localhost:5672"), MaxFrameSize: ptr(uint32(512))}),
		wire.FrameAMQP, 0, &wire.Begin{IncomingWindow: 10})
	for _, mechanism := range []wire.Symbol{login.MechanismAnonymous, login.MechanismCBS, login.MechanismExternal, login.MechanismPlain, "SCRAM-SHA-256"} {
		init := wire.AppendFrame(nil, wire.FrameSASL, 0, &wire.SASLInit{Mechanism: mechanism, InitialResponse: []byte("\x00" + ruleName + "\x00wrong"), Hostname: ptr("second")})
		f.Add(bytes.Join([][]byte{[]byte(headerSASL), init, []byte(headerAMQP), session, attach}, nil), uint16(3))
	}
	f.Add(bytes.Join([][]byte{[]byte(headerAMQP), session, attach}, nil), uint16(1000))
	token := requestMessage(wire.Properties{MessageID: "m"}, wire.Map{{Key: "operation", Value: "put-token"}, {Key: "type", Value: "jwt"}, {Key: "name", Value: "sb://h/orders"}}, "x")
	cbs := wire.AppendFrame(nil, wire.FrameAMQP, 0, &wire.Attach{Name: "s", Role: wire.RoleSender, Source: &wire.Source{}, Target: &wire.Target{Address: "$cbs"}, InitialDeliveryCount: new(uint32)})
	cbs = wire.AppendTransfer(cbs, 0, &wire.Transfer{DeliveryID: new(uint32), DeliveryTag: []byte{1}}, token)
	f.Add(bytes.Join([][]byte{[]byte(headerAMQP), session, cbs, attach}, nil), uint16(50))
	odd := wire.AppendFrame(nil, wire.FrameAMQP, 0, &wire.Attach{Name: "r", Role: wire.RoleSender, Target: &wire.Target{Address: "%80"}})
	f.Add(bytes.Join([][]byte{[]byte(headerAMQP), session, odd}, nil), uint16(50)) // a text with invalid UTF-8
	f.Add([]byte("AMQP\x02\x01\x00\x00"), uint16(1))
	f.Fuzz(func(t *testing.T, said []byte, step uint16) {
		h := &closedBroker{fakeBroker: newFakeBroker("orders")}
		var log auditCapture
		config := DefaultConfig()
		config.Broker, config.Authorizer, config.Logger = h, &scriptedAuthorizer{}, slog.New(slog.NewTextHandler(&log, nil))
		s, err := Open(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		peer := &recordedConn{said: said, step: 1 + int(step)}
		s.Serve(context.Background(), peer)
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if h.entered.Load() {
			t.Error("an unauthenticated connection made us look for an entity")
		}
		if strings.Contains(log.String(), "panic") {
			t.Error(log.String())
		}
		understood(t, peer.heard)
	})
}

// recordedConn is a peer that sends its recorded bytes, ignores the answers, and closes.
type recordedConn struct {
	nopConn
	said  []byte
	step  int
	heard []byte // written by the one writer of the connection
}

func (r *recordedConn) Read(b []byte) (int, error) {
	if len(r.said) == 0 {
		return 0, io.EOF
	}
	n := copy(b, r.said[:min(r.step, len(r.said))])
	r.said = r.said[n:]
	return n, nil
}

func (r *recordedConn) Write(b []byte) (int, error) {
	r.heard = append(r.heard, b...)
	return len(b), nil
}

func (*recordedConn) Close() error                     { return nil }
func (*recordedConn) SetReadDeadline(time.Time) error  { return nil }
func (*recordedConn) SetWriteDeadline(time.Time) error { return nil }

// understood fails unless the bytes are headers and frames.
func understood(t *testing.T, heard []byte) {
	t.Helper()
	for rest := heard; len(rest) > 0; {
		n := 8
		if !bytes.HasPrefix(rest, []byte("AMQP")) {
			if n = int(binary.BigEndian.Uint32(append(rest, 0, 0, 0, 0)[:4])); n > len(rest) || n > frameBytesMax {
				t.Fatalf("%q of %q: a frame of %d bytes", rest, heard, n)
			}
			if _, err := wire.NewReader(bytes.NewReader(rest[:n]), frameBytesMax).ReadFrame(); err != nil {
				t.Fatalf("%q of %q: %v", rest, heard, err)
			}
		}
		rest = rest[min(n, len(rest)):]
	}
}
