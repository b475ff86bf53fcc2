package fsm

import (
	"cmp"
	"strings"
)

// PathKey returns the form in which paths are compared, case-insensitively.
func PathKey(path string) string { return NameKey(path) }

// EntityPath returns the path of the queue or topic at or above a path, "" for the namespace. Below
// a queue or topic are its sub-queues and management nodes, whose names begin with $; below a topic
// also Subscriptions, each of them, and what is below those. A name that begins with the name of
// another entity and a slash is an entity of its own: "orders/new" is not below "orders".
func EntityPath(path string) string {
	parent, part := cutPath(path)
	for strings.HasPrefix(part, "$") {
		path = parent
		parent, part = cutPath(path)
	}
	if topic, _, ok := SplitSubscriptionPath(path); ok {
		return topic
	}
	if parent != "" && NameKey(part) == subscriptionsSegment { // the list of subscriptions
		return parent
	}
	return path
}

// TemporaryPrefix begins the names of temporary queues and topics, the dynamic nodes of AMQP; a GUID follows.
const TemporaryPrefix = "temporary/"

// IsTemporaryQueue reports whether a path is that of a temporary queue or topic itself, in any case. Names that
// administrators gave are none, unless they end with a GUID.
func IsTemporaryQueue(path string) bool {
	id, found := strings.CutPrefix(PathKey(path), TemporaryPrefix)
	return found && len(id) == 36 && strings.Trim(id, "0123456789abcdef-") == "" && strings.Count(id, "-") == 4
}

// PathAbove returns the path whose access rules apply to a path too: the entity of a sub-queue or
// management node, the topic of everything below it, and otherwise the namespace, "".
func PathAbove(path string) string {
	if parent, part := cutPath(path); strings.HasPrefix(part, "$") {
		return parent
	}
	if entity := EntityPath(path); entity != path {
		return entity
	}
	return ""
}

// cutPath splits the last part off a path.
func cutPath(path string) (parent, part string) {
	cut := strings.LastIndexByte(path, '/')
	if cut < 0 {
		return "", path
	}
	return path[:cut], path[cut+1:]
}

// NameKey returns the form in which names are compared, case-insensitively. Only ASCII letters are
// folded: names contain no others, and other characters must not become equal to ASCII letters, as
// the Kelvin sign would.
func NameKey(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, name)
}

// CompareKey compares a key with NameKey(name) without allocating: every request looks up names.
func CompareKey(key, name string) int {
	for i := range min(len(key), len(name)) {
		c := name[i]
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != key[i] {
			return cmp.Compare(key[i], c)
		}
	}
	return cmp.Compare(len(key), len(name))
}

// subscriptionsSegment is the segment between topic and subscription, as a key.
const subscriptionsSegment = "subscriptions"

// SubscriptionPath returns the path of a subscription of a topic.
func SubscriptionPath(topic, subscription string) string {
	return topic + "/Subscriptions/" + subscription
}

// SplitSubscriptionPath splits a path into topic and subscription at the segment Subscriptions,
// case-insensitively; ok is false if it is not the path of a subscription. It does not check
// whether the names are valid or exist.
func SplitSubscriptionPath(path string) (topic, subscription string, ok bool) {
	for at := 0; ; {
		slash := strings.IndexByte(path[at:], '/')
		if slash < 0 {
			return "", "", false
		}
		at += slash + 1
		word, rest, more := strings.Cut(path[at:], "/")
		if more && NameKey(word) == subscriptionsSegment {
			return path[:at-1], rest, at > 1 && rest != ""
		}
	}
}
