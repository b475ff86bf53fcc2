package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/test/kit"
)

const (
	// Generous, because two cores may be busy with other packages.
	readyWithin = 120 * time.Second
	stopWithin  = 60 * time.Second // members stop waiting earlier
	// Timeouts of one request. Callers that wait for a state repeat reads, so a paused member must not
	// delay them for long; a change is requested once.
	readWithin   = 20 * time.Second
	changeWithin = 60 * time.Second
	logTailBytes = 8 * 1024
)

// errConflict is the answer 409.
var errConflict = errors.New("conflict")

// Member is one process. Its methods are for one goroutine at a time.
type Member struct {
	Name         string
	AMQP         string // host:port for clients
	Admin        string // host:port of the HTTP control API
	Peer, Gossip string // host:port for members
	Dir          string
	Data         string // data folder; "": Dir

	t          testing.TB
	args       []string
	logFile    string // file that holds the output of all its lives
	stdoutFile string // standard output, when it is read separately
	cmd        *exec.Cmd
	done       chan struct{} // closed when the process has ended
	ended      bool          // the test has ended the process

	binary   string   // that it runs; "": the one of this module
	launcher []string // command that starts it in its namespace
	network  *Network // that it is in, or nil
	link     string   // name of its link at the switch
	key      string   // secret of its key; "": Key
	profile  string   // host:port of its profiles, with Options.Profile
	socket   string   // path of its control socket; "": it is one of dev, which trusts loopback
}

// Start starts the process. It does not wait until the member serves.
func (m *Member) Start() {
	m.t.Helper()
	out, err := os.OpenFile(m.logFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		m.t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	binary := m.binary
	if binary == "" {
		binary = Binary(m.t)
	}
	words := slices.Concat(m.launcher, []string{binary}, m.args)
	m.cmd = exec.Command(words[0], words[1:]...)
	m.cmd.Stdout, m.cmd.Stderr = out, out
	if m.stdoutFile != "" {
		printed, err := os.Create(m.stdoutFile)
		if err != nil {
			m.t.Fatal(err)
		}
		defer func() { _ = printed.Close() }()
		m.cmd.Stdout = printed
	}
	m.cmd.Dir = m.Dir
	// Variables of Peeklock and of other suites would be settings of the member.
	m.cmd.Env = slices.DeleteFunc(os.Environ(), func(pair string) bool { return strings.HasPrefix(pair, "PEEKLOCK_") })
	m.cmd.SysProcAttr = dieWithParent()
	if err := m.cmd.Start(); err != nil {
		m.t.Fatalf("start %s: %v", m.Name, err)
	}
	cmd, done := m.cmd, make(chan struct{})
	m.done, m.ended = done, false
	go func() {
		_ = cmd.Wait() // a killed process ends with an error, as it should
		close(done)
	}()
}

// SetBinary sets the binary that the member runs from its next start on.
func (m *Member) SetBinary(path string) { m.binary = path }

// PID returns the id of the process.
func (m *Member) PID() int { return m.cmd.Process.Pid }

// Running reports whether the process exists, paused or not.
func (m *Member) Running() bool {
	if m.done == nil {
		return false
	}
	select {
	case <-m.done:
		return false
	default:
		return true
	}
}

// Kill ends the process as a power failure would, and waits until it has ended.
func (m *Member) Kill() { m.end(syscall.SIGKILL) }

// Stop asks the process to end gracefully, waits until it has ended, and fails the test when its exit status
// is not 0.
func (m *Member) Stop() {
	m.t.Helper()
	m.end(syscall.SIGTERM)
	if code := m.cmd.ProcessState.ExitCode(); code != 0 {
		m.t.Errorf("%s ended with exit status %d:\n%s", m.Name, code, m.logTail())
	}
}

// Pause stops the process with SIGSTOP; its connections stay open. On Linux, it returns when every thread has
// stopped.
func (m *Member) Pause() {
	m.t.Helper()
	m.signal(syscall.SIGSTOP)
	Eventually(m.t, stopWithin, m.Name+" paused", func(context.Context) error {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", m.cmd.Process.Pid))
		if err != nil {
			return err
		}
		for _, thread := range threads {
			// "pid (name) state ...", and the name may hold anything but the last ")".
			stat, err := os.ReadFile(thread)
			if _, state, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " "); err == nil && !strings.HasPrefix(state, "T") {
				return fmt.Errorf("a thread is in state %.1s", state)
			}
		}
		return nil
	})
}

// Resume continues a paused process.
func (m *Member) Resume() { m.signal(syscall.SIGCONT) }

func (m *Member) signal(s syscall.Signal) {
	m.t.Helper()
	if err := m.cmd.Process.Signal(s); err != nil {
		m.t.Fatalf("%v to %s: %v", s, m.Name, err)
	}
}

func (m *Member) end(s syscall.Signal) {
	m.t.Helper()
	if !m.Running() {
		return
	}
	m.ended = true
	m.signal(s)
	select {
	case <-m.done:
	case <-time.After(stopWithin):
		_ = m.cmd.Process.Kill()
		<-m.done
		m.t.Errorf("%s did not end within %v of %v", m.Name, stopWithin, s)
	}
}

// WaitEnded waits until the process of a member has ended without a signal, as it does when the
// member was removed from its cluster or cannot start, and returns its exit status.
func (m *Member) WaitEnded() int {
	m.t.Helper()
	m.ended = true
	select {
	case <-m.done:
	case <-time.After(convergeWithin):
		m.t.Fatalf("%s still runs after %v", m.Name, convergeWithin)
	}
	return m.cmd.ProcessState.ExitCode()
}

// MemoryBytes returns the anonymous memory of the process that is resident: its heap, stacks and
// buffers. Pages of files that it maps (raft.db) are left out: the kernel takes them back when
// others need the memory. It returns 0 when the process is gone.
func (m *Member) MemoryBytes() int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		var kib int64
		if _, err := fmt.Sscanf(line, "RssAnon: %d kB", &kib); err == nil {
			return kib << 10
		}
	}
	return 0
}

// Collect runs the garbage collector of a member of a cluster with Options.Profile.
func (m *Member) Collect(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.profile+"/debug/pprof/heap?gc=1", nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return fmt.Errorf("collect the garbage of %s: %w", m.Name, err)
	}
	return answer.Body.Close()
}

// ConnectionString is the connection string of the member, in the form of the official emulator.
func (m *Member) ConnectionString() string {
	return strings.Replace(ConnectionString(m.AMQP), "="+Key+";", "="+m.secret()+";", 1)
}

// ConnectionString is the connection string of a member at another address.
func ConnectionString(address string) string {
	return SecureConnectionString(address) + ";UseDevelopmentEmulator=true"
}

// SecureConnectionString is a connection string in the form of the service: clients use
// TLS.
func SecureConnectionString(address string) string {
	return "Endpoint=sb://" + address + ";SharedAccessKeyName=" + KeyName + ";SharedAccessKey=" + Key
}

// WaitReady waits until the member reports that it can serve clients.
func (m *Member) WaitReady() {
	m.t.Helper()
	Eventually(m.t, readyWithin, m.Name+" ready", func(ctx context.Context) error {
		if !m.Running() {
			m.t.Fatalf("%s ended before it was ready:\n%s", m.Name, m.logTail())
		}
		_, err := m.get(ctx, "/readyz")
		return err
	})
}

// get sends a GET request to the control API.
func (m *Member) get(ctx context.Context, path string) ([]byte, error) {
	return m.request(ctx, http.MethodGet, path, nil)
}

// request sends a request to the control API and returns the body of a 2xx answer.
func (m *Member) request(ctx context.Context, method, path string, body io.Reader) ([]byte, error) {
	within := changeWithin
	if method == http.MethodGet {
		within = readWithin
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	client, host := m.control()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+host+path, body)
	if err != nil {
		return nil, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if m.binary != "" { // an older binary may have no control socket
		r.Header.Set("Authorization", auth.Sign("http://"+host+"/", KeyName, m.secret(), time.Now().Add(time.Hour)))
	}
	answer, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(answer.Body)
	if err = errors.Join(err, answer.Body.Close()); err != nil {
		return nil, err
	}
	switch {
	case answer.StatusCode == http.StatusConflict:
		return nil, fmt.Errorf("%s at %s: %w: %s", path, m.Name, errConflict, content)
	case answer.StatusCode/100 != 2:
		return nil, fmt.Errorf("%s %s at %s: %s: %s", method, path, m.Name, answer.Status, content)
	}
	return content, nil
}

// control returns the client for the control API, and the host for its requests.
func (m *Member) control() (*http.Client, string) {
	if m.socket == "" || m.binary != "" {
		return http.DefaultClient, m.Admin
	}
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", m.socket)
		},
	}}, "localhost"
}

// Socket is the address of the member's control socket, for the flag --server.
func (m *Member) Socket() string { return "unix://" + m.socket }

// secret is that of the key of operators.
func (m *Member) secret() string { return cmp.Or(m.key, Key) }

// verify fails the test when the member ended by itself, or logged what no member may.
func (m *Member) verify() {
	m.t.Helper()
	if m.done != nil && !m.Running() && !m.ended {
		m.t.Errorf("%s ended by itself: %v", m.Name, m.cmd.ProcessState)
	}
	content, err := os.ReadFile(m.logFile)
	if err != nil {
		m.t.Error(err)
		return
	}
	for _, word := range []string{"WARNING: DATA RACE", "panic: ", "fatal error: "} {
		if at := strings.Index(string(content), word); at >= 0 {
			m.t.Errorf("%s logged:\n%s", m.Name, content[at:min(len(content), at+logTailBytes)])
		}
	}
}

// logTail is the end of the member's log.
func (m *Member) logTail() string {
	content, err := os.ReadFile(m.logFile)
	if err != nil {
		return err.Error()
	}
	if len(content) > logTailBytes {
		content = content[len(content)-logTailBytes:]
	}
	return string(content)
}

// LogSize is how many bytes the member has logged over all its lives: for LogSince.
func (m *Member) LogSize() int64 {
	m.t.Helper()
	info, err := os.Stat(m.logFile)
	if err != nil {
		m.t.Fatal(err)
	}
	return info.Size()
}

// LogSince is what the member has logged since it had logged so many bytes.
func (m *Member) LogSince(size int64) string {
	m.t.Helper()
	content, err := os.ReadFile(m.logFile)
	if err != nil {
		m.t.Fatal(err)
	}
	return string(content[min(size, int64(len(content))):])
}

// newMember prepares a member with a folder of its own below dir.
func newMember(t testing.TB, dir, name string) *Member {
	t.Helper()
	m := &Member{Name: name, Dir: filepath.Join(dir, name), logFile: filepath.Join(dir, name+".log"), t: t}
	kit.OK(t, os.MkdirAll(m.Dir, 0o700))
	return m
}
