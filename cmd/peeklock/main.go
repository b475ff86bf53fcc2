package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	// The image holds no certificates; an identity provider's must be known all the same. They
	// count only where the system has none.
	_ "golang.org/x/crypto/x509roots/fallback"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
)

func main() { os.Exit(start()) }

// start is main with a result, so that deferred calls run before the exit.
func start() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first signal ends the work in order. From then on a second one kills, should
	// that take too long.
	context.AfterFunc(ctx, stop)
	return run(ctx, cli.Process{
		Args: os.Args[1:], Env: os.Environ(),
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		Interactive: cli.IsTerminal(os.Stderr),
	})
}
