package entrysum

import (
	"encoding/binary"
	"hash/crc32"
)

// Bytes is the length of a checksum.
const Bytes = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli) //nolint:gochecknoglobals // read only

// Append appends the CRC-32C of data, little endian.
func Append(dst, data []byte) []byte {
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(data, castagnoli))
}

// Matches reports whether sum is the checksum of data.
func Matches(sum, data []byte) bool {
	return len(sum) == Bytes && binary.LittleEndian.Uint32(sum) == crc32.Checksum(data, castagnoli)
}
