package fsm_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/queue"
)

// numbered gives the messages of a batch their numbers at the source.
func numbered(c fsm.TransferMessages, epoch uint64, numbers ...fsm.SequenceNumber) fsm.TransferMessages {
	c.Epoch = epoch
	for i, n := range numbers {
		c.Messages[i].Number = n
	}
	return c
}

// exampleEpochs is a state machine with everything that epochs of forwarding leave.
func exampleEpochs(t testing.TB) *between {
	b := newBetween(t)
	b.env.Now = 1_700_000_000_000
	b.put(1, 1, nil)
	for id := fsm.EntityID(2); id < 4; id++ {
		b.put(id, 1, onward)
		b.send(id, 3, fsm.Message{Payload: []byte("x")})
		b.must(take(id, 2))
	}
	b.must(numbered(transferOf(7, carried("a")), 0, 1))
	c := numbered(transferOf(2, carried("b"), carried("c")), 1<<63, 8, 9)
	b.must(c)
	c.Source.Address.Entity = 6
	b.must(c)
	b.must(fsm.BeginEpoch{Epoch: 1<<64 - 1})
	b.must(fsm.BeginEpoch{Epoch: 77, Address: fsm.Address{Entity: 2}, Serial: 1})
	return b
}

// TestTamperedEpochImageIsRefused restores an image with epochs with each of its bytes changed: it is
// refused, or makes a working state machine that writes the same image.
func TestTamperedEpochImageIsRefused(t *testing.T) {
	t.Parallel()
	image := exampleEpochs(t).image()
	refused, taken := 0, 0
	for i := range len(image) - 4 {
		for _, change := range []byte{1, 0x80, 0xff} {
			tampered := bytes.Clone(image)
			tampered[i] ^= change
			tampered = sealed(tampered)
			q := queue.New(&discardBodies{})
			if q.Restore(bytes.NewReader(tampered)) != nil {
				refused++
				continue
			}
			taken++
			var again bytes.Buffer
			if _, err := q.Image().WriteTo(&again); err != nil || !bytes.Equal(again.Bytes(), tampered) {
				t.Fatalf("byte %d: the image of the restored state machine is another (%v)", i, err)
			}
			exercise(t, q)
		}
	}
	if refused == 0 || taken == 0 {
		t.Errorf("%d images are refused, %d taken", refused, taken)
	}
}

// TestBatchIsAcceptedOnceInItsEpoch: which batches of a source a destination accepts, answers from
// memory, and refuses, before and after the destination is restored from an image.
func TestBatchIsAcceptedOnceInItsEpoch(t *testing.T) {
	t.Parallel()
	b := newBetween(t)
	b.put(1, 1, nil)
	for i, row := range []struct {
		epoch, serial uint64
		first         fsm.SequenceNumber
		code          fsm.Code
		messages      uint64 // in the destination afterwards
	}{
		{0, 5, 17, fsm.OK, 2},    //
		{0, 5, 17, fsm.OK, 2},    // again
		{0, 6, 20, fsm.OK, 4},    //
		{0, 6, 20, fsm.OK, 4},    // again
		{0, 6, 21, fsm.Stale, 4}, // another batch under the same serial
		{0, 5, 17, fsm.Stale, 4}, //
		{9, 6, 20, fsm.OK, 6},    // in another epoch the same numbers are other messages
		{9, 6, 20, fsm.OK, 6},    //
		{0, 6, 20, fsm.Stale, 6}, // an epoch that is over
		{0, 7, 30, fsm.Stale, 6}, //
		{4, 1, 20, fsm.OK, 8},    // serials of epochs are not compared
		{9, 7, 40, fsm.Stale, 8}, //
		{4, 2, 20, fsm.OK, 10},   // serials of an epoch are
		{4, 1, 20, fsm.Stale, 10},
		{0, 8, 50, fsm.Stale, 10}, // an epoch before the last one
	} {
		c := numbered(transferOf(row.serial, carried("a"), carried("b")), row.epoch, row.first, row.first+1)
		if res := b.do(c); res.Code != row.code || b.q.Messages() != row.messages {
			t.Fatalf("row %d: %v, %d messages", i, res.Code, b.q.Messages())
		}
		b.replica = b.restored()
	}
}

// TestNumbersOfBatchRise: batches whose numbers do not rise are refused, by every check.
func TestNumbersOfBatchRise(t *testing.T) {
	t.Parallel()
	b := newBetween(t)
	b.put(1, 1, nil)
	for _, numbers := range [][]fsm.SequenceNumber{{3, 3}, {3, 2}} {
		c := numbered(transferOf(1, carried("a"), carried("b")), 0, numbers...)
		encoded := fsm.AppendCommand(nil, fsm.Header{}, c)
		if code := fsm.Check(c); code != fsm.InvalidArgument {
			t.Errorf("%v: %v", numbers, code)
		}
		if verify(encoded) == nil {
			t.Errorf("%v: the bytes are accepted", numbers)
		}
		if b.do(c).Code != fsm.InvalidArgument {
			t.Errorf("%v: performed", numbers)
		}
	}
	c := transferOf(1, carried("a"))
	if c.Messages[0].Number = 0; fsm.Check(c) != fsm.InvalidArgument || b.do(c).Code != fsm.InvalidArgument {
		t.Error("a message without a number is accepted")
	}
}

// TestEpochBeginsWithTheNextBatch: a batch in flight keeps its epoch, because the copy contains what it
// consists of; the next one has the new epoch, also in an outbox that is used for the first time.
func TestEpochBeginsWithTheNextBatch(t *testing.T) {
	t.Parallel()
	b := newBetween(t)
	for id := fsm.EntityID(1); id < 3; id++ {
		b.put(id, 1, onward)
		b.send(id, 4, fsm.Message{})
	}
	first := b.must(take(1, 1))
	b.must(fsm.BeginEpoch{Epoch: 5})
	b.replica = b.restored()
	if again := b.must(take(1, 1)); again.Epoch != 0 || again.Serial != first.Serial {
		t.Errorf("in flight: epoch %d, serial %d", again.Epoch, again.Serial)
	}
	c := take(1, 1)
	if c.Done = first.Serial; b.must(c).Epoch != 5 || b.must(take(2, 1)).Epoch != 5 {
		t.Error("the next batch has another epoch")
	}
}

// TestRefusedBatchGetsNewEpoch: a batch in flight that its destination refuses gets a new epoch, once
// and under the same serial, and so do the batches after it; others in flight keep theirs.
func TestRefusedBatchGetsNewEpoch(t *testing.T) {
	t.Parallel()
	b := newBetween(t)
	for id := fsm.EntityID(1); id < 3; id++ {
		b.put(id, 1, onward)
		b.send(id, 4, fsm.Message{})
		b.must(take(id, 2))
	}
	at := fsm.Address{Entity: 1}
	for _, c := range []fsm.BeginEpoch{
		{Epoch: 6, Address: at, Serial: 2},              // of a batch that is not in flight
		{Epoch: 6, Address: at, Serial: 1, Replaces: 3}, // refused in another epoch
		{Epoch: 6, Address: fsm.Address{Entity: 3}, Serial: 1},
	} {
		if b.must(c); b.must(take(1, 2)).Epoch != 0 {
			t.Fatalf("%+v has an effect", c)
		}
	}
	b.must(fsm.BeginEpoch{Epoch: 5, Address: at, Serial: 1})
	b.must(fsm.BeginEpoch{Epoch: 6, Address: at, Serial: 1}) // a second answer to the same refusal
	b.replica = b.restored()
	batch := b.must(take(1, 2))
	numbers := make([]fsm.SequenceNumber, 0, len(batch.Deliveries))
	for i := range batch.Deliveries {
		numbers = append(numbers, batch.Deliveries[i].Lock.Sequence)
	}
	if batch.Epoch != 5 || batch.Serial != 1 || !slices.Equal(numbers, []fsm.SequenceNumber{1, 2}) {
		t.Errorf("epoch %d, serial %d, numbers %v", batch.Epoch, batch.Serial, numbers)
	}
	for id, want := range map[fsm.EntityID]uint64{1: 5, 2: 0} {
		if batch := b.must(take(id, 2)); batch.Epoch != want {
			t.Errorf("entity %d: epoch %d", id, batch.Epoch)
		}
		c := take(id, 2)
		if c.Done = 1; b.must(c).Epoch != 5 {
			t.Errorf("entity %d: the next batch has another epoch", id)
		}
	}
	for _, c := range []fsm.BeginEpoch{
		{},
		{Epoch: 7, Address: at},
		{Epoch: 7, Replaces: 5},
		{Epoch: 5, Address: at, Serial: 1, Replaces: 5},
		{Epoch: 7, Serial: 1},
		{Epoch: 7, Serial: 1, Address: fsm.Address{Entity: 1, Sub: fsm.TransferDeadLetterQueue}},
	} {
		if code := b.do(c).Code; code != fsm.InvalidArgument {
			t.Errorf("%+v: %v", c, code)
		}
	}
}

// forwardAll forwards everything from queue 1 of a partition to queue 1 of another, as a forwarder does,
// in batches of so many messages.
func forwardAll(t *testing.T, from, to *between, most uint32) {
	t.Helper()
	c := take(1, most)
	for range 100 {
		batch := from.must(c)
		c.Done, c.Codes = 0, nil
		if batch.Serial == 0 {
			return
		}
		sent := fsm.TransferMessages{Entity: 1, Source: fsm.Outbox{Partition: 2, Address: c.Address}, Epoch: batch.Epoch, Serial: batch.Serial}
		for _, d := range batch.Deliveries {
			sent.Messages = append(sent.Messages, carried(string(from.bodies.Read(d.Body))))
			sent.Messages[len(sent.Messages)-1].Number = d.Lock.Sequence
		}
		switch res := to.do(sent); {
		case res.Code == fsm.Stale:
			from.must(fsm.BeginEpoch{Epoch: batch.Epoch + 100, Address: c.Address, Serial: batch.Serial, Replaces: batch.Epoch})
		case res.Code != fsm.OK || len(res.Codes) != len(sent.Messages):
			t.Fatalf("%v, %d codes for %d messages", res.Code, len(res.Codes), len(sent.Messages))
		default:
			c.Done, c.Codes = batch.Serial, res.Codes
		}
	}
	t.Fatal("forwarding does not come to an end")
}

// TestRestoredPartitionsForward: whatever a source and a destination were copied before and after,
// everything that is sent to the restored source arrives once, and so does what was in flight.
func TestRestoredPartitionsForward(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		after    int    // messages that are forwarded between the copies
		most     uint32 // messages of a batch after the restore
		older    bool   // the copy of the destination is older
		inFlight bool   // when the source was copied
		restarts bool   // the restore does not begin an epoch: the source was copied by other means
	}{
		"same serials and numbers":   {after: 1, most: 1},
		"same serials, longer":       {after: 3, most: 2},
		"lower serials":              {after: 9, most: 1},
		"higher serials":             {after: 3, most: 1, older: true},
		"nothing in between":         {most: 1},
		"in flight":                  {after: 3, most: 1, inFlight: true},
		"in flight, and not there":   {after: 3, most: 1, inFlight: true, older: true},
		"without epoch":              {after: 3, most: 2, restarts: true},
		"without epoch, same serial": {after: 1, most: 2, restarts: true},
		"without epoch, far behind":  {after: 9, most: 2, restarts: true},
		"without epoch, in flight":   {after: 3, most: 2, restarts: true, inFlight: true},
		"without epoch, from before": {after: 3, most: 2, restarts: true, older: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source, destination := newBetween(t), newBetween(t)
			source.put(1, 1, onward)
			destination.put(1, 1, nil)
			source.send(1, 2, fsm.Message{Payload: []byte("first")})
			forwardAll(t, source, destination, 1)
			if row.inFlight {
				source.send(1, 1, fsm.Message{Payload: []byte("in flight")})
				source.must(take(1, 1))
			}
			copyOfSource, copyOfDestination := source.restored(), destination.restored()
			if row.after > 0 {
				source.send(1, row.after, fsm.Message{Payload: []byte("lost")})
			}
			forwardAll(t, source, destination, 1)
			if !row.older {
				copyOfDestination = destination.restored()
			}

			source.replica, destination.replica = copyOfSource, copyOfDestination
			if !row.restarts {
				source.must(fsm.BeginEpoch{Epoch: 1 << 60})
				destination.must(fsm.BeginEpoch{Epoch: 1 << 60})
			}
			source.send(1, 5, fsm.Message{Payload: []byte("new")})
			forwardAll(t, source, destination, row.most)
			got := map[string]int{}
			for _, d := range destination.q.Peek(fsm.Address{Entity: 1}, 0, 100) {
				got[string(destination.bodies.Read(d.Body))]++
			}
			want := 1
			if !row.inFlight {
				want = 0
			} else if !row.older {
				want = 2 // the destination had it, and others after it: it cannot tell
			}
			if got["first"] != 2 || got["new"] != 5 || got["in flight"] != want {
				t.Errorf("arrived: %v", got)
			}
			if c := source.counts(1); c.Transfer+c.TransferDeadLetter > 0 {
				t.Errorf("left at the source: %+v", c)
			}
		})
	}
}

// TestClusterIsRenamedOnOneMember: a cluster gets another id only while one member has everything.
func TestClusterIsRenamedOnOneMember(t *testing.T) {
	t.Parallel()
	c := exampleCatalog(t)
	env := fsm.Env{Index: 100, Now: 1_800_000_000_000}
	apply := func(cmd fsm.Command) fsm.Code {
		env.Index++
		return c.Apply(oneTime(env), fsm.AppendCommand(nil, fsm.Header{}, cmd)).Code
	}
	rename := fsm.RenameCluster{ClusterID: "c2"}
	if code := apply(fsm.PartitionFormed{Partition: 1}); code != fsm.OK {
		t.Fatal(code)
	}
	for _, step := range []fsm.Command{
		fsm.PlacePartition{Partition: 1, Members: []fsm.MemberID{"m9"}},
		fsm.PlacePartition{Partition: 2, Members: []fsm.MemberID{"m9"}},
	} {
		if code := apply(rename); code != fsm.PreconditionFails || c.ClusterID() != "c1" {
			t.Errorf("on several members: %v, %s", code, c.ClusterID())
		}
		if code := apply(step); code != fsm.OK {
			t.Fatal(code)
		}
	}
	if code := apply(rename); code != fsm.PreconditionFails {
		t.Errorf("during moves: %v", code)
	}
	for _, p := range c.Partitions() {
		if code := apply(fsm.PartitionPlaced{Partition: p.ID, Replicas: p.Target}); code != fsm.OK {
			t.Fatal(code)
		}
	}
	if code := apply(rename); code != fsm.OK || c.ClusterID() != "c2" {
		t.Errorf("%v, %s", code, c.ClusterID())
	}
}
