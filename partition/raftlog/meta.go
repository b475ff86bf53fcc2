package raftlog

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
	"io"

	"github.com/peeklock/peeklock/partition/disk"
)

// The places in a meta page of bbolt. A file has two of them, one behind the other, and a transaction is valid once it
// has overwritten the older one.
const (
	metaStart       = 16 // behind the head of the page
	metaPageSize    = metaStart + 8
	metaTransaction = metaStart + 48
	metaSum         = metaStart + 56
	metaEnd         = metaSum + 8

	metaMagic, metaVersion = 0xED0CDAED, 2

	pageBytesMin, pageBytesMax = 1 << 10, 1 << 16
)

// boltMetas says what the meta pages of a raft-boltdb file tell that are not damaged.
type boltMetas struct {
	newest uint64 // transaction
	whole  int    // pages, two unless the file is damaged
}

// readMetas reads the meta pages, without bbolt, which might not survive a damaged file.
func readMetas(file io.ReaderAt) (m boltMetas, err error) {
	read := func(offset int64) (pageBytes int64, err error) {
		page := make([]byte, metaEnd)
		switch _, err := file.ReadAt(page, offset); {
		case disk.IsUnreadable(err): // it is damaged
			return 0, nil
		case err != nil && !errors.Is(err, io.EOF):
			return 0, err
		}
		if binary.NativeEndian.Uint32(page[metaStart:]) != metaMagic || binary.NativeEndian.Uint32(page[metaStart+4:]) != metaVersion ||
			binary.NativeEndian.Uint64(page[metaSum:]) != sumOfMeta(page) {
			return 0, nil
		}
		m.newest = max(m.newest, binary.NativeEndian.Uint64(page[metaTransaction:]))
		m.whole++
		return int64(binary.NativeEndian.Uint32(page[metaPageSize:])), nil
	}
	second, err := read(0)
	if m.whole > 0 {
		_, err = read(second)
	}
	for offset := int64(pageBytesMin); err == nil && offset <= pageBytesMax && m.whole == 0; offset *= 2 {
		_, err = read(offset)
	}
	return m, err
}

func sumOfMeta(page []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(page[metaStart:metaSum])
	return h.Sum64()
}

// isNewest reports whether a transaction, which was in the file, was the newest one. If one of the meta pages is damaged, it may be that of
// the newest transaction.
func (m *boltMetas) isNewest(transaction uint64) bool {
	return m.whole > 0 && (transaction == m.newest || m.whole == 1 && transaction == m.newest+1)
}
