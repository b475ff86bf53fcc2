package address

import (
	"net/url"
	"strings"
	"unicode/utf8"
)

// Parts of addresses that the gateway interprets. Broker.Resolve interprets the rest of a path.
const (
	CBS              = "$cbs"         // path of the node to which clients put tokens
	managementSuffix = "/$management" // of the management node of an entity
	hostShownMax     = 255            // bytes of a host that is repeated in a text (RFC 1035, 2.3.4)
	BytesMax         = 4096           // longest address accepted; entity paths are 260 characters
)

// Reduce reduces an address, in any spelling that clients use, to a path: "queue", "/queue",
// "amqps://host:port/queue" and their percent-encoded forms all become "queue" (.NET sends the second, Python
// the third). It returns false if the address cannot be a path.
func Reduce(address any) (string, bool) {
	var path string
	switch a := address.(type) {
	case string:
		path = a
	default:
		return "", false
	}
	if len(path) > BytesMax {
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

// URL returns the address of an entity as the service writes it in texts on which programs rely: with the host that
// the client opened the connection for. Without a host it is the path.
func URL(host, path string) string {
	if host == "" || len(host) > hostShownMax {
		return path
	}
	return "sb://" + host + "/" + path
}

// CutManagement removes the suffix of "<entity>/$management" and reports whether path had it.
func CutManagement(path string) (entity string, ok bool) {
	cut := len(path) - len(managementSuffix)
	if cut <= 0 || !strings.EqualFold(path[cut:], managementSuffix) {
		return path, false
	}
	return path[:cut], true
}
