package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/test/kit"
)

// TestCommandsOfTheReadmeSucceed runs the commands of the README in order, against one cluster. It omits those that start a
// cluster or run tests, because the test does that itself.
func TestCommandsOfTheReadmeSucceed(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts three members")
	}
	content := kit.Must(os.ReadFile("../../README.md"))(t)
	commands := readmeCommands(t, string(content))
	ready, _ := startDev(t, filepath.Join(kit.MemoryDir(t), "data"))
	printed := map[string]string{}
	for _, line := range commands {
		args := shellWords(line)
		printed[line] = say(t, ready.Members[0], 0, args...)
	}
	for start, want := range map[string]string{
		"message receive events/Subscriptions/large": "hello", "message receive orders": "one tea", "message receive carts": "apple",
	} {
		found := false
		for line, text := range printed {
			found = found || strings.HasPrefix(line, start) && strings.Contains(text, want)
		}
		if !found {
			t.Errorf("no command %q of the README printed %q", start, want)
		}
	}
}

// readmeCommands returns the command lines of the README after the name of the program: those in blocks that are
// indented, or fenced as sh. An unknown program in such a block fails the test.
func readmeCommands(t *testing.T, content string) []string {
	t.Helper()
	var commands []string
	fence := ""
	for line := range strings.Lines(content) {
		line = strings.TrimSuffix(line, "\n")
		if language, is := strings.CutPrefix(line, "```"); is {
			if fence != "" {
				language = ""
			} else if language == "" {
				language = "text"
			}
			fence = language
			continue
		}
		command, indented := strings.CutPrefix(line, "    ")
		if fence != "sh" && (fence != "" || !indented) || strings.TrimSpace(command) == "" {
			continue
		}
		rest, ours := strings.CutPrefix(command, "go run ./cmd/peeklock ")
		switch {
		case ours && rest == "dev", command == "go test ./...":
		case ours:
			commands = append(commands, rest)
		default:
			t.Errorf("README.md shows %q: a reader who follows it needs to know what that is", command)
		}
	}
	if len(commands) < 10 {
		t.Fatalf("only %d commands found in README.md", len(commands))
	}
	return commands
}

// shellWords splits a command line into words and words in double quotes, without a comment at the end.
func shellWords(line string) []string {
	line, _, _ = strings.Cut(line, " #")
	var words []string
	for _, word := range regexp.MustCompile(`"[^"]*"|\S+`).FindAllString(line, -1) {
		words = append(words, strings.Trim(word, `"`))
	}
	return words
}
