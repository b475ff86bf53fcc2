package overlay

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// ErrPatch means that a file does not contain the text of a patch exactly once.
var ErrPatch = errors.New("the text to replace is not there exactly once")

// Patch is a file (relative to the source of its tree, with slashes), a text that it contains exactly once, and what
// replaces it.
type Patch [3]string

// File is a file that is added, or replaces another one. Its name is relative to the source of its tree, with slashes.
type File struct{ Name, Text string }

// Tree is a folder whose files are patched, in the order of the patches, and to which files are added.
type Tree struct {
	Source  string // path of the folder
	Patches []Patch
	Added   []File
}

// Module returns the tree of the module of the working directory, with nothing changed.
func Module() (Tree, error) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return Tree{}, fmt.Errorf("find the module: %w", err)
	}
	return Tree{Source: filepath.Clean(strings.TrimSpace(string(dir)))}, nil
}

// Write writes the changed files of trees to dir, which it creates if needed, and returns the path of the overlay. Trees may have the same source: a
// later one changes what an earlier one made.
func Write(dir string, trees ...Tree) (path string, err error) {
	texts, err := Texts(trees...)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	replace := make(map[string]string)
	for name, text := range texts {
		replace[name] = filepath.Join(dir, fmt.Sprintf("%d-%s", len(replace), filepath.Base(name)))
		if err := os.WriteFile(replace[name], []byte(text), 0o600); err != nil {
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

// Texts returns the changed files of trees by their paths. The error names every patch that cannot be applied.
func Texts(trees ...Tree) (map[string]string, error) {
	texts := make(map[string]string)
	var errs []error
	for _, t := range trees {
		for _, f := range t.Added {
			texts[filepath.Join(t.Source, filepath.FromSlash(f.Name))] = f.Text
		}
		for _, p := range t.Patches {
			errs = append(errs, p.apply(texts, t.Source))
		}
	}
	return texts, errors.Join(errs...)
}

// apply replaces the text in its file, which it reads unless an earlier patch did.
func (p Patch) apply(texts map[string]string, source string) error {
	file, from, to := filepath.Join(source, filepath.FromSlash(p[0])), p[1], p[2]
	text, known := texts[file]
	if !known {
		original, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		text = string(original)
	}
	if n := strings.Count(text, from); n != 1 {
		return fmt.Errorf("patch %s: %w but %d times: %q", p[0], ErrPatch, n, from)
	}
	texts[file] = strings.Replace(text, from, to, 1)
	return nil
}
