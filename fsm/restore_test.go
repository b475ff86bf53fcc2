package fsm_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/catalog"
	"github.com/peeklock/peeklock/fsm/queue"
)

// sealed puts the right checksum behind the rest of an image.
func sealed(b []byte) []byte {
	if len(b) < 4 {
		return b
	}
	body := b[:len(b)-4]
	return binary.LittleEndian.AppendUint32(bytes.Clone(body), crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
}

// TestRestoreIsStrict: a damaged image is refused whole and changes nothing.
func TestRestoreIsStrict(t *testing.T) {
	t.Parallel()
	image := exampleQueues(t).image()
	r := exampleQueues(t)
	before := r.image()
	refused := func(why string, b []byte) {
		t.Helper()
		if err := r.q.Restore(bytes.NewReader(b)); err == nil {
			t.Fatalf("restored: %s", why)
		}
		if !bytes.Equal(r.image(), before) {
			t.Fatalf("a refused image changed the machine: %s", why)
		}
	}
	for i := range image {
		refused("short", image[:i])
		damaged := bytes.Clone(image)
		damaged[i] ^= 0x10
		refused("a bit flipped", damaged)
	}
	refused("a byte left over", append(bytes.Clone(image), 0))
	var other bytes.Buffer
	if _, err := exampleCatalog(t).Image().WriteTo(&other); err != nil {
		t.Fatal(err)
	}
	refused("of a catalog", other.Bytes())
	if err := catalog.New().Restore(bytes.NewReader(image)); err == nil {
		t.Error("a catalog restored an image of queues")
	}
	next := bytes.Clone(image)
	next[0] = 4
	refused("of a later version", sealed(next))
	next[0] = 2
	refused("of an earlier version", sealed(next))
}

// TestRestoreReadsAnyReader: Restore reads pieces of any size, and returns errors of the reader.
func TestRestoreReadsAnyReader(t *testing.T) {
	t.Parallel()
	m := newBench()
	m.fill(10_000) // more than one buffer
	var b bytes.Buffer
	if _, err := m.q.Image().WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	for _, r := range []io.Reader{
		iotest.OneByteReader(bytes.NewReader(b.Bytes())),
		iotest.HalfReader(bytes.NewReader(b.Bytes())),
		iotest.DataErrReader(bytes.NewReader(b.Bytes())),
	} {
		q := queue.New(&discardBodies{})
		if err := q.Restore(r); err != nil || q.Digest() != m.q.Digest() {
			t.Errorf("%T: %v", r, err)
		}
	}
	for _, r := range []io.Reader{iotest.OneByteReader(bytes.NewReader(b.Bytes())), iotest.HalfReader(bytes.NewReader(b.Bytes()))} {
		if digest, err := queue.New(nil).CheckImage(r); err != nil || digest != m.q.Digest() {
			t.Errorf("%T: CheckImage returned %x and %v, want %x", r, digest, err, m.q.Digest())
		}
	}
	broken := errors.New("cable pulled")
	err := queue.New(&discardBodies{}).Restore(io.MultiReader(bytes.NewReader(b.Bytes()[:1000]), iotest.ErrReader(broken)))
	if !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	if _, err := m.q.Image().WriteTo(brokenWriter{broken}); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}

// TestCheckImageAgreesWithRestore: an image that is checked without being restored has the same digest, and one with a changed byte is
// refused by both or by neither.
func TestCheckImageAgreesWithRestore(t *testing.T) {
	t.Parallel()
	for name, image := range map[string][]byte{"queues": exampleQueues(t).image(), "topics": exampleTopics(t).image(), "pending": examplePending(t).image()} {
		if !restoresAndChecks(t, image) {
			t.Fatalf("%s: the image itself is refused", name)
		}
		taken := 0
		for i := 0; i < len(image)-4; i += 3 {
			tampered := bytes.Clone(image)
			tampered[i] ^= 1 << (i % 8)
			if restoresAndChecks(t, sealed(tampered)) {
				taken++
			}
		}
		if taken == 0 {
			t.Errorf("%s: every changed image is refused", name)
		}
	}
}

// restoresAndChecks reports whether an image can be restored, and fails unless CheckImage agrees.
func restoresAndChecks(t *testing.T, image []byte) bool {
	t.Helper()
	q := queue.New(&discardBodies{})
	err := q.Restore(bytes.NewReader(image))
	digest, checkErr := queue.New(nil).CheckImage(bytes.NewReader(image))
	if (err == nil) != (checkErr == nil) || err == nil && digest != q.Digest() {
		t.Errorf("Restore: %v, digest %x; CheckImage: %v, digest %x", err, q.Digest(), checkErr, digest)
	}
	return err == nil
}

type brokenWriter struct{ err error }

func (b brokenWriter) Write([]byte) (int, error) { return 0, b.err }

// TestUndecodableCommandPanics: a command of a later release, or of the other state machine, must
// not be skipped; the panic names the index.
func TestUndecodableCommandPanics(t *testing.T) {
	t.Parallel()
	send := fsm.AppendCommand(nil, fsm.Header{}, fsm.SendMessages{Entity: 5, Messages: make([]fsm.Message, 1)})
	for name, b := range map[string][]byte{
		"nothing":           {},
		"version":           {3, 1},
		"kind":              fsm.AppendCommand(nil, fsm.Header{}, fsm.DeleteEntity{}),
		"kind after header": fsm.AppendCommand(nil, header, fsm.DeleteEntity{}),
		"left over":         append(bytes.Clone(send), 1),
		"short":             send[:len(send)-1],
	} {
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.Contains(text, "index 77") {
					t.Errorf("%s: panic %q", name, text)
				}
			}()
			queue.New(&discardBodies{}).Apply(oneTime(fsm.Env{Index: 77}), b)
		}()
		if name == "kind" || name == "kind after header" {
			continue
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: the catalog went on", name)
				}
			}()
			catalog.New().Apply(oneTime(fsm.Env{Index: 77}), b)
		}()
	}
}

// TestCommandOverLimitIsRefused: a command over a limit that reached the log after
// all is refused; it must not stop every replica.
func TestCommandOverLimitIsRefused(t *testing.T) {
	t.Parallel()
	r := exampleQueues(t)
	before := r.q.Digest()
	at := fsm.Address{Entity: 5}
	for _, c := range []fsm.Command{
		fsm.SendMessages{Entity: 5, Messages: make([]fsm.Message, 4501)},
		fsm.SendMessages{Entity: 5},
		fsm.SendMessages{Entity: 5, Messages: []fsm.Message{{ID: strings.Repeat("i", 513)}}},
		fsm.LockMessages{Address: at},
		fsm.LockMessages{Address: fsm.Address{Entity: 5, Sub: 9}, Max: 1},
		fsm.SettleMessages{Address: at, Settlements: make([]fsm.Settlement, 4097)},
		fsm.RenewLocks{Address: fsm.Address{Entity: 5, Sub: 9}, Locks: make([]fsm.LockID, 1)},
		fsm.RenewLocks{Address: at, Locks: make([]fsm.LockID, 4097)},
		fsm.FetchDeferred{Address: at, Sequences: make([]fsm.SequenceNumber, 4097)},
		fsm.FetchReady{Address: at, Seen: make([]fsm.LockID, 4097)},
		fsm.PutEntity{},
		fsm.SendMessages{Entity: 5, Messages: []fsm.Message{{EnqueueAt: 1 << 62}}},
		fsm.CancelScheduled{Entity: 5},
		fsm.PurgeMessages{Address: at, Max: 4001},
		fsm.RedriveMessages{Entity: 5},
		fsm.SettleUnlocked{Address: at},
	} {
		env := fsm.Env{Index: 99}
		if res := r.q.Apply(oneTime(env), fsm.AppendCommand(nil, fsm.Header{}, c)); res.Code != fsm.InvalidArgument {
			t.Errorf("%T: %v", c, res.Code)
		}
	}
	if r.q.Digest() != before {
		t.Error("a refused command changed the state")
	}
}

// TestImagesAreWrittenWhileOthersRead: two writers of images and a reader share the settings of the entities; the race
// detector reports a writer that changes them.
func TestImagesAreWrittenWhileOthersRead(t *testing.T) {
	t.Parallel()
	q, c := newReplica(t).q, catalog.New()
	q.Apply(oneTime(fsm.Env{Index: 1, Now: 1}), fsm.AppendCommand(nil, fsm.Header{}, fsm.PutEntity{Entity: 1, Version: 1, Settings: fsm.DefaultSettings()}))
	for _, command := range []fsm.Command{
		fsm.FoundCluster{ClusterID: "c", Partitions: []fsm.Partition{{ID: 1, Replicas: []fsm.Replica{{Member: "m", Number: 1}}}}},
		fsm.CreateEntity{Namespace: fsm.DefaultNamespace, Name: "q", Partition: 1, Settings: fsm.DefaultSettings()},
	} {
		if code := c.Apply(oneTime(fsm.Env{Index: 1, Now: 1}), fsm.AppendCommand(nil, fsm.Header{}, command)).Code; code != fsm.OK {
			t.Fatal(code)
		}
	}
	var writers sync.WaitGroup
	for range 2 {
		for _, image := range []fsm.Image{q.Image(), c.Image()} {
			writers.Go(func() {
				if _, err := image.WriteTo(io.Discard); err != nil {
					t.Error(err)
				}
			})
		}
	}
	q.Settings(1)
	writers.Wait()
}
