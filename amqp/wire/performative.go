package wire

import "encoding/binary"

// SASLChallenge is part 5, 5.3.3.3.
type SASLChallenge struct{ Challenge []byte }

// SASLResponse is part 5, 5.3.3.4.
type SASLResponse struct{ Response []byte }

// appendPerformative appends p with all its fields, including trailing nulls. The payload follows a transfer.
func appendPerformative(dst []byte, p Performative) []byte {
	switch p := p.(type) {
	case *Flow:
		return p.append(dst)
	case *Transfer:
		return append(p.append(dst), p.Payload...)
	case *Disposition:
		return p.append(dst)
	case composite:
		return appendTable(dst, p.descriptor(), p.table())
	}
	return dst
}

func (p *Flow) append(dst []byte) []byte {
	dst, mark := openComposite(dst, descFlow)
	dst = appendUint32Pointer(dst, p.NextIncomingID)
	dst = appendUint(dst, p.IncomingWindow)
	dst = appendUint(dst, p.NextOutgoingID)
	dst = appendUint(dst, p.OutgoingWindow)
	dst = appendUint32Pointer(dst, p.Handle)
	dst = appendUint32Pointer(dst, p.DeliveryCount)
	dst = appendUint32Pointer(dst, p.LinkCredit)
	dst = appendUint32Pointer(dst, p.Available)
	dst = appendBool(dst, p.Drain)
	dst = appendBool(dst, p.Echo)
	return closeCompound(AppendMap(dst, p.Properties), mark, 11)
}

// append appends the performative without the payload.
func (p *Transfer) append(dst []byte) []byte {
	dst, mark := openComposite(dst, descTransfer)
	dst = appendUint(dst, p.Handle)
	dst = appendUint32Pointer(dst, p.DeliveryID)
	dst = appendBinaryOrNull(dst, p.DeliveryTag)
	dst = appendUint32Pointer(dst, p.MessageFormat)
	dst = appendBoolPointer(dst, p.Settled)
	dst = appendBool(dst, p.More)
	dst = appendUint8Pointer(dst, p.RcvSettleMode)
	dst = AppendValue(dst, p.State)
	dst = appendBool(dst, p.Resume)
	dst = appendBool(dst, p.Aborted)
	return closeCompound(appendBool(dst, p.Batchable), mark, 11)
}

func (p *Disposition) append(dst []byte) []byte {
	dst, mark := openComposite(dst, descDisposition)
	dst = appendBool(dst, bool(p.Role))
	dst = appendUint(dst, p.First)
	dst = appendUint32Pointer(dst, p.Last)
	dst = appendBool(dst, p.Settled)
	dst = AppendValue(dst, p.State)
	return closeCompound(appendBool(dst, p.Batchable), mark, 6)
}

// frameHeaderBytes is the size of a frame header without extension (part 2, 2.3.1).
const frameHeaderBytes = 8

// AppendFrame appends one frame (part 2, 2.3) and returns the extended slice. A nil p appends an empty frame,
// which AMQP uses as a heartbeat. The Payload of a Transfer follows the performative. The caller ensures that
// the frame does not exceed the peer's max-frame-size. channel has no meaning in SASL frames.
func AppendFrame(dst []byte, typ byte, channel uint16, p Performative) []byte {
	dst, mark := openFrame(dst, typ, channel)
	if p != nil {
		dst = appendPerformative(dst, p)
	}
	return closeFrame(dst, mark)
}

// AppendTransfer is AppendFrame for a transfer with a separate payload; it ignores t.Payload. It does not
// allocate if the capacity of dst suffices.
func AppendTransfer(dst []byte, channel uint16, t *Transfer, payload []byte) []byte {
	dst, mark := openFrame(dst, FrameAMQP, channel)
	dst = t.append(dst)
	dst = append(dst, payload...)
	return closeFrame(dst, mark)
}

// AppendFlow is AppendFrame for a flow. It does not allocate if the capacity of dst suffices.
func AppendFlow(dst []byte, channel uint16, f *Flow) []byte {
	dst, mark := openFrame(dst, FrameAMQP, channel)
	return closeFrame(f.append(dst), mark)
}

// AppendDisposition is AppendFrame for a disposition. It does not allocate if the capacity of dst suffices and
// State is nil, accepted or released.
func AppendDisposition(dst []byte, channel uint16, d *Disposition) []byte {
	dst, mark := openFrame(dst, FrameAMQP, channel)
	return closeFrame(d.append(dst), mark)
}

func openFrame(dst []byte, typ byte, channel uint16) (longer []byte, mark int) {
	const dataOffset = 2 // header length in words of four bytes
	return append(dst, 0, 0, 0, 0, dataOffset, typ, byte(channel>>8), byte(channel)), len(dst)
}

// closeFrame fills in the size of the frame opened at mark.
func closeFrame(dst []byte, mark int) []byte {
	binary.BigEndian.PutUint32(dst[mark:], uint32(len(dst)-mark))
	return dst
}
