package datadir

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/peeklock/peeklock/cluster/starts"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/kit"
)

// begin opens a folder as a process does that starts, and closes it.
func begin(t *testing.T, path string) starts.Start {
	t.Helper()
	d := kit.Must(Open(nil, path))(t)
	start, err := d.BeginStart()
	kit.OK(t, errors.Join(err, d.Close()))
	return start
}

func TestEachStartFollowsTheOneBefore(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	first, second := begin(t, path), begin(t, path)
	if first.Count != 1 || second.Count != 2 || second.Before[0] != first.Nonce || second.Nonce == first.Nonce {
		t.Errorf("starts %+v and %+v", first, second)
	}
}

// TestSeenStartsAreDurable: what was seen of a member is refused after a restart too.
func TestSeenStartsAreDurable(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	d, err := Open(nil, path)
	if err != nil {
		t.Fatal(err)
	}
	s := kit.Must(d.OpenSeen())(t)
	const member = fsm.MemberID("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
	old := (&starts.Start{}).Next(1)
	kit.OK(t, errors.Join(s.Observe(member, old), s.Observe(member, old.Next(2)), s.Observe("B", old)))
	for range 2 {
		if err := s.Observe(member, old); !errors.Is(err, starts.ErrOld) {
			t.Errorf("an old start: %v", err)
		}
		if err := s.Observe(member, old.Next(2)); err != nil {
			t.Errorf("the newest start: %v", err)
		}
		if s, err = d.OpenSeen(); err != nil {
			t.Fatal(err)
		}
	}
	kit.OK(t, os.WriteFile(filepath.Join(path, seenFile), []byte("{"), 0o600))
	if _, err := d.OpenSeen(); err == nil {
		t.Error("a damaged file was read")
	}
}

// TestRollbackIsAcceptedOnce: a folder whose identity another process has opens again when an operator has accepted it, and what its
// member has seen of others is forgotten.
func TestRollbackIsAcceptedOnce(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	before := begin(t, path)
	d := kit.Must(Open(nil, path))(t)
	s, err := d.OpenSeen()
	kit.OK(t, errors.Join(err, s.Observe("B", before.Next(2)), d.MarkCopied(), d.Close()))
	if _, err := Open(nil, path); !errors.Is(err, ErrCopied) {
		t.Fatalf("opened with %v, want %v", err, ErrCopied)
	}
	if member, err := AcceptRollback(path); err != nil || member == "" {
		t.Fatal(member, err)
	}
	after := begin(t, path)
	for range 100 {
		before = before.Next(before.Nonce + 1)
	}
	if err := after.Follows(before); err != nil {
		t.Errorf("start %d after start %d: %v", after.Count, before.Count, err)
	}
	if d, err = Open(nil, path); err != nil {
		t.Fatal(err)
	}
	if s, err = d.OpenSeen(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Observe("B", starts.Start{Count: 1, Nonce: 9}), d.Close()); err != nil {
		t.Errorf("an earlier start of another member: %v", err)
	}
	if _, err := AcceptRollback(t.TempDir()); err == nil {
		t.Error("a folder without a member was accepted")
	}
}
