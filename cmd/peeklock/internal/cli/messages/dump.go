package messages

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/fsm"
)

// dumpBodyMax is the largest body that the control API shows whole, in bytes.
const dumpBodyMax = 4 << 20

// dumpOptions are the flags of message dump.
type dumpOptions struct {
	selection

	file   string
	resume bool
	from   int64
	count  int
	rate   int
}

func dumpVerb() command.Verb {
	var o dumpOptions
	return command.Verb{
		Use: "dump NAME", Short: "Copy messages to a file, with every property",
		Long: `Write messages as JSON Lines, in the order of their sequence numbers, with every property and the AMQP type of every value.
The messages stay where they are, and none is locked. "message load" sends them from the file.

The file is its own cursor: --resume goes on behind the last message in it. Messages with a body above 4 MiB are not dumped: the
command names the first of them and ends.

` + whereHelp,
		Example: `  peeklock message dump orders --file orders.jsonl
  peeklock message dump orders --file orders.jsonl --resume
  peeklock message dump orders --dead-letters --where "customer = 7" > dead.jsonl`,
		Args: cli.ArgCount(1, 1), Complete: command.CompleteNames("queues", "subscriptions"),
		Flags: func(cmd *cobra.Command) {
			f := cmd.Flags()
			o.subQueue.flags(f, "dump")
			o.flags(f)
			f.StringVar(&o.file, "file", "", "write to this new file instead of standard output")
			f.BoolVar(&o.resume, "resume", false, "go on behind the last message in --file")
			f.Int64Var(&o.from, "from", 0, "first sequence number")
			f.IntVar(&o.count, "count", 0, "stop after this many messages; 0: all")
			f.IntVar(&o.rate, "rate", 0, "dump at most this many messages a second; 0: no limit")
		},
		Run: func(i command.Invocation) error { return dump(i, &o) },
	}
}

func dump(i command.Invocation, o *dumpOptions) (err error) {
	switch {
	case o.count < 0 || o.from < 0 || o.rate < 0:
		return cli.Usagef("--count, --from and --rate are 0 or more")
	case o.resume && (o.file == "" || o.from != 0):
		return cli.Usagef("--resume needs --file, whose last message says where to go on, and no --from")
	}
	request, err := o.request(time.Now())
	if err != nil {
		return err
	}
	from, out := fsm.SequenceNumber(o.from), i.Client.Out
	if o.file != "" {
		file, last, err := openDump(o.file, o.resume)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		out, from = file, max(from, last)
	}
	buffered := bufio.NewWriter(out)
	defer func() { err = errors.Join(err, buffered.Flush()) }()
	pace := pacer{rate: o.rate, began: time.Now()}
	pages := pager{client: i.Client, name: i.Args[0], query: query(&request), bodyBytes: dumpBodyMax}
	seen, err := pages.each(i.Ctx, from, o.count, func(m *api.Message) error {
		if m.BodyCut {
			return fmt.Errorf("message %d has a body of %d bytes and a dump holds up to %d: receive it, or go on with --from %d", m.SequenceNumber, m.BodyBytes, dumpBodyMax, m.SequenceNumber+1)
		}
		line, err := json.Marshal(m)
		if err == nil {
			_, err = buffered.Write(append(line, '\n'))
		}
		pace.wait(i.Ctx, 1)
		return err //nolint:wrapcheck // below
	})
	if err != nil {
		return fmt.Errorf("dump of %s, after %d messages: %w", o.address(i.Args[0]), seen, err)
	}
	if o.file == "" {
		return nil
	}
	if !i.Out.IsTable() {
		return i.Out.Data(dumped{o.file, seen})
	}
	return i.Out.Note("%d messages of %s dumped to %s", seen, o.address(i.Args[0]), o.file)
}

// dumped is the answer of message dump into a file.
type dumped struct {
	File     string `json:"file"`
	Messages int    `json:"messages"`
}

// openDump creates a file for a dump, or, to resume, opens it behind its last whole line, cuts off the rest, and returns the number
// behind that message.
func openDump(path string, resume bool) (*os.File, fsm.SequenceNumber, error) {
	if !resume {
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the caller names it
		if errors.Is(err, os.ErrExist) {
			return nil, 0, cli.Usagef("%s exists: add --resume to go on with its dump, or name another file", path)
		}
		return file, 0, err //nolint:wrapcheck // it names the file
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // the caller names it
	if err != nil {
		return nil, 0, err //nolint:wrapcheck // it names the file
	}
	var whole int64
	next := fsm.SequenceNumber(0)
	for reader := bufio.NewReader(file); ; {
		line, err := reader.ReadBytes('\n')
		if err != nil {
			break // the end, or half a line
		}
		var m api.Message
		if err := json.Unmarshal(line, &m); err != nil {
			return nil, 0, errors.Join(fmt.Errorf("%s is no dump: a line of it is no message: %w", path, err), file.Close())
		}
		whole, next = whole+int64(len(line)), m.SequenceNumber+1
	}
	err = file.Truncate(whole)
	if err == nil {
		_, err = file.Seek(whole, io.SeekStart)
	}
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, next, nil
}

// pacer slows a command down to a rate.
type pacer struct {
	rate  int // messages a second; 0: no limit
	began time.Time
	done  int
}

// wait counts messages, and waits until they are due.
func (p *pacer) wait(ctx context.Context, messages int) {
	if p.rate == 0 {
		return
	}
	p.done += messages
	due := p.began.Add(time.Duration(p.done) * time.Second / time.Duration(p.rate))
	if d := time.Until(due); d > 0 {
		cli.Sleep(ctx, d)
	}
}
