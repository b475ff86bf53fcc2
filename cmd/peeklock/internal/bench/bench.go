package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/entities"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/gateway"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/quantity"
)

// New returns the command that runs a benchmark against a cluster.
func New(c *client.Client) *cobra.Command {
	var o benchOptions
	cmd := &cobra.Command{
		Use: "bench", Short: "Measure a cluster and verify that no message is lost",
		Long: `Put load on a cluster with AMQP clients, measure throughput and latency, and check every message. Each message carries a
number. The command fails when a message is lost, is delivered again after its completion, or was never sent.

The latency "send" is the time from the call to the confirmation of the broker, "end to end" the time from the call to the
arrival at the receiver. With --rate they count from the time at which a message was due, so that the delay of a slow broker
is included.

With --topic, every message is checked once for each subscription that matches it: "send" counts messages, "receive" and
"settle" count their copies.

With --sessions, each receiver accepts the next session, receives and settles its messages, and releases it. The command
also fails when messages of a session arrive out of order.`,
		Example: `  peeklock bench --senders 4 --window 100 --queues 4 --duration 30s
  peeklock bench --mode send --messages 1000000 --keep
  peeklock bench --rate 500 --members-spread -o json
  peeklock bench --topic 10
  peeklock bench --topic 1000 --sql-rules 1000 --matching 10
  peeklock bench --sessions 10000 --receivers 100
  peeklock bench --topic 1 --correlation-rules 100000 --matching 1`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runBench(cmd.Context(), c, &o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.mode, "mode", modeBoth, "send, receive or send-receive")
	f.IntVar(&o.senders, "senders", 1, "sending clients, each with its own connection")
	f.IntVar(&o.receivers, "receivers", 0, "receiving clients, each with its own connection (default: one per queue or subscription)")
	f.IntVar(&o.queues, "queues", 1, "queues that the clients use in turn; missing ones are created")
	o.topic.flags(cmd)
	o.perSession.flags(cmd)
	f.StringVar(&o.prefix, "queue-prefix", "bench", "prefix of the names: queues are called PREFIX-0 and so on, a topic PREFIX-topic")
	f.BoolVar(&o.keep, "keep", false, "keep the entities that were created")
	f.BoolVar(&o.partitioned, "partitioned", false, "create partitioned queues or a partitioned topic")
	f.IntVar(&o.window, "window", 100, "unconfirmed sends per sender")
	f.IntVar(&o.credit, "credit", 500, "link credit: messages in flight to a receiver or unsettled there")
	f.IntVar(&o.settlers, "settlers", 128, "concurrent settlements per receiver")
	f.BoolVar(&o.receiveAndDelete, "delete", false, "receive-and-delete instead of peek-lock")
	quantity.BytesVar(f, &o.size, "size", 1024, "size of a message body, at least 32 bytes")
	f.Float64Var(&o.rate, "rate", 0, "messages per second of all senders together; 0: no limit")
	quantity.DurationVar(f, &o.duration, "duration", 10*time.Second, "duration of the measurement; no limit with --messages or --mode receive unless it is given")
	f.Uint64Var(&o.messages, "messages", 0, "stop after this many messages of all senders together")
	quantity.DurationVar(f, &o.warmup, "warmup", 0, "duration of the warm-up before the measurement")
	f.BoolVar(&o.spread, "members-spread", false, "distribute the clients over all members")
	f.IntSliceVar(&o.pids, "pids", nil, "process ids of the members on this machine, whose CPU time is reported")
	quantity.DurationVar(f, &o.lockDuration, "lock-duration", 30*time.Second, "lock duration of queues that are created")
	cmd.PreRun = func(cmd *cobra.Command, _ []string) {
		// A run with another end (a number of messages, an empty queue) has a time limit only if the user sets
		// one.
		if (o.messages > 0 || o.mode == modeReceive) && !cmd.Flags().Changed("duration") {
			o.duration = 24 * time.Hour
		}
		o.topic.prepare()
		if o.receivers == 0 {
			o.receivers = o.sources()
		}
	}
	return cmd
}

// runBench runs one benchmark: it creates the entities, generates the load, reports, and deletes the entities.
func runBench(ctx context.Context, c *client.Client, o *benchOptions) error {
	out, err := c.Output()
	if err != nil {
		return err
	}
	if err := o.check(); err != nil {
		return err
	}
	addresses, err := gateway.Reachable(ctx, c)
	if err != nil {
		return err
	}
	made, err := createEntities(ctx, c, o)
	if err == nil {
		err = measure(ctx, c, o, addresses, out)
	}
	if !o.keep {
		err = errors.Join(err, deleteEntities(ctx, c, made))
	}
	return err
}

func measure(ctx context.Context, c *client.Client, o *benchOptions, addresses []string, out *output.Output) error {
	var before uint64
	var err error
	if !o.receives() {
		if before, err = storedBytes(ctx, c, o); err != nil {
			return err
		}
	}
	result, err := newLoad(c, o, addresses).run(ctx)
	if err != nil {
		return err
	}
	if sent := result.Verify.Confirmed; !o.receives() && sent > 0 {
		after, err := storedBytes(context.WithoutCancel(ctx), c, o)
		if err != nil {
			return err
		}
		result.Stored = round((float64(after)-float64(before))/float64(sent), 10)
	}
	return result.report(out)
}

// createEntities creates the missing entities and returns their API paths. It copies the lock duration of existing
// entities into the options, because the run waits that long for messages at the end.
func createEntities(ctx context.Context, c *client.Client, o *benchOptions) ([]string, error) {
	lock := entity.Duration(o.lockDuration)
	quota := uint32(benchMegabytes)
	settings := entity.Settings{LockDuration: &lock, MaxSizeInMegabytes: &quota}
	if o.perSession.sessions > 0 {
		yes := true
		settings.RequiresSession = &yes
	}
	if o.partitioned {
		settings.EnablePartitioning = &o.partitioned
	}
	const overhead = 1024 // sections around the body
	if size := uint32(o.size + overhead); size > 256*1024 {
		settings.MaxMessageBytes = &size
	}
	if o.topic.subscriptions > 0 {
		return createTopic(ctx, c, o, settings)
	}
	var made []string
	for i := range o.queues {
		path := entities.QueuePath(o.queue(i))
		var q api.Queue
		isNew, err := ensureEntity(ctx, c, o, path, settings, &q)
		if err != nil {
			return made, fmt.Errorf("queue %s: %w", o.queue(i), err)
		}
		if isNew {
			made = append(made, path)
		}
		if q.LockDuration != nil {
			o.lockDuration = max(o.lockDuration, time.Duration(*q.LockDuration))
		}
	}
	return made, nil
}

func deleteEntities(ctx context.Context, c *client.Client, paths []string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), benchCleanupMax)
	defer cancel()
	var all []error
	for _, path := range paths {
		if err := c.Call(ctx, http.MethodDelete, path, nil, nil); err != nil {
			all = append(all, fmt.Errorf("delete the created entities: %w", err))
		}
	}
	return errors.Join(all...)
}
