package fault

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/peeklock/peeklock/test/harness"
	"github.com/peeklock/peeklock/test/kit"
)

const (
	unitFile         = "../../deploy/systemd/peeklock.service"
	familiesVariable = "PEEKLOCK_TEST_FAMILIES" // set in a process that is to run its arguments under an address filter
	unitUser         = "61184"                  // stands for the user peeklock
)

// families are the address families of the unit by the names in systemd.exec(5).
var families = map[string]uint32{"AF_UNIX": syscall.AF_UNIX, "AF_INET": syscall.AF_INET, "AF_INET6": syscall.AF_INET6}

// init makes this binary the helper that runs a program under the address filter of the unit.
func init() { //nolint:gochecknoinits // before the flags of the tests are read
	allowed := os.Getenv(familiesVariable)
	if allowed == "" {
		return
	}
	runtime.LockOSThread()
	err := filterFamilies(strings.Fields(allowed))
	if err == nil {
		err = syscall.Exec(os.Args[1], os.Args[1:], nil)
	}
	fmt.Fprintln(os.Stderr, "run under an address filter:", err)
	os.Exit(1) //nolint:forbidigo // there is no main to return to
}

// filterFamilies makes socket(2) fail with EAFNOSUPPORT for other address families, as RestrictAddressFamilies= does.
func filterFamilies(names []string) error {
	const (
		loadWord, jumpEqual, answer = 0x20, 0x15, 0x06 // BPF_LD|BPF_W|BPF_ABS, BPF_JMP|BPF_JEQ|BPF_K, BPF_RET|BPF_K
		allow, fail                 = 0x7fff0000, 0x00050000 | uint32(syscall.EAFNOSUPPORT)
		setFilter, modeFilter       = 22, 2 // PR_SET_SECCOMP, SECCOMP_MODE_FILTER
	)
	n := uint8(len(names))
	program := []syscall.SockFilter{{Code: loadWord, K: 0}, {Code: jumpEqual, K: syscall.SYS_SOCKET, Jf: n + 2}, {Code: loadWord, K: 16}}
	for i, name := range names {
		family, known := families[name]
		if !known {
			return fmt.Errorf("unknown address family %s", name)
		}
		program = append(program, syscall.SockFilter{Code: jumpEqual, K: family, Jt: n - uint8(i)})
	}
	program = append(program, syscall.SockFilter{Code: answer, K: fail}, syscall.SockFilter{Code: answer, K: allow})
	program[1].Jf = n + 2 // load, the comparisons, the failure
	list := syscall.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if _, _, code := syscall.RawSyscall(syscall.SYS_PRCTL, setFilter, modeFilter, uintptr(unsafe.Pointer(&list))); code != 0 {
		return fmt.Errorf("install the filter: %w", code)
	}
	return nil
}

// unitSetting returns a setting of the unit.
func unitSetting(t *testing.T, name string) string {
	t.Helper()
	text := kit.Must(os.ReadFile(unitFile))(t)
	found := regexp.MustCompile(`(?m)^` + name + `=(.*)$`).FindSubmatch(text)
	if found == nil {
		t.Fatalf("%s has no setting %s", unitFile, name)
	}
	return string(found[1])
}

// TestInstallationByTheDocuments installs three machines as deploy/README.md says: init cluster writes the files, each machine
// gets its own, and serve runs as in the unit of systemd: with its address filter, as its user, with its capability, and with a
// file system that it cannot write but for its data. The machines know each other by names, have one public address each, and a
// bridge with the address of docker0.
func TestInstallationByTheDocuments(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three processes: -short leaves it out")
	}
	n := harness.InNetwork(t, 3)
	if n == nil {
		return
	}
	began := time.Now()
	names := []string{"a", "b", "c"}
	hosts := "127.0.0.1 localhost\n"
	for i, name := range names {
		hosts += fmt.Sprintf("9.9.0.%d %s\n", 11+i, name)
		for _, words := range []string{
			"addr flush dev eth0", fmt.Sprintf("addr add 9.9.0.%d/24 dev eth0", 11+i),
			"link add docker0 type bridge", "addr add 172.17.0.1/16 dev docker0", "link set docker0 up",
		} {
			command(t, "ip", append([]string{"-n", n.Namespace(i)}, strings.Fields(words)...)...)
		}
	}
	command(t, "ip", "addr", "add", "9.9.0.1/24", "dev", "eth0") // of the clients: this process is in their namespace
	root := t.TempDir()
	files := filepath.Join(root, "peeklock-cluster")
	command(t, harness.Binary(t), "init", "cluster", "--members", strings.Join(names, ","), "--dir", files)
	m := machines{t: t, root: root, hosts: hosts}
	for i, name := range names {
		m.start(n.Namespace(i), name, files)
	}
	key := strings.TrimSpace(read(t, filepath.Join(files, "key")))
	cli := func(args ...string) string {
		args = append(args, "--server", "https://a:5300,https://b:5300,https://c:5300", "--ca", "/etc/peeklock/clients-ca.crt")
		return m.cli(files, key, args)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) { //nolint:forbidigo // other processes report no event
		if said := cli("member", "list"); strings.Count(said, "alive") == 3 {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("the members do not find each other:\n%s\nthe log of a:\n%s", said, read(t, m.log("a")))
		}
	}
	cli("queue", "create", "orders")
	cli("message", "send", "orders", "hello")
	if said := cli("message", "receive", "orders"); !strings.Contains(said, "hello") {
		t.Errorf("received %q, want the message hello", said)
	}
	t.Logf("from init cluster to the first message: %v", time.Since(began).Round(time.Millisecond))
}

func read(t *testing.T, path string) string {
	t.Helper()
	text := kit.Must(os.ReadFile(path))(t)
	return string(text)
}

func command(t *testing.T, name string, args ...string) {
	t.Helper()
	if said, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, said)
	}
}

// machines are the file systems of machines that share this kernel.
type machines struct {
	t           *testing.T
	root, hosts string
}

func (m *machines) log(name string) string { return filepath.Join(m.root, name+".log") }

// etc writes the folder /etc of a machine. It also has the programs that run there, because their own folders are private.
func (m *machines) etc(name string) string {
	m.t.Helper()
	dir := filepath.Join(m.root, name, "etc")
	if err := os.MkdirAll(filepath.Join(dir, "peeklock"), 0o755); err != nil {
		m.t.Fatal(err)
	}
	for file, text := range map[string]string{"hosts": m.hosts, "nsswitch.conf": "hosts: files\n", "resolv.conf": "", "serve": "", "filter": ""} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			m.t.Fatal(err)
		}
	}
	return dir
}

// start starts serve on a machine as the unit does.
func (m *machines) start(namespace, name, files string) {
	m.t.Helper()
	etc, lib := m.etc(name), filepath.Join(m.root, name, "lib")
	command(m.t, "sh", "-c", `cd "$1" && cp * "$2/peeklock" && chown root:`+unitUser+` "$2"/peeklock/* && chmod 640 "$2"/peeklock/* &&
		mkdir -p "$3/peeklock" && chown `+unitUser+` "$3/peeklock" && chmod 700 "$3/peeklock"`, "sh", filepath.Join(files, name), etc, lib)
	self, err := os.Executable()
	if err != nil {
		m.t.Fatal(err)
	}
	words := strings.Fields(strings.Replace(unitSetting(m.t, "ExecStart"), "/usr/local/bin/peeklock", "/etc/serve", 1))
	if user, writes := unitSetting(m.t, "User"), unitSetting(m.t, "ProtectSystem"); user != "peeklock" || writes != "strict" {
		m.t.Fatalf("the unit runs as %s with ProtectSystem=%s, and this test as another user or with another file system", user, writes)
	}
	capability := strings.ToLower(strings.Replace(unitSetting(m.t, "AmbientCapabilities"), "CAP_", "+", 1))
	script := `mount --bind "$3" "$1/serve" && mount --bind "$4" "$1/filter" && mount --rbind "$1" /etc && mount --bind "$2" /var/lib && mount -o remount,bind,ro / &&
		mount -o remount,bind,ro /etc && shift 4 && exec setpriv --reuid ` + unitUser + ` --regid ` + unitUser + ` --clear-groups --no-new-privs \
		--inh-caps=-all,` + capability + ` --ambient-caps=-all,` + capability + ` --bounding-set=-all,` + capability + ` /etc/filter "$@"`
	args := slices.Concat([]string{"netns", "exec", namespace, "unshare", "--mount", "sh", "-c", script, "sh", etc, lib, harness.Binary(m.t), self}, words)
	cmd := exec.CommandContext(m.t.Context(), "ip", args...)
	cmd.Env = append(cmd.Environ(), familiesVariable+"="+unitSetting(m.t, "RestrictAddressFamilies"))
	out, err := os.Create(m.log(name))
	if err != nil {
		m.t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() {
		_ = cmd.Process.Kill() // each command of the chain has replaced the one before
		_ = cmd.Wait()
		_ = out.Close()
	})
}

// cli runs the command line on a machine that knows the names of the others.
func (m *machines) cli(files, key string, args []string) string {
	m.t.Helper()
	etc := m.etc("client")
	script := `mount --bind "$3" "$1/serve" && mount --bind "$2" "$1/peeklock" && mount --rbind "$1" /etc && shift 3 && exec /etc/serve "$@"`
	cmd := exec.CommandContext(m.t.Context(), "unshare", append([]string{"--mount", "sh", "-c", script, "sh", etc, files, harness.Binary(m.t)}, args...)...)
	cmd.Env = append(os.Environ(), "PEEKLOCK_KEY="+key)
	said, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%s%v", said, err)
	}
	return string(said)
}

// TestUnitIsReadBySystemd: systemd understands every line of the unit, and its user is the one of the sysusers file.
func TestUnitIsReadBySystemd(t *testing.T) {
	t.Parallel()
	if users := read(t, "../../deploy/systemd/peeklock.sysusers"); !strings.Contains(users, "\nu "+unitSetting(t, "User")+" ") {
		t.Errorf("the sysusers file has another user than the unit:\n%s", users)
	}
	verify, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is missing")
	}
	unit := strings.ReplaceAll(read(t, unitFile), "/usr/local/bin/peeklock", "/bin/true") // no such program is installed here
	copied := filepath.Join(t.TempDir(), "peeklock.service")
	kit.OK(t, os.WriteFile(copied, []byte(unit), 0o600))
	if said, err := exec.CommandContext(t.Context(), verify, "verify", "--man=no", copied).CombinedOutput(); err != nil || len(said) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, said)
	}
}
