package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/admin"
)

// Limits of a benchmark.
const (
	benchLinksMax    = 1024    // senders, and receivers
	benchQueuesMax   = 1024    //
	benchWindowMax   = 100_000 // outstanding sends of one sender
	benchCreditMax   = 100_000
	benchSettlersMax = 4096
	benchMegabytes   = 80 << 10         // quota of queues that are made: the most there is
	benchIdleMax     = 15 * time.Second // without progress, and not waiting for a lock to end
	benchEmptyMax    = 3 * time.Second  // without a message: a receiving run has emptied the queues
	benchConnectMax  = 15 * time.Second // until all clients are connected
	benchCleanupMax  = 30 * time.Second
)

// What a benchmark does.
const (
	modeSend    = "send"
	modeReceive = "receive"
	modeBoth    = "send-receive"
)

// benchOptions are the flags of bench.
type benchOptions struct {
	mode               string
	senders, receivers int
	queues             int
	prefix             string
	keep               bool
	window             int
	credit             int
	settlers           int
	takes              bool
	size               int
	rate               float64
	duration, warmup   time.Duration
	messages           uint64
	spread             bool
	pids               []int
	locks              time.Duration // lock duration of the queues
}

func newBench(c *client) *cobra.Command {
	var o benchOptions
	cmd := &cobra.Command{
		Use: "bench", Short: "Measure a cluster and verify that no message is lost",
		Long: `Put load on a cluster with AMQP clients, measure, and check every message: each
carries a number, and what is lost, delivered again after its completion or was never
sent makes the command fail.

Latencies: "send" is from the call to the broker's confirmation, "end to end" from the
call to the arrival at the receiver. With --rate they count from the moment at which a
message was due, so that waiting for a slow broker is not left out.`,
		Example: "  peeklock bench --senders 4 --window 100 --queues 4 --duration 30s\n  peeklock bench --mode send --messages 1000000 --keep\n  peeklock bench --rate 500 --members-spread -o json",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.bench(cmd.Context(), &o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.mode, "mode", modeBoth, "send, receive or send-receive")
	f.IntVar(&o.senders, "senders", 1, "sending clients, each with a connection of its own")
	f.IntVar(&o.receivers, "receivers", 0, "receiving clients, each with a connection of its own (default: one per queue)")
	f.IntVar(&o.queues, "queues", 1, "queues that the clients are spread over; made if missing")
	f.StringVar(&o.prefix, "queue-prefix", "bench", "the queues are called PREFIX-0 and so on")
	f.BoolVar(&o.keep, "keep", false, "keep the queues that were made")
	f.IntVar(&o.window, "window", 100, "sends of a sender that await confirmation at once")
	f.IntVar(&o.credit, "credit", 500, "messages on their way to a receiver, or unsettled there, at once")
	f.IntVar(&o.settlers, "settlers", 128, "messages of a receiver that await the end of their settlement at once")
	f.BoolVar(&o.takes, "delete", false, "receive-and-delete instead of peek-lock")
	f.IntVar(&o.size, "size", 1024, "bytes of a body, at least 32")
	f.Float64Var(&o.rate, "rate", 0, "messages per second of all senders together; 0: as fast as can be")
	f.DurationVar(&o.duration, "duration", 10*time.Second, "how long to measure; with --messages or when only receiving there is no limit unless it is given")
	f.Uint64Var(&o.messages, "messages", 0, "stop after so many messages of all senders together")
	f.DurationVar(&o.warmup, "warmup", 0, "time before measuring begins")
	f.BoolVar(&o.spread, "members-spread", false, "spread the clients over all members")
	f.IntSliceVar(&o.pids, "pids", nil, "processes of the members on this machine: their CPU time is counted")
	f.DurationVar(&o.locks, "lock-duration", 30*time.Second, "lock duration of queues that are made")
	cmd.PreRun = func(cmd *cobra.Command, _ []string) {
		// A run with an end of its own (a number of messages, an empty queue) is only
		// limited in time when that was asked for.
		if (o.messages > 0 || o.mode == modeReceive) && !cmd.Flags().Changed("duration") {
			o.duration = 24 * time.Hour
		}
		if o.receivers == 0 {
			o.receivers = o.queues
		}
	}
	return cmd
}

func (o *benchOptions) check() error {
	if o.mode != modeSend && o.mode != modeReceive && o.mode != modeBoth {
		return usagef("--mode is send, receive or send-receive, not %q", o.mode)
	}
	for _, f := range []struct {
		flag             string
		value, low, high int
	}{
		{"--senders", o.senders, 1, benchLinksMax},
		{"--receivers", o.receivers, 1, benchLinksMax},
		{"--queues", o.queues, 1, benchQueuesMax},
		{"--window", o.window, 1, benchWindowMax},
		{"--credit", o.credit, 1, benchCreditMax},
		{"--settlers", o.settlers, 1, benchSettlersMax},
		{"--size", o.size, stampBytes, sendSizeMax},
	} {
		if f.value < f.low || f.value > f.high {
			return usagef("%s is %d to %d, not %d", f.flag, f.low, f.high, f.value)
		}
	}
	switch {
	case o.duration <= 0 || o.warmup < 0:
		return usagef("--duration is more than 0 and --warmup not less than 0")
	case o.rate < 0:
		return usagef("--rate is 0 or more")
	case o.messages > 0 && o.warmup > 0:
		return usagef("--warmup goes with --duration, not with --messages")
	case o.messages/uint64(o.senders) >= countersMax:
		return usagef("at most %d messages per sender", countersMax)
	case o.mode == modeBoth && o.receivers < o.queues:
		return usagef("%d receivers cannot empty %d queues", o.receivers, o.queues)
	}
	return nil
}

func (o *benchOptions) sends() bool    { return o.mode != modeReceive }
func (o *benchOptions) receives() bool { return o.mode != modeSend }

func (o *benchOptions) queue(i int) string { return o.prefix + "-" + strconv.Itoa(i%o.queues) }

// bench runs one benchmark: queues, load, report, and away with the queues.
func (c *client) bench(ctx context.Context, o *benchOptions) error {
	out, err := c.output()
	if err != nil {
		return err
	}
	if err := o.check(); err != nil {
		return err
	}
	if o.receivers < 1 {
		o.receivers = o.queues
	}
	addresses, err := c.endpoints(ctx)
	if err != nil {
		return err
	}
	made, err := c.benchQueues(ctx, o)
	if err == nil {
		var result benchResult
		if result, err = newLoad(c, o, addresses).run(ctx); err == nil {
			err = result.report(out)
		}
	}
	if !o.keep {
		err = errors.Join(err, c.dropQueues(ctx, made))
	}
	return err
}

// benchQueues makes what is missing and returns what it made. It takes over the lock
// duration of queues that exist: it says how long to wait for messages at the end.
func (c *client) benchQueues(ctx context.Context, o *benchOptions) ([]string, error) {
	var made []string
	lock := admin.Duration(o.locks)
	room := uint32(benchMegabytes)
	settings := admin.Settings{LockDuration: &lock, MaxSizeInMegabytes: &room}
	const overhead = 1024 // sections around the body
	if size := uint32(o.size + overhead); size > 256*1024 {
		settings.MaxMessageBytes = &size
	}
	for i := range o.queues {
		name := o.queue(i)
		var q admin.Queue
		err := c.call(ctx, http.MethodGet, queuePath(name), nil, &q)
		if p := new(refusedError); o.sends() && errors.As(err, &p) && p.Code == "EntityNotFound" {
			if err = c.call(ctx, http.MethodPut, queuePath(name), settings, &q); err == nil {
				made = append(made, name)
			}
		}
		if err != nil {
			return made, fmt.Errorf("queue %s: %w", name, err)
		}
		if q.LockDuration != nil {
			o.locks = max(o.locks, time.Duration(*q.LockDuration))
		}
	}
	return made, nil
}

func (c *client) dropQueues(ctx context.Context, names []string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), benchCleanupMax)
	defer cancel()
	var all []error
	for _, name := range names {
		if err := c.call(ctx, http.MethodDelete, queuePath(name), nil, nil); err != nil {
			all = append(all, fmt.Errorf("delete queue %s: %w", name, err))
		}
	}
	return errors.Join(all...)
}
