package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/admin/connection"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/config"
)

// raiseProcs raises GOMAXPROCS to at least this number. A thread that waits for fsync keeps its processor until
// the runtime takes it back (up to 10 ms later). With only two processors, nothing can queue behind a sync
// meanwhile, and group commit has nothing to group: three members in one process on two cores did 2,100 commits/s
// with GOMAXPROCS=2 and 5,900 with 8. One member per process is not affected on two cores, but would be on one.
// It returns the number of processors that the process may use.
func raiseProcs(least int) int {
	processors := runtime.GOMAXPROCS(0)
	if processors < least {
		runtime.GOMAXPROCS(least)
	}
	return processors
}

const (
	procsDev   = 8 // for three members or more
	procsServe = 4
)

// pprofFlag adds the hidden flag for profiles.
func pprofFlag(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "pprof", "", "serve profiles of this process on this host:port")
	_ = cmd.Flags().MarkHidden("pprof")
}

// servePprof serves net/http/pprof on a listener of its own until the returned function is called. It is not part
// of the control API, because a profile shows more than the key of an operator allows.
func servePprof(ctx context.Context, address string, logger *slog.Logger) (func(), error) {
	if address == "" {
		return func() {}, nil
	}
	if !config.IsLoopback(address) {
		return nil, cli.Usagef("pprof: %s can be reached from other machines: use a loopback address", address)
	}
	l, err := listenOn(ctx, address)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	server := &http.Server{Handler: requireLoopbackHost(mux), ReadHeaderTimeout: 5 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			logger.ErrorContext(ctx, "profile listener failed", "error", err.Error())
		}
	}()
	return func() {
		_ = server.Close()
		<-done
	}, nil
}

// requireLoopbackHost refuses requests for other hosts than this machine: a web page whose DNS name was pointed at
// 127.0.0.1 could otherwise read the answers.
func requireLoopbackHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !connection.IsLoopbackHost(r.Host) {
			http.Error(w, "Ask for localhost or a loopback address.", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
