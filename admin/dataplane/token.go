package dataplane

import (
	"encoding/hex"
	"strings"

	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// formatToken is a lock token as a GUID.
func formatToken(token fsm.LockToken) string {
	id := message.UUIDFromToken(token)
	text := hex.EncodeToString(id[:])
	return text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:]
}

// parseToken is the inverse of formatToken, in any case.
func parseToken(text string) (fsm.LockToken, bool) {
	var id wire.UUID
	if len(text) != 36 || text[8] != '-' || text[13] != '-' || text[18] != '-' || text[23] != '-' {
		return fsm.LockToken{}, false
	}
	plain := strings.ReplaceAll(text, "-", "")
	if len(plain) != 2*len(id) {
		return fsm.LockToken{}, false
	}
	if _, err := hex.Decode(id[:], []byte(plain)); err != nil {
		return fsm.LockToken{}, false
	}
	return message.TokenFromUUID(id), true
}
