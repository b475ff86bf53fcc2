package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// HelpColumns is the width of the help.
const HelpColumns = 100

// WrapHelp breaks the lines of the help of a command and of its subcommands. Lines that begin with a space stay.
func WrapHelp(cmd *cobra.Command) {
	paragraphs := strings.Split(cmd.Long, "\n\n")
	for i, p := range paragraphs {
		paragraphs[i] = wrapParagraph(p)
	}
	cmd.Long = strings.Join(paragraphs, "\n\n")
	for _, sub := range cmd.Commands() {
		WrapHelp(sub)
	}
}

// wrapParagraph breaks the lines of a paragraph anew if one is too long.
func wrapParagraph(text string) string {
	isLong := false
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(line, " ") {
			return text
		}
		isLong = isLong || len(line) > HelpColumns
	}
	if !isLong {
		return text
	}
	var b strings.Builder
	column := 0
	for _, word := range strings.Fields(text) {
		switch {
		case column == 0:
		case column+1+len(word) > HelpColumns:
			b.WriteByte('\n')
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}
