package wire

import "encoding/binary"

// SASLChallenge is part 5, 5.3.3.3.
type SASLChallenge struct{ Challenge []byte }

// SASLResponse is part 5, 5.3.3.4.
type SASLResponse struct{ Response []byte }

func (*Open) descriptor() uint64           { return descOpen }
func (*Begin) descriptor() uint64          { return descBegin }
func (*Attach) descriptor() uint64         { return descAttach }
func (*Flow) descriptor() uint64           { return descFlow }
func (*Transfer) descriptor() uint64       { return descTransfer }
func (*Disposition) descriptor() uint64    { return descDisposition }
func (*Detach) descriptor() uint64         { return descDetach }
func (*End) descriptor() uint64            { return descEnd }
func (*Close) descriptor() uint64          { return descClose }
func (*SASLMechanisms) descriptor() uint64 { return descSASLMechanisms }
func (*SASLInit) descriptor() uint64       { return descSASLInit }
func (*SASLChallenge) descriptor() uint64  { return descSASLChallenge }
func (*SASLResponse) descriptor() uint64   { return descSASLResponse }
func (*SASLOutcome) descriptor() uint64    { return descSASLOutcome }

// appendPerformative appends p with all its fields, the trailing nulls too.
func appendPerformative(dst []byte, p Performative) []byte {
	switch p := p.(type) {
	case *Open:
		return p.append(dst)
	case *Begin:
		return p.append(dst)
	case *Attach:
		return p.append(dst)
	case *Flow:
		return p.append(dst)
	case *Transfer:
		return append(p.append(dst), p.Payload...)
	case *Disposition:
		return p.append(dst)
	case *Detach:
		dst, mark := openComposite(dst, descDetach)
		dst = appendUint(dst, p.Handle)
		dst = appendBool(dst, p.Closed)
		return closeCompound(appendError(dst, p.Error), mark, 3)
	case *End:
		dst, mark := openComposite(dst, descEnd)
		return closeCompound(appendError(dst, p.Error), mark, 1)
	case *Close:
		dst, mark := openComposite(dst, descClose)
		return closeCompound(appendError(dst, p.Error), mark, 1)
	}
	return appendSASL(dst, p)
}

func appendSASL(dst []byte, p Performative) []byte {
	switch p := p.(type) {
	case *SASLMechanisms:
		dst, mark := openComposite(dst, descSASLMechanisms)
		return closeCompound(appendArray(dst, Array{Values: p.Mechanisms}), mark, 1)
	case *SASLInit:
		dst, mark := openComposite(dst, descSASLInit)
		dst = AppendSymbol(dst, p.Mechanism)
		dst = appendBinaryOrNull(dst, p.InitialResponse)
		return closeCompound(appendStringPointer(dst, p.Hostname), mark, 3)
	case *SASLChallenge:
		dst, mark := openComposite(dst, descSASLChallenge)
		return closeCompound(AppendBinary(dst, p.Challenge), mark, 1)
	case *SASLResponse:
		dst, mark := openComposite(dst, descSASLResponse)
		return closeCompound(AppendBinary(dst, p.Response), mark, 1)
	case *SASLOutcome:
		dst, mark := openComposite(dst, descSASLOutcome)
		dst = append(dst, codeUbyte, p.Code)
		return closeCompound(appendBinaryOrNull(dst, p.AdditionalData), mark, 2)
	}
	return dst
}

func (p *Open) append(dst []byte) []byte {
	dst, mark := openComposite(dst, descOpen)
	dst = AppendString(dst, p.ContainerID)
	dst = appendStringPointer(dst, p.Hostname)
	dst = appendUint32Pointer(dst, p.MaxFrameSize)
	dst = appendUint16Pointer(dst, p.ChannelMax)
	dst = appendUint32Pointer(dst, p.IdleTimeOut)
	dst = appendMultiple(dst, p.OutgoingLocales)
	dst = appendMultiple(dst, p.IncomingLocales)
	dst = appendMultiple(dst, p.OfferedCapabilities)
	dst = appendMultiple(dst, p.DesiredCapabilities)
	return closeCompound(AppendMap(dst, p.Properties), mark, 10)
}

func (p *Begin) append(dst []byte) []byte {
	dst, mark := openComposite(dst, descBegin)
	dst = appendUint16Pointer(dst, p.RemoteChannel)
	dst = appendUint(dst, p.NextOutgoingID)
	dst = appendUint(dst, p.IncomingWindow)
	dst = appendUint(dst, p.OutgoingWindow)
	dst = appendUint32Pointer(dst, p.HandleMax)
	dst = appendMultiple(dst, p.OfferedCapabilities)
	dst = appendMultiple(dst, p.DesiredCapabilities)
	return closeCompound(AppendMap(dst, p.Properties), mark, 8)
}

func (p *Attach) append(dst []byte) []byte {
	dst, mark := openComposite(dst, descAttach)
	dst = AppendString(dst, p.Name)
	dst = appendUint(dst, p.Handle)
	dst = appendBool(dst, bool(p.Role))
	dst = appendUint8Pointer(dst, p.SndSettleMode)
	dst = appendUint8Pointer(dst, p.RcvSettleMode)
	dst = p.Source.append(dst)
	if p.Coordinator != nil {
		dst = p.Coordinator.append(dst)
	} else {
		dst = p.Target.append(dst)
	}
	dst = AppendValue(dst, p.Unsettled)
	dst = appendBool(dst, p.IncompleteUnsettled)
	dst = appendUint32Pointer(dst, p.InitialDeliveryCount)
	dst = appendUint64Pointer(dst, p.MaxMessageSize)
	dst = appendMultiple(dst, p.OfferedCapabilities)
	dst = appendMultiple(dst, p.DesiredCapabilities)
	return closeCompound(AppendMap(dst, p.Properties), mark, 14)
}

// append writes null for a nil source.
func (s *Source) append(dst []byte) []byte {
	if s == nil {
		return append(dst, codeNull)
	}
	dst, mark := openComposite(dst, descSource)
	dst = AppendValue(dst, s.Address)
	dst = appendUint32Pointer(dst, s.Durable)
	dst = appendSymbolPointer(dst, s.ExpiryPolicy)
	dst = appendUint32Pointer(dst, s.Timeout)
	dst = appendBool(dst, s.Dynamic)
	dst = AppendMap(dst, s.DynamicNodeProperties)
	dst = appendSymbolPointer(dst, s.DistributionMode)
	dst = AppendMap(dst, s.Filter)
	dst = AppendValue(dst, s.DefaultOutcome)
	dst = appendMultiple(dst, s.Outcomes)
	return closeCompound(appendMultiple(dst, s.Capabilities), mark, 11)
}

// append writes null for a nil target.
func (t *Target) append(dst []byte) []byte {
	if t == nil {
		return append(dst, codeNull)
	}
	dst, mark := openComposite(dst, descTarget)
	dst = AppendValue(dst, t.Address)
	dst = appendUint32Pointer(dst, t.Durable)
	dst = appendSymbolPointer(dst, t.ExpiryPolicy)
	dst = appendUint32Pointer(dst, t.Timeout)
	dst = appendBool(dst, t.Dynamic)
	dst = AppendMap(dst, t.DynamicNodeProperties)
	return closeCompound(appendMultiple(dst, t.Capabilities), mark, 7)
}

func (c *Coordinator) append(dst []byte) []byte {
	dst, mark := openComposite(dst, descCoordinator)
	return closeCompound(appendMultiple(dst, c.Capabilities), mark, 1)
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

// append writes the performative without the payload.
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

// TransferOverheadMaxBytes is the most that frame header and performative of a transfer
// take when State is nil and the delivery-tag has at most 32 bytes (part 2, 2.6.12 allows
// no more): 8 of header, 3 of descriptor, 3 of list, 5 each of handle, delivery-id and
// message-format, 34 of tag, 2 of rcv-settle-mode, 6 of booleans and null.
const TransferOverheadMaxBytes = 8 + 3 + 3 + 3*5 + 34 + 2 + 6

// AppendFrame appends one frame (part 2, 2.3) and returns the longer slice. A nil p makes
// an empty frame, which is how AMQP keeps a connection alive. A Transfer writes its
// Payload behind the performative. The caller sees to it that the frame is not longer
// than the peer's max-frame-size. channel means nothing in SASL frames.
func AppendFrame(dst []byte, typ byte, channel uint16, p Performative) []byte {
	dst, mark := openFrame(dst, typ, channel)
	if p != nil {
		dst = appendPerformative(dst, p)
	}
	binary.BigEndian.PutUint32(dst[mark:], uint32(len(dst)-mark))
	return dst
}

// AppendTransfer is AppendFrame for a transfer whose payload is given beside it;
// t.Payload is ignored. It does not allocate when dst has room.
func AppendTransfer(dst []byte, channel uint16, t *Transfer, payload []byte) []byte {
	dst, mark := openFrame(dst, FrameAMQP, channel)
	dst = t.append(dst)
	dst = append(dst, payload...)
	binary.BigEndian.PutUint32(dst[mark:], uint32(len(dst)-mark))
	return dst
}

func openFrame(dst []byte, typ byte, channel uint16) (longer []byte, mark int) {
	const dataOffset = 2 // header length in words of four bytes
	return append(dst, 0, 0, 0, 0, dataOffset, typ, byte(channel>>8), byte(channel)), len(dst)
}
