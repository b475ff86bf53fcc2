package atom

import (
	"fmt"
	"strings"

	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm"
)

// KindWord is a kind in the words of the service.
func KindWord(kind fsm.EntityKind) string {
	switch kind {
	case fsm.QueueEntity:
		return "Queue"
	case fsm.TopicEntity:
		return "Topic"
	case fsm.SubscriptionEntity:
	}
	return "Subscription"
}

// descriptionName is the element that describes an entity of a kind.
func descriptionName(kind fsm.EntityKind) string { return KindWord(kind) + "Description" }

// EntityKind returns the kind of entity that the description describes, if the path can name one.
func (n *Element) EntityKind(t Target) (fsm.EntityKind, error) {
	for _, kind := range t.Kinds() {
		if n.name == descriptionName(kind) {
			return kind, nil
		}
	}
	return 0, fmt.Errorf("%w: a %.60s does not belong to %.400s", fsm.InvalidArgument, n.name, t.Name)
}

// Settings reads the settings that are given. Unknown elements are ignored, as in the service: clients send back what they
// have read, and may be newer than this member. Also ignored are FilteringMessagesBeforePublishing and
// EnableSubscriptionPartitioning, elements that are only read, and AuthorizationRules, which AccessRules reads. Access
// without a key is refused: it would look as if it worked.
func (n *Element) Settings() (entity.Settings, error) {
	a := entity.Settings{InElements: true}
	seen := make(map[string]bool, len(n.children))
	for i := range n.children {
		c := &n.children[i]
		if seen[c.name] { // two readers of the body could use different ones
			return a, fmt.Errorf("%w: %.60s is given twice", fsm.InvalidArgument, c.name)
		}
		seen[c.name] = true
		// A subscription is partitioned like its topic.
		if c.isNil() || c.name == "EnablePartitioning" && n.name == "SubscriptionDescription" {
			continue
		}
		if err := set(&a, c); err != nil {
			return a, err
		}
	}
	return a, nil
}

// set reads one element of a description.
func set(s *entity.Settings, c *Element) error {
	if c.name == "IsAnonymousAccessible" {
		if open, err := entity.ParseBool(c.text); err == nil && open {
			return fmt.Errorf("%w: IsAnonymousAccessible: there is no access without a key", fsm.NotImplemented)
		}
	}
	setting, text := entity.SettingByElement(c.name), strings.TrimSpace(c.text)
	switch {
	case setting == nil:
		return setHint(&s.ReadBack, c.name, text)
	case setting.Verbatim:
		text = c.text
	case text == "": // as if it was omitted
		return nil
	}
	err := setting.ParseElement(text, s)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %s: %w", fsm.InvalidArgument, c.name, err)
	case setting.Name == "forwardTo":
		s.ReadBack.ForwardToBase, _, err = entity.SplitDestination(text)
	case setting.Name == "forwardDeadLetteredMessagesTo":
		s.ReadBack.ForwardDeadLettersToBase, _, err = entity.SplitDestination(text)
	}
	return err
}

// setHint reads an element without effect that is stored.
func setHint(b *entity.ReadBack, name, text string) error {
	to := &b.BatchedOperations
	switch name {
	case "EnableBatchedOperations":
	case "SupportOrdering":
		to = &b.SupportOrdering
	case "EnableExpress":
		to = &b.Express
	default:
		return nil
	}
	if text == "" { // as if it was omitted
		return nil
	}
	on, err := entity.ParseBool(text)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", fsm.InvalidArgument, name, err)
	}
	*to = &on
	return nil
}
