package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/audit"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/config"
)

// keyFilesEvery is the time between two reads of the files with operator and gossip keys.
const keyFilesEvery = 10 * time.Second

// reloader reads again what an operator may replace while a member runs: the files of keys regularly, and on SIGHUP also the
// certificates, which new connections read as well; on SIGHUP it opens the audit log again. What cannot be read stays as it is.
type reloader struct {
	settings *config.Settings
	parts    memberParts
	member   *member
	file     *audit.File
	logger   *slog.Logger

	keys    []auth.Key       // the configured keys in use
	hangups <-chan os.Signal // of catchHangups
	failed  string           // the last failure that was logged
}

// catchHangups returns a channel with SIGHUP. From then on, the signal does not end the process: one that comes before the member is
// open waits in the channel.
func catchHangups() <-chan os.Signal {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	return hangups
}

// start warns of short keys and reloads what changes until the returned function is called, which waits for the end.
func (r *reloader) start(ctx context.Context) (stop func()) {
	warnShortKeys(ctx, r.keys, r.logger)
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { r.run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// run ends with ctx.
func (r *reloader) run(ctx context.Context) {
	ticker := time.NewTicker(keyFilesEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.hangups:
			r.logger.InfoContext(ctx, "reload of keys, certificates and audit log was requested", "signal", "SIGHUP")
			r.parts.expiries()
			if err := r.file.Reopen(); err != nil {
				r.logger.WarnContext(ctx, "failed to reopen audit log", "error", err)
			}
			r.failed = ""
		case <-ticker.C:
		}
		r.reloadKeys(ctx)
	}
}

// reloadKeys applies the files of keys if they have changed. It logs a failure once.
func (r *reloader) reloadKeys(ctx context.Context) {
	err := errors.Join(r.reloadOperatorKeys(ctx), r.reloadGossipKeys())
	if err == nil {
		r.failed = ""
	} else if err.Error() != r.failed {
		r.failed = err.Error()
		r.logger.WarnContext(ctx, "failed to reload keys, the previous ones stay in use", "error", err)
	}
}

func (r *reloader) reloadOperatorKeys(ctx context.Context) error {
	keys, err := r.settings.OperatorKeys()
	if err != nil || slices.Equal(keys, r.keys) {
		return err
	}
	if err := r.member.ring.SetKeys(keys); err != nil {
		return fmt.Errorf("key_file: %w", err)
	}
	r.keys = keys
	r.logger.InfoContext(ctx, "operator keys were reloaded", "file", r.settings.KeyFile)
	r.parts.audit.InfoContext(ctx, "audit", "event", "keys_reloaded", "who", "key_file", "file", r.settings.KeyFile)
	return nil
}

func (r *reloader) reloadGossipKeys() error {
	keys, err := r.settings.GossipKeys()
	if err != nil {
		return err
	}
	return r.member.node.SetGossipKeys(keys)
}
