package amqp

import (
	"net/url"
	"strings"
	"unicode/utf8"
)

// The parts of addresses that the gateway interprets. Everything else
// of a path is for Broker.Resolve.
const (
	cbsPath          = "$cbs"
	managementSuffix = "/$management"
	addressBytesMax  = 4096 // longest address accepted; entity paths are 260 characters
)

// reducePath turns an address as clients spell it into a path: "queue", "/queue",
// "amqps://host:port/queue" and their percent-encoded forms are all "queue"
// (.NET sends the second, Python the third). False when it cannot be a path.
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
		path = plain // otherwise a name with a bare percent sign; paths are shown in texts, which are UTF-8
	}
	return path, true
}

// cutManagement splits "<entity>/$management" and reports whether path was one.
func cutManagement(path string) (entity string, ok bool) {
	cut := len(path) - len(managementSuffix)
	if cut <= 0 || !strings.EqualFold(path[cut:], managementSuffix) {
		return path, false
	}
	return path[:cut], true
}
