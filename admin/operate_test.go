package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/admin/operation"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/topology"
)

// fakeOperations is Operations in memory: it records the calls, and returns fails.
type fakeOperations struct {
	mu    sync.Mutex
	known []fsm.Member
	moves []topology.Move
	plan  []topology.PlannedMove
	asked []string
	fails error
	// copies writes a backup.
	copies func(ctx context.Context, w io.Writer) error
}

func newFakeOperations() *fakeOperations {
	return &fakeOperations{known: []fsm.Member{
		{ID: "1", Name: "c", Zone: "z", Weight: 20},
		{ID: "2", Name: "b", Drained: true},
		{ID: "3", Name: "a"},
		{ID: "4", Name: "twin"},
		{ID: "5", Name: "twin"},
		{ID: "6", Name: "c", Removed: true, Drained: true},
		{ID: "7", Name: "old", Removed: true},
	}}
}

func (c *fakeOperations) record(format string, args ...any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, fmt.Sprintf(format, args...))
	return c.fails
}

// last returns the last call and removes it.
func (c *fakeOperations) last() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.asked) == 0 {
		return ""
	}
	text := strings.Join(c.asked, "; ")
	c.asked = nil
	return text
}

func (c *fakeOperations) Members(context.Context) ([]fsm.Member, error) { return c.known, nil }

func (c *fakeOperations) SetMember(_ context.Context, m fsm.Member) error {
	return c.record("set %+v", m)
}

func (c *fakeOperations) Drain(_ context.Context, id fsm.MemberID) error {
	return c.record("drain %s", id)
}

func (c *fakeOperations) Undrain(_ context.Context, id fsm.MemberID) error {
	return c.record("undrain %s", id)
}

func (c *fakeOperations) RemoveMember(_ context.Context, id fsm.MemberID) error {
	return c.record("remove %s", id)
}

func (c *fakeOperations) ReplaceMember(_ context.Context, old, fresh fsm.MemberID) error {
	return c.record("replace %s %s", old, fresh)
}

func (c *fakeOperations) Move(_ context.Context, id fsm.PartitionID, members []fsm.MemberID) error {
	return c.record("move %d %v", id, members)
}

func (c *fakeOperations) PauseMove(_ context.Context, id fsm.PartitionID) error {
	return c.record("pause %d", id)
}

func (c *fakeOperations) ResumeMove(_ context.Context, id fsm.PartitionID) error {
	return c.record("resume %d", id)
}

func (c *fakeOperations) CancelMove(_ context.Context, id fsm.PartitionID) error {
	return c.record("cancel %d", id)
}

func (c *fakeOperations) TransferLeader(_ context.Context, id fsm.PartitionID, to fsm.MemberID) error {
	return c.record("transfer %d %s", id, to)
}

func (c *fakeOperations) PlanRebalance(context.Context) ([]topology.PlannedMove, error) {
	return c.plan, c.record("plan")
}

func (c *fakeOperations) Rebalance(_ context.Context, moves []topology.PlannedMove) error {
	return c.record("rebalance %v", moves)
}

func (c *fakeOperations) Moves(context.Context) ([]topology.Move, error) { return c.moves, c.fails }

func (c *fakeOperations) Grow(_ context.Context, n int) (int, error) {
	return 8 + n, c.record("grow %d", n)
}

func (c *fakeOperations) HoldFormatLevel(_ context.Context, most uint32) error {
	return c.record("hold level %d", most)
}

func (c *fakeOperations) ConfirmTime(context.Context) (time.Duration, error) {
	return 3 * time.Hour, c.record("confirm time")
}

func (c *fakeOperations) Verify(_ context.Context, id fsm.PartitionID) (topology.Verification, error) {
	return topology.Verification{Partition: id, Index: 7, Equal: true, Replicas: []topology.VerifiedReplica{{Member: "1", Replica: "1.1", Digest: "00"}}}, c.record("verify %d", id)
}

func (c *fakeOperations) Backup(ctx context.Context, id fsm.PartitionID, w io.Writer) error {
	if err := c.record("backup %d", id); err != nil {
		return err
	}
	return c.copies(ctx, w)
}

func newOperationsServer(t *testing.T) (*testServer, *fakeOperations) {
	t.Helper()
	r, c := newTestServer(t), newFakeOperations()
	r.mu.Lock()
	r.Operations = c
	r.mu.Unlock()
	return r, c
}

// Valid requests reach the cluster with the right arguments, invalid ones do not.
func TestOperationsReachTheCluster(t *testing.T) {
	t.Parallel()
	r, operations := newOperationsServer(t)
	operations.moves = []topology.Move{{Partition: 2, From: []fsm.MemberID{"1"}, To: []fsm.MemberID{"2"}, State: "catching up", Copied: 1, Bytes: 3}}
	operations.plan = []topology.PlannedMove{{Partition: 4, From: []fsm.MemberID{"1"}, To: []fsm.MemberID{"3"}, Bytes: 9}}
	operations.copies = func(_ context.Context, w io.Writer) error {
		_, err := io.WriteString(w, "copied")
		return err
	}
	many := strings.Repeat(`{"partition":1},`, planMovesMax)
	for _, step := range []struct {
		method, path, body string
		status             int
		want, asked        string
	}{
		{"GET", "/v1/members", "", 200, `{"members":[{"id":"3","name":"a","state":"alive","version":"","amqp":"a:5672","http":"","leads":0,"holds":0,"readOnly":false,"drained":false,"clockOff":false,"zone":"","weight":10,"removed":false},`, ""},
		{"GET", "/v1/members", "", 200, `{"id":"7","name":"old","state":"removed"`, ""},

		{"PATCH", "/v1/members/a", `{"zone":"eu-1","weight":100}`, 200, `"zone":"eu-1","weight":100`, "set {ID:3 Name:a Zone:eu-1 Weight:100 Drained:false Removed:false}"},
		{"PATCH", "/v1/members/c", `{"zone":""}`, 200, `"weight":20`, "set {ID:1 Name:c Zone: Weight:20 Drained:false Removed:false}"},
		{"PATCH", "/v1/members/2", `{}`, 200, `"weight":10`, "set {ID:2 Name:b Zone: Weight:0 Drained:true Removed:false}"},
		{"PATCH", "/v1/members/a", `{"weight":0}`, 400, "weight: 1 to 100, not 0", ""},
		{"PATCH", "/v1/members/a", `{"weight":101}`, 400, "weight: 1 to 100", ""},
		{"PATCH", "/v1/members/a", `{"weight":-1}`, 400, "the body", ""},
		{"PATCH", "/v1/members/a", `{"zone":"` + strings.Repeat("z", zoneBytesMax+1) + `"}`, 400, "zone: at most 64 bytes", ""},
		{"PATCH", "/v1/members/a", `{"drained":true}`, 400, "possible are zone, weight", ""},
		{"PATCH", "/v1/members/old", `{"weight":5}`, 412, "removed for good", ""},
		{"PATCH", "/v1/members/none", `{}`, 404, `no member is called \"none\"`, ""},
		{"PATCH", "/v1/members/twin", `{}`, 400, "2 members are called", ""},
		{"PATCH", "/v1/members/4", `{"weight":5}`, 200, `"name":"twin"`, "set {ID:4 Name:twin Zone: Weight:5 Drained:false Removed:false}"},
		{"PATCH", "/v1/members/" + strings.Repeat("m", memberBytesMax+1), `{}`, 400, "GET /v1/members lists them", ""},

		{"POST", "/v1/members/a/drain", "", 204, "", "drain 3"},
		{"POST", "/v1/members/c/drain", "{}", 204, "", "drain 1"}, // not the removed member of that name
		{"POST", "/v1/members/a/drain", `{"now":true}`, 400, "possible are force", ""},
		{"POST", "/v1/members/a/drain", `[`, 400, "the body", ""},
		{"POST", "/v1/members/none/drain", "", 404, "EntityNotFound", ""},
		{"POST", "/v1/members/4/drain", "", 412, "b is dead: without twin the partitions [9] are one failure from standing still", ""},
		{"POST", "/v1/members/4/remove", "", 412, "one failure from standing still", ""},
		{"POST", "/v1/members/4/replace", `{"with":"a"}`, 412, "one failure from standing still", ""},
		{"POST", "/v1/members/4/drain", `{"force":true}`, 204, "", "drain 4"},
		{"POST", "/v1/members/4/replace", `{"with":"a","force":true}`, 204, "", "replace 4 3"},
		{"POST", "/v1/members/b/remove", "", 204, "", "remove 2"}, // the dead member itself
		{"POST", "/v1/members/a/undrain", "", 204, "", "undrain 3"},
		{"POST", "/v1/members/6/remove", "", 204, "", "remove 6"}, // repeating the request is no error
		{"POST", "/v1/members/old/remove", "", 204, "", "remove 7"},
		{"POST", "/v1/members/a/replace", `{"with":"b"}`, 204, "", "replace 3 2"},
		{"POST", "/v1/members/a/replace", `{"with":"none"}`, 404, `with: `, ""},
		{"POST", "/v1/members/a/replace", ``, 400, `with: `, ""},
		{"POST", "/v1/members/none/replace", `{"with":"a"}`, 404, "EntityNotFound", ""},

		{"POST", "/v1/partitions", `{"add":2}`, 200, `{"partitions":10}`, "grow 2"},
		{"POST", "/v1/partitions", `{"add":0}`, 400, "add: 1 to 1024", ""},
		{"POST", "/v1/partitions", ``, 400, "add: 1 to 1024", ""},
		{"POST", "/v1/partitions", `{"add":1025}`, 400, "add: 1 to 1024", ""},
		{"POST", "/v1/partitions/3/move", `{"members":["c","3"]}`, 202, "", "move 3 [1 3]"},
		{"POST", "/v1/partitions/3/move", `{"members":[]}`, 400, "members: 1 to 16, not 0", ""},
		{"POST", "/v1/partitions/3/move", `{"members":["a","twin"]}`, 400, "2 members are called", ""},
		{"POST", "/v1/partitions/3/move", `{"members":[` + strings.TrimSuffix(strings.Repeat(`"a",`, moveReplicasMax+1), ",") + `]}`, 400, "members: 1 to 16, not 17", ""},
		{"POST", "/v1/partitions/0/move", `{"members":["a"]}`, 400, "from 1 on", ""},
		{"POST", "/v1/partitions/x/move", `{"members":["a"]}`, 400, "from 1 on", ""},
		{"POST", "/v1/partitions/4294967296/pause", ``, 400, "from 1 on", ""},
		{"POST", "/v1/partitions/3/pause", ``, 204, "", "pause 3"},
		{"POST", "/v1/partitions/3/resume", ``, 204, "", "resume 3"},
		{"POST", "/v1/partitions/3/cancel", ``, 204, "", "cancel 3"},
		{"POST", "/v1/partitions/3/cancel", `{"really":1}`, 400, "possible are nothing", ""},
		{"POST", "/v1/partitions/3/transfer", `{"to":"b"}`, 204, "", "transfer 3 2"},
		{"POST", "/v1/partitions/0/transfer", `{"to":"b"}`, 204, "", "transfer 0 2"},
		{"POST", "/v1/partitions/3/transfer", ``, 400, "GET /v1/members", ""},

		{"GET", "/v1/moves", "", 200, `{"moves":[{"partition":2,"from":["1"],"to":["2"],"state":"catching up","copied":1,"bytes":3}]}`, ""},
		{"PUT", "/v1/format-level", `{"max":2}`, 204, "", "hold level 2"},
		{"PUT", "/v1/format-level", "", 204, "", "hold level 0"},
		{"PUT", "/v1/format-level", `{"level":2}`, 400, "max", ""},
		{"POST", "/v1/confirm-time", "", 200, `{"stepNs":10800000000000}`, "confirm time"},
		{"POST", "/v1/confirm-time", `{"step":1}`, 400, "possible are nothing", ""},
		{"GET", "/v1/rebalance", "", 200, `{"moves":[{"partition":4,"from":["1"],"to":["3"],"bytes":9,"leaderOnly":false}]}`, "plan"},
		{"POST", "/v1/rebalance", "", 202, `"partition":4`, "plan; rebalance [{4 [1] [3] 9 false}]"},
		{"POST", "/v1/rebalance", `{"moves":[{"partition":5,"from":["1"],"to":["2"]}]}`, 202, `"partition":5`, "rebalance [{5 [1] [2] 0 false}]"},
		{"POST", "/v1/rebalance", `{"moves":[` + many + `{"partition":1}]}`, 400, "moves: at most 256", ""},

		{"GET", "/v1/verify/0", "", 200, `{"partition":0,"index":7,"replicas":[{"member":"1","replica":"1.1","digest":"00"}],"equal":true}`, "verify 0"},
		{"GET", "/v1/verify/-1", "", 400, "from 1 on", ""},
		{"GET", "/v1/backup/2", "", 200, "copied", "backup 2"},
		{"GET", "/v1/backup/all", "", 400, "from 1 on", ""},
		{"DELETE", "/v1/members/a", "", 403, "NotAllowed", ""},
	} {
		status, body := r.request(step.method, step.path, step.body, nil)
		if asked := operations.last(); status != step.status || !strings.Contains(body, step.want) || asked != step.asked {
			t.Errorf("%s %s %.80s: %d %.300s (asked %q)\nwant %d with %s (%q)", step.method, step.path, step.body, status, body, asked, step.status, step.want, step.asked)
		}
	}
}

// The largest allowed plan fits into a body.
func TestLargestPlanFitsIntoABody(t *testing.T) {
	t.Parallel()
	r, operations := newOperationsServer(t)
	id := fsm.MemberID(strings.Repeat("M", 26))
	var plan api.Plan
	for range planMovesMax {
		plan.Moves = append(plan.Moves, topology.PlannedMove{Partition: 1 << 31, From: []fsm.MemberID{id, id, id, id, id}, To: []fsm.MemberID{id, id, id, id, id}, Bytes: 1 << 60, LeaderOnly: true})
	}
	body, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	if status, answer := r.request("POST", "/v1/rebalance", string(body), nil); status != http.StatusAccepted || !strings.HasPrefix(operations.last(), "rebalance") {
		t.Error(status, answer)
	}
}

// Errors of the cluster keep their code; after Timeout the request may be repeated.
func TestFailedOperationsKeepTheirCode(t *testing.T) {
	t.Parallel()
	r, operations := newOperationsServer(t)
	for _, c := range []struct {
		fails  error
		status int
		want   string
	}{
		{fmt.Errorf("drain 3: %w: it still leads partitions [1 2]", fsm.Timeout), 504, "it still leads partitions [1 2]"},
		{context.DeadlineExceeded, 504, `"code":"Timeout"`},
		{fmt.Errorf("%w: no other member can hold what it holds", fsm.InvalidArgument), 400, "no other member"},
		{fmt.Errorf("pause: %w: it is not moving", fsm.PreconditionFails), 412, "it is not moving"},
		{fmt.Errorf("leader: %w", fsm.ServerBusy), 503, `"code":"ServerBusy"`},
		{errors.New("path of a disk"), 500, "internal error"},
	} {
		operations.fails = c.fails
		for _, path := range []string{"POST /v1/members/a/drain", "POST /v1/members/a/remove", "POST /v1/partitions/1/pause", "POST /v1/rebalance", "PUT /v1/format-level", "POST /v1/confirm-time", "GET /v1/moves", "GET /v1/rebalance", "GET /v1/verify/1", "GET /v1/backup/1"} {
			method, path, _ := strings.Cut(path, " ")
			if status, body := r.request(method, path, "", nil); status != c.status || !strings.Contains(body, c.want) {
				t.Errorf("%s: %d %s, want %d with %s", path, status, body, c.status, c.want)
			}
		}
	}
}

// The audit log contains each change and each backup, and no lists.
func TestOperationsAreAudited(t *testing.T) {
	t.Parallel()
	r, operations := newOperationsServer(t)
	operations.copies = func(context.Context, io.Writer) error { return nil }
	for _, c := range []struct{ method, path, body, want string }{
		{"POST", "/v1/members/a/drain", "", `"operation":"drain","kind":"member","name":"a","rule":"","namespace":"default","outcome":"OK"`},
		{"POST", "/v1/members/none/remove", "", `"operation":"remove","kind":"member","name":"none","rule":"","namespace":"default","outcome":"EntityNotFound"`},
		{"PATCH", "/v1/members/a", `{"weight":3}`, `"operation":"update","kind":"member","name":"a"`},
		{"POST", "/v1/partitions/3/move", `{"members":["a"]}`, `"operation":"move","kind":"partition","name":"3"`},
		{"POST", "/v1/partitions", `{"add":1}`, `"operation":"grow","kind":"cluster","name":""`},
		{"POST", "/v1/rebalance", ``, `"operation":"rebalance","kind":"cluster"`},
		{"PUT", "/v1/format-level", ``, `"operation":"hold format level","kind":"cluster"`},
		{"POST", "/v1/confirm-time", ``, `"operation":"confirm time","kind":"cluster","name":""`},
		{"GET", "/v1/backup/0", ``, `"operation":"back up","kind":"partition","name":"0"`},
		{"GET", "/v1/members", ``, ``},
		{"GET", "/v1/moves", ``, ``},
		{"GET", "/v1/rebalance", ``, ``},
		{"GET", "/v1/verify/1", ``, ``},
	} {
		r.audit.Reset()
		r.request(c.method, c.path, c.body, nil)
		if line := r.audit.String(); !strings.Contains(line, c.want) || strings.Count(line, "\n") != min(1, len(c.want)) {
			t.Errorf("%s %s: %q, want %q", c.method, c.path, line, c.want)
		}
	}
}

// Operators can leave notes of a limited length in the log of a member, and nobody else can.
func TestNotesAreLimited(t *testing.T) {
	t.Parallel()
	r := newServerWithKeys(t)
	operator := signed("http://localhost/", "root", "root-secret")
	for _, c := range []struct {
		note   api.Note
		signed func(*http.Request)
		status int
	}{
		{api.Note{Source: "prestop", Text: "moves its data"}, operator, http.StatusNoContent},
		{api.Note{Source: strings.Repeat("s", api.NoteSourceBytesMax), Text: strings.Repeat("t", api.NoteBytesMax)}, operator, http.StatusNoContent},
		{api.Note{Source: strings.Repeat("s", api.NoteSourceBytesMax+1), Text: "text"}, operator, http.StatusBadRequest},
		{api.Note{Source: "prestop", Text: strings.Repeat("t", api.NoteBytesMax+1)}, operator, http.StatusBadRequest},
		{api.Note{Source: "prestop", Text: ""}, operator, http.StatusBadRequest},
		{api.Note{Source: "prestop", Text: "text"}, signed("sb://localhost/", "manager", "m"), http.StatusUnauthorized},
	} {
		body, err := json.Marshal(c.note)
		if err != nil {
			t.Fatal(err)
		}
		if status, answer := r.request(http.MethodPost, "/v1/notes", string(body), c.signed); status != c.status {
			t.Errorf("%d bytes: %d, want %d: %s", len(c.note.Text), status, c.status, answer)
		}
	}
}

// These requests are all for operators: the key of a namespace does not suffice.
func TestOperationsNeedAnOperator(t *testing.T) {
	t.Parallel()
	r := newServerWithKeys(t)
	operations := newFakeOperations()
	operations.copies = func(context.Context, io.Writer) error { return nil }
	r.mu.Lock()
	r.Operations = operations
	r.mu.Unlock()
	operator := signed("http://localhost/", "root", "root-secret")
	manager := signed("sb://localhost/", "manager", "m")
	for _, to := range (&operatorAPI{core: r.server.core}).routes() {
		pattern := to.Pattern
		if to.Right != operation.OperatorOnly {
			t.Errorf("%s is not for operators", pattern)
		}
		method, path, _ := strings.Cut(strings.ReplaceAll(pattern, "{name}", "3"), " ")
		if status, body := r.request(method, path, "", manager); status != http.StatusUnauthorized || operations.last() != "" {
			t.Errorf("%s for a manager: %d %s", pattern, status, body)
		}
		if status, body := r.request(method, path, "", operator); status == http.StatusUnauthorized {
			t.Errorf("%s for an operator: %d %s", pattern, status, body)
		}
		operations.last()
	}
}

// A backup may take longer than a request. An interrupted one closes the connection, so that the client does
// not mistake it for a complete one, and no backup delays the close of a member.
func TestBackupIsStreamedOrAborted(t *testing.T) {
	t.Parallel()
	r, operations := newOperationsServer(t)
	address := "http://" + r.server.config.Listener.Addr().String()
	begun := make(chan struct{}, backupsMax)
	operations.copies = func(ctx context.Context, w io.Writer) error {
		if _, ok := ctx.Deadline(); ok {
			t.Error("a backup has a deadline")
		}
		if _, err := w.Write(bytes.Repeat([]byte("x"), 1<<20)); err != nil {
			return err
		}
		begun <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	broken := make(chan error, backupsMax)
	client := &http.Client{}
	defer client.CloseIdleConnections()
	for range backupsMax {
		go func() {
			request, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, address+"/v1/backup/1", nil)
			if err != nil {
				broken <- nil
				return
			}
			response, err := client.Do(request)
			if err == nil {
				_, err = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
			}
			broken <- err
		}()
	}
	for range backupsMax {
		<-begun
	}
	if status, body := r.request("GET", "/v1/backup/1", "", nil); status != http.StatusServiceUnavailable || !strings.Contains(body, "4 backups") {
		t.Error(status, body)
	}
	began := time.Now()
	if err := r.server.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
	for range backupsMax {
		if err := <-broken; err == nil {
			t.Error("a part was taken for the whole")
		}
	}
	// This is shorter than the wait for a request; a busy machine needs some of that time.
	if took := time.Since(began); took >= requestTimeMax {
		t.Error("closing took", took)
	}
	if line := r.audit.String(); !strings.Contains(line, `"operation":"back up"`) || !strings.Contains(line, `"outcome":"Timeout"`) {
		t.Error(line)
	}
}
