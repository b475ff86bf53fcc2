package overlay

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// ErrPatch means that a file does not contain the text of a patch exactly once.
var ErrPatch = errors.New("the text to replace is not there exactly once")

// Patch is a file (relative to the source, with slashes), a text that it contains exactly once, and what replaces it.
type Patch [3]string

// File is a file that is added, or replaces another one.
type File struct{ Name, Text string }

// Write writes patched copies of files below the folder source, and additional files, to dir. It returns the path of the
// overlay.
func Write(dir, source string, patches []Patch, added ...File) (path string, err error) {
	texts := make(map[string]string)
	for _, f := range added {
		texts[f.Name] = f.Text
	}
	var errs []error
	for _, p := range patches {
		errs = append(errs, p.apply(texts, source))
	}
	if err := errors.Join(errs...); err != nil {
		return "", err
	}
	replace := make(map[string]string)
	for name, text := range texts {
		copied := filepath.Join(dir, strings.ReplaceAll(name, "/", "-"))
		replace[filepath.Join(source, filepath.FromSlash(name))] = copied
		if err := os.WriteFile(copied, []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	content, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, content, 0o600)
}

// apply replaces the text in its file, which it reads unless an earlier patch did.
func (p Patch) apply(texts map[string]string, source string) error {
	file, from, to := p[0], p[1], p[2]
	text, known := texts[file]
	if !known {
		original, err := os.ReadFile(filepath.Join(source, filepath.FromSlash(file)))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		text = string(original)
	}
	if n := strings.Count(text, from); n != 1 {
		return fmt.Errorf("patch %s: %w but %d times: %q", file, ErrPatch, n, from)
	}
	texts[file] = strings.Replace(text, from, to, 1)
	return nil
}
