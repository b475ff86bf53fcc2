package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	// The image contains no certificates, but a member must trust the certificate of an identity provider. These
	// certificates apply only if the system has none.
	_ "golang.org/x/crypto/x509roots/fallback"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
)

func main() { os.Exit(start()) }

// start does the work of main and returns the exit code, so that deferred calls run before the exit.
func start() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first signal starts an orderly shutdown. After that, a second one kills the process, in case the
	// shutdown takes too long.
	context.AfterFunc(ctx, stop)
	return run(ctx, cli.Process{
		Args: os.Args[1:], Env: os.Environ(),
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		Interactive: cli.IsTerminal(os.Stderr),
		Asks:        cli.IsTerminal(os.Stdin) && cli.IsTerminal(os.Stderr),
	})
}
