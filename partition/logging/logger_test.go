package logging

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// Raft logs an unreachable peer twice a second. The adapter logs it once a minute for each peer, with the
// number of omitted lines; lines that are not about a peer are always logged.
func TestUnreachablePeerIsLoggedOncePerMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var lines bytes.Buffer
		repeats := new(repeatFilter)
		l := (&logger{to: slog.New(slog.NewTextHandler(&lines, nil)), name: "raft", repeats: repeats}).With("x", 1).ResetNamed("raft.y")
		for range 241 { // two minutes, and the beginning of a third
			l.Error("failed to heartbeat to", "peer", raft.ServerAddress("a"), "error", "away")
			l.Error("failed to heartbeat to", "peer", raft.ServerAddress("b"), "error", "away")
			<-time.After(500 * time.Millisecond)
		}
		l.Error("failed to commit logs", "error", "first")
		l.Error("failed to commit logs", "error", "second")
		if n := strings.Count(lines.String(), "peer=a"); n != 3 {
			t.Errorf("%d lines of a", n)
		}
		if n := strings.Count(lines.String(), "omitted=119 peer=b"); n != 2 {
			t.Errorf("%d lines of b that say what was left out", n)
		}
		if n := strings.Count(lines.String(), "failed to commit logs"); n != 2 {
			t.Errorf("%d lines of something else", n)
		}
		for i := range 3 * repeatsMax {
			repeats.allow(strings.Repeat("p", i), time.Now())
		}
		if n := len(repeats.last); n > repeatsMax {
			t.Errorf("remembers %d", n)
		}
	})
}

// TestWithoutQuorumAtMostOneLinePerSecond: the groups of a member without a quorum hold elections that fail, every two seconds or so.
func TestWithoutQuorumAtMostOneLinePerSecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const groups, seconds = 17, 600
		var lines bytes.Buffer
		to := slog.New(slog.NewTextHandler(&lines, nil))
		var all []hclog.Logger
		for range groups {
			all = append(all, New(to))
		}
		for range seconds / 2 {
			for _, l := range all {
				l.Warn("Election timeout reached, restarting election")
				l.Error("failed to make requestVote RPC", "target", raft.Server{ID: "b"}, "error", "away")
				l.Error("failed to make requestVote RPC", "target", raft.Server{ID: "c"}, "error", "away")
			}
			<-time.After(2 * time.Second)
		}
		if n := strings.Count(lines.String(), "\n"); n > seconds || n == 0 {
			t.Errorf("%d lines in %d seconds", n, seconds)
		}
	})
}
