package peer

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/peeklock/peeklock/cluster/starts"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// observed remembers starts like the data folder of a member.
type observed struct {
	mu   sync.Mutex
	seen map[fsm.MemberID]starts.Start
}

func (o *observed) observe(member fsm.MemberID, start starts.Start) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := start.Follows(o.seen[member]); err != nil {
		return err
	}
	if o.seen == nil {
		o.seen = make(map[fsm.MemberID]starts.Start)
	}
	o.seen[member] = start
	return nil
}

// process returns the configuration of one process of a member.
func process(t *testing.T, self fsm.MemberID, start starts.Start, copied func(error)) *Config {
	t.Helper()
	config := listening(t)
	config.Self, config.Start, config.Copied = self, start, copied
	config.Cluster = func() string { return "C" }
	config.Observe = new(observed).observe
	config.Forward = func(_ fsm.MemberID, conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }
	return config
}

// TestOldProcessIsRefused: when a later process of a member was seen, the streams of the one before are closed and no new ones are
// accepted, whoever dials, and that process learns it.
func TestOldProcessIsRefused(t *testing.T) {
	t.Parallel()
	var first starts.Start
	first = first.Next(1)
	later := first.Next(2)
	told := make(chan error, 8)
	b := process(t, "B", first, nil)
	old, fresh := process(t, "A", first, func(err error) { told <- err }), process(t, "A", later, nil)
	address := map[fsm.MemberID]string{"B": b.Listener.Addr().String(), "A": old.Listener.Addr().String()}
	var mu sync.Mutex
	where := func(member fsm.MemberID) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		return address[member], nil
	}
	b.Address, old.Address, fresh.Address = where, where, where
	all := make([]*Transport, 0, 3)
	for _, config := range []*Config{b, old, fresh} {
		p := New(config)
		p.Start()
		t.Cleanup(p.Close)
		all = append(all, p)
	}
	server, before, after := all[0], all[1], all[2]
	dial := func(p *Transport, to fsm.MemberID) (net.Conn, error) {
		return p.Dial(t.Context(), ForwardStream, to, 0)
	}
	toB := kit.Must(dial(before, "B"))(t)
	toA := kit.Must(dial(server, "A"))(t)
	if conn, err := dial(after, "B"); err != nil {
		t.Fatal(err)
	} else {
		t.Cleanup(func() { _ = conn.Close() })
	}
	for name, conn := range map[string]net.Conn{"that it has opened": toB, "that the other has opened": toA} {
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Errorf("the stream of the old process %s is open", name)
		}
	}
	if _, err := dial(before, "B"); !errors.Is(err, RefusedError{OldStart}) {
		t.Errorf("dialled by the old process: %v, want %v", err, OldStart)
	}
	if err := <-told; err == nil {
		t.Error("the old process was not told")
	}
	if _, err := dial(server, "A"); !errors.Is(err, starts.ErrOld) {
		t.Errorf("dialled to the old process: %v, want %v", err, starts.ErrOld)
	}
}

// TestTwinIsFound: two processes with one identity find each other by a stream, and a process does not take itself for another.
func TestTwinIsFound(t *testing.T) {
	t.Parallel()
	first := (&starts.Start{}).Next(1)
	told := make(chan string, 8)
	config := process(t, "A", first, func(error) { told <- "original" })
	copied := process(t, "A", first.Next(2), func(error) { told <- "copy" })
	original, twin := New(config), New(copied)
	for _, p := range []*Transport{original, twin} {
		p.Start()
		t.Cleanup(p.Close)
	}
	if original.FindTwin(t.Context(), config.Listener.Addr().String()) {
		t.Error("a process found itself")
	}
	if !twin.FindTwin(t.Context(), config.Listener.Addr().String()) {
		t.Error("the other process was not found")
	}
	got := map[string]bool{<-told: true, <-told: true}
	if !got["original"] || !got["copy"] {
		t.Errorf("told: %v, want both", got)
	}
	twin.Halt()
	if _, err := twin.Dial(t.Context(), ForwardStream, "A", 0); err == nil {
		t.Error("a halted member has opened a stream")
	}
	kit.Eventually(t, "no stream is open", func() bool {
		original.members.mu.Lock()
		defer original.members.mu.Unlock()
		return len(original.members.open) == 0
	})
}
