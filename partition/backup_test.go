package partition

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/catalog"
	"github.com/peeklock/peeklock/partition/bodystore"
	"github.com/peeklock/peeklock/partition/digest"
	"github.com/peeklock/peeklock/partition/disk"
	"github.com/peeklock/peeklock/test/kit"
)

// fullGroup is one replica whose machine has every kind of object with a body.
func fullGroup(t *testing.T) (*member, *Group, *asker) {
	t.Helper()
	m, g, a := openSingle(t, func(c *Config) { c.Sizes.Segment = 8 << 10 })
	r := &asker{origin: 7, receiver: 1}
	with := settings()
	with.RequiresSession = true
	must(t, g, a.next(), fsm.PutEntity{Entity: 2, Version: 1, Settings: with})
	must(t, g, a.next(), fsm.PutEntity{Entity: 3, Version: 1, Settings: settings(), Kind: fsm.TopicEntity})
	for i := range 2 {
		must(t, g, a.next(), fsm.PutEntity{
			Entity: fsm.EntityID(4 + i), Version: 1, Settings: settings(), Kind: fsm.SubscriptionEntity, Topic: 3,
		})
	}
	for i := range 60 {
		must(t, g, a.next(), send(1, bytes.Repeat(body(i), 20)))
		must(t, g, a.next(), fsm.SendMessages{Entity: 2, Messages: []fsm.Message{
			{Payload: body(i), Session: fmt.Sprint(i % 3), HasSession: true},
		}})
		must(t, g, a.next(), send(3, body(i)))
		if i%3 == 0 {
			got := lock(t, g, r.next(), lockOf(1, 1), time.Minute)
			must(t, g, a.next(), fsm.SettleMessages{Address: fsm.Address{Entity: 1}, Settlements: []fsm.Settlement{
				{Lock: got.Result.Deliveries[0].Lock, Verb: []fsm.Verb{fsm.Complete, fsm.DeadLetter, fsm.Defer}[i/3%3], Properties: []byte{1}},
			}})
		}
	}
	return m, g, a
}

func backupOf(t testing.TB, g *Group) ([]byte, BackupInfo) {
	t.Helper()
	var b bytes.Buffer
	info := kit.Must(g.Backup(t.Context(), &b))(t)
	return b.Bytes(), info
}

// restoreAt creates a member whose group begins with a backup.
func restoreAt(t testing.TB, net *network, id fsm.MemberID, voters []Voter, backup []byte) (*member, error) {
	t.Helper()
	m := &member{t: t, net: net, id: id, dir: kit.MemoryDir(t), voters: voters}
	net.mu.Lock()
	net.peers[id] = m
	net.mu.Unlock()
	m.start()
	t.Cleanup(m.stop)
	_, err := RestoreFrom(t.Context(), m.config(1), bytes.NewReader(backup))
	if err == nil {
		m.stop()
		m.start(1)
	}
	return m, err
}

// A backup taken during sends becomes a new group that has all of its messages, elects a leader, accepts more
// messages, and can be extended to other members.
func TestRestoredBackupHoldsEverything(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, g, a := fullGroup(t)
		want := image(t, g)
		stop, stopped := make(chan struct{}), make(chan struct{})
		backup, info := backupOf(t, g)
		go func() {
			defer close(stopped)
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					g.Submit(fsm.AppendCommand(nil, a.next(), send(1, body(1000+i))), func(Answer) {})
				}
			}
		}()
		for range 5 {
			_, later := backupOf(t, g)
			if later.Index < info.Index {
				t.Errorf("a backup at %d after one at %d", later.Index, info.Index)
			}
		}
		close(stop)
		<-stopped
		if got, err := ReadBackupInfo(bytes.NewReader(backup)); err != nil || got != info || int(info.Bodies) != len(want) {
			t.Errorf("%+v, %v", got, err)
		}

		net := newNetwork(t)
		first := kit.Must(restoreAt(t, net, "n0", []Voter{{"n0.1", "n0"}}, backup))(t)
		all := []*member{first}
		_, g2 := leader(t, all, 1)
		if diff := cmp.Diff(want, image(t, g2)); diff != "" {
			t.Error(diff)
		}
		g2.mu.Lock()
		state := g2.machine.(interface{ Digest() uint64 }).Digest()
		g2.mu.Unlock()
		if s := g2.Status(); state != info.State || s.LogFirst <= info.Index || s.Term < 2 || s.Term > 5 {
			t.Errorf("state %x of %x, %+v", state, info.State, s)
		}
		b := &asker{origin: 99}
		for _, id := range []fsm.MemberID{"n1", "n2"} {
			m := startEmptyMember(t, all, id)
			kit.OK(t, atLeader(t, all, func(_ *member, g *Group) error { return g.AddNonvoter(t.Context(), string(id)+".1", id) }))
			mustEventually(t, all, b.next(), send(1, body(1)))
			waitCaughtUp(t, all, m)
			kit.OK(t, atLeader(t, all, func(_ *member, g *Group) error { return g.AddVoter(t.Context(), string(id)+".1", id) }))
			all = append(all, m)
		}
		sameEverywhere(t, all)
		first.stop()
		first.start(1)
		mustEventually(t, all, b.next(), send(1, body(2)))
		sameEverywhere(t, all)
	})
}

// The same backup restored at three members with the same first voters forms one group.
func TestBackupIsRestoredAtThreeMembers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, g, _ := fullGroup(t)
		want := image(t, g)
		backup, _ := backupOf(t, g)
		net := newNetwork(t)
		voters := []Voter{{"n0.1", "n0"}, {"n1.1", "n1"}, {"n2.1", "n2"}}
		var all []*member
		for _, v := range voters {
			m := kit.Must(restoreAt(t, net, v.Member, voters, backup))(t)
			all = append(all, m)
		}
		b := &asker{origin: 99}
		mustEventually(t, all, b.next(), send(1, []byte("new")))
		sameEverywhere(t, all)
		_, g = leader(t, all, 1)
		if n := len(image(t, g)); n != len(want)+1 {
			t.Errorf("%d bodies of %d", n, len(want)+1)
		}
		of := make(map[digest.State]bool)
		for _, m := range all {
			r := m.group(1)
			kit.Eventually(t, "it has applied all", func() bool { return r.Status().Applied >= g.Status().Applied })
			r.mu.Lock()
			state := r.rolling.State()
			r.mu.Unlock()
			state.DigestTerm = 0
			of[state] = true
		}
		if len(of) != 1 {
			t.Errorf("rolling digests %+v", of)
		}
	})
}

// A backup with a flipped bit, a truncated one, or one with bytes behind its end is refused, and the replica
// leaves nothing behind.
func TestDamagedBackupIsRefused(t *testing.T) {
	kit.Long(t)
	inBubble(t, func(t *testing.T) {
		_, g, _ := fullGroup(t)
		whole, _ := backupOf(t, g)
		m := &member{t: t, net: newNetwork(t), id: "n0", dir: kit.MemoryDir(t), voters: []Voter{{"n0.1", "n0"}}}
		m.start()
		defer m.stop()
		cfg := m.config(1)
		refused := func(what string, b []byte) {
			t.Helper()
			if _, err := RestoreFrom(t.Context(), cfg, bytes.NewReader(b)); err == nil {
				t.Fatalf("restored %s", what)
			}
			if _, err := os.Stat(cfg.Dir); !errors.Is(err, os.ErrNotExist) {
				t.Fatalf("%s: %v", what, err)
			}
		}
		step := max(1, len(whole)/150)
		for at := 0; at < len(whole); at++ {
			if at > 400 && at < len(whole)-16 && at%step != 0 {
				continue
			}
			b := slices.Clone(whole)
			b[at] ^= 1 << (at % 8)
			refused(fmt.Sprintf("with bit %d of byte %d flipped", at%8, at), b)
		}
		for _, n := range []int{0, 1, 15, 16, 100, len(whole) / 2, len(whole) - 9, len(whole) - 8, len(whole) - 1} {
			refused(fmt.Sprintf("%d bytes of it", n), whole[:n])
		}
		refused("with a byte more", append(slices.Clone(whole), 0))
		other := cfg
		other.Machine = func(fsm.Bodies) Machine { return catalog.New() }
		if _, err := RestoreFrom(t.Context(), other, bytes.NewReader(whole)); err == nil {
			t.Error("restored queues into a catalog")
		}
		if _, err := RestoreFrom(t.Context(), cfg, bytes.NewReader(whole)); err != nil {
			t.Errorf("the sound one: %v", err)
		}
		if _, err := RestoreFrom(t.Context(), cfg, bytes.NewReader(whole)); !errors.Is(err, ErrNotEmpty) {
			t.Errorf("restored over a replica: %v", err)
		}
	})
}

// A replica whose restore was interrupted is not opened, and can be restored again.
func TestInterruptedRestoreIsNotOpened(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, g, _ := fullGroup(t)
		whole, _ := backupOf(t, g)
		m := &member{t: t, net: newNetwork(t), id: "n0", dir: kit.MemoryDir(t), voters: []Voter{{"n0.1", "n0"}}}
		m.start()
		defer m.stop()
		cfg := m.config(1)
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := RestoreFrom(ctx, cfg, io.TeeReader(bytes.NewReader(whole), writerFunc(cancel))); !errors.Is(err, context.Canceled) {
			t.Errorf("with its context ended: %v", err)
		}
		// The state that a crash leaves.
		kit.OK(t, prepareRestore(&cfg))
		log := kit.Must(m.log.Group(1))(t)
		kit.OK(t, claim(&cfg, log))
		kit.OK(t, os.MkdirAll(filepath.Join(cfg.Dir, "seg"), 0o700))
		if _, err := Open(t.Context(), cfg); !errors.Is(err, ErrRestoring) {
			t.Errorf("opened: %v", err)
		}
		kit.Must(RestoreFrom(t.Context(), cfg, bytes.NewReader(whole)))(t)
		r := kit.Must(Open(t.Context(), cfg))(t)
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

type writerFunc func()

func (f writerFunc) Write(p []byte) (int, error) {
	f()
	return len(p), nil
}

// A backup verifies every body; damage stops the replica, and the backup fails.
func TestBackupOfADamagedBodyStopsTheReplica(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		m, g, _ := fullGroup(t)
		kit.FlipBit(t, bodystore.Path(filepath.Join(m.dir, "groups", "1", "seg"), 2), bodystore.HeaderBytes+bodystore.RecordHeaderBytes+3)
		if _, err := g.Backup(t.Context(), io.Discard); !errors.Is(err, disk.ErrDamaged) {
			t.Errorf("backed up: %v", err)
		}
		if err := g.Status().Halted; !errors.Is(err, disk.ErrDamaged) {
			t.Errorf("halted: %v", err)
		}
		if _, err := g.Backup(t.Context(), io.Discard); err == nil {
			t.Error("a stopped replica backs up")
		}
	})
}

// The bodies of a backup are kept until it is written, whatever is consumed meanwhile.
func TestBodiesStayUntilTheBackupIsWritten(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, g, a := fullGroup(t)
		frozen := kit.Must(g.freeze())(t)
		backup := kit.Must(frozen.MeasureBackup(BackupInfo{}))(t)
		for id := range fsm.EntityID(3) {
			must(t, g, a.next(), fsm.DropEntity{Entity: id + 1})
		}
		kit.OK(t, g.Snapshot(t.Context()))
		if err := backup.Write(t.Context(), io.Discard); err != nil {
			t.Error(err)
		}
		before, _ := g.bodies.Usage()
		frozen.Release()
		if after, _ := g.bodies.Usage(); after >= before {
			t.Errorf("%d bytes of segments are left of %d", after, before)
		}
	})
}

// BenchmarkBackup backs up 64 MiB of bodies of 1 KiB and restores them.
func BenchmarkBackup(b *testing.B) {
	ms := newMembers(b, 1, nil)
	ms[0].start(1)
	_, g := leader(b, ms, 1)
	a := &asker{origin: 7}
	must(b, g, a.next(), fsm.PutEntity{Entity: 1, Version: 1, Settings: settings()})
	payload := make([]byte, 1024)
	var many [][]byte
	for range 400 {
		many = append(many, payload)
	}
	for range 64 << 10 / 400 {
		must(b, g, a.next(), send(1, many...))
	}
	var whole bytes.Buffer
	info, err := g.Backup(b.Context(), &whole)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("write", func(b *testing.B) {
		b.SetBytes(info.StreamBytes)
		b.ReportAllocs()
		for range b.N {
			if _, err := g.Backup(b.Context(), io.Discard); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("restore", func(b *testing.B) {
		b.SetBytes(info.StreamBytes)
		b.ReportAllocs()
		for range b.N {
			m := &member{t: b, net: ms[0].net, id: "n0", dir: kit.MemoryDir(b), voters: []Voter{{"n0.1", "n0"}}}
			m.start()
			if _, err := RestoreFrom(b.Context(), m.config(1), bytes.NewReader(whole.Bytes())); err != nil {
				b.Fatal(err)
			}
			m.stop()
		}
	})
}
