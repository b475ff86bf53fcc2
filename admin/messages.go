package admin

import (
	"bytes"
	"net/http"
	"strings"

	"github.com/peeklock/peeklock/admin/dataplane"
)

// serveMessages serves a request about messages.
func (s *core) serveMessages(w http.ResponseWriter, r *http.Request) {
	kind, token := parseAuthorization(r.Header.Get("Authorization"))
	raw := originOf(r).header
	s.config.Messages.Serve(w, r, dataplane.Caller{
		Trusted: s.trustedCaller(r) != "", Secure: isSecure(r), Client: s.authClient(r), Kind: kind, Token: token,
		Spelling: func(canonical string) string { return raw.spelling(canonical) },
	})
}

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
	} else if len(h.text) > headerBytesMax {
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
