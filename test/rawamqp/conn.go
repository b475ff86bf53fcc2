package rawamqp

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/peeklock/peeklock/amqp/wire"
)

const (
	// FrameBytesMax is the largest frame that a Conn accepts.
	FrameBytesMax = 1 << 20
	// WindowTransfers is the window that Begin and Credit grant, in transfers.
	WindowTransfers = 1 << 16
	dialWithin      = 60 * time.Second
)

// Conn is a connection to a member. One goroutine may write while another reads.
type Conn struct {
	net.Conn
	// SendOnly makes Login, Anonymous, Open and Attach wait for no answer, for peers that read and
	// never answer. Set it before the first of these calls.
	SendOnly bool
	// Host is the host name that Login names, which selects a namespace; "": none.
	Host   string
	reader *wire.Reader
	stop   func() bool // cancels closing the connection at the end of its context
	next   uint32      // delivery-id of the next transfer of session 0
}

// Dial opens a TCP connection to a member and sends nothing. The end of ctx closes the connection
// and thereby ends reads and writes in progress.
func Dial(ctx context.Context, address string) (*Conn, error) {
	conn, err := (&net.Dialer{Timeout: dialWithin}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return New(ctx, conn), nil
}

// New uses a connection that is already open, for example a TLS connection. The end of ctx closes it.
func New(ctx context.Context, conn net.Conn) *Conn {
	c := &Conn{Conn: conn, reader: wire.NewReader(conn, FrameBytesMax)}
	c.stop = context.AfterFunc(ctx, func() { _ = conn.Close() })
	return c
}

// Close closes the connection without an AMQP close.
func (c *Conn) Close() error {
	c.stop()
	return c.Conn.Close()
}

// Login signs in with the SASL mechanism PLAIN and exchanges the protocol headers.
func (c *Conn) Login(name, key string) error {
	if err := c.header(wire.HeaderSASL()); err != nil {
		return err
	}
	init := &wire.SASLInit{Mechanism: "PLAIN", InitialResponse: []byte("\x00" + name + "\x00" + key)}
	if c.Host != "" {
		init.Hostname = &c.Host
	}
	if _, err := c.Write(wire.AppendFrame(nil, wire.FrameSASL, 0, init)); err != nil {
		return err
	}
	if err := c.outcome(); err != nil {
		return fmt.Errorf("sign in: %w", err)
	}
	return c.header(wire.HeaderAMQP())
}

// RefusedError reports that the member refused a login, with the code of its SASL outcome.
type RefusedError struct{ Code uint8 }

func (e *RefusedError) Error() string { return fmt.Sprintf("SASL outcome %d", e.Code) }

// outcome reads the answer to a SASL init.
func (c *Conn) outcome() error {
	if c.SendOnly {
		return nil
	}
	outcome, err := Expect[*wire.SASLOutcome](c)
	if err == nil && outcome.Code != 0 {
		err = &RefusedError{outcome.Code}
	}
	return err
}

// Anonymous chooses the SASL mechanism ANONYMOUS and exchanges the protocol headers.
func (c *Conn) Anonymous() error {
	if err := c.header(wire.HeaderSASL()); err != nil {
		return err
	}
	if _, err := c.Write(wire.AppendFrame(nil, wire.FrameSASL, 0, &wire.SASLInit{Mechanism: "ANONYMOUS"})); err != nil {
		return err
	}
	if err := c.outcome(); err != nil {
		return err
	}
	return c.header(wire.HeaderAMQP())
}

// header sends a protocol header and reads the member's.
func (c *Conn) header(want [8]byte) error {
	if _, err := c.Write(want[:]); err != nil {
		return err
	}
	if c.SendOnly {
		return nil
	}
	got, err := c.reader.ReadHeader()
	if err == nil && got != want {
		err = fmt.Errorf("protocol header % x, not % x", got, want)
	}
	return err
}

// Open opens the connection and session 0.
func (c *Conn) Open(open *wire.Open) error {
	if err := c.Send(0, open, Begin()); err != nil || c.SendOnly {
		return err
	}
	if _, err := Expect[*wire.Open](c); err != nil {
		return err
	}
	_, err := Expect[*wire.Begin](c)
	return err
}

// Send writes frames on a channel, in one write.
func (c *Conn) Send(channel uint16, frames ...wire.Performative) error {
	var b []byte
	for _, f := range frames {
		b = wire.AppendFrame(b, wire.FrameAMQP, channel, f)
	}
	_, err := c.Write(b)
	return err
}

// ReadFrame returns the next frame that is not empty. Transfers, flows and dispositions are valid
// until the next call. Frames are buffered: do not mix it with Read.
func (c *Conn) ReadFrame() (wire.Frame, error) {
	for {
		f, err := c.reader.ReadFrame()
		if err != nil || f.Body != nil {
			return f, err
		}
	}
}

// EndedError reports that the member ended a connection, a session or a link.
type EndedError struct {
	What string // close, end or detach
	Why  *wire.Error
}

func (e *EndedError) Error() string {
	if e.Why == nil {
		return e.What + " without an error"
	}
	return fmt.Sprintf("%s: %s: %s", e.What, e.Why.Condition, e.Why.Description)
}

// Expect reads up to the next frame of type P and skips other frames. If it reads a close, an end or
// a detach that is not of type P, it returns an *EndedError.
func Expect[P wire.Performative](c *Conn) (P, error) {
	var none P
	for {
		f, err := c.ReadFrame()
		if err != nil {
			return none, fmt.Errorf("wait for %T: %w", none, err)
		}
		switch p := f.Body.(type) {
		case P:
			return p, nil
		case *wire.Close:
			return none, &EndedError{"close", p.Error}
		case *wire.End:
			return none, &EndedError{"end", p.Error}
		case *wire.Detach:
			return none, &EndedError{"detach", p.Error}
		}
	}
}

// Begin returns the begin of a session with a large window.
func Begin() *wire.Begin {
	handles := uint32(1 << 16)
	return &wire.Begin{IncomingWindow: WindowTransfers, OutgoingWindow: WindowTransfers, HandleMax: &handles}
}
