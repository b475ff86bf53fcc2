// Package java runs the official Java client, azure-messaging-servicebus, as it is
// published against three members. The scenarios are the classes in src/test, each named
// after the promise that it shows; JUnit runs them, and Maven, which brings both.
package java

import (
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/test/conformance/foreign"
	"github.com/peeklock/peeklock/test/harness"
)

const javaMajor = 17 // the oldest JDK; the same in pom.xml

// allPassed finds Maven's summary when nothing failed and nothing was left out.
var allPassed = regexp.MustCompile(`(?m)^\[INFO\] Tests run: [1-9]\d*, Failures: 0, Errors: 0, Skipped: 0$`)

func TestMain(m *testing.M) { harness.Main(m) }

func TestOfficialClient(t *testing.T) {
	t.Parallel()
	foreign.Need(t, "the official Java client", tools)
	folder := foreign.Copy(t, "pom.xml", "src")
	// Strict checksums: an artifact that is not the published one fails the run.
	foreign.Run(t, foreign.Suite{
		Name: "java", Folder: folder, Passed: allPassed, Reports: "target/surefire-reports/TEST-*.xml",
		Case: func(class, name string) string {
			name, _, _ = strings.Cut(name, "(") // what follows are parameters
			return strings.TrimPrefix(class, "peeklock.") + "." + name
		},
		Command: []string{"mvn", "--batch-mode", "--no-transfer-progress", "--strict-checksums", "-Dstyle.color=never", "test"},
	})
}

// tools looks for Maven and a compiler.
func tools() error {
	_, err := exec.LookPath("mvn")
	return errors.Join(err, newEnough())
}

// newEnough checks the version of the compiler.
func newEnough() error {
	out, err := exec.Command("javac", "--version").Output()
	if err != nil {
		return fmt.Errorf("version of javac: %w", err)
	}
	major := regexp.MustCompile(`\d+`).Find(out)
	if n, err := strconv.Atoi(string(major)); err != nil || n < javaMajor {
		return fmt.Errorf("%q: Java %d or newer is needed", out, javaMajor)
	}
	return nil
}
