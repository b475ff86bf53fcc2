package input

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm"
)

// NamespaceParameter selects a namespace by name in the control API; it takes precedence over the Host header.
const NamespaceParameter = "namespace"

// Name returns the name in the path, checked for the kind. Errors wrap fsm.InvalidArgument.
func Name(kind fsm.EntityKind, r *http.Request) (string, error) {
	name := r.PathValue("name")
	return name, entity.CheckName(kind, name)
}

// MessageEntityName returns the name in the path of an entity that holds messages: a queue or a subscription.
func MessageEntityName(r *http.Request) (string, error) {
	if _, _, ok := fsm.SplitSubscriptionPath(r.PathValue("name")); ok {
		return Name(fsm.SubscriptionEntity, r)
	}
	return Name(fsm.QueueEntity, r)
}

// CheckParameters refuses unknown parameters: a misspelt one must not appear to work. The parameter that
// selects a namespace is always known.
func CheckParameters(r *http.Request, possible ...string) error {
	for key := range r.URL.Query() {
		if key != NamespaceParameter && !slices.Contains(possible, key) {
			return fmt.Errorf("%w: unknown parameter %.40q: possible are %s", fsm.InvalidArgument, key, strings.Join(possible, ", "))
		}
	}
	return nil
}

// Number returns a parameter from low to high, or normal without one. Errors wrap fsm.InvalidArgument.
func Number(r *http.Request, name string, normal, low, high int) (int, error) {
	return NumberIn(name, r.URL.Query().Get(name), normal, low, high)
}

// NumberIn is Number for the value of a parameter.
func NumberIn(name, text string, normal, low, high int) (int, error) {
	if text == "" {
		return normal, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high {
		return 0, fmt.Errorf("%w: %s is a number from %d to %d", fsm.InvalidArgument, name, low, high)
	}
	return n, nil
}

// Bool returns a parameter, or false without one. Errors wrap fsm.InvalidArgument.
func Bool(r *http.Request, name string) (bool, error) {
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
