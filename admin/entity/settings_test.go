package entity

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/fsm"
)

func kinds() []fsm.EntityKind {
	return []fsm.EntityKind{fsm.QueueEntity, fsm.TopicEntity, fsm.SubscriptionEntity}
}

// Settings are shown for the kinds of entities that have them. An entity created with the shown settings has
// the same settings, and the state machine accepts them.
func TestShownSettingsCreateAnEqualEntity(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds() {
		shown := DescribeSettings(kind, DefaultSettings(kind))
		for i := range table {
			if s := &table[i]; s.IsGiven(&shown) != s.Has(kind) {
				t.Errorf("%s of a %s: shown %t", s.Name, kind, s.IsGiven(&shown))
			}
		}
		again, err := shown.ApplyTo(kind, DefaultSettings(kind), LimitsOf(fsm.NamespaceSettings{}))
		if diff := cmp.Diff(DefaultSettings(kind).WithDefaults(), again.WithDefaults()); diff != "" || err != nil {
			t.Errorf("%s: %v %s", kind, err, diff)
		}
		if err := DefaultSettings(kind).Validate(); err != nil {
			t.Errorf("%s: the state machine refuses the default settings: %v", kind, err)
		}
	}
}

// Every field of the JSON, and every field of the stored settings, belongs to exactly one row of the table.
func TestTableHasEverySettingOnce(t *testing.T) {
	t.Parallel()
	names, elements, flags := map[string]int{}, map[string]int{}, map[string]int{}
	var all Settings
	stored := DefaultSettings(fsm.QueueEntity)
	for i := range table {
		s := &table[i]
		names[s.Name]++
		elements[s.Element]++
		flags[s.Flag]++
		if s.IsGiven(&all) {
			t.Errorf("%s shares its field with another setting", s.Name)
		}
		s.show(&stored, &all)
		if s.Flag == "" || s.Verbatim && s.Element == "" {
			t.Errorf("%s lacks a name", s.Name)
		}
	}
	if delete(elements, ""); len(elements) == 0 {
		t.Error("no setting has an element")
	}
	for _, seen := range []map[string]int{names, elements, flags} {
		for name, n := range seen {
			if n != 1 {
				t.Errorf("%s is in %d rows", name, n)
			}
		}
	}
	fields := reflect.TypeFor[Settings]()
	for i := range fields.NumField() {
		if name, _, _ := strings.Cut(fields.Field(i).Tag.Get("json"), ","); names[name] != 1 && name != "-" {
			t.Errorf("the field %s has no row", name)
		}
	}
	hints := reflect.TypeFor[ReadBack]().NumField() // without effect
	if n := reflect.TypeFor[fsm.EntitySettings]().NumField(); n != len(table)+hints {
		t.Errorf("%d settings are stored, the table has %d rows", n, len(table))
	}
}

// A value that the command line, ATOM or Config.json writes in its own form is stored as the same value.
func TestEveryFormOfASettingIsReadAsTheSameValue(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds() {
		stored := DefaultSettings(kind)
		for i := range table {
			s := &table[i]
			if !s.Has(kind) || s.Element == "" {
				continue
			}
			var flag, element Settings
			if err := s.Parse(s.text(&stored), &flag); err != nil {
				t.Errorf("--%s: %v", s.Flag, err)
			}
			if err := s.ParseElement(s.ElementText(&stored), &element); err != nil {
				t.Errorf("%s: %v", s.Element, err)
			}
			if diff := cmp.Diff(flag, element); diff != "" {
				t.Errorf("%s: %s", s.Name, diff)
			}
		}
	}
}

// The help of a flag names the range and the default of its setting.
func TestUsageNamesRangeAndDefault(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]string{
		"lock-duration":       "1s to 5m (server default 30s)",
		"max-delivery-count":  "above 65535: never, 1 to 2147483647 (server default 10)",
		"auto-delete-on-idle": "delete the queue after this time without use, 5m to forever (server default forever)",
		"requires-session":    "; cannot be changed later",
		"retry-delay":         "0s to 168h (server default 0s)",
		"status":              "Active, Disabled, SendDisabled, ReceiveDisabled (server default Active)",
	} {
		found := false
		for i := range table {
			if table[i].Flag == flag {
				found = strings.HasSuffix(table[i].Usage(fsm.QueueEntity), want)
			}
		}
		if !found {
			t.Errorf("--%s: the help does not end with %q", flag, want)
		}
	}
}

func TestNamespaceWithoutLimitsHasThoseOfTheCloud(t *testing.T) {
	t.Parallel()
	if got := LimitsOf(fsm.NamespaceSettings{}); got != (Limits{messageBytesMax, 5 * time.Minute}) {
		t.Errorf("%+v", got)
	}
	if got := LimitsOf(fsm.NamespaceSettings{MessageBytesMax: 2048, LockDurationMax: 86400000}); got != (Limits{2048, 24 * time.Hour}) {
		t.Errorf("%+v", got)
	}
}
