package harness

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/peeklock/peeklock/test/kit"
)

const (
	networkVariable  = "PEEKLOCK_TEST_NETWORK"  // set in a test process inside a network
	requiredVariable = "PEEKLOCK_TEST_NETWORKS" // set: a test that cannot make a network fails instead of being skipped

	namespacePrefix = "pklt-"       // of all network namespaces: pklt-<process of the test>-<name>
	networkHost     = "198.18.0.%d" // range for network tests (RFC 2544)
	clientHost      = 1
	firstMemberHost = 11
	networkKey      = "cGVla2xvY2sgdGVzdHMgaW4gYSBuZXR3b3JrIG9mIHRoZWlyIG93bg=="
)

// Network is a switch with one link to each member and one to the clients, all in network
// namespaces of the kernel: it is isolated from other programs. A link can be cut so that the
// processes notice only silence. Loopback connections cannot show that: when one end dies, the kernel
// resets the other.
type Network struct {
	t      testing.TB
	prefix string
}

// InNetwork runs the calling test inside a network with so many members: it starts the test
// again in a separate process in the namespace of the clients. There InNetwork returns the
// network; in the first process it returns nil when that process has ended,
// and the test must return. Without root or ip the test is skipped,
// unless PEEKLOCK_TEST_NETWORKS is set.
func InNetwork(t *testing.T, members int) *Network {
	t.Helper()
	if prefix := os.Getenv(networkVariable); prefix != "" {
		return &Network{t: t, prefix: prefix}
	}
	skip := t.Skipf
	if os.Getenv(requiredVariable) != "" {
		skip = t.Fatalf
	}
	if os.Geteuid() != 0 {
		skip("network partitions need network namespaces, which only root can create")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		skip("network partitions need ip of iproute2: %v", err)
	}
	removeStaleNetworks(t)
	n := &Network{t: t, prefix: namespacePrefix + strconv.Itoa(os.Getpid()) + "-"}
	t.Cleanup(func() { removeNamespaces(t, n.prefix) })
	if err := n.build(members); err != nil {
		skip("create network namespaces: %v", err)
	}
	n.rerun(t)
	return nil
}

// build creates the namespaces and links.
func (n *Network) build(members int) error {
	switchNamespace := n.prefix + "hub"
	err := run("ip", "netns", "add", switchNamespace)
	err = errors.Join(err, run("ip", "-n", switchNamespace, "link", "add", "switch", "type", "bridge"))
	err = errors.Join(err, run("ip", "-n", switchNamespace, "link", "set", "switch", "up"))
	err = errors.Join(err, n.addLink("client", clientHost))
	for i := range members {
		err = errors.Join(err, n.addLink(linkName(i), firstMemberHost+i))
	}
	return err
}

// addLink creates the namespace of one participant and links it to the switch.
func (n *Network) addLink(name string, host int) error {
	switchNamespace, own := n.prefix+"hub", n.prefix+name
	var err error
	for _, words := range []string{
		"netns add " + own,
		"-n " + switchNamespace + " link add " + name + " type veth peer name eth0 netns " + own,
		"-n " + switchNamespace + " link set " + name + " master switch",
		"-n " + switchNamespace + " link set " + name + " up",
		"-n " + own + " addr add " + fmt.Sprintf(networkHost, host) + "/24 dev eth0",
		"-n " + own + " link set eth0 up",
		"-n " + own + " link set lo up",
	} {
		err = errors.Join(err, run("ip", strings.Fields(words)...))
	}
	return err
}

// rerun runs the test in the namespace of the clients and waits until it has ended.
func (n *Network) rerun(t *testing.T) {
	self := kit.Must(os.Executable())(t)
	timeout := 15 * time.Minute
	if end, ok := t.Deadline(); ok {
		timeout = max(time.Second, time.Until(end)-5*time.Second)
	}
	args := []string{"netns", "exec", n.prefix + "client", self, "-test.run", "^" + t.Name() + "$", "-test.v", "-test.timeout", timeout.String()}
	cmd := exec.CommandContext(t.Context(), "ip", args...)
	cmd.Env = append(os.Environ(), networkVariable+"="+n.prefix, binaryVariable+"="+Binary(t))
	cmd.SysProcAttr = dieWithParent()
	from, to := io.Pipe()
	cmd.Stdout, cmd.Stderr = to, to
	kit.OK(t, cmd.Start())
	ended := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		_ = to.Close() // never an error
		ended <- err
	}()
	for lines := bufio.NewScanner(from); lines.Scan(); {
		t.Log(lines.Text())
	}
	if err := errors.Join(<-ended, from.Close()); err != nil {
		t.Errorf("in its network: %v", err)
	}
}

// linkName is the name of the link of a member: that of the first has 1, as its name.
func linkName(member int) string { return "m" + strconv.Itoa(member+1) }

// Namespace is the name of the network namespace of a member, for a test that starts its processes itself.
func (n *Network) Namespace(member int) string { return n.prefix + linkName(member) }

// address is an address of a member; no other process uses its ports.
func (n *Network) address(member, port int) string {
	return fmt.Sprintf(networkHost, firstMemberHost+member) + ":" + strconv.Itoa(port)
}

// assign makes a member start in its namespace and gives it a secret key: the well-known one is refused
// outside of loopback.
func (n *Network) assign(m *Member, member int) {
	m.network, m.link, m.key = n, linkName(member), networkKey
	m.launcher = []string{"ip", "netns", "exec", n.prefix + m.link}
	m.args = append(m.args, "--key", m.key, "--allow-remote-plain")
	m.args = slices.DeleteFunc(m.args, func(a string) bool { return a == "--config" || strings.HasSuffix(a, ".yaml") }) // known keys
}

// Isolate cuts the link of a member at the switch: nothing reaches it and nothing leaves it.
// Like DropInbound and DropOutbound it holds until Heal.
func (m *Member) Isolate() { m.runOnLink("ip -n hub link set cable down") }

// DropInbound drops everything sent to a member; what the member sends arrives.
func (m *Member) DropInbound() {
	m.runOnLink("ip netns exec hub tc qdisc add dev cable root blackhole")
}

// DropOutbound drops everything that a member sends; what others send to it arrives.
func (m *Member) DropOutbound() {
	m.runOnLink("ip netns exec own tc qdisc add dev eth0 root blackhole")
}

// Heal ends Isolate, DropInbound or DropOutbound.
func (m *Member) Heal() {
	m.runOnLink("ip -n hub link set cable up")
	m.runOnLink("ip netns exec hub tc qdisc replace dev cable root noqueue")
	m.runOnLink("ip netns exec own tc qdisc replace dev eth0 root noqueue")
}

// runOnLink runs a command in which the words hub, own and cable stand for the namespace of the switch, that of
// the member, and its link.
func (m *Member) runOnLink(command string) {
	m.t.Helper()
	words := strings.Fields(command)
	for i, w := range words {
		switch w {
		case "hub":
			words[i] = m.network.prefix + "hub"
		case "own":
			words[i] = m.network.prefix + m.link
		case "cable":
			words[i] = m.link
		}
	}
	if err := run(words[0], words[1:]...); err != nil {
		m.t.Fatal(err)
	}
}

// removeStaleNetworks removes the namespaces of tests that were killed.
func removeStaleNetworks(t testing.TB) {
	t.Helper()
	left := kit.Must(filepath.Glob("/run/netns/" + namespacePrefix + "*"))(t)
	for _, path := range left {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(path), namespacePrefix), "-")
		if n, err := strconv.Atoi(pid); err == nil && errors.Is(syscall.Kill(n, 0), syscall.ESRCH) {
			removeNamespaces(t, namespacePrefix+pid+"-")
		}
	}
}

// removeNamespaces removes the namespaces of one test, and with them their links.
func removeNamespaces(t testing.TB, prefix string) {
	t.Helper()
	all, err := filepath.Glob("/run/netns/" + prefix + "*")
	if err != nil {
		t.Error(err)
	}
	for _, path := range all {
		if err := run("ip", "netns", "delete", filepath.Base(path)); err != nil {
			t.Error(err)
		}
	}
}

// run runs a command whose output is needed only in errors.
func run(name string, args ...string) error {
	if said, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, said)
	}
	return nil
}
