package fsm_test

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/queue"
)

// scenario is one file of testdata/queues: a machine, its bodies and the entry to come.
// Time starts at 100 s. Commands take these arguments where they make sense:
//
//	entity=N  dead (the dead-letter queue)  max=N  bytes=N  delete
//	undelivered (the transfer dead-letter queue)  transfers (the transfer queue)
//	incarnation=N receiver=N serial=N low=N (else incarnation 1, receiver 0 and the next serial)
//
// Locks are written sequence/epoch, moments as a time from now.
type scenario struct {
	t      *testing.T
	q      *queue.Machine
	bodies *memory
	env    fsm.Env
	serial uint64
	last   []byte // the newest command, for retry
}

func newScenario(t *testing.T) *scenario {
	m := newMemory(t)
	return &scenario{t: t, q: queue.New(m), bodies: m, env: fsm.Env{Now: 100_000}}
}

// TestQueueScenarios replays the scenarios in testdata/queues. Run with -rewrite to record them
// again, and review the diff.
func TestQueueScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/queues", func(t *testing.T, path string) {
		s := newScenario(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.t, s.bodies.t = t, t
			return s.tell(d)
		})
		s.balance()
	})
}

// tell performs one step of the scenario.
func (s *scenario) tell(d *datadriven.TestData) string {
	switch d.Cmd {
	case "pass":
		// One pulse, as the leader proposes it when something is due.
		s.env.Now += fsm.Instant(span(s.t, d.CmdArgs[0].Key))
		return s.apply(fsm.AppendCommand(nil, fsm.Header{}, fsm.Pulse{}))
	case "wait":
		s.env.Now += fsm.Instant(span(s.t, d.CmdArgs[0].Key))
		return ""
	case "back":
		s.env.Now -= fsm.Instant(span(s.t, d.CmdArgs[0].Key))
		return ""
	case "retry":
		return s.apply(s.last)
	case "restore":
		return s.restore()
	case "peek":
		return deliveries(s.bodies, s.q.Peek(address(d), fsm.SequenceNumber(number(d, "from", 1)), int(number(d, "max", 100))))
	case "counts":
		c, ok := s.q.Counts(address(d).Entity)
		scheduled := ""
		if c.Scheduled != 0 {
			scheduled = fmt.Sprintf(" scheduled %d", c.Scheduled)
		}
		if c.Subscriptions != 0 {
			scheduled += fmt.Sprintf(" subscriptions %d", c.Subscriptions)
		}
		if c.Transfer+c.TransferDeadLetter != 0 {
			scheduled += fmt.Sprintf(" transfer %d undelivered %d", c.Transfer, c.TransferDeadLetter)
		}
		return fmt.Sprintf("%v active %d locked %d deferred %d%s dead-letter %d bytes %d\n",
			ok, c.Active, c.Locked, c.Deferred, scheduled, c.DeadLetter, c.Bytes)
	case "outbox":
		return s.outbox(d)
	case "rules":
		return s.rules(d)
	case "gone":
		return fmt.Sprintln(s.q.Tombstones())
	case "settings":
		settings, ok := s.q.Settings(address(d).Entity)
		return fmt.Sprintf("%v %+v\n", ok, settings)
	case "next":
		at, ok := firstDeadline(s.q)
		if !ok {
			return "nothing is due\n"
		}
		return "due at " + at2s(at) + "\n"
	}
	s.last = fsm.AppendCommand(nil, s.header(d), s.command(d))
	return s.apply(s.last)
}

// header numbers a command unless the scenario does.
func (s *scenario) header(d *datadriven.TestData) fsm.Header {
	h := fsm.Header{Incarnation: number(d, "origin", 1), Receiver: number(d, "receiver", 0)}
	if d.HasArg("serial") {
		h.Serial = number(d, "serial", 0)
		h.Low = number(d, "low", h.Serial)
		return h
	}
	s.serial++
	h.Serial, h.Low = s.serial, number(d, "low", s.serial)
	return h
}

func (s *scenario) apply(command []byte) string {
	s.env.Index++
	res := s.q.Apply(oneTime(s.env), command)
	out := res.Code.String() + "\n"
	if res.Sequence != 0 {
		out = fmt.Sprintf("%v, first is %d\n", res.Code, res.Sequence)
	}
	if res.Sequences != nil {
		out += fmt.Sprintf("numbers %v\n", res.Sequences)
	}
	if res.Serial != 0 {
		out += fmt.Sprintf("batch %d to %d in %d\n", res.Serial, res.To.Entity, res.To.Partition)
	}
	if res.Count != 0 {
		out = fmt.Sprintf("%v, %d messages\n", res.Code, res.Count)
	}
	for i, c := range res.Codes {
		out += fmt.Sprintf("[%d] %v", i, c)
		if len(res.Untils) > 0 && c == fsm.OK {
			out += " until " + at2s(res.Untils[i])
		}
		out += "\n"
	}
	out += deliveries(s.bodies, res.Deliveries)
	for _, e := range s.q.Effects() {
		if e.Kind == fsm.EffectIdle {
			out += fmt.Sprintf("idle: %s has deleted itself\n", messageRef(e.Address))
			continue
		}
		if e.Kind == fsm.EffectForward {
			out += fmt.Sprintf("forward %s: %d ready\n", messageRef(e.Address), e.Ready)
			continue
		}
		out += fmt.Sprintf("wake %s: %d ready\n", messageRef(e.Address), e.Ready)
	}
	return out
}

// restore replaces the state machine by its image.
func (s *scenario) restore() string {
	var b bytes.Buffer
	if _, err := s.q.Image().WriteTo(&b); err != nil {
		s.t.Fatal(err)
	}
	q := queue.New(s.bodies)
	if err := q.Restore(&b); err != nil {
		s.t.Fatal(err)
	}
	if q.Digest() != s.q.Digest() {
		s.t.Error("the restored machine is another")
	}
	s.q = q
	return "restored\n"
}

// balance checks that exactly the referenced bodies are stored.
func (s *scenario) balance() {
	checkStored(s.t, s.q)
	held := 0
	s.q.Refs(func(o fsm.Owner, r fsm.Ref) fsm.Ref {
		held++
		if !s.q.Holds(s.bodies.bodies[r].owner, r) {
			s.t.Errorf("body of %v at %v is not known as held", o, r)
		}
		return r
	})
	if held != len(s.bodies.bodies) {
		s.t.Errorf("the machine refers to %d bodies, %d are held", held, len(s.bodies.bodies))
	}
}

// command makes the command of a step.
func (s *scenario) command(d *datadriven.TestData) fsm.Command {
	t, at := s.t, address(d)
	lines := strings.Fields(d.Input)
	switch d.Cmd {
	case "queue":
		return fsm.PutEntity{Entity: at.Entity, Version: number(d, "version", 1), Settings: settings(t, d)}
	case "drop":
		return fsm.DropEntity{Entity: at.Entity}
	case "send":
		c := fsm.SendMessages{Entity: at.Entity}
		for _, l := range strings.Split(d.Input, "\n") {
			c.Messages = append(c.Messages, s.message(d, l))
		}
		return c
	case "lock":
		return fsm.LockMessages{
			Address: at, Max: uint32(number(d, "max", 1)),
			MaxBytes: uint32(number(d, "bytes", 1000)), Delete: d.HasArg("delete"),
		}
	case "settle":
		c := fsm.SettleMessages{Address: at}
		for _, l := range strings.Split(d.Input, "\n") {
			c.Settlements = append(c.Settlements, s.settlement(l))
		}
		return c
	case "renew":
		c := fsm.RenewLocks{Address: at}
		for _, l := range lines {
			c.Locks = append(c.Locks, lockID(t, l))
		}
		return c
	case "fetch":
		c := fsm.FetchDeferred{Address: at, Delete: d.HasArg("delete")}
		c.Sequences = numberList(lines)
		return c
	case "cancel":
		return fsm.CancelScheduled{Entity: at.Entity, Sequences: numberList(lines)}
	case "purge":
		return fsm.PurgeMessages{Address: at, Max: uint32(number(d, "max", 100)), Before: s.moment(d, "before")}
	case "redrive":
		return fsm.RedriveMessages{Entity: at.Entity, Sequences: numberList(lines)}
	case "delete":
		return fsm.SettleUnlocked{Address: at, Verb: fsm.Complete, States: fsm.SetOf(fsm.Ready, fsm.Deferred, fsm.Scheduled), Sequences: numberList(lines)}
	case "undefer":
		return fsm.SettleUnlocked{Address: at, Verb: fsm.Release, States: fsm.SetOf(fsm.Deferred), Sequences: numberList(lines)}
	case "touch":
		return fsm.Touch{Entity: at.Entity}
	case "close":
		return fsm.CloseReceiver{Incarnation: number(d, "of", 1), Receiver: number(d, "gone", 0)}
	}
	if c := s.publishing(d); c != nil {
		return c
	}
	if c := s.forwarding(d); c != nil {
		return c
	}
	if c := s.transacting(d); c != nil {
		return c
	}
	t.Fatalf("%s: unknown step %s", d.Pos, d.Cmd)
	return nil
}

// settings are those of a queue step: lock, life, dead-life, window, idle and retry are
// spans (retry two of them: the first and the longest), bury and unique are flags.
func settings(t *testing.T, d *datadriven.TestData) fsm.EntitySettings {
	s := fsm.EntitySettings{
		LockDuration:               fsm.Millis(60_000),
		MaxDeliveryCount:           uint32(number(d, "deliveries", 10)),
		MaxMessageBytes:            uint32(number(d, "bytes", 1000)),
		DeadLetterOnExpiry:         d.HasArg("bury"),
		DeadLetterOnFilterErrors:   d.HasArg("keep"),
		RequiresDuplicateDetection: d.HasArg("unique"),
		MaxBytes:                   number(d, "quota", 0),
		Status:                     fsm.EntityStatus(number(d, "status", 0)),
	}
	for _, a := range d.CmdArgs {
		var span0 fsm.Millis
		switch a.Key {
		case "lock", "life", "dead-life", "window", "idle", "retry":
			span0 = span(t, a.Vals[0])
		}
		switch a.Key {
		case "lock":
			s.LockDuration = span0
		case "life":
			s.DefaultTimeToLive = span0
		case "dead-life":
			s.DeadLetterTimeToLive = span0
		case "window":
			s.DuplicateWindow = span0
		case "idle":
			s.AutoDeleteOnIdle = span0
		case "retry":
			s.RetryDelay, s.RetryDelayMax = span0, span(t, a.Vals[len(a.Vals)-1])
		case "forward":
			s.ForwardTo = a.Vals[0]
		case "forward-dead":
			s.ForwardDeadLettersTo = a.Vals[0]
		}
	}
	return s
}

// message is a line of a send step: the payload, xN for N bytes of it, after the id if
// that stands before a colon.
func (s *scenario) message(d *datadriven.TestData, line string) fsm.Message {
	line, properties, _ := strings.Cut(line, " | ")
	m := fsm.Message{ID: "id-" + line, EnqueueAt: s.moment(d, "at"), Properties: propertiesOf(s.t, properties)}
	if id, payload, found := strings.Cut(line, ":"); found {
		m.ID, line = id, payload
	}
	if n, err := strconv.Atoi(strings.TrimPrefix(line, "x")); err == nil {
		line = strings.Repeat("x", n)
	}
	m.Payload = []byte(line)
	if d.HasArg("life") {
		var text string
		d.ScanArgs(s.t, "life", &text)
		m.TimeToLive = span(s.t, text)
	}
	return m
}

// moment is a named argument, a span from now; 0 if it is missing.
func (s *scenario) moment(d *datadriven.TestData, name string) fsm.Instant {
	if !d.HasArg(name) {
		return 0
	}
	var text string
	d.ScanArgs(s.t, name, &text)
	return s.env.Now + fsm.Instant(span(s.t, text))
}

func numberList(words []string) []fsm.SequenceNumber {
	var list []fsm.SequenceNumber
	for _, w := range words {
		n, _ := strconv.ParseUint(w, 10, 64)
		list = append(list, fsm.SequenceNumber(n))
	}
	return list
}

// settlement reads "verb seq/epoch [reason|description|properties|until=text]...", with
// "_" for a blank and xN for N bytes.
func (s *scenario) settlement(line string) fsm.Settlement {
	t := s.t
	verbs := []string{"complete", "abandon", "defer", "deadletter", "release"}
	words := strings.Fields(line)
	x := fsm.Settlement{Verb: fsm.Verb(slices.Index(verbs, words[0]) + 1), Lock: lockID(t, words[1])}
	for _, w := range words[2:] {
		name, value, _ := strings.Cut(w, "=")
		value = strings.ReplaceAll(value, "_", " ")
		if n, err := strconv.Atoi(strings.TrimPrefix(value, "x")); err == nil {
			value = strings.Repeat("x", n)
		}
		switch name {
		case "reason":
			x.Reason = value
		case "description":
			x.Description = value
		case "properties":
			x.Properties = []byte(value)
		case "until":
			x.Until = s.env.Now + fsm.Instant(span(t, value))
		default:
			t.Fatalf("unknown word %s", w)
		}
	}
	return x
}

// deliveries prints deliveries, one line each.
func deliveries(bodies *memory, list []fsm.Delivery) string {
	states := []string{"?", "ready", "locked", "deferred", "taken", "scheduled", "shared", "leaving"}
	out := ""
	for _, d := range list {
		payload := string(bodies.Read(d.Body))
		if len(payload) > 100 {
			payload = fmt.Sprintf("%d bytes", len(payload))
		}
		out += fmt.Sprintf("%d/%d %s %s, attempts %d", d.Lock.Sequence, d.Lock.Epoch, states[d.State], payload, d.FailedDeliveries)
		if d.LockedUntil != 0 {
			out += ", until " + at2s(d.LockedUntil)
		}
		if d.Expires != 0 {
			out += ", expires " + at2s(d.Expires)
		}
		if d.Topic != 0 {
			out += fmt.Sprintf(", topic %d", d.Topic)
		}
		if d.Hops != 0 {
			out += fmt.Sprintf(", hops %d", d.Hops)
		}
		out += "\n"
		if d.Patch == (fsm.Ref{}) {
			continue
		}
		patches, err := fsm.DecodePatches(bodies.Read(d.Patch))
		if err != nil {
			bodies.t.Error(err)
		}
		for _, p := range patches {
			out += "  patch"
			if p.DeadLetter {
				out += fmt.Sprintf(" dead-letter %q %q", p.Reason, p.Description)
			}
			switch n := len(p.Properties); {
			case n > 40:
				out += fmt.Sprintf(" %d bytes", n)
			case n > 0:
				out += fmt.Sprintf(" %s", p.Properties)
			}
			if p.Enqueued != 0 {
				out += fmt.Sprintf(" enqueued %d", p.Enqueued)
			}
			if p.Source != "" {
				out += " from " + p.Source
			}
			if p.To.Entity != 0 {
				out += fmt.Sprintf(" to %d in %d (%s)", p.To.Entity, p.To.Partition, p.ToName)
			}
			out += changes(p.Changes)
			out += "\n"
		}
	}
	return out
}

func address(d *datadriven.TestData) fsm.Address {
	a := fsm.Address{Entity: fsm.EntityID(number(d, "entity", 1))}
	if d.HasArg("dead") {
		a.Sub = fsm.DeadLetterQueue
	}
	if d.HasArg("undelivered") {
		a.Sub = fsm.TransferDeadLetterQueue
	}
	if d.HasArg("transfers") {
		a.Sub = fsm.TransferQueue
	}
	return a
}

func messageRef(a fsm.Address) string {
	if a.Sub == fsm.DeadLetterQueue {
		return fmt.Sprintf("%d/dead-letter", a.Entity)
	}
	if a.Sub == fsm.TransferDeadLetterQueue {
		return fmt.Sprintf("%d/undelivered", a.Entity)
	}
	if a.Sub == fsm.TransferQueue {
		return fmt.Sprintf("%d/transfers", a.Entity)
	}
	return strconv.Itoa(int(a.Entity))
}

// number is a named argument, or what stands for it.
func number(d *datadriven.TestData, name string, missing uint64) uint64 {
	for _, a := range d.CmdArgs {
		if a.Key == name && len(a.Vals) == 1 {
			n, err := strconv.ParseUint(a.Vals[0], 10, 64)
			if err != nil {
				panic(err)
			}
			return n
		}
	}
	return missing
}

func lockID(t *testing.T, text string) fsm.LockID {
	var l fsm.LockID
	if _, err := fmt.Sscanf(text, "%d/%d", &l.Sequence, &l.Epoch); err != nil {
		t.Fatalf("lock %q: %v", text, err)
	}
	return l
}

func span(t *testing.T, text string) fsm.Millis {
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return fsm.Millis(d.Milliseconds())
}

// at2s shows an instant in seconds.
func at2s(at fsm.Instant) string { return (time.Duration(at) * time.Millisecond).String() }
