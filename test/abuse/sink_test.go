package abuse

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"testing"
)

// sinkVariable makes this test binary a sink with so many addresses.
const sinkVariable = "PEEKLOCK_ABUSE_SINK"

// sink listens on n addresses, prints them, and reads and discards everything until its
// standard input ends, which happens with the test.
func sink(n int) error {
	var addresses []string
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		addresses = append(addresses, listener.Addr().String())
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				go func() {
					_, _ = io.Copy(io.Discard, conn)
					_ = conn.Close()
				}()
			}
		}()
	}
	if err := json.NewEncoder(os.Stdout).Encode(addresses); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// startSink starts a sink in a separate process.
func startSink(t *testing.T, n int) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", sinkVariable, n))
	_, err = cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // killed with the test's context
	var addresses []string
	if err := json.NewDecoder(out).Decode(&addresses); err != nil {
		t.Fatal(err)
	}
	return addresses
}
