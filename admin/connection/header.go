package connection

import (
	"bytes"
	"strings"
)

// HeaderBytesMax is the size in bytes of the header block that a server accepts.
const HeaderBytesMax = 16 * 1024

// rawHeader records the header block of the request that a connection serves, because net/http does not keep the spelling of
// its names. It is used by the goroutine of the connection alone, except that net/http reads ahead for the end of the
// connection after the header.
type rawHeader struct {
	text  []byte
	ended bool // the block is complete
}

// add records what was read from the connection.
func (h *rawHeader) add(read []byte) {
	if h.ended {
		return
	}
	h.text = append(h.text, read...)
	// net/http accepts lines that end with a line feed alone.
	if bytes.Contains(h.text, []byte("\r\n\r\n")) || bytes.Contains(h.text, []byte("\n\n")) {
		h.ended = true
	} else if len(h.text) > HeaderBytesMax {
		h.text, h.ended = nil, true
	}
}

// reset forgets the block, before that of the next request.
func (h *rawHeader) reset() { h.text, h.ended = h.text[:0], false }

// spelling returns a name as the client wrote it, or in its canonical form if that is not known.
func (h *rawHeader) spelling(canonical string) string {
	if h == nil {
		return canonical
	}
	for line := range bytes.SplitSeq(h.text, []byte("\n")) {
		if name, _, found := bytes.Cut(line, []byte(":")); found && strings.EqualFold(string(name), canonical) {
			return string(name)
		}
	}
	return canonical
}
