package admin

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm"
)

// namespaceParameter selects a namespace by name in the control API; it takes precedence over the Host header.
const namespaceParameter = "namespace"

// nameInPath returns the name in the path, checked for the kind.
func nameInPath(kind fsm.EntityKind, r *http.Request) (string, error) {
	name := r.PathValue("name")
	return name, entity.CheckName(kind, name)
}

// messageEntityName returns the name in the path of an entity that holds messages: a queue or a subscription.
func messageEntityName(r *http.Request) (string, error) {
	if _, _, ok := fsm.SplitSubscriptionPath(r.PathValue("name")); ok {
		return nameInPath(fsm.SubscriptionEntity, r)
	}
	return nameInPath(fsm.QueueEntity, r)
}

// checkParameters refuses unknown parameters: a misspelt one must not appear to work. The parameter that
// selects a namespace is always known.
func checkParameters(r *http.Request, possible ...string) error {
	for key := range r.URL.Query() {
		if key != namespaceParameter && !slices.Contains(possible, key) {
			return fmt.Errorf("%w: unknown parameter %.40q: possible are %s", fsm.InvalidArgument, key, strings.Join(possible, ", "))
		}
	}
	return nil
}

func numberParameter(r *http.Request, name string, normal, low, high int) (int, error) {
	return numberIn(name, r.URL.Query().Get(name), normal, low, high)
}

// numberIn parses the value of a parameter; an empty one is normal.
func numberIn(name, text string, normal, low, high int) (int, error) {
	if text == "" {
		return normal, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high {
		return 0, fmt.Errorf("%w: %s is a number from %d to %d", fsm.InvalidArgument, name, low, high)
	}
	return n, nil
}

func boolParameter(r *http.Request, name string) (bool, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return false, nil
	}
	b, err := strconv.ParseBool(text)
	if err != nil {
		return false, fmt.Errorf("%w: %s is true or false", fsm.InvalidArgument, name)
	}
	return b, nil
}
