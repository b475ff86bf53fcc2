package golden

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"testing"

	"github.com/peeklock/peeklock/test/kit"
)

// rewriteVariable is the environment variable that, set to 1, rewrites golden files instead of comparing them.
const rewriteVariable = "REWRITE_FORMATS"

// Format is one format of a golden file.
type Format struct {
	Name string // in the golden file: unique there, and kept when the Go type is renamed
	Of   any    // any value of the type
}

// JSON compares the encodings of formats with the golden file at path, and checks that each line
// decodes into the value from which it was encoded. It encodes each format twice: with every field
// set, then as the zero value, which shows which fields are omitted. A field that was added, removed,
// renamed or moved fails the test. REWRITE_FORMATS=1 rewrites the file. Use it for added fields only:
// peers and files of earlier releases have the other fields.
//
// JSON takes values of types that encode themselves from samples, by type.
func JSON(t *testing.T, path string, formats []Format, samples ...any) {
	t.Helper()
	written := kit.Must(encode(formats, samples...))(t)
	Compare(t, path, written)
}

// encode writes two lines for each format, and checks that they decode into the original values.
func encode(formats []Format, samples ...any) ([]byte, error) {
	f := filler{samples: map[reflect.Type]reflect.Value{}}
	for _, sample := range samples {
		f.samples[reflect.TypeOf(sample)] = reflect.ValueOf(sample)
	}
	var written bytes.Buffer
	for _, format := range formats {
		full, zero := reflect.New(reflect.TypeOf(format.Of)), reflect.New(reflect.TypeOf(format.Of))
		f.serial = 0
		if err := f.fill(full.Elem()); err != nil {
			return nil, fmt.Errorf("%s: %w", format.Name, err)
		}
		for _, line := range []struct {
			name  string
			value reflect.Value
		}{{format.Name, full}, {format.Name + ", zero", zero}} {
			text, err := json.Marshal(line.value.Interface())
			if err == nil {
				err = decodes(text, line.value)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", line.name, err)
			}
			fmt.Fprintf(&written, "%s: %s\n", line.name, text)
		}
	}
	return written.Bytes(), nil
}

// Compare compares bytes with a golden file line by line.
func Compare(t *testing.T, path string, got []byte) {
	t.Helper()
	if os.Getenv(rewriteVariable) == "1" {
		kit.OK(t, os.WriteFile(path, got, 0o600))
	}
	want, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("%s is missing: write it with %s=1", path, rewriteVariable)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := difference(want, got); err != nil {
		t.Errorf("%s: %v", path, err)
	}
}

// difference describes the first line in which two texts differ.
func difference(want, got []byte) error {
	if bytes.Equal(want, got) {
		return nil
	}
	wanted, written := bytes.Split(want, []byte("\n")), bytes.Split(got, []byte("\n"))
	for i := range max(len(wanted), len(written)) {
		var w, g []byte
		if i < len(wanted) {
			w = wanted[i]
		}
		if i < len(written) {
			g = written[i]
		}
		if !bytes.Equal(w, g) {
			return fmt.Errorf("line %d: a format has changed\nwritten %s\nwant    %s", i+1, g, w)
		}
	}
	return nil
}

// decodes returns an error unless the text decodes into the value that a pointer points to, without
// unknown fields.
func decodes(text []byte, want reflect.Value) error {
	read := reflect.New(want.Type().Elem())
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(read.Interface()); err != nil {
		return fmt.Errorf("decode %s: %w", text, err)
	}
	if !reflect.DeepEqual(read.Interface(), want.Interface()) {
		return fmt.Errorf("%s is decoded as something else: %+v", text, read.Elem())
	}
	return nil
}
