package foreign

import (
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const javaMajor = 17 // the oldest JDK; the same in each pom.xml

// mavenPassed finds Maven's summary when nothing failed and nothing was left out.
var mavenPassed = regexp.MustCompile(`(?m)^\[INFO\] Tests run: [1-9]\d*, Failures: 0, Errors: 0, Skipped: 0$`)

// Maven runs the JUnit tests of the Maven project in this folder. name is that of the suite, what names the client.
func Maven(t *testing.T, name, what string) {
	t.Helper()
	Need(t, what, mavenTools)
	folder := Copy(t, "pom.xml", "src")
	// Strict checksums: an artifact that is not the published one fails the run.
	Run(t, Suite{
		Name: name, Folder: folder, Passed: mavenPassed, Reports: "target/surefire-reports/TEST-*.xml",
		Case: func(class, name string) string {
			name, _, _ = strings.Cut(name, "(") // what follows are parameters
			return strings.TrimPrefix(class, "peeklock.") + "." + name
		},
		Command: []string{"mvn", "--batch-mode", "--no-transfer-progress", "--strict-checksums", "-Dstyle.color=never", "test"},
	})
}

// mavenTools looks for Maven and a compiler that is new enough.
func mavenTools() error {
	_, missing := exec.LookPath("mvn")
	out, err := exec.Command("javac", "--version").Output()
	if err != nil {
		return errors.Join(missing, fmt.Errorf("version of javac: %w", err))
	}
	major := regexp.MustCompile(`\d+`).Find(out)
	if n, err := strconv.Atoi(string(major)); err != nil || n < javaMajor {
		return fmt.Errorf("%q: Java %d or newer is needed", out, javaMajor)
	}
	return missing
}
