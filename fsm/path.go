package fsm

import "strings"

// PathKey is the form of a path in which paths are compared: names differ by more than case.
func PathKey(path string) string { return nameKey(path) }

// EntityPath is the path of the queue or topic that a path is at or below, "" for the namespace.
// Below a queue or topic are its sub-queues and management nodes, whose names begin with $; below
// a topic also Subscriptions, each of them, and what is below those. A name that begins with that
// of another entity and a slash is an entity of its own: "orders/new" is not below "orders".
func EntityPath(path string) string {
	if topic, _, ok := SplitSubscriptionPath(path); ok {
		return topic
	}
	for {
		parent, part := cutPath(path)
		switch {
		case strings.HasPrefix(part, "$"):
			path = parent
		case parent != "" && nameKey(part) == subscriptionsSegment: // the list of them
			return parent
		default:
			return path
		}
	}
}

// PathAbove is the place whose rights hold for a path too: what a sub-queue or management node
// belongs to, the topic of what is below it, and else the namespace, "".
func PathAbove(path string) string {
	if parent, part := cutPath(path); strings.HasPrefix(part, "$") {
		return parent
	}
	if entity := EntityPath(path); entity != path {
		return entity
	}
	return ""
}

// cutPath takes the last part off a path.
func cutPath(path string) (parent, part string) {
	cut := strings.LastIndexByte(path, '/')
	if cut < 0 {
		return "", path
	}
	return path[:cut], path[cut+1:]
}
