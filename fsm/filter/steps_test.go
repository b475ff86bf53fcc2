package filter

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var rewriteSteps = flag.Bool("rewrite-steps", false, "write the numbers of testdata/steps.txt that are ?")

// stepsBudget is what fsm gives a rule.
const stepsBudget = 12_800

// sampleOfSteps is the message that testdata/steps.txt speaks of.
func sampleOfSteps() *fake {
	m := sample()
	m.user["long"], m.user["also"] = Text(strings.Repeat("a", 30_000)), Text(strings.Repeat("a", 30_000))
	m.user["word"], m.user["wide"] = Text(strings.Repeat("red rose", 65)), Text(strings.Repeat("é", 20_000))
	m.user["bytes"] = Text("\xff%")
	return m
}

var repetition = regexp.MustCompile(`\{([^{}]*)\*(\d+)\}`)

// expand writes {x*n} out.
func expand(text string) string {
	return repetition.ReplaceAllStringFunc(text, func(s string) string {
		parts := repetition.FindStringSubmatch(s)
		n, _ := strconv.Atoi(parts[2])
		return strings.Repeat(parts[1], n)
	})
}

// stepsOf evaluates a filter or an action.
func stepsOf(t *testing.T, text string) uint64 {
	t.Helper()
	m := sampleOfSteps()
	var r Runner
	r.Begin(m)
	var err error
	if strings.HasPrefix(text, "SET ") || strings.HasPrefix(text, "REMOVE ") {
		a, parse := parseAction(text, parameters())
		if parse != nil {
			t.Fatalf("%s: %v", text, parse)
		}
		err = r.Apply(a, m, stepsBudget)
	} else {
		e, parse := parse(text, parameters())
		if parse != nil {
			t.Fatalf("%s: %v", text, parse)
		}
		_, err = r.Match(e, stepsBudget)
	}
	if over := errors.Is(err, ErrSteps); over != (r.Steps() == stepsBudget) || !over && err != nil {
		t.Errorf("%.80s: %d steps, and %v", text, r.Steps(), err)
	}
	return r.Steps()
}

// TestStepsNeverChange: what evaluation takes is defined by texts and messages, forever. A change of the
// evaluator that makes this fail would take replicas of two releases apart. Lines that begin with
// a question mark get their number with -rewrite-steps; numbers that are there are never changed.
func TestStepsNeverChange(t *testing.T) {
	t.Parallel()
	const file = "testdata/steps.txt"
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(b), "\n")
	for i, line := range lines {
		number, text, _ := strings.Cut(line, " ")
		if number == "" || number == "#" {
			continue
		}
		got := fmt.Sprint(stepsOf(t, expand(text)))
		if number == "?" && *rewriteSteps {
			lines[i] = got + " " + text
		} else if number != got {
			t.Errorf("line %d: %s: %s steps, want %s", i+1, text, got, number)
		}
	}
	if *rewriteSteps {
		if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestUsualFiltersStayWithinABudget: a text of the longest length that compares properties with
// constants is within the budget of a rule.
func TestUsualFiltersStayWithinABudget(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"n{+n*140}>0", "0{+0*160}>0", "n=1{ OR n=1*145}", "Size IN (1{,1*500})", "Size IN (n{,n*300})",
		"{NOT *99}color='x'", "{color='red' AND *60}flag", "{color LIKE '%a%' OR *45}flag", "{sys.To='' OR *70}flag",
		"{EXISTS(q) OR *75}flag", "{newid()='' OR *70}flag", "{color+'x'='' OR *50}flag", "long LIKE '%word%' OR long LIKE '%other%'",
	} {
		text = expand(text)
		if err := checkLength(text); err != nil {
			t.Fatalf("%.40s: %v", text, err)
		}
		if n := stepsOf(t, text); n >= stepsBudget {
			t.Errorf("%.40s: %d steps", text, n)
		}
	}
}

// TestEvaluationOverBudgetFails: one step less than an evaluation takes, and it fails.
func TestEvaluationOverBudgetFails(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"Size > 5", "long LIKE '%word%'", "long = also", "color + 1 = 'x'", "p(color) = 1"} {
		e, err := Parse(text, nil)
		if err != nil {
			t.Fatal(err)
		}
		var r Runner
		r.Begin(sampleOfSteps())
		if _, err := r.Match(e, Unlimited); err != nil {
			t.Fatal(err)
		}
		needs := r.Steps()
		if _, err := r.Match(e, needs); err != nil || r.Steps() != needs {
			t.Errorf("%s within %d steps: %v after %d", text, needs, err, r.Steps())
		}
		if _, err := r.Match(e, needs-1); !errors.Is(err, ErrSteps) || r.Steps() != needs-1 {
			t.Errorf("%s within %d steps: %v after %d", text, needs-1, err, r.Steps())
		}
	}
}
