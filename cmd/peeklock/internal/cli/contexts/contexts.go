package contexts

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
)

// Limits of the file.
const (
	CountMax     = 1000    // contexts
	fileBytesMax = 1 << 20 // bytes
)

// fileMode is the mode of the file, which may hold secrets.
const fileMode fs.FileMode = 0o600

// Context is a cluster with the credentials for it. The secret is in Key or in the file KeyFile.
type Context struct {
	Name      string   `json:"name"`
	Servers   []string `json:"servers"` // as for --server
	KeyName   string   `json:"keyName,omitempty"`
	Key       string   `json:"key,omitempty"`
	KeyFile   string   `json:"keyFile,omitempty"` // absolute path
	CA        string   `json:"ca,omitempty"`      // absolute path
	Namespace string   `json:"namespace,omitempty"`
}

// Set is the content of the file.
type Set struct {
	Current  string    `json:"current,omitempty"` // name of the context in use; "": none
	Contexts []Context `json:"contexts"`
}

// Find returns the context of that name.
func (s *Set) Find(name string) (Context, bool) {
	at := slices.IndexFunc(s.Contexts, func(c Context) bool { return c.Name == name })
	if at < 0 {
		return Context{}, false
	}
	return s.Contexts[at], true
}

// Put adds a context, or replaces the one of that name.
func (s *Set) Put(c Context) error {
	if !regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`).MatchString(c.Name) {
		return cli.Usagef("%.100q cannot name a context: 1 to 64 letters, digits, dots, dashes and underscores, the first a letter or digit", c.Name)
	}
	s.Remove(c.Name)
	if len(s.Contexts) >= CountMax {
		return cli.Usagef("there are %d contexts, which is the limit: remove one", CountMax)
	}
	s.Contexts = append(s.Contexts, c)
	slices.SortFunc(s.Contexts, func(a, b Context) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// Remove removes a context and reports whether there was one. If it is in use, none is in use afterwards.
func (s *Set) Remove(name string) bool {
	before := len(s.Contexts)
	s.Contexts = slices.DeleteFunc(s.Contexts, func(c Context) bool { return c.Name == name })
	if len(s.Contexts) == before {
		return false
	}
	if s.Current == name {
		s.Current = ""
	}
	return true
}

// Path returns the path of the file, "" if the environment names no folder for it.
func Path(p cli.Process) string {
	folder := p.Getenv("XDG_CONFIG_HOME")
	switch {
	case filepath.IsAbs(folder):
	case runtime.GOOS == "windows":
		folder = p.Getenv("AppData")
	case p.Getenv("HOME") == "":
		folder = ""
	default:
		folder = filepath.Join(p.Getenv("HOME"), ".config")
	}
	if folder == "" {
		return ""
	}
	return filepath.Join(folder, "peeklock", "contexts.json")
}

// Load reads the file; a missing file is an empty set. Its errors are mistakes of the user.
func Load(p cli.Process) (Set, error) {
	var s Set
	path := Path(p)
	if path == "" {
		return s, nil
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return s, nil
	case err != nil:
		return s, cli.Usagef("read the contexts: %w", err)
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		return s, cli.Usagef("%s may hold secrets, and other users can read it: chmod 600 %s", path, path)
	case info.Size() > fileBytesMax:
		return s, cli.Usagef("%s is larger than %d bytes", path, fileBytesMax)
	}
	content, err := os.ReadFile(path) //nolint:gosec // the folder of the user's configuration
	if err == nil {
		err = json.Unmarshal(content, &s)
	}
	if err != nil {
		return s, cli.Usagef("read the contexts in %s: %w", path, err)
	}
	return s, nil
}

// Save replaces the file.
func (s *Set) Save(p cli.Process) error {
	path := Path(p)
	if path == "" {
		return cli.Usagef("no folder for the contexts: set HOME or XDG_CONFIG_HOME")
	}
	content, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the contexts: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("create the folder of the contexts: %w", err)
	}
	// CreateTemp gives the file mode 0600.
	file, err := os.CreateTemp(filepath.Dir(path), "contexts-*.json")
	if err != nil {
		return fmt.Errorf("write the contexts: %w", err)
	}
	defer func() { _ = os.Remove(file.Name()) }() // it has the final name after success
	_, err = file.Write(append(content, '\n'))
	if err = errors.Join(err, file.Chmod(fileMode), file.Sync(), file.Close()); err != nil {
		return fmt.Errorf("write the contexts: %w", err)
	}
	if err := os.Rename(file.Name(), path); err != nil {
		return fmt.Errorf("write the contexts: %w", err)
	}
	return nil
}
