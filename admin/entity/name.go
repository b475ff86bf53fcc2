package entity

import (
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/peeklock/peeklock/fsm"
)

// Limits of names.
const (
	NameCharactersMax   = 260 // of a queue or topic, as in the cloud
	SubscriptionNameMax = 50  // characters, as in the cloud
)

// SubscriptionsWord separates the topic from the name in the path of a subscription, in any case.
const SubscriptionsWord = "subscriptions"

// subscriptionPathSample shows how the path of a subscription is written.
const subscriptionPathSample = "TOPIC/Subscriptions/NAME"

// CheckName returns an error that says how to correct a name. As in the cloud, a name consists of letters, digits
// and . - _ ~ /, and begins with a letter or digit. The name of a subscription is a path.
// Errors wrap fsm.InvalidArgument.
func CheckName(kind fsm.EntityKind, name string) error {
	if name == "" {
		return fmt.Errorf("%w: the path names no %s", fsm.InvalidArgument, kind)
	}
	topic, subscription, isPath := fsm.SplitSubscriptionPath(name)
	if kind != fsm.SubscriptionEntity {
		if isPath {
			return fmt.Errorf("%w: %.400q names a subscription, not a %s", fsm.InvalidArgument, name, kind)
		}
		return checkNameText(name, NameCharactersMax)
	}
	if !isPath {
		return fmt.Errorf("%w: %.400q names no subscription: write it like %s", fsm.InvalidArgument, name, subscriptionPathSample)
	}
	if err := checkNameText(topic, NameCharactersMax); err != nil {
		return err
	}
	if strings.Contains(subscription, "/") {
		return fmt.Errorf("%w: the name of a subscription has no /", fsm.InvalidArgument)
	}
	return checkNameText(subscription, SubscriptionNameMax)
}

func checkNameText(name string, charactersMax int) error {
	if utf8.RuneCountInString(name) > charactersMax {
		return fmt.Errorf("%w: a name is at most %d characters long", fsm.InvalidArgument, charactersMax)
	}
	plain := func(c rune) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' }
	for _, c := range name {
		if !plain(c) && !strings.ContainsRune(".-_~/", c) {
			return fmt.Errorf("%w: a name has only letters, digits and . - _ ~ /, not %q", fsm.InvalidArgument, c)
		}
	}
	if name == "" || !plain(rune(name[0])) || strings.HasSuffix(name, "/") || strings.Contains(name, "//") {
		return fmt.Errorf("%w: a name begins with a letter or digit and has no empty part", fsm.InvalidArgument)
	}
	for part := range strings.SplitSeq(name, "/") {
		if strings.EqualFold(part, SubscriptionsWord) {
			return fmt.Errorf("%w: a name has no part %q: it separates a topic from its subscription", fsm.InvalidArgument, part)
		}
	}
	return nil
}

// CheckPathName refuses names with an empty part, or with . or .. as a part: a proxy between client and member
// may have changed another path to this one. Errors wrap fsm.InvalidArgument.
func CheckPathName(name string) error {
	if name != path.Clean(name) || name == "." || name == ".." {
		return fmt.Errorf("%w: %.400q: a name has no empty part, nor . or .. as one", fsm.InvalidArgument, name)
	}
	return nil
}
