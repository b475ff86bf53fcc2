package router

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"fmt"

	"github.com/peeklock/peeklock/fsm"
)

// tokenCipher encrypts lock ids into the 16 bytes that clients see, and decrypts them. A token is
// one AES-128 block:
//
//	bytes 0-7   sequence number
//	bytes 8-11  epoch
//	bytes 12-15 the address, hashed to 32 bits
//
// Encrypting one whole block is a permutation that cannot be predicted without the key: a guessed
// token decrypts to random bytes, which match an address once in 2^32 attempts and an existing lock far
// less often. Two tokens never share a plain text, because a LockID is granted once, so no nonce is
// needed. The hash is exact for the first 2^30 entities of a cluster, so a token of one entity is
// never accepted for another. A tokenCipher is safe for concurrent use.
type tokenCipher struct{ block cipher.Block }

// newTokenCipher makes a cipher from the key of the cluster, which the catalog stores.
func newTokenCipher(key [16]byte) (*tokenCipher, error) {
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return nil, fmt.Errorf("create cipher of lock tokens: %w", err)
	}
	return &tokenCipher{block: block}, nil
}

func (s *tokenCipher) encrypt(at fsm.Address, id fsm.LockID) (token fsm.LockToken) {
	binary.BigEndian.PutUint64(token[0:], uint64(id.Sequence))
	binary.BigEndian.PutUint32(token[8:], id.Epoch)
	binary.BigEndian.PutUint32(token[12:], hashAddress(at))
	s.block.Encrypt(token[:], token[:])
	return token
}

// decrypt returns false when the token was not made for that address with this key.
func (s *tokenCipher) decrypt(at fsm.Address, token fsm.LockToken) (fsm.LockID, bool) {
	s.block.Decrypt(token[:], token[:])
	if binary.BigEndian.Uint32(token[12:]) != hashAddress(at) {
		return fsm.LockID{}, false
	}
	return fsm.LockID{
		Sequence: fsm.SequenceNumber(binary.BigEndian.Uint64(token[0:])),
		Epoch:    binary.BigEndian.Uint32(token[8:]),
	}, true
}

// hashAddress returns the entity shifted by one, with the lower bit of the sub-queue below it
// and the upper one at the top, where tokens of releases with two sub-queues have a 0; the upper
// bits of an entity above 2^30 are mixed in.
func hashAddress(at fsm.Address) uint32 {
	entity := uint64(at.Entity)
	return uint32(entity)<<1 ^ uint32(entity>>31) ^ uint32(at.Sub&1) ^ uint32(at.Sub>>1)<<31
}
