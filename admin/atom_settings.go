package admin

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm"
)

// kind is what the description describes, if that can be at the path.
func (n *element) kind(t atomTarget) (fsm.EntityKind, error) {
	kinds := map[string]fsm.EntityKind{
		"QueueDescription": fsm.QueueEntity, "TopicDescription": fsm.TopicEntity, "SubscriptionDescription": fsm.SubscriptionEntity,
	}
	kind, known := kinds[n.name]
	_, _, isPath := fsm.SplitSubscriptionPath(t.name)
	if !known || isPath != (kind == fsm.SubscriptionEntity) {
		return 0, fmt.Errorf("%w: a %.60s does not belong to %.400s", fsm.InvalidArgument, n.name, t.name)
	}
	return kind, nil
}

// settings reads what is given. Elements that are not known are passed over, as the service
// does: clients send back what they got, and are newer than we. Passed over are also
// hints that change nothing that is promised (EnableBatchedOperations, EnableExpress,
// SupportOrdering, FilteringMessagesBeforePublishing), what is only ever told, and
// AuthorizationRules, which access reads. Refused is what would look as if it worked: access for
// everybody.
func (n *element) settings() (Settings, error) {
	var a Settings
	seen := make(map[string]bool, len(n.children))
	for i := range n.children {
		c := &n.children[i]
		if seen[c.name] { // or one reader would see the first, and another the last
			return a, fmt.Errorf("%w: %.60s is given twice", fsm.InvalidArgument, c.name)
		}
		seen[c.name] = true
		// Whether a subscription is spread is said by its topic.
		if c.isNil() || c.name == "EnablePartitioning" && n.name == "SubscriptionDescription" {
			continue
		}
		if err := a.set(c); err != nil {
			return a, err
		}
	}
	return a, nil
}

// set takes one element of a description.
func (s *Settings) set(c *element) error {
	switch c.name {
	case "LockDuration":
		return parseInto(&s.LockDuration, c, entity.ParseISODuration)
	case "MaxSizeInMegabytes":
		return parseInto(&s.MaxSizeInMegabytes, c, parseUint32)
	case "RequiresDuplicateDetection":
		return parseInto(&s.RequiresDuplicateDetection, c, parseBool)
	case "RequiresSession":
		return parseInto(&s.RequiresSession, c, parseBool)
	case "DefaultMessageTimeToLive":
		return parseInto(&s.DefaultMessageTimeToLive, c, entity.ParseISODuration)
	case "DeadLetteringOnMessageExpiration":
		return parseInto(&s.DeadLetteringOnMessageExpiration, c, parseBool)
	case "DeadLetteringOnFilterEvaluationExceptions":
		return parseInto(&s.DeadLetteringOnFilterEvaluationExceptions, c, parseBool)
	case "DuplicateDetectionHistoryTimeWindow":
		return parseInto(&s.DuplicateDetectionHistoryTimeWindow, c, entity.ParseISODuration)
	case "MaxDeliveryCount":
		return parseInto(&s.MaxDeliveryCount, c, parseUint32)
	case "Status":
		return parseInto(&s.Status, c, parseText)
	case "ForwardTo":
		return parseInto(&s.ForwardTo, c, parseDestination)
	case "ForwardDeadLetteredMessagesTo":
		return parseInto(&s.ForwardDeadLetteredMessagesTo, c, parseDestination)
	case "UserMetadata":
		s.UserMetadata = &c.text
	case "AutoDeleteOnIdle":
		return parseInto(&s.AutoDeleteOnIdle, c, entity.ParseISODuration)
	case "MaxMessageSizeInKilobytes":
		return parseInto(&s.MaxMessageBytes, c, parseKilobytes)
	case "EnablePartitioning":
		return parseInto(&s.EnablePartitioning, c, parseBool)
	case "IsAnonymousAccessible":
		if open, err := parseBool(c.text); err == nil && open {
			return fmt.Errorf("%w: IsAnonymousAccessible: there is no access without a key", fsm.NotImplemented)
		}
	}
	return nil
}

// parseInto reads the text of an element into a field; an empty element is one that is not there.
func parseInto[T any](field **T, c *element, read func(string) (T, error)) error {
	text := strings.TrimSpace(c.text)
	if text == "" {
		return nil
	}
	value, err := read(text)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", fsm.InvalidArgument, c.name, err)
	}
	*field = &value
	return nil
}

func parseText(text string) (string, error) { return text, nil }

func parseBool(text string) (bool, error) {
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "true", "1":
		return true, nil
	case "false", "0":
		return false, nil
	}
	return false, fmt.Errorf("%.40q is not true or false", text)
}

func parseUint32(text string) (uint32, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%.40q is no number from 0 to %d", text, uint32(math.MaxUint32))
	}
	return uint32(n), nil
}

// parseKilobytes reads a size in KiB into one in bytes.
func parseKilobytes(text string) (uint32, error) {
	n, err := parseUint32(text)
	if err == nil && n > tierBytesMax/1024 {
		return 0, fmt.Errorf("%d is more than %d", n, tierBytesMax/1024)
	}
	return n * 1024, err
}

// parseDestination reduces what clients write for a destination, a name or an absolute URL, to
// the name.
func parseDestination(text string) (string, error) {
	if !strings.Contains(text, "://") {
		return strings.Trim(text, "/"), nil
	}
	return auth.ParseDestination(text)
}
