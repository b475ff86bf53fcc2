package messages

import (
	"math"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/admin/entity"
)

func lengthOf(d time.Duration) *entity.Duration { return (*entity.Duration)(&d) }

// A time to live is where official clients put it: in the header while it fits into 32 bits of milliseconds,
// otherwise in the properties, too.
func TestTimeToLiveOfMessages(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	const longest = math.MaxUint32 * time.Millisecond
	for ttl, want := range map[time.Duration]struct {
		header   time.Duration
		absolute bool
	}{
		time.Millisecond: {time.Millisecond, false}, time.Hour: {time.Hour, false},
		longest: {longest, false}, longest + time.Millisecond: {longest, true}, entity.Forever: {0, false},
	} {
		m := amqp.Message{Properties: &amqp.MessageProperties{}}
		o := scheduleOptions{ttl: lengthOf(ttl)}
		if err := o.apply(&m, now); err != nil {
			t.Fatal(ttl, err)
		}
		got := time.Duration(0)
		if m.Header != nil {
			got = m.Header.TTL
		}
		if got != want.header || (m.Properties.AbsoluteExpiryTime != nil) != want.absolute {
			t.Errorf("%s: header %s, properties %+v", ttl, got, m.Properties)
		}
		end := expiry(&m, &now)
		if ttl == entity.Forever && end != nil || ttl != entity.Forever && (end == nil || !end.Equal(now.Add(ttl))) {
			t.Errorf("%s: shown to expire at %v", ttl, end)
		}
	}
	if err := (&scheduleOptions{ttl: lengthOf(time.Microsecond)}).apply(&amqp.Message{}, now); err == nil {
		t.Error("less than a millisecond was accepted")
	}
}

func TestScheduleFlagsBecomeATime(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		o     scheduleOptions
		want  time.Time
		later bool
	}{
		"at once":   {scheduleOptions{}, now, false},
		"in":        {scheduleOptions{in: lengthOf(90 * time.Second)}, now.Add(90 * time.Second), true},
		"at":        {scheduleOptions{at: "2026-11-21T09:00:00+01:00"}, time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC), true},
		"long past": {scheduleOptions{at: "1999-01-01T00:00:00Z"}, time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC), true},
	} {
		at, later, err := c.o.moment(now)
		if err != nil || later != c.later || !at.Equal(c.want) {
			t.Errorf("%s: %v %t %v", name, at, later, err)
		}
	}
}

func TestPurgeFlagsBecomeATime(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		o    purgeOptions
		want time.Time // zero: none
	}{
		"all":    {purgeOptions{yes: true}, time.Time{}},
		"before": {purgeOptions{yes: true, before: "2026-11-01T00:00:00Z"}, time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)},
		"older":  {purgeOptions{yes: true, olderThan: lengthOf(time.Hour)}, now.Add(-time.Hour)},
	} {
		at, err := c.o.bound(now)
		switch {
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want.IsZero() != (at == nil), at != nil && !at.Equal(c.want):
			t.Errorf("%s: %v", name, at)
		}
	}
}

func TestRedriveFiltersSelectDeadLetters(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	hourAgo := now.Add(-time.Hour)
	letter := ShownMessage{
		State: stateActive, Enqueued: &hourAgo, Body: `{"customer":7}`,
		Properties: map[string]any{PropertyReason: "MaxDeliveryCountExceeded"},
	}
	for name, c := range map[string]struct {
		o    redriveOptions
		want bool
	}{
		"none":           {redriveOptions{}, true},
		"reason":         {redriveOptions{reason: "MaxDeliveryCountExceeded"}, true},
		"part of reason": {redriveOptions{reason: "MaxDelivery"}, false},
		"contains":       {redriveOptions{contains: `"customer":7`}, true},
		"contains not":   {redriveOptions{contains: `"customer":8`}, false},
		"older":          {redriveOptions{olderThan: lengthOf(59 * time.Minute)}, true},
		"not older":      {redriveOptions{olderThan: lengthOf(time.Hour)}, false},
		"all must match": {redriveOptions{reason: "MaxDeliveryCountExceeded", contains: "nothing"}, false},
	} {
		if got := c.o.matches(&letter, now); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	deferred := letter
	deferred.State = "deferred"
	if (&redriveOptions{}).matches(&deferred, now) {
		t.Error("a deferred dead letter goes back")
	}
	if (&redriveOptions{reason: "x"}).matches(&ShownMessage{State: stateActive}, now) {
		t.Error("a dead letter without a reason matches one")
	}
	if (&redriveOptions{olderThan: lengthOf(0)}).matches(&ShownMessage{State: stateActive}, now) {
		t.Error("a dead letter without a time is older than something")
	}
}
