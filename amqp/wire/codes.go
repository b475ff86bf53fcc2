package wire

// Constructors (part 1, 1.6). The high four bits of a code determine the layout of the data that follows (part
// 1, 1.2): 4 no data, 5 one byte, 6 two, 7 four, 8 eight, 9 sixteen, a and b variable width with one or four
// size bytes, c and d compound, e and f array.
const (
	codeDescribed  = 0x00
	codeNull       = 0x40
	codeTrue       = 0x41
	codeFalse      = 0x42
	codeUint0      = 0x43
	codeUlong0     = 0x44
	codeList0      = 0x45
	codeUbyte      = 0x50
	codeByte       = 0x51
	codeSmallUint  = 0x52
	codeSmallUlong = 0x53
	codeSmallInt   = 0x54
	codeSmallLong  = 0x55
	codeBool       = 0x56
	codeUshort     = 0x60
	codeShort      = 0x61
	codeUint       = 0x70
	codeInt        = 0x71
	codeFloat      = 0x72
	codeChar       = 0x73
	codeDecimal32  = 0x74
	codeUlong      = 0x80
	codeLong       = 0x81
	codeDouble     = 0x82
	codeTimestamp  = 0x83
	codeDecimal64  = 0x84
	codeDecimal128 = 0x94
	codeUUID       = 0x98
	codeBinary8    = 0xa0
	codeString8    = 0xa1
	codeSymbol8    = 0xa3
	codeBinary32   = 0xb0
	codeString32   = 0xb1
	codeSymbol32   = 0xb3
	codeList8      = 0xc0
	codeMap8       = 0xc1
	codeList32     = 0xd0
	codeMap32      = 0xd1
	codeArray8     = 0xe0
	codeArray32    = 0xf0

	// code32Offset is the difference between the 8 bit and the 32 bit code of a type.
	code32Offset = 0x10
)

// Descriptors of the composite types (part 2, 2.7; part 3, 3.4 and 3.5; part 4, 4.5; part 5, 5.3.3). All are
// below 256, so all are encoded as smallulong.
const (
	descOpen           = 0x10
	descBegin          = 0x11
	descAttach         = 0x12
	descFlow           = 0x13
	descTransfer       = 0x14
	descDisposition    = 0x15
	descDetach         = 0x16
	descEnd            = 0x17
	descClose          = 0x18
	descError          = 0x1d
	descReceived       = 0x23
	descAccepted       = 0x24
	descRejected       = 0x25
	descReleased       = 0x26
	descModified       = 0x27
	descSource         = 0x28
	descTarget         = 0x29
	descCoordinator    = 0x30
	descDeclare        = 0x31
	descDischarge      = 0x32
	descDeclared       = 0x33
	descTransactional  = 0x34
	descSASLMechanisms = 0x40
	descSASLInit       = 0x41
	descSASLChallenge  = 0x42
	descSASLResponse   = 0x43
	descSASLOutcome    = 0x44

	// descUnknown represents every descriptor that is not in this list.
	descUnknown = 0
)

// Limits for decoding the bytes of a peer.
const (
	// depthMax limits the nesting of compound and described values. The client libraries send no value nested
	// deeper than 6.
	depthMax = 32
	// zeroWidthElementsMax limits the elements without bytes on the wire (an array of null, true, uint0 ...)
	// that one decoded value may hold in total. Without it, seven bytes could claim four thousand million
	// elements. No client sends such arrays; 4096 elements cost 64 KiB, which is no more than their frame may
	// hold.
	zeroWidthElementsMax = 4096
)

// descriptorOfName returns the descriptor of a symbolic descriptor (part 1, 1.2: every
// descriptor has a symbolic and a numeric form), or descUnknown.
func descriptorOfName(name []byte) uint64 {
	switch string(name) {
	case "amqp:open:list":
		return descOpen
	case "amqp:begin:list":
		return descBegin
	case "amqp:attach:list":
		return descAttach
	case "amqp:flow:list":
		return descFlow
	case "amqp:transfer:list":
		return descTransfer
	case "amqp:disposition:list":
		return descDisposition
	case "amqp:detach:list":
		return descDetach
	case "amqp:end:list":
		return descEnd
	case "amqp:close:list":
		return descClose
	case "amqp:error:list":
		return descError
	case "amqp:source:list":
		return descSource
	case "amqp:target:list":
		return descTarget
	case "amqp:coordinator:list":
		return descCoordinator
	}
	return stateOrSASLOfName(name)
}

// stateOrSASLOfName continues descriptorOfName for delivery states and SASL frames.
func stateOrSASLOfName(name []byte) uint64 {
	switch string(name) {
	case "amqp:received:list":
		return descReceived
	case "amqp:accepted:list":
		return descAccepted
	case "amqp:rejected:list":
		return descRejected
	case "amqp:released:list":
		return descReleased
	case "amqp:modified:list":
		return descModified
	case "amqp:declare:list":
		return descDeclare
	case "amqp:discharge:list":
		return descDischarge
	case "amqp:declared:list":
		return descDeclared
	case "amqp:transactional-state:list":
		return descTransactional
	case "amqp:sasl-mechanisms:list":
		return descSASLMechanisms
	case "amqp:sasl-init:list":
		return descSASLInit
	case "amqp:sasl-challenge:list":
		return descSASLChallenge
	case "amqp:sasl-response:list":
		return descSASLResponse
	case "amqp:sasl-outcome:list":
		return descSASLOutcome
	}
	return descUnknown
}
