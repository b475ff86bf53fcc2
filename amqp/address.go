package amqp

import (
	"net/url"
	"strings"
	"unicode/utf8"
)

// Parts of addresses that the gateway interprets. Broker.Resolve interprets the rest of a path.
const (
	cbsPath          = "$cbs"
	managementSuffix = "/$management"
	hostShownMax     = 255  // bytes of a host that is repeated in a text (RFC 1035, 2.3.4)
	addressBytesMax  = 4096 // longest address accepted; entity paths are 260 characters
)

// reducePath reduces an address, in any spelling that clients use, to a path: "queue", "/queue",
// "amqps://host:port/queue" and their percent-encoded forms all become "queue" (.NET sends the second, Python
// the third). It returns false if the address cannot be a path.
func reducePath(address any) (string, bool) {
	var path string
	switch a := address.(type) {
	case string:
		path = a
	default:
		return "", false
	}
	if len(path) > addressBytesMax {
		return "", false
	}
	if _, rest, found := strings.Cut(path, "://"); found {
		_, path, _ = strings.Cut(rest, "/") // no slash: the namespace itself
	}
	path = strings.TrimPrefix(path, "/")
	path = strings.TrimSuffix(path, "/")
	if plain, err := url.PathUnescape(path); err == nil && utf8.ValidString(plain) {
		path = plain // otherwise the name contains a bare percent sign; texts show paths, and texts are UTF-8
	}
	return path, true
}

// urlOf returns the address of an entity as the service writes it in texts on which programs rely: with the host that the
// client opened the connection for. Without a host it is the path.
func (c *conn) urlOf(path string) string {
	if c.host == "" || len(c.host) > hostShownMax {
		return path
	}
	return "sb://" + c.host + "/" + path
}

// cutManagement removes the suffix of "<entity>/$management" and reports whether path had it.
func cutManagement(path string) (entity string, ok bool) {
	cut := len(path) - len(managementSuffix)
	if cut <= 0 || !strings.EqualFold(path[cut:], managementSuffix) {
		return path, false
	}
	return path[:cut], true
}
