package main

import (
	"fmt"
	"os"

	"github.com/peeklock/peeklock/test/upgrade"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: write FOLDER")
		os.Exit(2) //nolint:forbidigo // nothing is left to be closed
	}
	path, err := upgrade.Write(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:forbidigo // nothing is left to be closed
	}
	fmt.Fprintln(os.Stdout, path)
}
