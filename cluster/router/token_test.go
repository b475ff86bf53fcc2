package router

import (
	"crypto/rand"
	"testing"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

func testTokenCipher(t *testing.T, key byte) *tokenCipher {
	t.Helper()
	s := kit.Must(newTokenCipher([16]byte{key}))(t)
	return s
}

func TestTokenDecryptsToItsLock(t *testing.T) {
	t.Parallel()
	s := testTokenCipher(t, 1)
	for _, at := range []fsm.Address{{Entity: 1}, {Entity: 1, Sub: fsm.DeadLetterQueue}, {Entity: 1 << 40}, {Entity: ^fsm.EntityID(0), Sub: 1}, {Entity: 1, Sub: fsm.TransferDeadLetterQueue}} {
		for _, id := range []fsm.LockID{{Sequence: 1, Epoch: 1}, {Sequence: ^fsm.SequenceNumber(0), Epoch: ^uint32(0)}, {}} {
			got, ok := s.decrypt(at, s.encrypt(at, id))
			if !ok || got != id {
				t.Errorf("%v at %v came back as %v, %v", id, at, got, ok)
			}
		}
	}
}

func TestTokenOfAnotherEntityIsRefused(t *testing.T) {
	t.Parallel()
	s := testTokenCipher(t, 1)
	token := s.encrypt(fsm.Address{Entity: 7}, fsm.LockID{Sequence: 3, Epoch: 2})
	for _, other := range []fsm.Address{{Entity: 7, Sub: fsm.DeadLetterQueue}, {Entity: 7, Sub: fsm.TransferDeadLetterQueue}, {Entity: 6}, {Entity: 6, Sub: fsm.TransferDeadLetterQueue}, {Entity: 8}, {Entity: 7 + 1<<31}, {}} {
		if _, ok := s.decrypt(other, token); ok {
			t.Errorf("token of entity 7 accepted at %v", other)
		}
	}
	if _, ok := testTokenCipher(t, 2).decrypt(fsm.Address{Entity: 7}, token); ok {
		t.Error("token accepted under another key")
	}
}

func TestHashAddressKeepsAddressesApart(t *testing.T) {
	t.Parallel()
	seen := map[uint32]fsm.Address{}
	for entity := fsm.EntityID(0); entity < 100_000; entity++ {
		for sub := fsm.MainQueue; sub <= fsm.TransferDeadLetterQueue+1; sub++ {
			at := fsm.Address{Entity: entity, Sub: sub}
			if other, taken := seen[hashAddress(at)]; taken {
				t.Fatalf("%v and %v fold alike", at, other)
			}
			seen[hashAddress(at)] = at
		}
	}
}

func TestTokenCannotBeGuessed(t *testing.T) {
	t.Parallel()
	s := testTokenCipher(t, 1)
	at := fsm.Address{Entity: 1}
	for range 100_000 {
		var guess fsm.LockToken
		_, _ = rand.Read(guess[:])
		if _, ok := s.decrypt(at, guess); ok {
			t.Fatal("a random token was accepted")
		}
	}
	// The tokens of adjacent locks differ in about half of their bits, not only in the last byte.
	a, b := s.encrypt(at, fsm.LockID{Sequence: 1}), s.encrypt(at, fsm.LockID{Sequence: 2})
	same := 0
	for i := range a {
		if a[i] == b[i] {
			same++
		}
	}
	if same > 6 {
		t.Fatalf("tokens of neighbours share %d of 16 bytes", same)
	}
}
