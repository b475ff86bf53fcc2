package settlement

import "github.com/peeklock/peeklock/fsm"

// PartBytesMax bounds what the settlements of one call of the broker store. The broker stores the properties, the reason and
// the description of a settlement once for each message, although the client named them once: without the bound, a
// request of 125 KB that names 4,096 messages and 62 KB of properties would become a command of 254 MB.
const PartBytesMax = 256 << 10

// Stored returns the bytes that a settlement stores.
func Stored(s *fsm.Settlement) int { return len(s.Properties) + len(s.Reason) + len(s.Description) }

// InParts calls settle with settlements that store the same, in one call if that stores little and otherwise a part after
// the other, so that one part is held at a time. It calls done with the codes of all. settle must call its done function
// once, from any goroutine, as Broker.Settle does.
func InParts(settlements []fsm.Settlement, settle func([]fsm.Settlement, func([]fsm.Code)), done func([]fsm.Code)) {
	if len(settlements) == 0 {
		settle(settlements, done)
		return
	}
	part := max(1, PartBytesMax/max(1, Stored(&settlements[0])))
	if part >= len(settlements) {
		settle(settlements, done)
		return
	}
	codes := make([]fsm.Code, 0, len(settlements))
	var next func([]fsm.Code)
	next = func(more []fsm.Code) {
		codes = append(codes, more...)
		if len(codes) == len(settlements) {
			done(codes)
			return
		}
		settle(settlements[len(codes):min(len(settlements), len(codes)+part)], next)
	}
	settle(settlements[:part], next)
}
