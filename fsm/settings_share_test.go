package fsm

import (
	"bytes"
	"testing"
)

func putSettings(t *testing.T, q *Queues, id EntityID, version uint64, s EntitySettings) *entityState {
	t.Helper()
	if code := q.putEntity(PutEntity{Entity: id, Version: version, Settings: s}).Code; code != OK {
		t.Fatalf("put entity %d: %v", id, code)
	}
	return q.byID[id]
}

func TestEntitiesWithEqualSettingsShareThem(t *testing.T) {
	t.Parallel()
	q := NewQueues(nil)
	changed := DefaultSettings()
	changed.UserMetadata = "changed"
	a, b := putSettings(t, q, 1, 1, DefaultSettings()), putSettings(t, q, 2, 1, DefaultSettings())
	c := putSettings(t, q, 3, 1, changed)
	if a.settings != b.settings || a.settings == c.settings {
		t.Fatalf("settings of equal entities are at %p and %p, of another one at %p", a.settings, b.settings, c.settings)
	}
	putSettings(t, q, 1, 2, changed)
	if *a.settings != changed || *b.settings != DefaultSettings().WithDefaults() || a.settings != c.settings {
		t.Fatalf("after a change of one entity its settings are %+v, those of the other %+v", *a.settings, *b.settings)
	}

	var image bytes.Buffer
	if _, err := q.Image().WriteTo(&image); err != nil {
		t.Fatal(err)
	}
	restored := NewQueues(nil)
	if err := restored.Restore(&image); err != nil {
		t.Fatal(err)
	}
	if x, y := restored.byID[1].settings, restored.byID[3].settings; x != y || *x != changed {
		t.Fatalf("restored settings are at %p and %p: %+v", x, y, *x)
	}
}

func TestSharedSettingsAreLimited(t *testing.T) {
	t.Parallel()
	q := NewQueues(nil)
	s := DefaultSettings()
	for i := range settingsSharedMax + 2 {
		s.MaxBytes = queueBytesMin + uint64(i)
		if x := putSettings(t, q, EntityID(i+1), 1, s); *x.settings != s.WithDefaults() {
			t.Fatalf("settings of entity %d are %+v", x.id, *x.settings)
		}
		if len(q.settings) > settingsSharedMax {
			t.Fatalf("%d settings are remembered", len(q.settings))
		}
	}
	if x := q.byID[1]; x.settings.MaxBytes != queueBytesMin {
		t.Fatalf("the settings of the first entity became %+v", *x.settings)
	}
}
