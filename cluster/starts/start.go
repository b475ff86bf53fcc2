package starts

import (
	"errors"

	"github.com/peeklock/peeklock/fsm/fields"
)

// Kept is how many earlier starts a start names.
const Kept = 7

// Bytes is the length of an encoded start.
const Bytes = (2 + Kept) * 8

const epochBits = 32 // of a count, which count the starts since somebody has accepted that a folder was replaced

// ErrOld means that a start cannot have followed the newest one that was seen of the member.
var ErrOld = errors.New("a later process of this member was seen: its data folder is a copy, or was replaced by an older one")

// Start is one start of a member. The zero value is none.
type Start struct {
	Count  uint64       `json:"count"`
	Nonce  uint64       `json:"nonce"`
	Before [Kept]uint64 `json:"before"` // nonces of the starts before it, the newest first; 0 for none
}

// Next returns the start that follows s.
func (s *Start) Next(nonce uint64) Start {
	next := Start{Count: s.Count + 1, Nonce: nonce}
	next.Before[0] = s.Nonce
	copy(next.Before[1:], s.Before[:])
	return next
}

// AcceptRollback makes the next start follow every start that was seen of the member.
func (s *Start) AcceptRollback() {
	*s = Start{Count: (s.Count>>epochBits + 1) << epochBits, Nonce: s.Nonce}
}

// Follows returns nil if s is the start that was seen, or can have followed it; else ErrOld.
func (s *Start) Follows(seen Start) error {
	if s.Count < seen.Count || s.Count == seen.Count && s.Nonce != seen.Nonce {
		return ErrOld
	}
	if between := s.Count - seen.Count; between > 0 && between <= Kept && s.Before[between-1] != seen.Nonce {
		return ErrOld
	}
	return nil
}

// Fields lists the fields of a start, all of fixed size.
func (s *Start) Fields(x *fields.Codec) {
	fields.Fixed64(x, &s.Count)
	fields.Fixed64(x, &s.Nonce)
	for i := range s.Before {
		fields.Fixed64(x, &s.Before[i])
	}
}
