package dataplane

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/peeklock/peeklock/fsm"
)

// operation is what a request does.
type operation uint8

const (
	send operation = iota + 1
	peekLock
	receiveAndDelete
	unlock
	complete
	renew
)

// target is the entity and message of a request.
type target struct {
	do     operation
	entity string // its path, as the client wrote it
	id     string // message id or sequence number
	token  fsm.LockToken
}

// Claims reports whether a request is one of this package.
func Claims(r *http.Request) bool {
	_, ok := parse(r)
	return ok
}

// parse reads method and path. Words have any case.
func parse(r *http.Request) (target, bool) {
	parts := strings.Split(strings.Trim(r.URL.EscapedPath(), "/"), "/")
	for i := range parts {
		var err error
		if parts[i], err = url.PathUnescape(parts[i]); err != nil {
			return target{}, false
		}
	}
	is := func(fromEnd int, word string) bool {
		return len(parts) > fromEnd && strings.EqualFold(parts[len(parts)-fromEnd], word)
	}
	var t target
	rest := 0
	switch {
	case r.Method == http.MethodPost && is(1, "messages"):
		t.do, rest = send, 1
	case is(1, "head") && is(2, "messages"):
		t.do, rest = map[string]operation{http.MethodPost: peekLock, http.MethodDelete: receiveAndDelete}[r.Method], 2
	case is(3, "messages"):
		var ok bool
		if t.token, ok = parseToken(parts[len(parts)-1]); !ok {
			return target{}, false // an entity may have such a name
		}
		t.do, rest = map[string]operation{http.MethodPost: renew, http.MethodPut: unlock, http.MethodDelete: complete}[r.Method], 3
		t.id = parts[len(parts)-2]
	}
	// The control API has paths below v1 that end with the names of entities.
	if t.do == 0 || parts[0] == "v1" {
		return target{}, false
	}
	t.entity = strings.Join(parts[:len(parts)-rest], "/")
	return t, true
}
