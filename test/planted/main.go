package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/peeklock/peeklock/test/overlay"
	"github.com/peeklock/peeklock/test/planted/faults"
	"github.com/peeklock/peeklock/test/upgrade"
)

// testMax bounds one run of a test; a fault must be found within it.
const testMax = 10 * time.Minute

func main() {
	part := flag.Int("part", 1, "which part of the faults to run, from 1")
	of := flag.Int("of", 1, "how many parts there are")
	folder := flag.String("write", "", "write the overlay to this folder, print its path, and run no test")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	var err error
	if *folder != "" {
		err = write(os.Stdout, *folder)
	} else {
		var chosen []faults.Fault
		if chosen, err = choose(faults.All(), *part, *of, flag.Args()); err == nil {
			err = run(ctx, os.Stdout, chosen)
		}
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:forbidigo // nothing is left to be closed
	}
}

// write writes the overlay to a folder and its path to w.
func write(w io.Writer, folder string) error {
	tree, err := faults.Tree()
	if err != nil {
		return err
	}
	path, err := overlay.Write(folder, tree)
	if err == nil {
		fmt.Fprintln(w, path)
	}
	return err
}

// choose returns the named faults, or part number part of all of them if no name is given.
func choose(all []faults.Fault, part, of int, names []string) ([]faults.Fault, error) {
	if of < 1 || part < 1 || part > of {
		return nil, fmt.Errorf("choose faults: part %d of %d does not exist", part, of)
	}
	for _, n := range names {
		if !slices.ContainsFunc(all, func(f faults.Fault) bool { return f.Name == n }) {
			return nil, fmt.Errorf("choose faults: test/planted/faults has no fault named %q", n)
		}
	}
	var chosen []faults.Fault
	for i, f := range all {
		if len(names) == 0 && i%of == part-1 || slices.Contains(names, f.Name) {
			chosen = append(chosen, f)
		}
	}
	return chosen, nil
}

// run builds everything with all faults, runs the tests of the chosen ones one after the other, and reports each to w as a
// row of a table.
func run(ctx context.Context, w io.Writer, chosen []faults.Fault) error {
	b, err := newBuild(ctx)
	if err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	fmt.Fprint(w, "| fault | found by | time |\n|---|---|---|\n")
	var errs []error
	for _, f := range chosen {
		took, err := b.check(ctx, f)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f.Name, err))
		} else {
			fmt.Fprintf(w, "| %s | %s in %s | %.1f s |\n", f.Name, f.Test, f.Package, took.Seconds())
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// build is the module with all faults, and the tests that were compiled with it.
type build struct {
	dir      string          // of all files of the build
	module   string          // folder of the module
	overlays map[bool]string // false: this release; true: the next one
	tests    map[string]string
}

// newBuild writes the overlays and compiles everything with that of this release.
func newBuild(ctx context.Context) (*build, error) {
	tree, err := faults.Tree()
	if err != nil {
		return nil, err
	}
	next, err := upgrade.Tree()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "planted")
	if err != nil {
		return nil, err
	}
	b := &build{dir: dir, module: tree.Source, overlays: make(map[bool]string), tests: make(map[string]string)}
	for isNext, trees := range map[bool][]overlay.Tree{false: {tree}, true: {next, tree}} {
		if b.overlays[isNext], err = overlay.Write(filepath.Join(dir, fmt.Sprint(isNext)), trees...); err != nil {
			return nil, err
		}
	}
	if out, err := exec.CommandContext(ctx, "go", "build", "-overlay", b.overlays[false], "./...").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("the code with the faults of test/planted/faults does not compile: %w\n%s", err, out)
	}
	return b, nil
}

// check runs the test of a fault without it and with it, and returns how long the test took to find it.
func (b *build) check(ctx context.Context, f faults.Fault) (took time.Duration, err error) {
	test, err := b.test(ctx, f)
	if err != nil {
		return 0, err
	}
	if passed, out := b.run(ctx, f, test, ""); !passed {
		return 0, fmt.Errorf("the test fails without the fault:\n%s", out)
	}
	begun := time.Now()
	passed, out := b.run(ctx, f, test, f.Name)
	switch {
	case passed:
		return 0, fmt.Errorf("%s in ./%s does not find it", f.Test, f.Package)
	case !strings.Contains(out, "FAIL: ") && !strings.Contains(out, "panic: "):
		return 0, fmt.Errorf("the test did not run:\n%s", out)
	}
	return time.Since(begun), nil
}

// test returns the test binary of the package of a fault's test.
func (b *build) test(ctx context.Context, f faults.Fault) (path string, err error) {
	name := strings.ReplaceAll(f.Package, "/", "-")
	args := []string{"test", "-c", "-vet=off", "-overlay", b.overlays[f.Next]}
	if f.Next {
		name += "-next"
		args = append(args, "-tags", upgrade.Tag)
	}
	if b.tests[name] != "" {
		return b.tests[name], nil
	}
	path = filepath.Join(b.dir, name+".test")
	if out, err := exec.CommandContext(ctx, "go", append(args, "-o", path, "./"+f.Package)...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile the tests of %s: %w\n%s", f.Package, err, out)
	}
	b.tests[name] = path
	return path, nil
}

// run runs the test of a fault with the active faults, and returns whether it passed and its output.
func (b *build) run(ctx context.Context, f faults.Fault, test, active string) (passed bool, output string) {
	var pattern []string // each level of the name of a subtest is a pattern of its own
	for level := range strings.SplitSeq(f.Test, "/") {
		pattern = append(pattern, "^"+level+"$")
	}
	cmd := exec.CommandContext(ctx, test, "-test.timeout", testMax.String(), "-test.run", strings.Join(pattern, "/"))
	cmd.Dir = filepath.Join(b.module, filepath.FromSlash(f.Package))
	// Of two equal variables the last counts: a fixed seed, so that a check does not depend on luck.
	cmd.Env = append(append(os.Environ(), faults.Variable+"="+active, "RAPID_SEED=1"), f.Env...)
	out, err := cmd.CombinedOutput()
	return err == nil && !strings.Contains(string(out), "no tests to run"), string(out)
}
