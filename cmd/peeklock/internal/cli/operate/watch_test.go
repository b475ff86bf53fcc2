package operate

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
	"github.com/peeklock/peeklock/topology"
)

// A command that stops watching says that the operation continues and how to check it, and its exit code is that
// of an unknown outcome. Meanwhile a terminal shows the progress.
func TestInterruptedCommandsReportUnknownOutcome(t *testing.T) {
	kit.Long(t)
	t.Parallel()
	for _, args := range [][]string{
		{"member", "remove", "two", "--yes"},
		{"member", "drain", "two"},
		{"partition", "move", "1", "two"},
		{"partition", "rebalance"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		var looked atomic.Int32
		mux := http.NewServeMux()
		look := func(value any) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				if looked.Add(1) > 4 {
					cancel()
				}
				answerJSON(w, 200, value)
			}
		}
		mux.HandleFunc("GET /v1/members", look(api.Members{Members: []api.Member{{Member: topology.Member{ID: "m2", Name: "two", Leads: 2, Holds: 3}}}}))
		mux.HandleFunc("GET /v1/moves", look(api.Moves{Moves: []topology.Move{{Partition: 1, State: "catching up", Copied: 1, Bytes: 2}}}))
		mux.HandleFunc("GET /v1/rebalance", look(api.Plan{Moves: []topology.PlannedMove{{Partition: 1, From: []fsm.MemberID{"m1"}, To: []fsm.MemberID{"m2"}, Bytes: 5}}}))
		mux.HandleFunc("POST /v1/members/", func(w http.ResponseWriter, _ *http.Request) {
			answerJSON(w, 504, api.Problem{Code: "Timeout", Message: "it still leads partitions [1]", TrackingID: "t"})
		})
		mux.HandleFunc("POST /v1/", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) })
		server := httptest.NewServer(mux)
		var out, errs bytes.Buffer
		code := runOperation(ctx, cli.Process{Args: append(args, "--server", server.URL), Out: &out, Err: &errs, Interactive: true})
		if text := errs.String(); code != cli.ExitUnknown || !strings.Contains(text, "continues in the cluster") || !strings.Contains(text, "peeklock partition moves") {
			t.Errorf("%v: %d %q", args, code, text)
		}
		cancel()
		server.Close()
	}
}

// Requests to a member that is briefly gone are retried; a member that never answers is given up.
func TestRequestsToAnAbsentMemberAreRetried(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		switch asked.Add(1) {
		case 1:
			panic(http.ErrAbortHandler) // it may or may not have started
		case 2:
			answerJSON(w, 503, api.Problem{Code: "ServerBusy", Message: "no leader", TrackingID: "t"})
		case 3:
			answerJSON(w, 504, api.Problem{Code: "Timeout", Message: "still", TrackingID: "t"})
		default:
			w.WriteHeader(http.StatusNoContent)
		}
	}))
	defer server.Close()
	var out, errs bytes.Buffer
	drain := func(address string) int {
		return runOperation(t.Context(), cli.Process{Args: []string{"member", "drain", "one", "--server", address}, Out: &out, Err: &errs})
	}
	if code := drain(server.URL); code != cli.ExitDone || asked.Load() != 4 {
		t.Error(code, asked.Load(), errs.String())
	}
	if code := drain("http://127.0.0.1:1"); code != cli.ExitRefused || !strings.Contains(errs.String(), "no member answers") {
		t.Error(code, errs.String())
	}
}

func TestMoveTimeIsEstimatedFromBytesAndMoves(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		bytes int64
		moves int
		want  string
	}{{0, 0, "0s"}, {0, 3, "6s"}, {copyRate * 60, 1, "1m2s"}, {1 << 42, 100, "23h21m26s"}} {
		if got := estimate(c.bytes, c.moves).String(); got != c.want {
			t.Errorf("%d bytes, %d moves: %s, want %s", c.bytes, c.moves, got, c.want)
		}
	}
}

// runOperation runs a command of this package and returns its exit code.
func runOperation(ctx context.Context, p cli.Process) int {
	root, _ := command.NewRoot(p, Nouns()...)
	return cli.Execute(ctx, p, root)
}

func answerJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
