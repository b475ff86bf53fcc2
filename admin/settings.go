package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm"
)

// What may be asked of an entity. The machines check again; the texts are here.
const (
	lockDurationMin      = 5 * time.Second
	lockDurationMax      = 5 * time.Minute // where the namespace says nothing of it
	lockDurationDefault  = 30 * time.Second
	deliveryCountMax     = 2000
	deliveryCountNormal  = 10
	messageBytesMin      = 1024
	messageBytesMax      = 1024 * 1024 // where the namespace says nothing of it
	messageBytesNormal   = 256 * 1024
	lifeMin              = time.Millisecond // of messages
	deadLetterLifeMin    = time.Second
	duplicateWindowMin   = 20 * time.Second
	duplicateWindowMax   = 7 * 24 * time.Hour
	autoDeleteMin        = 5 * time.Minute
	megabytesMax         = 80 * 1024
	userMetadataBytesMax = 1024
	retryDelayMax        = 7 * 24 * time.Hour
	retryDelayMaxNormal  = 10 * time.Minute // where RetryDelay is chosen and its maximum is not
)

// statusNames are the statuses in the cloud's words, by their number.
func statusNames() []string { return []string{"Active", "Disabled", "SendDisabled", "ReceiveDisabled"} }

// defaultSettings are those of a PUT without a body.
func defaultSettings(kind fsm.EntityKind) fsm.EntitySettings {
	s := fsm.DefaultSettings()
	s.LockDuration = fsm.Millis(lockDurationDefault.Milliseconds())
	s.MaxDeliveryCount = deliveryCountNormal
	s.MaxMessageBytes = messageBytesNormal
	s.DeadLetterOnFilterErrors = kind == fsm.SubscriptionEntity
	return s
}

// decodeBody reads a JSON object; no body leaves value as it is. Unknown fields are
// refused: a misspelt one must not look as if it worked.
func decodeBody(r *http.Request, value any, possible string) error {
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	err := decoder.Decode(value)
	if err == nil {
		_, err = decoder.Token()
		if err == nil {
			return fmt.Errorf("%w: the body holds more than one JSON value", fsm.InvalidArgument)
		}
	}
	var tooLarge *http.MaxBytesError
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case errors.Is(err, fsm.ServerBusy): // there was no slot for the request
		return err
	case errors.As(err, &tooLarge):
		return fmt.Errorf("%w: the body is longer than %d bytes", fsm.MessageTooLarge, bodyBytesMax)
	}
	return fmt.Errorf("%w: the body: %s; possible are %s", fsm.InvalidArgument, strings.TrimPrefix(err.Error(), "json: "), possible)
}

func decodeSettings(kind fsm.EntityKind, r *http.Request) (Settings, error) {
	var settings Settings
	return settings, decodeBody(r, &settings, settingNamesOf(kind))
}

// decodeCreation is readSettings with what only a creation has: the first rule of a
// subscription, nil for the usual one.
func decodeCreation(kind fsm.EntityKind, r *http.Request) (Settings, *fsm.Rule, error) {
	if kind != fsm.SubscriptionEntity {
		settings, err := decodeSettings(kind, r)
		return settings, nil, err
	}
	var asked SubscriptionRequest
	if err := decodeBody(r, &asked, settingNamesOf(kind)+" and defaultRule"); err != nil || asked.DefaultRule == nil {
		return asked.Settings, nil, err
	}
	if asked.DefaultRule.Name == "" {
		asked.DefaultRule.Name = fsm.DefaultRuleName
	}
	rule, err := asked.DefaultRule.Parse()
	return asked.Settings, &rule, err
}

// applyTo lays the settings that are given over old ones and checks the result. What is over a
// limit of the namespace already may stay.
func (s *Settings) applyTo(kind fsm.EntityKind, old fsm.EntitySettings, l namespaceLimits) (fsm.EntitySettings, error) {
	if err := s.checkKind(kind); err != nil {
		return old, fmt.Errorf("%w: %w", fsm.InvalidArgument, err)
	}
	l.lockDuration = max(l.lockDuration, time.Duration(*fromMillis(old.LockDuration)))
	l.messageBytes = max(l.messageBytes, old.MaxMessageBytes)
	for _, lay := range []func(*fsm.EntitySettings) error{
		func(q *fsm.EntitySettings) error { return s.overTimes(q, l) },
		func(q *fsm.EntitySettings) error { return s.overNumbers(q, l) },
		s.overStatus, s.overForwarding, s.overDelays,
	} {
		if err := lay(&old); err != nil {
			return old, fmt.Errorf("%w: %w", fsm.InvalidArgument, err)
		}
	}
	return old, nil
}

// overForwarding leaves it to the cluster whether the destination is there, and whether
// sessions may change.
func (s *Settings) overForwarding(q *fsm.EntitySettings) error {
	for _, f := range []struct {
		name  string
		given *string
		into  *string
	}{
		{"forwardTo", s.ForwardTo, &q.ForwardTo},
		{"forwardDeadLetteredMessagesTo", s.ForwardDeadLetteredMessagesTo, &q.ForwardDeadLettersTo},
	} {
		if f.given == nil {
			continue
		}
		if len(*f.given) > entity.NameCharactersMax {
			return fmt.Errorf("%s is the name of a queue or topic, at most %d characters long", f.name, entity.NameCharactersMax)
		}
		*f.into = *f.given
	}
	if s.RequiresSession != nil {
		q.RequiresSession = *s.RequiresSession
	}
	if s.EnablePartitioning != nil {
		q.EnablePartitioning = *s.EnablePartitioning
	}
	if s.DeadLetteringOnFilterEvaluationExceptions != nil {
		q.DeadLetterOnFilterErrors = *s.DeadLetteringOnFilterEvaluationExceptions
	}
	return nil
}

func (s *Settings) overTimes(q *fsm.EntitySettings, l namespaceLimits) error {
	for _, f := range []struct {
		name     string
		given    *entity.Duration
		min, max time.Duration
		into     *fsm.Millis
	}{
		{"lockDuration", s.LockDuration, lockDurationMin, l.lockDuration, &q.LockDuration},
		{"defaultMessageTimeToLive", s.DefaultMessageTimeToLive, lifeMin, entity.Forever, &q.DefaultTimeToLive},
		{"duplicateDetectionHistoryTimeWindow", s.DuplicateDetectionHistoryTimeWindow, duplicateWindowMin, duplicateWindowMax, &q.DuplicateWindow},
		{"autoDeleteOnIdle", s.AutoDeleteOnIdle, autoDeleteMin, entity.Forever, &q.AutoDeleteOnIdle},
		{"deadLetterTimeToLive", s.DeadLetterTimeToLive, deadLetterLifeMin, entity.Forever, &q.DeadLetterTimeToLive},
		{"retryDelay", s.RetryDelay, 0, retryDelayMax, &q.RetryDelay},
		{"retryDelayMax", s.RetryDelayMax, 0, retryDelayMax, &q.RetryDelayMax},
	} {
		if f.given == nil {
			continue
		}
		if d := time.Duration(*f.given); d < f.min || d > f.max {
			return fmt.Errorf("%s is %s to %s, not %s", f.name, f.min, entity.Duration(f.max), d)
		}
		*f.into = entity.ToMillis(*f.given)
	}
	return nil
}

func (s *Settings) overNumbers(q *fsm.EntitySettings, l namespaceLimits) error {
	for _, f := range []struct {
		name     string
		given    *uint32
		min, max uint32
	}{
		{"maxDeliveryCount", s.MaxDeliveryCount, 1, deliveryCountMax},
		{"maxMessageBytes", s.MaxMessageBytes, messageBytesMin, l.messageBytes},
		{"maxSizeInMegabytes", s.MaxSizeInMegabytes, 1, megabytesMax},
	} {
		if f.given != nil && (*f.given < f.min || *f.given > f.max) {
			return fmt.Errorf("%s is %d to %d, not %d", f.name, f.min, f.max, *f.given)
		}
	}
	if s.MaxDeliveryCount != nil {
		q.MaxDeliveryCount = *s.MaxDeliveryCount
	}
	if s.MaxMessageBytes != nil {
		q.MaxMessageBytes = *s.MaxMessageBytes
	}
	if s.MaxSizeInMegabytes != nil {
		q.MaxBytes = uint64(*s.MaxSizeInMegabytes) << 20
	}
	return nil
}

func (s *Settings) overStatus(q *fsm.EntitySettings) error {
	if s.DeadLetteringOnMessageExpiration != nil {
		q.DeadLetterOnExpiry = *s.DeadLetteringOnMessageExpiration
	}
	if s.RequiresDuplicateDetection != nil {
		q.RequiresDuplicateDetection = *s.RequiresDuplicateDetection
	}
	if s.UserMetadata != nil {
		if len(*s.UserMetadata) > userMetadataBytesMax {
			return fmt.Errorf("userMetadata is at most %d bytes long", userMetadataBytesMax)
		}
		q.UserMetadata = *s.UserMetadata
	}
	if s.Status == nil {
		return nil
	}
	for number, name := range statusNames() {
		if strings.EqualFold(*s.Status, name) {
			q.Status = fsm.EntityStatus(number)
			return nil
		}
	}
	return fmt.Errorf("status is one of %s, not %.40q", strings.Join(statusNames(), ", "), *s.Status)
}

// overDelays completes the two delays, of which one alone says little.
func (s *Settings) overDelays(q *fsm.EntitySettings) error {
	switch {
	case q.RetryDelay == 0 && s.RetryDelayMax != nil && q.RetryDelayMax > 0:
		return errors.New("retryDelayMax needs a retryDelay above 0")
	case q.RetryDelay == 0:
		q.RetryDelayMax = 0
	case s.RetryDelayMax == nil && (q.RetryDelayMax == 0 || q.RetryDelayMax < q.RetryDelay):
		q.RetryDelayMax = max(q.RetryDelay, fsm.Millis(retryDelayMaxNormal.Milliseconds()))
	case q.RetryDelayMax < q.RetryDelay:
		return errors.New("retryDelayMax is at least retryDelay")
	}
	return nil
}

func fromMillis(m fsm.Millis) *entity.Duration {
	d := entity.FromMillis(m)
	return &d
}
