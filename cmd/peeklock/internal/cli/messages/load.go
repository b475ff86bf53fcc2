package messages

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/amqp/jsonmessage"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/gateway"
)

// Limits of message load. A batch is stored whole or not at all.
const (
	loadBatchMessages = 100
	loadBatchBytes    = 128 << 10 // a batch of one message may be larger
	loadLineBytesMax  = 64 << 20  // a body of 4 MiB has up to 6 bytes for each of its bytes in JSON
)

// batchFormat is the message-format of a delivery whose data sections are whole encoded messages, so that their bytes arrive
// as they are.
const batchFormat = 0x80013700

// notePartition is the annotation with the partition key of a message.
const notePartition = "x-opt-partition-key"

// What to do with messages of a load that ended without an answer to them.
const (
	pendingResend = "resend"
	pendingSkip   = "skip"
)

// loadOptions are the flags of message load.
type loadOptions struct {
	file       string
	progress   string
	connection string
	pending    string
	rate       int
}

func loadVerb() command.Verb {
	var o loadOptions
	return command.Verb{
		Use: "load QUEUE|TOPIC", Short: "Send the messages of a dump",
		Long: `Send the messages of a file that "message dump" has written, in its order, with every property and the AMQP type of every value.
Scheduled messages are scheduled again if they are not due yet; deferred ones become active. Sequence numbers, times of arrival and counts of
deliveries are new.

With --connection-string the messages go to any Service Bus namespace, also in the cloud; QUEUE|TOPIC is then an entity of that one.
SERVICEBUS_CONNECTION_STRING keeps the secret out of the process list.

The progress is in FILE.progress: the command goes on from there when it is repeated. It records which messages it is
sending before it sends them. If it was killed before their answer arrived, the next run sends them again when the entity
detects duplicates, all of them have message ids, and the window of the detection has not passed; else it asks for --pending
resend, which may double up to 100 messages, or --pending skip, which may lose them.`,
		Example: `  peeklock message load orders --file orders.jsonl
  peeklock message load orders --file orders.jsonl --rate 500
  SERVICEBUS_CONNECTION_STRING='Endpoint=sb://...' peeklock message load orders --file orders.jsonl`,
		Args: cli.ArgCount(1, 1), Complete: command.CompleteNames("queues", "topics"),
		Flags: func(cmd *cobra.Command) {
			f := cmd.Flags()
			f.StringVar(&o.file, "file", "", "file of the dump; required")
			f.StringVar(&o.progress, "progress", "", "file of the progress (default FILE.progress)")
			f.StringVar(&o.connection, "connection-string", "", "send to the namespace of this connection string (env SERVICEBUS_CONNECTION_STRING)")
			f.StringVar(&o.pending, "pending", "", "what to do with messages whose answer an interrupted run did not get: resend or skip")
			f.IntVar(&o.rate, "rate", 0, "send at most this many messages a second; 0: no limit")
		},
		Run:   func(i command.Invocation) error { return load(i, &o) },
		Would: func(i command.Invocation) (command.Would, error) { return wouldLoad(i, &o) },
	}
}

// loadProgress is the content of a progress file. Lines from Done to Sending were sent, and their answer did not arrive.
type loadProgress struct {
	Target  string    `json:"target"`
	Done    int       `json:"done"`    // lines of the dump that are sent
	Sending int       `json:"sending"` // lines that were being sent; Done: none
	At      time.Time `json:"at"`
}

// loader loads one file.
type loader struct {
	i        command.Invocation
	o        *loadOptions
	path     string // of the progress file
	progress loadProgress
	sender   *amqp.Sender
	pace     pacer
	loaded   int
}

// loadBatch is a batch of messages that are sent together.
type loadBatch struct {
	lines    int
	bytes    int
	messages [][]byte
	first    jsonmessage.Message
	key      string
	haveIDs  bool
}

// newLoader checks the flags, opens the file, and reads the progress of an earlier run.
func newLoader(i command.Invocation, o *loadOptions) (*loader, *os.File, error) {
	switch {
	case o.file == "":
		return nil, nil, cli.Usagef("give --file, a file that message dump has written")
	case o.rate < 0:
		return nil, nil, cli.Usagef("--rate is 0 or more")
	case o.pending != "" && o.pending != pendingResend && o.pending != pendingSkip:
		return nil, nil, cli.Usagef("--pending is resend or skip")
	}
	if err := checkSendTarget(i.Args[0]); err != nil {
		return nil, nil, err
	}
	if o.connection == "" {
		o.connection = i.Client.Getenv("SERVICEBUS_CONNECTION_STRING")
	}
	l := &loader{i: i, o: o, path: o.progress, pace: pacer{rate: o.rate, began: time.Now()}}
	if l.path == "" {
		l.path = o.file + ".progress"
	}
	if err := l.readProgress(); err != nil {
		return nil, nil, err
	}
	file, err := os.Open(o.file)
	return l, file, err //nolint:wrapcheck // it names the file
}

func load(i command.Invocation, o *loadOptions) error {
	l, file, err := newLoader(i, o)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	session, err := l.connect()
	if err != nil {
		return err
	}
	defer session.Close()
	if l.sender, err = session.Session.NewSender(i.Ctx, i.Args[0], nil); err != nil {
		return fmt.Errorf("send to %s: %w", i.Args[0], gateway.PlainError(err))
	}
	if err := l.run(bufio.NewReaderSize(file, 1<<20)); err != nil {
		return fmt.Errorf("%d messages loaded into %s, then: %w", l.loaded, i.Args[0], err)
	}
	if !i.Out.IsTable() {
		return i.Out.Data(map[string]int{"loaded": l.loaded, "lines": l.progress.Done})
	}
	return i.Out.Note("%d messages loaded into %s; %s is loaded to its line %d", l.loaded, i.Args[0], o.file, l.progress.Done)
}

func (l *loader) connect() (*gateway.Session, error) {
	if l.o.connection != "" {
		return gateway.DialString(l.i.Ctx, l.o.connection)
	}
	return gateway.Connect(l.i.Ctx, l.i.Client)
}

// readProgress reads the progress of an earlier run.
func (l *loader) readProgress() error {
	l.progress.Target = l.i.Args[0]
	text, err := os.ReadFile(l.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(text, &l.progress)
	}
	switch {
	case err != nil:
		return fmt.Errorf("read the progress in %s: %w", l.path, err)
	case l.progress.Done < 0 || l.progress.Sending > l.progress.Done+loadBatchMessages:
		return fmt.Errorf("the progress in %s is damaged: correct its lines, or name another file with --progress", l.path)
	case l.progress.Target != l.i.Args[0]:
		return cli.Usagef("%s has the progress of a load into %s: name another file with --progress", l.path, l.progress.Target)
	}
	return nil
}

// writeProgress replaces the progress file, so that it is whole after a failure at any time.
func (l *loader) writeProgress(done, sending int) error {
	l.progress.Done, l.progress.Sending, l.progress.At = done, sending, time.Now().UTC()
	text, err := json.Marshal(l.progress)
	if err != nil {
		return fmt.Errorf("encode progress: %w", err)
	}
	file, err := os.OpenFile(l.path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err //nolint:wrapcheck // it names the file
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return fmt.Errorf("write the progress: %w", err)
	}
	return os.Rename(l.path+".new", l.path) //nolint:wrapcheck // it names the files
}

// run sends the lines that are not loaded.
func (l *loader) run(lines *bufio.Reader) error {
	batch, pending := loadBatch{haveIDs: true}, 0 // pending: the end of the batch that an earlier run may have sent; 0: there is none
	if l.progress.Sending > l.progress.Done {
		pending = l.progress.Sending
	}
	for line := 0; ; line++ {
		text, err := readLine(lines)
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("line %d of %s: %w", line+1, l.o.file, err)
		}
		ended := errors.Is(err, io.EOF)
		if !ended && line < l.progress.Done {
			continue
		}
		var m api.Message
		var encoded []byte
		if !ended {
			if m, encoded, err = parseDumped(text, time.Now()); err != nil {
				return fmt.Errorf("line %d of %s: %w", line+1, l.o.file, err)
			}
		}
		full := !batch.takes(&m.Message, encoded, l.o.rate)
		if pending > 0 { // the batch of the run before is sent as it was, or left out as a whole
			full = line >= pending
		}
		if batch.lines > 0 && (ended || full) {
			if err := l.send(&batch, pending > 0); err != nil {
				return err
			}
			batch, pending = loadBatch{haveIDs: true}, 0
		}
		if ended {
			return nil
		}
		batch.add(&m.Message, encoded)
	}
}

// readLine reads a line without its end; io.EOF at the end, also behind half a line.
func readLine(r *bufio.Reader) (line []byte, err error) {
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return line[:len(line)-1], nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err //nolint:wrapcheck // the caller names the file
		case len(line) > loadLineBytesMax:
			return nil, fmt.Errorf("it is longer than %d bytes", loadLineBytesMax)
		}
	}
}

// parseDumped returns the message of a line, and its encoding.
func parseDumped(text []byte, now time.Time) (m api.Message, encoded []byte, err error) {
	if err := json.Unmarshal(text, &m); err != nil {
		return m, nil, fmt.Errorf("it is no message of a dump: %w", err)
	}
	if m.Due != nil && m.Due.After(now) {
		if m.Annotations == nil {
			m.Annotations = make(map[string]jsonmessage.Value)
		}
		m.Annotations[noteScheduled] = jsonmessage.Value{Go: m.Due.UTC()}
	}
	encoded, err = m.Encode()
	return m, encoded, err //nolint:wrapcheck // the caller names the line
}

// batchKey is what all messages of a batch have in common: their session and partition key.
func batchKey(m *jsonmessage.Message) string {
	key := ""
	if m.Session != nil {
		key = "s" + *m.Session
	}
	if p, ok := m.Annotations[notePartition].Go.(string); ok {
		key += "\x00" + p
	}
	return key
}

// takes reports whether a message may be added to the batch.
func (b *loadBatch) takes(m *jsonmessage.Message, encoded []byte, rate int) bool {
	most := loadBatchMessages
	if rate > 0 {
		most = min(most, rate)
	}
	return b.lines == 0 || b.lines < most && b.bytes+len(encoded) <= loadBatchBytes && b.key == batchKey(m)
}

func (b *loadBatch) add(m *jsonmessage.Message, encoded []byte) {
	if b.lines == 0 {
		b.first, b.key = *m, batchKey(m)
	}
	b.lines++
	b.bytes += len(encoded)
	b.messages = append(b.messages, encoded)
	b.haveIDs = b.haveIDs && m.MessageID != nil
}

// message returns the delivery of the batch. Its envelope has what the service looks for there: session and partition key.
func (b *loadBatch) message() *amqp.Message {
	m := &amqp.Message{Format: batchFormat, Data: b.messages, Properties: &amqp.MessageProperties{GroupID: b.first.Session}}
	if p, ok := b.first.Annotations[notePartition].Go.(string); ok {
		m.Annotations = amqp.Annotations{notePartition: p}
	}
	if b.first.MessageID != nil {
		if id, ok := b.first.MessageID.Go.(string); ok {
			m.Properties.MessageID = id
		}
	}
	return m
}

// send sends a batch, between two records of the progress. pending says that an earlier run may have sent it.
func (l *loader) send(b *loadBatch, pending bool) error {
	end := l.progress.Done + b.lines
	if pending {
		skip, err := l.decidePending(b)
		if err != nil {
			return err
		}
		if skip {
			return l.writeProgress(end, end)
		}
	}
	if err := l.writeProgress(l.progress.Done, end); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(l.i.Ctx, sendTimeout)
	defer cancel()
	switch err := l.sender.Send(ctx, b.message(), nil); {
	case err == nil:
	case gateway.IsRefused(err):
		first := l.progress.Done + 1
		return errors.Join(fmt.Errorf("lines %d to %d of %s were refused, all of them (--rate 1 sends one at a time): %w", first, end, l.o.file, gateway.PlainError(err)), l.writeProgress(l.progress.Done, l.progress.Done))
	default:
		return cli.Unknown(fmt.Errorf("lines %d to %d of %s may or may not have been sent; repeat the command: %w", l.progress.Done+1, end, l.o.file, gateway.PlainError(err)))
	}
	l.loaded += b.lines
	l.pace.wait(l.i.Ctx, b.lines)
	return l.writeProgress(end, end)
}

// decidePending returns whether to leave out a batch that an earlier run may have sent.
func (l *loader) decidePending(b *loadBatch) (skip bool, err error) {
	switch l.o.pending {
	case pendingSkip:
		return true, nil
	case pendingResend:
		return false, nil
	}
	if b.haveIDs && l.o.connection == "" && l.detectsDuplicates() {
		return false, nil
	}
	return false, cli.Unknown(fmt.Errorf("an interrupted run has sent lines %d to %d of %s, and did not get the answer: look whether they arrived, then add --pending skip, or --pending resend",
		l.progress.Done+1, l.progress.Done+b.lines, l.o.file))
}

// detectsDuplicates reports whether the entity still remembers the message ids of the interrupted run.
func (l *loader) detectsDuplicates() bool {
	for _, kind := range []string{"queues", "topics"} {
		var found entity.Settings
		err := l.i.Client.Call(l.i.Ctx, http.MethodGet, client.NamePath("/v1/"+kind+"/", l.i.Args[0]), nil, &found)
		if err != nil || found.RequiresDuplicateDetection == nil || found.DuplicateDetectionHistoryTimeWindow == nil {
			continue
		}
		return *found.RequiresDuplicateDetection && time.Since(l.progress.At) < time.Duration(*found.DuplicateDetectionHistoryTimeWindow)
	}
	return false
}
