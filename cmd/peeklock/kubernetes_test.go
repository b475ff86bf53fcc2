package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/config"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// apiServer serves one StatefulSet as Kubernetes does, and returns the environment and the service account with
// which a pod finds it.
func apiServer(t *testing.T, status int, body string) (env []string, account string) {
	t.Helper()
	return kit.KubernetesAPI(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/namespaces/queues/events" {
			w.WriteHeader(http.StatusForbidden) // the service account need not have this right
			return
		}
		if r.URL.Path != "/apis/apps/v1/namespaces/queues/statefulsets/peeklock" || r.Header.Get("Authorization") != "Bearer secret" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	})
}

// memberServer is a member that takes notes, and has the handler answer all other requests.
func memberServer(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/notes" {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		handler(w, r)
	}))
	t.Cleanup(server.Close)
	return server
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
			member := memberServer(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method+" "+r.URL.Path != "POST /v1/members/"+c.pod+"/remove" {
					t.Error(r.Method, r.URL.Path)
				}
				if asked.Add(1) < 3 {
					answer(w, 504, api.Problem{Code: "Timeout", Message: "still", TrackingID: "t"})
					return
				}
				w.WriteHeader(204)
			})
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
	member := memberServer(t, func(w http.ResponseWriter, _ *http.Request) {
		n := int(asked.Add(1)) - 1
		if n == len(refusals) {
			w.WriteHeader(204)
			return
		}
		answer(w, refusals[n].status, api.Problem{Code: refusals[n].code, Message: "because of " + refusals[n].code, TrackingID: "t"})
	})
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

// What the hook does is logged by the member and seen in the events of the pod, because Kubernetes drops what a hook
// prints. A restart of a pod makes no event.
func TestPrestopIsReported(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, set     string
		code          string // of the refusal of the removal; "": it succeeds
		notes, events []string
	}{
		{"restarted", `{"spec":{"replicas":3}}`, "", []string{"forgotten"}, nil},
		{"removed", `{"spec":{"replicas":1}}`, "", []string{"moves the data", "was removed"}, []string{"Normal moves the data", "Normal was removed"}},
		{"refused", `{"spec":{"replicas":1}}`, "NotAllowed", []string{"moves the data", "because"}, []string{"Normal moves the data", "Warning because"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var notes, events []string
			env, account := kit.KubernetesAPI(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method+" "+r.URL.Path != "POST /api/v1/namespaces/queues/events" {
					_, _ = w.Write([]byte(c.set))
					return
				}
				var event struct {
					Type, Message  string
					InvolvedObject struct{ Kind, Name, UID string }
				}
				if err := json.NewDecoder(r.Body).Decode(&event); err != nil || event.InvolvedObject != struct{ Kind, Name, UID string }{"Pod", "peeklock-1", "its-uid"} {
					t.Error(event, err)
				}
				mu.Lock()
				defer mu.Unlock()
				events = append(events, event.Type+" "+event.Message)
				w.WriteHeader(http.StatusCreated)
			})
			member := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var note api.Note
				switch {
				case r.URL.Path != "/v1/notes" && c.code != "":
					answer(w, 403, api.Problem{Code: c.code, Message: "because", TrackingID: "t"})
					return
				case r.URL.Path == "/v1/notes":
					if err := json.NewDecoder(r.Body).Decode(&note); err != nil || note.Source != "prestop" {
						t.Error(note, err)
					}
					mu.Lock()
					defer mu.Unlock()
					notes = append(notes, note.Text)
				}
				w.WriteHeader(http.StatusNoContent)
			}))
			t.Cleanup(member.Close)
			run(t.Context(), cli.Process{
				Args: []string{"--server", member.URL, "kubernetes", "prestop", "--statefulset", "peeklock", "--account", account, "--forget", "1ms"},
				Env:  append(env, "HOSTNAME=peeklock-1", "POD_UID=its-uid"), Out: &bytes.Buffer{}, Err: &bytes.Buffer{},
			})
			mu.Lock()
			defer mu.Unlock()
			for _, both := range []struct{ got, want []string }{{notes, c.notes}, {events, c.events}} {
				same := slices.EqualFunc(both.got, both.want, func(got, want string) bool {
					kind, text, found := strings.Cut(want, " ")
					return strings.Contains(got, want) || found && strings.HasPrefix(got, kind+" ") && strings.Contains(got, text)
				})
				if !same {
					t.Errorf("%q, want %q", both.got, both.want)
				}
			}
		})
	}
}

// The hook removes the member of its data directory: a member that has lost its volume leaves a record with the same name.
func TestPrestopRemovesTheMemberOfItsFolder(t *testing.T) {
	t.Parallel()
	env, account := apiServer(t, 200, `{"spec":{"replicas":1}}`)
	const id = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	dir := t.TempDir()
	kit.OK(t, os.WriteFile(filepath.Join(dir, "member.json"), []byte(`{"format":1,"member":"`+id+`"}`), 0o600))
	var asked atomic.Pointer[string]
	member := memberServer(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Store(&r.URL.Path)
		w.WriteHeader(http.StatusNoContent)
	})
	var errs bytes.Buffer
	code := run(t.Context(), cli.Process{
		Args: []string{"--server", member.URL, "kubernetes", "prestop", "--statefulset", "peeklock", "--account", account, "--forget", "1ms"},
		Env:  append(env, "HOSTNAME=peeklock-1", "PEEKLOCK_DIR="+dir), Out: &bytes.Buffer{}, Err: &errs,
	})
	if path := asked.Load(); code != cli.ExitDone || path == nil || *path != "/v1/members/"+id+"/remove" {
		t.Error(code, path, errs.String())
	}
}

// A pod stops in time, whatever the cluster does, and reports that its data was not moved.
func TestPrestopEndsInTime(t *testing.T) {
	t.Parallel()
	env, account := apiServer(t, 200, `{"spec":{"replicas":1}}`)
	slow := memberServer(t, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 504, api.Problem{Code: "Timeout", Message: "still", TrackingID: "t"})
	})
	prestop := func(server string, args ...string) (int, string) {
		var errs bytes.Buffer
		code := run(t.Context(), cli.Process{
			Args: append([]string{"--server", server, "kubernetes", "prestop", "--statefulset", "peeklock", "--account", account, "--forget", "1ms"}, args...),
			Env:  append(env, "HOSTNAME=peeklock-1"), Out: &bytes.Buffer{}, Err: &errs,
		})
		return code, errs.String()
	}
	began := time.Now()
	for within := 300 * time.Millisecond; ; within *= 2 {
		code, text := prestop(slow.URL, "--within", within.String())
		// Much less than the default, and much more than a busy machine needs.
		if took := time.Since(began); took > 60*time.Second {
			t.Fatal("took", took)
		}
		if strings.Contains(text, "cannot tell whether") {
			continue // not even the API server answered in that time
		}
		if code != cli.ExitRefused || !strings.Contains(text, within.String()+" was not enough") {
			t.Error(code, text)
		}
		break
	}
	if code, text := prestop("http://127.0.0.1:1"); code != cli.ExitRefused || !strings.Contains(text, "no member answers") {
		t.Error(code, text)
	}
	if code, _ := prestop(slow.URL, "--within", "0s"); code != cli.ExitUsage {
		t.Error(code)
	}
	// Without an API server nothing is moved.
	env = nil
	if code, text := prestop(slow.URL); code != cli.ExitRefused || !strings.Contains(text, "not running in a pod") {
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
		{"removed", `{"format":1,"member":"ABCDEFGHIJKLMNOPQRSTUVWXYZ","removed":true}`, cli.ExitDone},
		{"not removed", `{"format":1,"member":"ABCDEFGHIJKLMNOPQRSTUVWXYZ"}`, cli.ExitRefused},
		{"no file", "", cli.ExitRefused},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			env, account := apiServer(t, 200, `{"spec":{"replicas":1}}`)
			dir := t.TempDir()
			if c.file != "" {
				kit.OK(t, os.WriteFile(filepath.Join(dir, "member.json"), []byte(c.file), 0o600))
			}
			ended := stopAtRemoval(t, filepath.Join(dir, config.SocketName))
			var errs bytes.Buffer
			code := run(t.Context(), cli.Process{
				Args: []string{"kubernetes", "prestop", "--statefulset", "peeklock", "--account", account, "--forget", "1ms", "--within", "1m"},
				Env:  append(env, "HOSTNAME=peeklock-1", "PEEKLOCK_DIR="+dir), Out: &bytes.Buffer{}, Err: &errs,
			})
			if <-ended; code != c.want {
				t.Errorf("%d, want %d: %s", code, c.want, errs.String())
			}
		})
	}
}

// stopAtRemoval listens at a control socket and stops, as a member that ends, when it gets a request other than a note. The
// channel is closed then.
func stopAtRemoval(t *testing.T, socket string) <-chan struct{} {
	t.Helper()
	l := kit.Must(listenSocket(t.Context(), socket))(t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		conn, asked, err := acceptRequest(l)
		for err == nil && asked.URL.Path == "/v1/notes" {
			_, err = io.WriteString(conn, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
			if err = errors.Join(err, conn.Close()); err == nil {
				conn, asked, err = acceptRequest(l)
			}
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

// acceptRequest accepts a connection and reads a request from it.
func acceptRequest(l net.Listener) (net.Conn, *http.Request, error) {
	conn, err := l.Accept()
	if err != nil {
		return nil, nil, err
	}
	asked, err := http.ReadRequest(bufio.NewReader(conn))
	return conn, asked, err
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
		{`{"format":1,"draft":%d,"member":"ABCDEFGHIJKLMNOPQRSTUVWXYZ"}`, ""},
		{`{"format":1,"draft":%d,"member":"ABCDEFGHIJKLMNOPQRSTUVWXYZ","removed":true}`, "was moved aside"},
	} {
		kit.OK(t, os.WriteFile(member, fmt.Appendf(nil, c.text, fsm.FormatDraft), 0o600))
		code, text := prepare()
		if _, err := os.Stat(member); code != cli.ExitDone || !strings.Contains(text, c.want) || os.IsNotExist(err) != (c.want != "") {
			t.Errorf("%d %q %v", code, text, err)
		}
	}
	if code, text := prepare(); code != cli.ExitDone || text != "" {
		t.Error(code, text)
	}
}
