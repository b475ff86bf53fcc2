package cluster

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"fmt"

	"github.com/peeklock/peeklock/fsm"
)

// tokenCipher turns a LockID into the 16 bytes that clients see, and back. A token is one
// AES-128 block:
//
//	bytes 0-7   sequence number
//	bytes 8-11  epoch
//	bytes 12-15 the address, folded to 32 bits
//
// Encrypting one whole block is a permutation that nobody without the key can
// predict: a guessed token decrypts to noise, which fits an address once in 2^32 tries
// and a lock that is being held far more seldom. Two tokens never share a plain text,
// because a LockID is granted once, so no nonce is needed. The fold is exact for
// the first 2^30 entities of a cluster, so a token of one entity is never taken for
// one of another. A sealer may be used concurrently.
type tokenCipher struct{ block cipher.Block }

// newTokenCipher takes the cluster's key, which the catalog keeps.
func newTokenCipher(key [16]byte) (*tokenCipher, error) {
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return nil, fmt.Errorf("make seal: %w", err)
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

// decrypt says false when the token was not made for that address with this key.
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

// hashAddress is the entity shifted by one, with the lower bit of the sub-queue below it
// and the upper one at the top, where tokens of releases that knew two sub-queues have
// none; what an entity above 2^30 has in its upper bits is mixed in.
func hashAddress(at fsm.Address) uint32 {
	entity := uint64(at.Entity)
	return uint32(entity)<<1 ^ uint32(entity>>31) ^ uint32(at.Sub&1) ^ uint32(at.Sub>>1)<<31
}
