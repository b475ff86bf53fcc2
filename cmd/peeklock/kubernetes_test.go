package main

import (
	"bufio"
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/peeklock/peeklock/admin"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/config"
	"github.com/peeklock/peeklock/test/kit"
)

// apiServer serves one StatefulSet as Kubernetes does, and returns the environment and the service account with
// which a pod finds it.
func apiServer(t *testing.T, status int, body string) (env []string, account string) {
	t.Helper()
	return kit.KubernetesAPI(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis/apps/v1/namespaces/queues/statefulsets/peeklock" || r.Header.Get("Authorization") != "Bearer secret" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	})
}

// A pod that is scaled down moves its data away. A pod that returns does not, nor does one that cannot find out;
// the latter is a failure, which Kubernetes reports as an event.
func TestPrestopRemovesOnlyScaledDownMembers(t *testing.T) {
	t.Parallel()
	three := `{"metadata":{"name":"peeklock"},"spec":{"replicas":3}}`
	for _, c := range []struct {
		name, pod string
		status    int
		set       string
		removes   bool
		code      int
		want      string
	}{
		{"restarted", "peeklock-2", 200, three, false, cli.ExitDone, "until services have forgotten"},
		{"one too many", "peeklock-3", 200, three, true, cli.ExitDone, "the member was removed"},
		{"numbered from two", "peeklock-4", 200, `{"spec":{"replicas":3,"ordinals":{"start":2}}}`, false, cli.ExitDone, "forgotten"},
		{"numbered from two, one too many", "peeklock-5", 200, `{"spec":{"replicas":3,"ordinals":{"start":2}}}`, true, cli.ExitDone, "removed"},
		{"put to rest", "peeklock-0", 200, `{"spec":{"replicas":0}}`, false, cli.ExitDone, "forgotten"},
		{"deleted", "peeklock-3", 200, `{"metadata":{"deletionTimestamp":"2026-11-20T12:00:00Z"},"spec":{"replicas":1}}`, false, cli.ExitDone, "forgotten"},
		{"of another set", "other-3", 200, three, false, cli.ExitRefused, "does not belong to StatefulSet"},
		{"of a set with a longer name", "peeklock-blue-3", 200, three, false, cli.ExitRefused, "does not belong to StatefulSet"},
		{"forbidden", "peeklock-3", 403, "{}", false, cli.ExitRefused, "the API server answers 403"},
		{"nonsense", "peeklock-3", 200, "<html>", false, cli.ExitRefused, "cannot tell whether"},
		{"says nothing", "peeklock-3", 200, "{}", false, cli.ExitRefused, "has no number of replicas"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			env, account := apiServer(t, c.status, c.set)
			var asked atomic.Int32
			member := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method+" "+r.URL.Path != "POST /v1/members/"+c.pod+"/remove" {
					t.Error(r.Method, r.URL.Path)
				}
				if asked.Add(1) < 3 {
					answer(w, 504, admin.Problem{Code: "Timeout", Message: "still", TrackingID: "t"})
					return
				}
				w.WriteHeader(204)
			}))
			defer member.Close()
			var out, errs bytes.Buffer
			code := run(t.Context(), cli.Process{
				Args: []string{"--server", member.URL, "kubernetes", "prestop", "--statefulset", "peeklock", "--account", account, "--forget", "1ms"},
				Env:  append(env, "HOSTNAME="+c.pod), Out: &out, Err: &errs,
			})
			if code != c.code || !strings.Contains(errs.String(), c.want) || c.removes != (asked.Load() == 3) || out.Len() > 0 {
				t.Errorf("%d %q %q, asked %d times", code, out.String(), errs.String(), asked.Load())
			}
		})
	}
}

// A pod that is scaled down does not stop while the cluster refuses to let it go, and says why: a plan that is
// impossible now may be possible when the other members are back.
func TestPrestopWaitsWhileTheMemberIsNeeded(t *testing.T) {
	t.Parallel()
	env, account := apiServer(t, 200, `{"spec":{"replicas":1}}`)
	refusals := []struct {
		status int
		code   string
	}{{400, "InvalidArgument"}, {503, "ServerBusy"}, {412, "PreconditionFails"}, {504, "Timeout"}, {400, "InvalidArgument"}}
	var asked atomic.Int32
	member := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := int(asked.Add(1)) - 1
		if n == len(refusals) {
			w.WriteHeader(204)
			return
		}
		answer(w, refusals[n].status, admin.Problem{Code: refusals[n].code, Message: "because of " + refusals[n].code, TrackingID: "t"})
	}))
	defer member.Close()
	var errs bytes.Buffer
	code := run(t.Context(), cli.Process{
		Args: []string{"--server", member.URL, "kubernetes", "prestop", "--statefulset", "peeklock", "--account", account, "--forget", "1ms"},
		Env:  append(env, "HOSTNAME=peeklock-1"), Out: &bytes.Buffer{}, Err: &errs,
	})
	if code != cli.ExitDone || int(asked.Load()) != len(refusals)+1 {
		t.Errorf("%d %q, asked %d times", code, errs.String(), asked.Load())
	}
	for _, refusal := range refusals {
		if !strings.Contains(errs.String(), "because of "+refusal.code) {
			t.Errorf("it does not say that it waits because of %s: %q", refusal.code, errs.String())
		}
	}
}

// A pod stops in time, whatever the cluster does, and reports that its data was not moved.
func TestPrestopEndsInTime(t *testing.T) {
	t.Parallel()
	env, account := apiServer(t, 200, `{"spec":{"replicas":1}}`)
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer(w, 504, admin.Problem{Code: "Timeout", Message: "still", TrackingID: "t"})
	}))
	defer slow.Close()
	prestop := func(server string, args ...string) (int, string) {
		var errs bytes.Buffer
		code := run(t.Context(), cli.Process{
			Args: append([]string{"--server", server, "kubernetes", "prestop", "--statefulset", "peeklock", "--account", account, "--forget", "1ms"}, args...),
			Env:  append(env, "HOSTNAME=peeklock-1"), Out: &bytes.Buffer{}, Err: &errs,
		})
		return code, errs.String()
	}
	began := time.Now()
	if code, text := prestop(slow.URL, "--within", "300ms"); code != cli.ExitRefused || !strings.Contains(text, "300ms was not enough") {
		t.Error(code, text)
	}
	// Much less than the default, and much more than a busy machine needs.
	if took := time.Since(began); took > 60*time.Second {
		t.Error("took", took)
	}
	if code, text := prestop("http://127.0.0.1:1"); code != cli.ExitRefused || !strings.Contains(text, "no member answers") {
		t.Error(code, text)
	}
	if code, _ := prestop(slow.URL, "--within", "0s"); code != cli.ExitUsage {
		t.Error(code)
	}
	// Without an API server nothing is moved.
	env = nil
	if code, text := prestop(slow.URL); code != cli.ExitRefused || !strings.Contains(text, "this is no pod") {
		t.Error(code, text)
	}
}

// A member that stops during its removal counts as removed only if its data directory says so.
func TestPrestopAcceptsAMemberThatStopped(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, file string
		want       int
	}{
		{"removed", `{"version":1,"member":"ABCDEFGHIJKLMNOPQRSTUVWXYZ","removed":true}`, cli.ExitDone},
		{"not removed", `{"version":1,"member":"ABCDEFGHIJKLMNOPQRSTUVWXYZ"}`, cli.ExitRefused},
		{"no file", "", cli.ExitRefused},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			env, account := apiServer(t, 200, `{"spec":{"replicas":1}}`)
			dir := t.TempDir()
			if c.file != "" {
				if err := os.WriteFile(filepath.Join(dir, "member.json"), []byte(c.file), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			ended := stopAtFirstRequest(t, filepath.Join(dir, config.SocketName))
			var errs bytes.Buffer
			code := run(t.Context(), cli.Process{
				Args: []string{"kubernetes", "prestop", "--statefulset", "peeklock", "--account", account, "--forget", "1ms", "--within", "5s"},
				Env:  append(env, "HOSTNAME=peeklock-1", "PEEKLOCK_DIR="+dir), Out: &bytes.Buffer{}, Err: &errs,
			})
			if <-ended; code != c.want {
				t.Errorf("%d, want %d: %s", code, c.want, errs.String())
			}
		})
	}
}

// stopAtFirstRequest listens at a control socket and stops, as a member that ends, when it gets a request. The
// channel is closed then.
func stopAtFirstRequest(t *testing.T, socket string) <-chan struct{} {
	t.Helper()
	l, err := listenSocket(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		conn, err := l.Accept()
		if err == nil {
			_, err = http.ReadRequest(bufio.NewReader(conn))
		}
		if err = errors.Join(err, l.Close()); err == nil { // first the socket is removed, then the connection is closed
			err = conn.Close()
		}
		if err != nil {
			t.Error(err)
		}
	}()
	return ended
}

// The data of a removed member is set aside, that of any other is not.
func TestPrepareSetsOnlyRemovedMembersAside(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	prepare := func() (int, string) {
		var errs bytes.Buffer
		code := run(t.Context(), cli.Process{Args: []string{"kubernetes", "prepare", "--dir", dir}, Out: &bytes.Buffer{}, Err: &errs})
		return code, errs.String()
	}
	member := filepath.Join(dir, "member.json")
	for _, c := range []struct{ text, want string }{
		{`{"version":1,"member":"ABCDEFGHIJKLMNOPQRSTUVWXYZ"}`, ""},
		{`{"version":1,"member":"ABCDEFGHIJKLMNOPQRSTUVWXYZ","removed":true}`, "was moved aside"},
	} {
		if err := os.WriteFile(member, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		code, text := prepare()
		if _, err := os.Stat(member); code != cli.ExitDone || !strings.Contains(text, c.want) || os.IsNotExist(err) != (c.want != "") {
			t.Errorf("%d %q %v", code, text, err)
		}
	}
	if code, text := prepare(); code != cli.ExitDone || text != "" {
		t.Error(code, text)
	}
}
