package raftlog

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"maps"
	"slices"

	"github.com/peeklock/peeklock/partition/disk"
)

// A raft-boltdb file has no checksums, so damage to it could change a vote unseen. Where it holds nothing but values, since the
// entries are in a journal, a second file has a copy of them, with checksums. It begins with a record of all values; each later one
// has the change of one transaction, and the last one, after an orderly end, the checksum of the raft-boltdb file. DESIGN.md of
// package partition gives the reasons.
const (
	copySuffix  = ".copy" // of the file, behind the path of the raft-boltdb file
	freshSuffix = ".new"  // of a file that is being written and replaces another one

	copyRecordHeadBytes = 16       // length of the rest, its checksum, transaction
	copyChangesBytesMax = 64 << 10 // of changes behind the first record before the copy is written anew, unless that record is larger
)

// pendingTransaction is the transaction of a copy from which the raft-boltdb file is being written again: it counts, whatever the
// file holds. The first transaction of a bbolt file is a higher one.
const pendingTransaction = 0

// copyHead is the magic and the version of a copy.
var copyHead = []byte("PLKVALUE\x01\x00\x00\x00") //nolint:gochecknoglobals // read only

// valueCopy is the content of a copy.
type valueCopy struct {
	transaction uint64 // of the raft-boltdb file after which the values were these
	values      map[string]string
	sum         []byte // checksum of the raft-boltdb file after its orderly end, nil if it has not come to that
}

// encode returns a copy without changes.
func (c *valueCopy) encode() []byte {
	return appendCopyRecord(bytes.Clone(copyHead), c.transaction, c.values)
}

// appendCopyRecord appends a record. An empty value removes its key. The empty key, which bbolt does not permit, has the checksum of the
// raft-boltdb file.
func appendCopyRecord(b []byte, transaction uint64, values map[string]string) []byte {
	start := len(b)
	b = binary.LittleEndian.AppendUint64(append(b, make([]byte, 8)...), transaction)
	for _, key := range slices.Sorted(maps.Keys(values)) {
		for _, s := range []string{key, values[key]} {
			b = append(binary.LittleEndian.AppendUint32(b, uint32(len(s))), s...)
		}
	}
	binary.LittleEndian.PutUint32(b[start:], uint32(len(b)-start-8))
	binary.LittleEndian.PutUint32(b[start+4:], crc32.Checksum(b[start+8:], disk.Castagnoli))
	return b
}

// decodeCopyRecord returns the record at the start of b and its length, 0 if there is no whole one.
func decodeCopyRecord(b []byte) (transaction uint64, values map[string]string, n int) {
	if len(b) < copyRecordHeadBytes {
		return 0, nil, 0
	}
	length := uint64(binary.LittleEndian.Uint32(b)) + 8
	if length < copyRecordHeadBytes || length > uint64(len(b)) || crc32.Checksum(b[8:length], disk.Castagnoli) != binary.LittleEndian.Uint32(b[4:]) {
		return 0, nil, 0
	}
	rest := b[copyRecordHeadBytes:length]
	next := func() (string, bool) {
		if len(rest) < 4 || uint64(binary.LittleEndian.Uint32(rest)) > uint64(len(rest)-4) {
			return "", false
		}
		end := 4 + int(binary.LittleEndian.Uint32(rest))
		s := string(rest[4:end])
		rest = rest[end:]
		return s, true
	}
	values = make(map[string]string)
	for len(rest) > 0 {
		key, hasKey := next()
		value, hasValue := next()
		if !hasKey || !hasValue {
			return 0, nil, 0
		}
		values[key] = value
	}
	return binary.LittleEndian.Uint64(b[8:]), values, int(length)
}

// decodeCopy returns what a copy holds up to the first record that is not whole, nil if that is nothing. Such a copy is as if the
// process had ended earlier.
func decodeCopy(b []byte) *valueCopy {
	b, ok := bytes.CutPrefix(b, copyHead)
	if !ok {
		return nil
	}
	transaction, values, n := decodeCopyRecord(b)
	if n == 0 {
		return nil
	}
	c := &valueCopy{transaction: transaction, values: values}
	for {
		b = b[n:]
		if transaction, values, n = decodeCopyRecord(b); n == 0 {
			return c
		}
		if sum, ok := values[""]; ok && transaction == c.transaction {
			c.sum = []byte(sum)
			return c
		}
		if transaction != c.transaction+1 {
			return c
		}
		c.transaction = transaction
		for key, value := range values {
			setValue(c.values, key, value)
		}
	}
}
