package entity

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// ApplyTo returns old with the settings that are given, checked. A setting that exceeds a limit of the
// namespace may stay. Errors wrap fsm.InvalidArgument.
func (s *Settings) ApplyTo(kind fsm.EntityKind, old fsm.EntitySettings, l Limits) (fsm.EntitySettings, error) {
	l.LockDuration = max(l.LockDuration, time.Duration(fromMillis(old.LockDuration)))
	l.MessageBytes = max(l.MessageBytes, old.MaxMessageBytes)
	err := s.checkKind(kind)
	if err == nil {
		err = s.Check(l)
	}
	if err == nil {
		s.StoreIn(&old)
		err = s.completeRetryDelays(&old)
	}
	if err != nil {
		return old, fmt.Errorf("%w: %w", fsm.InvalidArgument, err)
	}
	return old, nil
}

// Check returns an error that names the setting for the first given value that limits do not allow.
func (s *Settings) Check(l Limits) error {
	for i := range table {
		if err := table[i].Check(s, l); err != nil {
			return fmt.Errorf("%s %w", table[i].nameFor(s), err)
		}
	}
	return nil
}

// checkKind refuses settings that the kind does not have: they must not look as if they worked.
func (s *Settings) checkKind(kind fsm.EntityKind) error {
	for i := range table {
		name := table[i].nameFor(s)
		if !table[i].IsGiven(s) || table[i].Has(kind) {
			continue
		}
		switch kind {
		case fsm.TopicEntity:
			return fmt.Errorf("%s is a setting of subscriptions, not of their topic", name)
		case fsm.SubscriptionEntity:
			return fmt.Errorf("%s is a setting of the topic, not of its subscriptions", name)
		case fsm.QueueEntity:
			return fmt.Errorf("%s is a setting of subscriptions, not of queues", name)
		}
	}
	return nil
}

// completeRetryDelays sets the delay that is not given: the state machine needs both or none.
func (s *Settings) completeRetryDelays(q *fsm.EntitySettings) error {
	switch {
	case q.RetryDelay == 0 && s.RetryDelayMax != nil && q.RetryDelayMax > 0:
		return errors.New("retryDelayMax needs a retryDelay above 0")
	case q.RetryDelay == 0:
		q.RetryDelayMax = 0
	case s.RetryDelayMax == nil && (q.RetryDelayMax == 0 || q.RetryDelayMax < q.RetryDelay):
		q.RetryDelayMax = max(q.RetryDelay, fsm.Millis(retryDelayMaxDefault.Milliseconds()))
	case q.RetryDelayMax < q.RetryDelay:
		return errors.New("retryDelayMax is at least retryDelay")
	}
	return nil
}

// StoreIn stores the settings that are given. It does not check them.
func (s *Settings) StoreIn(stored *fsm.EntitySettings) {
	for i := range table {
		table[i].store(s, stored)
	}
	s.ReadBack.storeIn(stored, s)
}

// DescribeSettings returns the settings that the kind has.
func DescribeSettings(kind fsm.EntityKind, settings fsm.EntitySettings) Settings {
	settings = settings.WithDefaults()
	var s Settings
	for i := range table {
		if table[i].Has(kind) {
			table[i].show(&settings, &s)
		}
	}
	return s
}

// SettingByElement returns the setting of an ATOM element, nil when there is none.
func SettingByElement(element string) *Setting {
	i := slices.IndexFunc(table, func(s Setting) bool { return s.Element == element && element != "" })
	if i < 0 {
		return nil
	}
	return &table[i]
}

// SettingNames lists the settings of a kind, for the text of an error.
func SettingNames(kind fsm.EntityKind) string {
	var names []string
	for i := range table {
		if table[i].Has(kind) {
			names = append(names, table[i].Name)
		}
	}
	return strings.Join(names, ", ")
}
