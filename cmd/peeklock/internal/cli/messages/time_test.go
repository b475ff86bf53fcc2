package messages

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm"
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

// TestConditionsReachTheMember: the flags become the conditions that the member evaluates.
func TestConditionsReachTheMember(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	red, hourAgo := "red", now.Add(-time.Hour)
	s := selection{
		subQueue: subQueue{deadLetters: true}, states: []string{"active", "deferred"}, session: &red, sequences: []int64{7, 9},
		contains: "x", path: "$.a=1", reason: "late", olderThan: lengthOf(time.Hour),
	}
	if err := (whereFlag{&s.where}).Set("customer = 7"); err != nil {
		t.Fatal(err)
	}
	r, err := s.request(now)
	if err != nil {
		t.Fatal(err)
	}
	want := api.Selection{
		SubQueue: "deadLetter", States: []string{"active", "deferred"}, Session: &red, Sequences: []fsm.SequenceNumber{7, 9},
		Where: "customer = 7", Contains: "x", Path: "$.a=1", Reason: "late", Before: &hourAgo,
	}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Error(diff)
	}
	const wantQuery = "before=2026-11-20T11%3A00%3A00Z&contains=x&path=%24.a%3D1&reason=late&sequence=7%2C9&session=red&state=active%2Cdeferred&subQueue=deadLetter&where=customer+%3D+7"
	if got := query(&r).Encode(); got != wantQuery {
		t.Errorf("got  %s\nwant %s", got, wantQuery)
	}
	for want, s := range map[string]selection{
		"a state is active":      {states: []string{"lost"}},
		"not both":               {before: "2026-11-20T12:00:00Z", olderThan: lengthOf(0)},
		"write it like":          {before: "yesterday"},
		"sequence numbers are 0": {sequences: []int64{-1}},
	} {
		if _, err := s.request(now); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
