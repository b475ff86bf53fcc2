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
	"slices"
	"strings"
	"time"

	"github.com/peeklock/peeklock/fsm/planted"
)

// testMax bounds one run of a test; a fault must be found within it.
const testMax = 10 * time.Minute

func main() {
	part := flag.Int("part", 1, "which part of the faults to run, from 1")
	of := flag.Int("of", 1, "how many parts there are")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	chosen, err := choose(checks(), *part, *of, flag.Args())
	if err == nil {
		err = run(ctx, os.Stdout, chosen)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:forbidigo // nothing is left to be closed
	}
}

// choose returns the named checks, or part number part of all of them if no name is given.
func choose(all []check, part, of int, names []string) ([]check, error) {
	if of < 1 || part < 1 || part > of {
		return nil, fmt.Errorf("choose faults: part %d of %d does not exist", part, of)
	}
	for _, n := range names {
		if !slices.Contains(planted.Faults, planted.Fault(n)) {
			return nil, fmt.Errorf("choose faults: no fault is named %q; the names are %q", n, planted.Faults)
		}
	}
	var chosen []check
	for i, c := range all {
		if len(names) == 0 && i%of == part-1 || slices.Contains(names, string(c.fault)) {
			chosen = append(chosen, c)
		}
	}
	return chosen, nil
}

// run runs the checks one after the other and reports each to w as a row of a table.
func run(ctx context.Context, w io.Writer, chosen []check) error {
	fmt.Fprint(w, "| fault | found by | time |\n|---|---|---|\n")
	var errs []error
	for _, c := range chosen {
		if passed, _, out := goTest(ctx, c, ""); !passed {
			errs = append(errs, fmt.Errorf("%s: the test fails without the fault:\n%s", c.fault, out))
			continue
		}
		passed, took, out := goTest(ctx, c, c.fault)
		switch {
		case passed:
			errs = append(errs, fmt.Errorf("%s: %s in ./%s does not find it", c.fault, c.test, c.pkg))
		case !strings.Contains(out, "FAIL: ") && !strings.Contains(out, "panic: "):
			errs = append(errs, fmt.Errorf("%s: the test did not run:\n%s", c.fault, out))
		default:
			fmt.Fprintf(w, "| %s | %s in %s | %.1f s |\n", c.fault, c.test, c.pkg, took.Seconds())
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// goTest runs the test of a check with a fault, "" for none, and returns whether it passed, how long it took
// and its output. Compilation does not count.
func goTest(ctx context.Context, c check, fault planted.Fault) (passed bool, took time.Duration, output string) {
	var pattern []string // each level of the name of a subtest is a pattern of its own
	for _, level := range strings.Split(c.test, "/") {
		pattern = append(pattern, "^"+level+"$")
	}
	args := []string{"test", "-tags", "planted", "-count=1", "-timeout", testMax.String(), "-run", strings.Join(pattern, "/"), "./" + c.pkg}
	compile := exec.CommandContext(ctx, "go", "test", "-tags", "planted", "-run", "^$", "./"+c.pkg)
	if out, err := compile.CombinedOutput(); err != nil {
		return false, 0, string(out)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	// Of two equal variables the last counts: a fixed seed, so that a check does not depend on luck.
	cmd.Env = append(append(os.Environ(), "PEEKLOCK_PLANTED="+string(fault), "RAPID_SEED=1"), c.env...)
	start := time.Now()
	out, err := cmd.CombinedOutput()
	passed = err == nil && !strings.Contains(string(out), "no tests to run")
	return passed, time.Since(start), string(out)
}
