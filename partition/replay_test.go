package partition

import (
	"bytes"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/savedlog"
	"github.com/peeklock/peeklock/test/kit"
)

// savedEntries returns the log of an open replica.
func savedEntries(t *testing.T, g *Group) (entries []SavedEntry) {
	t.Helper()
	first, _ := g.log.FirstIndex()
	last, _ := g.log.LastIndex()
	for index := first; index <= last; index++ {
		var e raft.Log
		kit.OK(t, g.log.GetLog(index, &e))
		entries = append(entries, SavedEntry{Index: index, Term: e.Term, Type: uint8(e.Type), Data: e.Data, Replicas: []string{"a", "b"}})
	}
	return entries
}

// A replay of the saved log of a group has the results and the digest that its replicas have, also from a backup on.
func TestReplayRepeatsWhatReplicasDid(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ms, a := threeReplicas(t, nil)
		_, g := leader(t, ms, 1)
		mustEventually(t, ms, a.next(), send(1, body(1), body(2)))
		var backup bytes.Buffer
		kit.Must(g.Backup(t.Context(), &backup))(t)
		locked := mustEventually(t, ms, a.next(), fsm.LockMessages{Address: fsm.Address{Entity: 1}, Max: 1, MaxBytes: 1000})
		mustEventually(t, ms, a.next(), fsm.SettleMessages{
			Address: fsm.Address{Entity: 1}, Settlements: []fsm.Settlement{{Lock: locked.Deliveries[0].Lock, Verb: fsm.Complete}},
		})
		var file bytes.Buffer
		g = currentLeader(t, ms) // the one of before may be behind
		saved := savedEntries(t, g)
		kit.OK(t, savedlog.Write(&file, 1, saved))
		written := file.String()
		id, entries, err := savedlog.Read(&file)
		if err == nil {
			err = savedlog.Write(&file, id, entries)
		}
		if err != nil || id != 1 || file.String() != written {
			t.Fatalf("read back %d entries of partition %d: %v", len(entries), id, err)
		}
		g.mu.Lock()
		want := g.rolling.Current()
		g.mu.Unlock()
		for name, start := range map[string]*bytes.Buffer{"from the first entry": nil, "from a backup": &backup} {
			var replay *Replay
			if start == nil {
				replay, err = NewReplay(1, nil)
			} else {
				replay, err = NewReplay(1, start)
			}
			if err != nil {
				t.Fatal(err)
			}
			var commands []ReplayedCommand
			var digest uint64
			for i := range entries {
				got := kit.Must(replay.Apply(&entries[i]))(t)
				if commands = append(commands, got.Commands...); got.Digest != 0 {
					digest = got.Digest
				}
			}
			settle, is := commands[len(commands)-1].Command.(fsm.SettleMessages)
			if !is || settle.Settlements[0].Lock != locked.Deliveries[0].Lock || digest != want {
				t.Errorf("%s: digest %x, want %x; the last command is %+v", name, digest, want, settle)
			}
		}
	})
}
