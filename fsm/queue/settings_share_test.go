package queue

import (
	"bytes"
	"testing"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

func putSettings(t *testing.T, q *Machine, id fsm.EntityID, version uint64, s fsm.EntitySettings) *entityState {
	t.Helper()
	if code := q.putEntity(fsm.PutEntity{Entity: id, Version: version, Settings: s}).Code; code != fsm.OK {
		t.Fatalf("put entity %d: %v", id, code)
	}
	return q.byID[id]
}

func TestEntitiesWithEqualSettingsShareThem(t *testing.T) {
	t.Parallel()
	q := New(nil)
	changed := fsm.DefaultSettings()
	changed.UserMetadata = "changed"
	a, b := putSettings(t, q, 1, 1, fsm.DefaultSettings()), putSettings(t, q, 2, 1, fsm.DefaultSettings())
	c := putSettings(t, q, 3, 1, changed)
	if a.settings != b.settings || a.settings == c.settings {
		t.Fatalf("settings of equal entities are at %p and %p, of another one at %p", a.settings, b.settings, c.settings)
	}
	putSettings(t, q, 1, 2, changed)
	if *a.settings != changed || *b.settings != fsm.DefaultSettings().WithDefaults() || a.settings != c.settings {
		t.Fatalf("after a change of one entity its settings are %+v, those of the other %+v", *a.settings, *b.settings)
	}

	var image bytes.Buffer
	kit.Must(q.Image().WriteTo(&image))(t)
	restored := New(nil)
	kit.OK(t, restored.Restore(&image))
	if x, y := restored.byID[1].settings, restored.byID[3].settings; x != y || *x != changed {
		t.Fatalf("restored settings are at %p and %p: %+v", x, y, *x)
	}
}

func TestSharedSettingsAreLimited(t *testing.T) {
	t.Parallel()
	q := New(nil)
	s := fsm.DefaultSettings()
	for i := range settingsSharedMax + 2 {
		s.MaxBytes = fsm.QueueBytesMin + uint64(i)
		if x := putSettings(t, q, fsm.EntityID(i+1), 1, s); *x.settings != s.WithDefaults() {
			t.Fatalf("settings of entity %d are %+v", x.id, *x.settings)
		}
		if len(q.settings) > settingsSharedMax {
			t.Fatalf("%d settings are remembered", len(q.settings))
		}
	}
	if x := q.byID[1]; x.settings.MaxBytes != fsm.QueueBytesMin {
		t.Fatalf("the settings of the first entity became %+v", *x.settings)
	}
}
