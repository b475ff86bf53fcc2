package wire

import (
	"fmt"
	"math"
	"time"
)

// SectionKind is the descriptor of a message section (part 3, 3.2).
type SectionKind uint8

// Sections in the order in which a message contains them.
const (
	SectionHeader                SectionKind = 0x70
	SectionDeliveryAnnotations   SectionKind = 0x71
	SectionMessageAnnotations    SectionKind = 0x72
	SectionProperties            SectionKind = 0x73
	SectionApplicationProperties SectionKind = 0x74
	SectionData                  SectionKind = 0x75
	SectionSequence              SectionKind = 0x76
	SectionValue                 SectionKind = 0x77
	SectionFooter                SectionKind = 0x78
)

// String returns the name of the section in the standard.
func (k SectionKind) String() string {
	switch k {
	case SectionHeader:
		return "header"
	case SectionDeliveryAnnotations:
		return "delivery-annotations"
	case SectionMessageAnnotations:
		return "message-annotations"
	case SectionProperties:
		return "properties"
	case SectionApplicationProperties:
		return "application-properties"
	case SectionData:
		return "data"
	case SectionSequence:
		return "amqp-sequence"
	case SectionValue:
		return "amqp-value"
	case SectionFooter:
		return "footer"
	}
	return fmt.Sprintf("section 0x%02x", uint8(k))
}

// sectionOfName returns the section of a symbolic descriptor, or 0.
func sectionOfName(name []byte) SectionKind {
	switch string(name) {
	case "amqp:header:list":
		return SectionHeader
	case "amqp:delivery-annotations:map":
		return SectionDeliveryAnnotations
	case "amqp:message-annotations:map":
		return SectionMessageAnnotations
	case "amqp:properties:list":
		return SectionProperties
	case "amqp:application-properties:map":
		return SectionApplicationProperties
	case "amqp:data:binary":
		return SectionData
	case "amqp:amqp-sequence:list":
		return SectionSequence
	case "amqp:amqp-value:*":
		return SectionValue
	case "amqp:footer:map":
		return SectionFooter
	}
	return 0
}

// allows reports whether the body of the section may be a value with this constructor.
func (k SectionKind) allows(code byte) bool {
	switch k {
	case SectionHeader, SectionProperties, SectionSequence:
		return isList(code)
	case SectionDeliveryAnnotations, SectionMessageAnnotations, SectionApplicationProperties, SectionFooter:
		return code == codeMap8 || code == codeMap32
	case SectionData:
		return code == codeBinary8 || code == codeBinary32
	case SectionValue:
		return true
	}
	return false
}

// NextSection splits the first section off an encoded message. value is the encoded value behind the
// descriptor, whole is the section with its descriptor, rest is what follows; all are parts of b. A descriptor
// may have either numeric form or be a symbol. value has its full length and a type that the section allows,
// but its content is not checked: see CheckValue. NextSection allocates only for an error. An empty b is an
// error.
func NextSection(b []byte) (kind SectionKind, value, whole, rest []byte, err error) {
	if len(b) < 3 {
		return 0, nil, nil, nil, errTruncated
	}
	if b[0] != codeDescribed {
		return 0, nil, nil, nil, fmt.Errorf("section expected, got 0x%02x", b[0])
	}
	data, value, err := cut(b[1], b[2:])
	if err != nil {
		return 0, nil, nil, nil, err
	}
	switch b[1] {
	case codeSmallUlong, codeUlong:
		if n := unsigned(data); n >= uint64(SectionHeader) && n <= uint64(SectionFooter) {
			kind = SectionKind(n)
		}
	case codeSymbol8, codeSymbol32:
		kind = sectionOfName(data)
	}
	if kind == 0 {
		return 0, nil, nil, nil, fmt.Errorf("unknown section descriptor")
	}
	if len(value) == 0 {
		return 0, nil, nil, nil, errTruncated
	}
	if !kind.allows(value[0]) {
		return 0, nil, nil, nil, fmt.Errorf("%s cannot be of type 0x%02x", kind, value[0])
	}
	if rest, err = SkipValue(value); err != nil {
		return 0, nil, nil, nil, fmt.Errorf("%s: %w", kind, err)
	}
	return kind, value[:len(value)-len(rest)], b[:len(b)-len(rest)], rest, nil
}

// AppendSectionDescriptor appends the descriptor of a section; the caller must append its value.
func AppendSectionDescriptor(dst []byte, kind SectionKind) []byte {
	return append(dst, codeDescribed, codeSmallUlong, byte(kind))
}

// AppendHeader appends a whole header section (part 3, 3.2.1).
func AppendHeader(dst []byte, h *Header) []byte {
	dst, mark := openComposite(dst, byte(SectionHeader))
	dst = appendBoolPointer(dst, h.Durable)
	dst = appendUint8Pointer(dst, h.Priority)
	dst = appendUint32Pointer(dst, h.TTL)
	dst = appendBoolPointer(dst, h.FirstAcquirer)
	return closeCompound(appendUint(dst, h.DeliveryCount), mark, 5)
}

// DecodeHeader decodes the value of a header section as returned by NextSection.
func DecodeHeader(value []byte) (Header, error) {
	d := decoder{zeroWidth: zeroWidthElementsMax}
	f, err := d.listFields(value)
	if err != nil {
		return Header{}, fmt.Errorf("header: %w", err)
	}
	h := Header{Durable: f.boolPointer(), Priority: optionalNumber[uint8](&f), TTL: optionalNumber[uint32](&f), FirstAcquirer: f.boolPointer()}
	count, _ := f.uint(math.MaxUint32)
	h.DeliveryCount = uint32(count)
	if err := f.end(); err != nil {
		return Header{}, fmt.Errorf("header: %w", err)
	}
	return h, nil
}

// AppendProperties appends a whole properties section (part 3, 3.2.4). MessageID,
// To, ReplyTo and CorrelationID keep the AMQP type of their Go type.
func AppendProperties(dst []byte, p *Properties) []byte {
	dst, mark := openComposite(dst, byte(SectionProperties))
	dst = AppendValue(dst, p.MessageID)
	dst = appendBinaryOrNull(dst, p.UserID)
	dst = AppendValue(dst, p.To)
	dst = appendOptional(dst, p.Subject, AppendString[string])
	dst = AppendValue(dst, p.ReplyTo)
	dst = AppendValue(dst, p.CorrelationID)
	dst = appendOptional(dst, p.ContentType, AppendSymbol[Symbol])
	dst = appendOptional(dst, p.ContentEncoding, AppendSymbol[Symbol])
	dst = appendOptional(dst, p.AbsoluteExpiryTime, appendTimestamp)
	dst = appendOptional(dst, p.CreationTime, appendTimestamp)
	dst = appendOptional(dst, p.GroupID, AppendString[string])
	dst = appendUint32Pointer(dst, p.GroupSequence)
	return closeCompound(appendOptional(dst, p.ReplyToGroupID, AppendString[string]), mark, 13)
}

// DecodeProperties decodes the value of a properties section as returned by NextSection. Byte slices in the
// result are parts of value.
func DecodeProperties(value []byte) (Properties, error) {
	d := decoder{zeroWidth: zeroWidthElementsMax}
	f, err := d.listFields(value)
	if err != nil {
		return Properties{}, fmt.Errorf("properties: %w", err)
	}
	p := Properties{
		MessageID:          f.value(),
		UserID:             f.binary(),
		To:                 f.value(),
		Subject:            optionalText[string](&f),
		ReplyTo:            f.value(),
		CorrelationID:      f.value(),
		ContentType:        optionalText[Symbol](&f),
		ContentEncoding:    optionalText[Symbol](&f),
		AbsoluteExpiryTime: f.time(),
		CreationTime:       f.time(),
		GroupID:            optionalText[string](&f),
		GroupSequence:      optionalNumber[uint32](&f),
		ReplyToGroupID:     optionalText[string](&f),
	}
	if err := f.end(); err != nil {
		return Properties{}, fmt.Errorf("properties: %w", err)
	}
	return p, nil
}

// time reads a timestamp; null returns nil.
func (f *fields) time() *time.Time {
	code, data := f.next()
	switch code {
	case codeNull:
		return nil
	case codeTimestamp:
		t := time.UnixMilli(int64(unsigned(data))).UTC()
		return &t
	}
	f.unexpected(code, "timestamp")
	return nil
}
