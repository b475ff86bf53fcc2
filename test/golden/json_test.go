package golden

import (
	"strings"
	"testing"
	"time"

	"github.com/peeklock/peeklock/test/kit"
)

type inner struct{ Deep uint8 }

type example struct {
	Number int64
	Text   string `json:"text,omitempty"`
	List   []inner
	Bytes  []byte
	Map    map[string]bool
	Maybe  *float64
	Any    any
	At     time.Time
	Fixed  [2]uint32
	inner
	Hidden string `json:"-"`
}

// written is the golden file of example.
const written = `example: {"Number":1,"text":"text 2","List":[{"Deep":1}],"Bytes":"Bg==","Map":{"text 8":true},"Maybe":11.5,"Any":"anything 12",` +
	`"At":"2026-11-20T12:30:45Z","Fixed":[14,15],"Deep":1}
example, zero: {"Number":0,"List":null,"Bytes":null,"Map":null,"Maybe":null,"Any":null,"At":"0001-01-01T00:00:00Z","Fixed":[0,0],"Deep":0}
`

func TestEveryFieldIsSet(t *testing.T) {
	t.Parallel()
	got, err := encode([]Format{{Name: "example", Of: example{}}})
	if err != nil || string(got) != written {
		t.Errorf("%v, written\n%s", err, got)
	}
}

// TestChangesOfFormatsAreDetected checks that every change of the bytes of a format is reported as a difference.
func TestChangesOfFormatsAreDetected(t *testing.T) {
	t.Parallel()
	type before struct {
		Count int
		Name  string
	}
	want := kit.Must(encode([]Format{{Name: "f", Of: before{}}}))(t)
	for change, after := range map[string]any{
		"renamed": struct {
			Total int
			Name  string
		}{},
		"removed": struct{ Count int }{},
		"added": struct {
			Count int
			Name  string
			More  bool
		}{},
		"moved": struct {
			Name  string
			Count int
		}{},
		"omitted when empty": struct {
			Count int `json:"Count,omitempty"`
			Name  string
		}{},
		"of another type": struct {
			Count int `json:",string"`
			Name  string
		}{},
	} {
		got, err := encode([]Format{{Name: "f", Of: after}})
		if err != nil || difference(want, got) == nil {
			t.Errorf("%s: not seen, %v", change, err)
		}
	}
	type renamedInCode struct {
		Total int    `json:"Count"`
		Title string `json:"Name"`
	}
	if got, err := encode([]Format{{Name: "f", Of: renamedInCode{}}}); err != nil || difference(want, got) != nil {
		t.Errorf("tagged as before: %v, %v", err, difference(want, got))
	}
}

// lossy encodes a field and does not decode it.
type lossy struct{ hidden int }

func (l lossy) MarshalJSON() ([]byte, error) { return []byte(`{"hidden":1}`), nil }

func (l *lossy) UnmarshalJSON([]byte) error { return nil }

func TestWhatCannotBeComparedIsRefused(t *testing.T) {
	t.Parallel()
	for want, samples := range map[string][]any{"give a sample": nil, "decoded as something else": {lossy{hidden: 1}}} {
		_, err := encode([]Format{{Name: "f", Of: struct{ L lossy }{}}}, samples...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
