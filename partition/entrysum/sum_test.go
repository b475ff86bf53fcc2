package entrysum_test

import (
	"testing"

	"github.com/peeklock/peeklock/partition/entrysum"
)

func TestSumMatchesItsDataOnly(t *testing.T) {
	t.Parallel()
	data := []byte("data of an entry")
	sum := entrysum.Append(nil, data)
	if len(sum) != entrysum.Bytes || !entrysum.Matches(sum, data) {
		t.Fatalf("checksum %x does not match its data", sum)
	}
	for bit := range 8 * len(data) {
		data[bit/8] ^= 1 << (bit % 8)
		if entrysum.Matches(sum, data) {
			t.Errorf("checksum matches after bit %d was flipped", bit)
		}
		data[bit/8] ^= 1 << (bit % 8)
	}
	if entrysum.Matches(nil, nil) || entrysum.Matches(sum[:3], data) {
		t.Error("a checksum that is absent or cut matches")
	}
}
