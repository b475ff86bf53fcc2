package emulator

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

const fileBytesMax = 1 << 20

// Default is the configuration of a start without a file: the entities of the sample that the official emulator comes with.
func Default() *File {
	file, err := Parse(defaultConfig)
	if err != nil {
		panic(err) // a test reads it
	}
	return file
}

//go:embed default.json
var defaultConfig []byte

// Read reads a file of at most 1 MiB, or the Config.json in a folder.
func Read(path string) (*File, error) {
	data, err := readFile(&path)
	if err != nil {
		return nil, err
	}
	file, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return file, nil
}

// ReadLenient is Read with ParseLenient.
func ReadLenient(path string) (*File, error) {
	data, err := readFile(&path)
	if err != nil {
		return nil, err
	}
	file, err := ParseLenient(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return file, nil
}

// readFile reads the file at a path, which it completes if it is that of a folder.
func readFile(path *string) ([]byte, error) {
	if info, err := os.Stat(*path); err == nil && info.IsDir() {
		*path = filepath.Join(*path, FileName)
	}
	f, err := os.Open(*path)
	if err != nil {
		return nil, fmt.Errorf("read the emulator's configuration: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, fileBytesMax+1))
	if err != nil {
		return nil, fmt.Errorf("read the emulator's configuration: %w", err)
	}
	return data, nil
}

// Parse reads the text of a Config.json. Like the emulator, it accepts comments and a comma at the end of a list. The
// error lists up to ten mistakes with their paths; unknown fields are ignored with a warning.
func Parse(data []byte) (*File, error) {
	r, err := readText(data, false)
	if err == nil && len(r.errors) > 0 {
		err = errors.Join(r.errors...)
	}
	if err != nil {
		return nil, err
	}
	return &r.file, nil
}

// ParseLenient is Parse, but leaves out what has a mistake, with a warning. A text that is not JSON is still an error.
func ParseLenient(data []byte) (*File, error) {
	r, err := readText(data, true)
	if err != nil {
		return nil, err
	}
	return &r.file, nil
}

func readText(data []byte, lenient bool) (*reader, error) {
	if len(data) > fileBytesMax {
		return nil, errors.New("the file is larger than 1 MiB")
	}
	data = WithoutComments(data)
	var raw json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, syntaxError(data, err)
	}
	r := &reader{lenient: lenient}
	r.object("", raw, field{"UserConfig", r.userConfig})
	if r.mistakes == 0 && !r.found {
		return nil, errors.New("UserConfig.Namespaces: is missing: is this a Config.json of the Service Bus emulator?")
	}
	if r.dropped > 0 {
		r.file.Warnings = append(r.file.Warnings, fmt.Sprintf("and %d more", r.dropped))
	}
	return r, nil
}

// syntaxError adds the line to an error of encoding/json.
func syntaxError(data []byte, err error) error {
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) {
		return err
	}
	before := data[:min(int(syntax.Offset), len(data))]
	return fmt.Errorf("line %d: %w", bytes.Count(before, []byte("\n"))+1, err)
}

// WithoutComments replaces a byte order mark, comments and commas before a closing bracket by spaces, so that the rest is JSON with
// the same line numbers.
func WithoutComments(data []byte) []byte {
	out := bytes.Clone(data)
	if bytes.HasPrefix(out, []byte("\uFEFF")) {
		copy(out, "   ")
	}
	comma := -1 // the last comma, while only spaces follow it
	for i := 0; i < len(out); {
		switch c := out[i]; {
		case c == '"':
			comma = -1
			i = stringEnd(out, i)
			continue
		case c == '/' && i+1 < len(out) && (out[i+1] == '/' || out[i+1] == '*'):
			i = blankComment(out, i)
			continue
		case c == ',':
			comma = i
		case (c == '}' || c == ']') && comma >= 0:
			out[comma], comma = ' ', -1
		case c != ' ' && c != '\t' && c != '\r' && c != '\n':
			comma = -1
		}
		i++
	}
	return out
}

// stringEnd returns the index after the string that begins at i.
func stringEnd(text []byte, i int) int {
	for i++; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

// blankComment replaces the comment that begins at i by spaces and returns the index after it. It leaves an unterminated
// comment to the parser.
func blankComment(text []byte, i int) int {
	end, closing := []byte("\n"), 0
	if text[i+1] == '*' {
		end, closing = []byte("*/"), 2
	}
	n := bytes.Index(text[i+2:], end)
	switch {
	case n < 0 && closing > 0:
		return len(text)
	case n < 0:
		n = len(text) - i - 2
	}
	stop := i + 2 + n + closing
	for ; i < stop; i++ {
		if text[i] != '\n' {
			text[i] = ' '
		}
	}
	return stop
}
