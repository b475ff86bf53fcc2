package dataplane

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/peeklock/peeklock/admin/operation"
)

// table has all operations, by method and what follows the path of the entity.
var table = map[string]*row{ //nolint:gochecknoglobals // never changed
	"POST messages": {operation.Operation{
		Name: "send", Pattern: "POST /{entity...}/messages", Right: operation.SendEntity, Statuses: []int{http.StatusCreated}, Summary: "Sends a message, or a batch.",
	}, false, (*Server).send},
	"POST messages/head": {operation.Operation{
		Name: "peekLock", Pattern: "POST /{entity...}/messages/head", Right: operation.ListenEntity, Answers: largestAnswer, Statuses: []int{http.StatusCreated, http.StatusNoContent},
		Summary: "Waits for a message and locks it.",
	}, true, (*Server).peekLock},
	"DELETE messages/head": {operation.Operation{
		Name: "receiveAndDelete", Pattern: "DELETE /{entity...}/messages/head", Right: operation.ListenEntity, Answers: largestAnswer, Statuses: []int{http.StatusOK, http.StatusNoContent},
		Summary: "Waits for a message, and receives and deletes it.",
	}, true, (*Server).receiveAndDelete},
	"POST messages/{id}/{token}": {operation.Operation{
		Name: "renew", Pattern: "POST /{entity...}/messages/{id}/{token}", Right: operation.ListenEntity, Statuses: []int{http.StatusOK}, Summary: "Renews the lock of a message.",
	}, false, (*Server).renew},
	"PUT messages/{id}/{token}": {operation.Operation{
		Name: "unlock", Pattern: "PUT /{entity...}/messages/{id}/{token}", Right: operation.ListenEntity, Statuses: []int{http.StatusOK}, Summary: "Releases the lock of a message.",
	}, false, (*Server).unlock},
	"DELETE messages/{id}/{token}": {operation.Operation{
		Name: "complete", Pattern: "DELETE /{entity...}/messages/{id}/{token}", Right: operation.ListenEntity, Statuses: []int{http.StatusOK}, Summary: "Completes a message.",
	}, false, (*Server).complete},
}

// largestAnswer bounds the answer with a message. The message is counted when it is known.
func largestAnswer(url.Values) int { return copiesOfAnswer * allowedMessageBytesMax }

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
	form, rest := "", 0
	switch {
	case is(1, "messages") && r.Method == http.MethodPost: // an entity may be called messages, or end so
		form, rest = "messages", 1
	case is(1, "head") && is(2, "messages"):
		form, rest = "messages/head", 2
	case is(3, "messages"):
		var ok bool
		if t.token, ok = parseToken(parts[len(parts)-1]); !ok {
			return target{}, false // an entity may have such a name
		}
		form, rest = "messages/{id}/{token}", 3
		t.id = parts[len(parts)-2]
	}
	t.do = table[r.Method+" "+form]
	// The control API has paths below v1 that end with the names of entities.
	if t.do == nil || parts[0] == "v1" {
		return target{}, false
	}
	t.entity = strings.Join(parts[:len(parts)-rest], "/")
	return t, true
}
