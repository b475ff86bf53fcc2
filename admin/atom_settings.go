package admin

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/peeklock/peeklock/admin/auth"
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
		return parseInto(&s.LockDuration, c, parseATOMDuration)
	case "MaxSizeInMegabytes":
		return parseInto(&s.MaxSizeInMegabytes, c, parseUint32)
	case "RequiresDuplicateDetection":
		return parseInto(&s.RequiresDuplicateDetection, c, parseBool)
	case "RequiresSession":
		return parseInto(&s.RequiresSession, c, parseBool)
	case "DefaultMessageTimeToLive":
		return parseInto(&s.DefaultMessageTimeToLive, c, parseATOMDuration)
	case "DeadLetteringOnMessageExpiration":
		return parseInto(&s.DeadLetteringOnMessageExpiration, c, parseBool)
	case "DeadLetteringOnFilterEvaluationExceptions":
		return parseInto(&s.DeadLetteringOnFilterEvaluationExceptions, c, parseBool)
	case "DuplicateDetectionHistoryTimeWindow":
		return parseInto(&s.DuplicateDetectionHistoryTimeWindow, c, parseATOMDuration)
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
		return parseInto(&s.AutoDeleteOnIdle, c, parseATOMDuration)
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

// parseATOMDuration reads ISO 8601. What is longer than we can count (292 years) never ends:
// clients write the largest TimeSpan of .NET in ways of their own, Java in hours.
func parseATOMDuration(text string) (Duration, error) {
	if len(text) > durationBytesMax || !strings.HasPrefix(text, "P") {
		return 0, fmt.Errorf("%.70q is no duration like PT30S", text)
	}
	nanoseconds, err := isoNanoseconds(text)
	if err != nil {
		return 0, err
	}
	if nanoseconds >= math.MaxInt64 {
		return Duration(Forever), nil
	}
	return Duration(nanoseconds), nil
}

// isoText writes a length of time as the service does: P1DT2H3M4.5S.
func isoText(d Duration) string {
	if d == Duration(Forever) {
		return timeSpanText
	}
	text, rest := "P", time.Duration(d)
	if days := rest / (24 * time.Hour); days > 0 {
		text += strconv.FormatInt(int64(days), 10) + "D"
		rest %= 24 * time.Hour
	}
	if rest == 0 && text != "P" {
		return text
	}
	text += "T"
	for _, unit := range []struct {
		length time.Duration
		name   string
	}{{time.Hour, "H"}, {time.Minute, "M"}} {
		if n := rest / unit.length; n > 0 {
			text += strconv.FormatInt(int64(n), 10) + unit.name
			rest %= unit.length
		}
	}
	if rest > 0 || strings.HasSuffix(text, "T") {
		text += strconv.FormatFloat(rest.Seconds(), 'f', -1, 64) + "S"
	}
	return text
}

// parseDestination reduces what clients write for a destination, a name or an absolute URL, to
// the name.
func parseDestination(text string) (string, error) {
	if !strings.Contains(text, "://") {
		return strings.Trim(text, "/"), nil
	}
	return auth.ParseDestination(text)
}
