package admin

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/peeklock/peeklock/fsm"
)

// entityName is the name in the path, checked for its kind.
func entityName(kind fsm.EntityKind, r *http.Request) (string, error) {
	name := r.PathValue("name")
	return name, checkName(kind, name)
}

// messageEntityName is the name in the path of what holds messages: a queue or a subscription.
func messageEntityName(r *http.Request) (string, error) {
	if _, _, ok := fsm.SplitSubscriptionPath(r.PathValue("name")); ok {
		return entityName(fsm.SubscriptionEntity, r)
	}
	return entityName(fsm.QueueEntity, r)
}

// checkName says what is wrong with a name, as the cloud does: letters, digits and . - _ /,
// beginning and ending with a letter or digit. The name of a subscription is a path.
func checkName(kind fsm.EntityKind, name string) error {
	if name == "" {
		return fmt.Errorf("%w: the path names no %s", fsm.InvalidArgument, kind)
	}
	topic, subscription, isPath := fsm.SplitSubscriptionPath(name)
	if kind != fsm.SubscriptionEntity {
		if isPath {
			return fmt.Errorf("%w: %.400q names a subscription, not a %s", fsm.InvalidArgument, name, kind)
		}
		return checkNameText(name, nameCharactersMax)
	}
	if !isPath {
		return fmt.Errorf("%w: %.400q names no subscription: write it like %s", fsm.InvalidArgument, name, subscriptionPathSample)
	}
	if err := checkNameText(topic, nameCharactersMax); err != nil {
		return err
	}
	if strings.Contains(subscription, "/") {
		return fmt.Errorf("%w: the name of a subscription has no /", fsm.InvalidArgument)
	}
	return checkNameText(subscription, subscriptionNameMax)
}

func checkNameText(name string, charactersMax int) error {
	if utf8.RuneCountInString(name) > charactersMax {
		return fmt.Errorf("%w: a name is at most %d characters long", fsm.InvalidArgument, charactersMax)
	}
	plain := func(c rune) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' }
	for _, c := range name {
		if !plain(c) && !strings.ContainsRune(".-_/", c) {
			return fmt.Errorf("%w: a name has only letters, digits and . - _ /, not %q", fsm.InvalidArgument, c)
		}
	}
	if name == "" || !plain(rune(name[0])) || !plain(rune(name[len(name)-1])) || strings.Contains(name, "//") {
		return fmt.Errorf("%w: a name begins and ends with a letter or digit and has no empty part", fsm.InvalidArgument)
	}
	for part := range strings.SplitSeq(name, "/") {
		if strings.EqualFold(part, subscriptionWord) {
			return fmt.Errorf("%w: a name has no part %q: it stands between a topic and its subscription", fsm.InvalidArgument, part)
		}
	}
	return nil
}

// checkParameters refuses every parameter that is not possible: a misspelt one must not
// look as if it worked. The one that chooses a namespace always is.
func checkParameters(r *http.Request, possible ...string) error {
	for key := range r.URL.Query() {
		if key != namespaceParameter && !slices.Contains(possible, key) {
			return fmt.Errorf("%w: unknown parameter %.40q: possible are %s", fsm.InvalidArgument, key, strings.Join(possible, ", "))
		}
	}
	return nil
}

func numberParameter(r *http.Request, name string, normal, low, high int) (int, error) {
	text := r.URL.Query().Get(name)
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
