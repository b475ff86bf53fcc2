package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// HeaderAMQP is the protocol header that begins AMQP itself (part 2, 2.2).
func HeaderAMQP() [8]byte { return [8]byte{'A', 'M', 'Q', 'P', 0, 1, 0, 0} }

// HeaderSASL is the protocol header that begins SASL (part 5, 5.3).
func HeaderSASL() [8]byte { return [8]byte{'A', 'M', 'Q', 'P', 3, 1, 0, 0} }

// ProtocolError reports that the peer violated the protocol. The connection must be closed with Condition.
// Reader returns it as a pointer: use errors.As.
type ProtocolError struct {
	Condition   Symbol // ConditionFramingError or ConditionDecodeError
	Description string
}

// Error returns the condition and the description.
func (e *ProtocolError) Error() string { return string(e.Condition) + ": " + e.Description }

// Frame is one frame that was read (part 2, 2.3).
type Frame struct {
	Type    byte         // FrameAMQP or FrameSASL
	Channel uint16       // 0 in SASL frames
	Bytes   int          // of the frame, with its header
	Values  int          // in fields that may have values of any type, at all depths; decoded, one takes up to 160 bytes
	Body    Performative // nil for an empty frame (heartbeat)
}

// Sizes of the read buffer, and a limit on reads.
const (
	readBufferBytes    = 512      // initially, and while a connection is idle
	readBufferMaxBytes = 64 << 10 // limit of the buffer of a busy connection; larger frames extend it further
	emptyReadsMax      = 100      // consecutive reads that return neither bytes nor an error
)

// Reader reads frames from one connection. One goroutine may use it. A read error of the connection (for example a
// deadline) leaves the Reader intact: reading may continue afterwards.
//
// A *Transfer, *Flow or *Disposition that ReadFrame returns, and the Payload, DeliveryTag and other byte slices in
// it, belong to the Reader and are valid until the next ReadFrame. All other performatives belong to the caller.
type Reader struct {
	source io.Reader
	buffer []byte
	start  int // first byte not yet returned; 0 <= start <= end <= len(buffer)
	end    int // behind the last byte read
	full   bool
	max    uint32

	decoder     decoder
	transfer    transferStore
	flow        flowStore
	disposition dispositionStore
}

// Each store holds a performative and the values of its optional fields, so that the three frames that make up
// the traffic of a connection are read without allocating.
type (
	transferStore struct {
		Transfer
		deliveryID, messageFormat uint32
		settled                   bool
		rcvSettleMode             uint8
	}
	flowStore struct {
		Flow
		nextIncomingID, handle, deliveryCount, linkCredit, available uint32
	}
	dispositionStore struct {
		Disposition
		last uint32
	}
)

// NewReader returns a Reader that accepts frames of at most maxFrameBytes.
func NewReader(r io.Reader, maxFrameBytes uint32) *Reader {
	return &Reader{source: r, buffer: make([]byte, readBufferBytes), max: maxFrameBytes}
}

// SetMaxFrame changes the size of the largest frame accepted, in bytes.
func (r *Reader) SetMaxFrame(maxFrameBytes uint32) { r.max = maxFrameBytes }

// Buffered returns the number of bytes that were read from the connection and not yet returned.
func (r *Reader) Buffered() int { return r.end - r.start }

// Shrink releases a buffer that traffic has enlarged, unless a small one cannot hold the unread bytes. Values
// that ReadFrame returned before become invalid.
func (r *Reader) Shrink() {
	left := r.buffer[r.start:r.end]
	if len(r.buffer) == readBufferBytes || len(left) > readBufferBytes {
		return
	}
	r.buffer = make([]byte, readBufferBytes)
	r.start, r.end, r.full = 0, copy(r.buffer, left), false
	r.transfer, r.flow, r.disposition = transferStore{}, flowStore{}, dispositionStore{} // they point into the old buffer
}

// ReadHeader reads the eight bytes of a protocol header (part 2, 2.2) without validating them. It returns the
// errors of the connection; io.ErrUnexpectedEOF if the connection ends within the header.
func (r *Reader) ReadHeader() (header [8]byte, err error) {
	if err := r.readAtLeast(len(header)); err != nil {
		return header, err
	}
	copy(header[:], r.buffer[r.start:])
	r.start += len(header)
	return header, nil
}

// ReadFrame reads the next frame. io.EOF means that the peer closed the connection between frames; a
// *ProtocolError means that the frame is malformed or too large. Reader documents how long the result is
// valid.
func (r *Reader) ReadFrame() (Frame, error) {
	if err := r.readAtLeast(frameHeaderBytes); err != nil {
		return Frame{}, err
	}
	head := r.buffer[r.start:]
	size, dataOffset := binary.BigEndian.Uint32(head), 4*uint32(head[4])
	f := Frame{Type: head[5], Channel: binary.BigEndian.Uint16(head[6:]), Bytes: int(size)}
	switch {
	case size < frameHeaderBytes:
		return Frame{}, framing("frame of %d bytes is shorter than its header", size)
	case size > r.max:
		return Frame{}, framing("frame of %d bytes is over the limit of %d", size, r.max)
	case dataOffset < frameHeaderBytes || dataOffset > size:
		return Frame{}, framing("data offset of %d bytes in a frame of %d", dataOffset, size)
	case f.Type != FrameAMQP && f.Type != FrameSASL:
		return Frame{}, framing("unknown frame type %d", f.Type)
	}
	if err := r.readAtLeast(int(size)); err != nil {
		return Frame{}, err
	}
	body := r.buffer[r.start+int(dataOffset) : r.start+int(size)]
	r.start += int(size)
	if f.Type == FrameSASL {
		f.Channel = 0
	}
	if len(body) == 0 {
		return f, nil
	}
	var err error
	if f.Body, err = r.performative(f.Type, body); err != nil {
		return Frame{}, &ProtocolError{Condition: ConditionDecodeError, Description: err.Error()}
	}
	f.Values = r.decoder.values
	return f, nil
}

func framing(format string, args ...any) error {
	return &ProtocolError{Condition: ConditionFramingError, Description: fmt.Sprintf(format, args...)}
}

// readAtLeast reads until n bytes are buffered. The buffer doubles as bytes arrive, so a length that the peer
// claims without sending the bytes costs nothing.
func (r *Reader) readAtLeast(n int) error {
	for empty := 0; r.end-r.start < n; {
		r.grow()
		m, err := r.source.Read(r.buffer[r.end:])
		r.end += m
		r.full = r.end == len(r.buffer)
		if err != nil && r.end-r.start < n {
			if errors.Is(err, io.EOF) && r.end > r.start {
				return io.ErrUnexpectedEOF
			}
			return err
		}
		if m > 0 {
			empty = 0
		} else if empty++; empty == emptyReadsMax {
			return io.ErrNoProgress
		}
	}
	return nil
}

// grow moves the unread bytes to the front of the buffer, so that one read can return many frames, and
// enlarges the buffer if the last read filled it.
func (r *Reader) grow() {
	left := r.buffer[r.start:r.end]
	if r.full && (len(r.buffer) < readBufferMaxBytes || len(left) == len(r.buffer)) {
		r.buffer = make([]byte, 2*len(r.buffer))
	}
	r.end = copy(r.buffer, left)
	r.start = 0
	r.full = false
}

// performative decodes the body of a frame.
func (r *Reader) performative(frameType byte, body []byte) (Performative, error) {
	r.decoder = decoder{zeroWidth: zeroWidthElementsMax}
	desc, value := peekDescriptor(body)
	if desc == descUnknown {
		return nil, fmt.Errorf("frame without a known performative")
	}
	if isSASL := desc >= descSASLMechanisms && desc <= descSASLOutcome; isSASL != (frameType == FrameSASL) {
		return nil, fmt.Errorf("performative 0x%02x in a frame of type %d", desc, frameType)
	}
	var p Performative
	var err error
	switch desc {
	case descTransfer:
		p, err = r.readTransfer(value)
	case descFlow:
		p, err = r.readFlow(value)
	case descDisposition:
		p, err = r.readDisposition(value)
	default:
		// These are rare and the caller keeps them: they get their own bytes.
		p, err = r.decoder.performative(desc, bytes.Clone(value))
	}
	if err != nil {
		return nil, fmt.Errorf("performative 0x%02x: %w", desc, err)
	}
	return p, nil
}

// readTransfer decodes a transfer; the bytes that follow the list are the payload.
func (r *Reader) readTransfer(b []byte) (*Transfer, error) {
	f, payload, err := r.decoder.fields(b, depthMax)
	if err != nil {
		return nil, err
	}
	s := &r.transfer
	s.Transfer = Transfer{
		Handle:        f.mustUint32("handle"),
		DeliveryID:    f.uint32In(&s.deliveryID),
		DeliveryTag:   f.binary(),
		MessageFormat: f.uint32In(&s.messageFormat),
	}
	settled, ok := f.boolean()
	if s.settled = settled; ok {
		s.Settled = &s.settled
	}
	s.More = f.bool()
	mode, ok := f.uint(255)
	if s.rcvSettleMode = uint8(mode); ok {
		s.RcvSettleMode = &s.rcvSettleMode
	}
	s.State = f.value()
	s.Resume, s.Aborted, s.Batchable = f.bool(), f.bool(), f.bool()
	s.Payload = payload[:len(payload):len(payload)]
	return &s.Transfer, f.end()
}

func (r *Reader) readFlow(b []byte) (*Flow, error) {
	f, err := r.decoder.listFields(b)
	if err != nil {
		return nil, err
	}
	s := &r.flow
	s.Flow = Flow{
		NextIncomingID: f.uint32In(&s.nextIncomingID),
		IncomingWindow: f.mustUint32("incoming-window"),
		NextOutgoingID: f.mustUint32("next-outgoing-id"),
		OutgoingWindow: f.mustUint32("outgoing-window"),
		Handle:         f.uint32In(&s.handle),
		DeliveryCount:  f.uint32In(&s.deliveryCount),
		LinkCredit:     f.uint32In(&s.linkCredit),
		Available:      f.uint32In(&s.available),
		Drain:          f.bool(),
		Echo:           f.bool(),
		Properties:     f.mapping(),
	}
	return &s.Flow, f.end()
}

func (r *Reader) readDisposition(b []byte) (*Disposition, error) {
	f, err := r.decoder.listFields(b)
	if err != nil {
		return nil, err
	}
	s := &r.disposition
	s.Disposition = Disposition{
		Role:      f.role(),
		First:     f.mustUint32("first"),
		Last:      f.uint32In(&s.last),
		Settled:   f.bool(),
		State:     f.value(),
		Batchable: f.bool(),
	}
	return &s.Disposition, f.end()
}
