package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/admin/emulator"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
	"github.com/peeklock/peeklock/fsm"
)

// emulatorTimeMax is how long dev may take to apply a Config.json: that is enough time to create thousands of
// entities.
const emulatorTimeMax = 2 * time.Minute

// emulatorConfig is a Config.json that is applied to the cluster; nil if none is given.
type emulatorConfig struct {
	path   string
	file   *emulator.File
	opened chan struct{} // closed once the entities exist
}

// readEmulator reads and validates the file, before a port is bound or a directory created. It returns nil for "".
func readEmulator(path string) (*emulatorConfig, error) {
	if path == "" {
		return nil, nil //nolint:nilnil // nothing is asked for, and nothing is wrong
	}
	file, err := emulator.Read(path)
	if err != nil {
		return nil, cli.Usage(err)
	}
	return &emulatorConfig{path: path, file: file, opened: make(chan struct{})}, nil
}

// gate returns a channel that is closed when members may report that they are ready.
func (e *emulatorConfig) gate() <-chan struct{} {
	if e == nil {
		return nil
	}
	return e.opened
}

// apply creates what the file lists and opens the gate, even if some of it could not be created: if the member
// never became ready, the reason would stay hidden.
func (e *emulatorConfig) apply(ctx context.Context, m *member) (emulator.Report, error) {
	report, err := e.file.Apply(ctx, emulatorControl{control{m.node.Router(), m.node.Operator()}})
	if err != nil {
		return report, fmt.Errorf("create what %s lists: %w", e.path, err)
	}
	close(e.opened)
	return report, nil
}

// emulatorControl adapts control to package emulator, which needs less of a namespace.
type emulatorControl struct{ control }

// In returns the entities of a namespace.
func (c emulatorControl) In(namespace fsm.Namespace) emulator.Entities {
	return c.control.In(namespace.ID)
}

// devConfig is the part of the output that --config adds.
type devConfig struct {
	File string `json:"file"`
	emulator.Report
	Warnings   []string       `json:"warnings,omitempty"`
	Namespaces []devNamespace `json:"namespaces"` // all namespaces of the file; the first is the default one
}

// devNamespace is a namespace with its connection string.
type devNamespace struct {
	Name             string `json:"name"` // as in the file
	ConnectionString string `json:"connectionString"`
}

// applyDev calls apply for dev and emulator, and prints what could not be applied as written. byKeyName: further namespaces are
// reached by the name of the key, else by that of the host.
func (e *emulatorConfig) applyDev(ctx context.Context, p cli.Process, m *member, address string, byKeyName bool) (*devConfig, error) {
	if e == nil || ctx.Err() != nil {
		return nil, nil //nolint:nilnil // nothing is asked for, and nothing is wrong
	}
	working, cancel := context.WithTimeout(ctx, emulatorTimeMax)
	defer cancel()
	report, err := e.apply(working, m)
	if ctx.Err() != nil { // Ctrl-C is not a failure
		return nil, nil //nolint:nilnil // as above
	}
	if err != nil {
		return nil, err
	}
	config := &devConfig{File: e.path, Report: report, Warnings: e.file.Warnings}
	for i, name := range e.file.Namespaces() {
		host, key := address, auth.DevKeyName
		switch {
		case i > 0 && byKeyName:
			key = name
		case i > 0:
			host = name + "." + address
		}
		config.Namespaces = append(config.Namespaces, devNamespace{name, connectionString(host, key, auth.DevKey)})
	}
	for _, text := range e.file.Warnings {
		_, _ = fmt.Fprintf(p.Err, "peeklock: warning: %s: %s\n", e.path, output.Printable(text, output.FieldCharactersMax))
	}
	for _, text := range report.Problems {
		_, _ = fmt.Fprintf(p.Err, "peeklock: not as in %s: %s\n", e.path, output.Printable(text, output.FieldCharactersMax))
	}
	return config, nil
}

// note prints the created namespaces in the table output.
func (d *devConfig) note(out *output.Output) error {
	if d == nil {
		return nil
	}
	if err := out.Note("\n%s: %d created, %d updated, %d unchanged", d.File, d.Created, d.Updated, d.Unchanged); err != nil {
		return err
	}
	for i, n := range d.Namespaces {
		var err error
		switch {
		case i == 0 && len(d.Namespaces) > 1:
			err = out.Note("namespace %s is the default one here", n.Name)
		case i > 0:
			err = out.Note("namespace %s\n  %s", n.Name, n.ConnectionString)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// applyServe calls apply for serve. Other members may apply the file at the same time. Deviations from the file
// are logged.
func (e *emulatorConfig) applyServe(ctx context.Context, m *member, logger *slog.Logger) {
	if e == nil {
		return
	}
	for _, text := range e.file.Warnings {
		logger.WarnContext(ctx, "failed to apply part of the emulator configuration", "file", e.path, "warning", text)
	}
	report, err := e.apply(ctx, m)
	if err != nil {
		return // the member is stopping
	}
	for _, text := range report.Problems {
		logger.ErrorContext(ctx, "failed to create what the emulator configuration lists", "file", e.path, "problem", text)
	}
	logger.InfoContext(ctx, "emulator configuration applied", "file", e.path,
		"created", report.Created, "updated", report.Updated, "unchanged", report.Unchanged)
}
