package partition

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/peeklock/peeklock/fsm"
)

// The data of a raft log entry:
//
//	version  1 byte   entryVersion1, or entryVersion2 from format level 3 on
//	wall     uvarint  milliseconds, the wall time of the entry
//	serving  uvarint  milliseconds, the serving time of the entry; version 2 only
//	batch    8 bytes  little endian; by it the proposer finds its callers again
//	count    uvarint  at least 1
//	count times:
//	  length uvarint
//	  command         as fsm.AppendCommand wrote it
//
// Nothing may follow. Numbers have their shortest form. Anything else stops the replica: it comes from a
// newer release, and skipping it would make replicas diverge.

// The versions of entries.
const (
	entryVersion1 byte = 1
	entryVersion2 byte = 2
)

var (
	errEntryShort    = errors.New("entry ends early")
	errEntryVersion  = errors.New("entry version is not known to this binary")
	errEntryNumber   = errors.New("entry has a number that is too long or out of range")
	errEntryTrailing = errors.New("entry has bytes left over")
)

// encodeEntry encodes the data of an entry. Version 1 has no serving time.
func encodeEntry(version byte, times fsm.Times, batch uint64, commands [][]byte) []byte {
	size := 1 + 4*binary.MaxVarintLen64
	for _, c := range commands {
		size += binary.MaxVarintLen32 + len(c)
	}
	dst := append(make([]byte, 0, size), version)
	dst = binary.AppendUvarint(dst, uint64(times.Wall))
	if version >= entryVersion2 {
		dst = binary.AppendUvarint(dst, uint64(times.Serving))
	}
	dst = binary.LittleEndian.AppendUint64(dst, batch)
	dst = binary.AppendUvarint(dst, uint64(len(commands)))
	for _, c := range commands {
		dst = binary.AppendUvarint(dst, uint64(len(c)))
		dst = append(dst, c...)
	}
	return dst
}

// entryHead is the decoded front of an entry, with the commands that follow it.
type entryHead struct {
	times fsm.Times // Serving is 0 in version 1
	batch uint64
	count int
	rest  []byte
}

// decodeEntry decodes the front of an entry.
func decodeEntry(b []byte) (entryHead, error) {
	if len(b) == 0 {
		return entryHead{}, errEntryShort
	}
	version := b[0]
	if version != entryVersion1 && version != entryVersion2 {
		return entryHead{}, fmt.Errorf("%w: %d", errEntryVersion, version)
	}
	var h entryHead
	wall, b, err := number(b[1:], math.MaxInt64)
	if err != nil {
		return entryHead{}, err
	}
	h.times.Wall = fsm.Instant(wall)
	if version >= entryVersion2 {
		var serving uint64
		if serving, b, err = number(b, math.MaxInt64); err != nil {
			return entryHead{}, err
		}
		h.times.Serving = fsm.Instant(serving)
	}
	if len(b) < 8 {
		return entryHead{}, errEntryShort
	}
	h.batch = binary.LittleEndian.Uint64(b)
	count, b, err := number(b[8:], uint64(len(b)))
	if err != nil {
		return entryHead{}, err
	}
	if count == 0 {
		return entryHead{}, errEntryNumber
	}
	h.count, h.rest = int(count), b
	return h, nil
}

// next returns the next command. After the last one no bytes may be left.
func (h *entryHead) next(last bool) ([]byte, error) {
	n, b, err := number(h.rest, math.MaxUint32)
	if err != nil {
		return nil, err
	}
	if n > uint64(len(b)) {
		return nil, errEntryShort
	}
	h.rest = b[n:]
	if last && len(h.rest) != 0 {
		return nil, errEntryTrailing
	}
	return b[:n:n], nil
}

// number decodes a uvarint in its shortest form, at most limit.
func number(b []byte, limit uint64) (uint64, []byte, error) {
	v, n := binary.Uvarint(b)
	switch {
	case n == 0:
		return 0, nil, errEntryShort
	case n < 0, n > 1 && b[n-1] == 0, v > limit:
		return 0, nil, errEntryNumber
	}
	return v, b[n:], nil
}
