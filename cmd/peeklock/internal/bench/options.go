package bench

import (
	"strconv"
	"time"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/messages"
	"github.com/peeklock/peeklock/fsm"
)

// benchOptions are the flags of bench.
type benchOptions struct {
	mode               string
	senders, receivers int
	queues             int
	topic              benchTopic
	perSession         benchSessions
	prefix             string
	keep               bool
	partitioned        bool
	window             int
	credit             int
	settlers           int
	receiveAndDelete   bool
	size               int
	rate               float64
	duration, warmup   time.Duration
	messages           uint64
	spread             bool
	pids               []int
	lockDuration       time.Duration // lock duration of the queues
}

func (o *benchOptions) check() error {
	if err := o.topic.check(o.queues); err != nil {
		return err
	}
	if err := o.perSession.check(o); err != nil {
		return err
	}
	if o.mode != modeSend && o.mode != modeReceive && o.mode != modeBoth {
		return cli.Usagef("--mode is send, receive or send-receive, not %q", o.mode)
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
		{"--size", o.size, headerBytes, messages.SendSizeMax},
	} {
		if f.value < f.low || f.value > f.high {
			return cli.Usagef("%s is %d to %d, not %d", f.flag, f.low, f.high, f.value)
		}
	}
	switch {
	case o.duration <= 0 || o.warmup < 0:
		return cli.Usagef("--duration is more than 0 and --warmup not less than 0")
	case o.rate < 0:
		return cli.Usagef("--rate is 0 or more")
	case o.messages > 0 && o.warmup > 0:
		return cli.Usagef("--warmup goes with --duration, not with --messages")
	case o.messages/uint64(o.senders) >= countersMax:
		return cli.Usagef("at most %d messages per sender", countersMax)
	case o.mode == modeBoth && o.topic.subscriptions == 0 && o.receivers < o.queues:
		return cli.Usagef("%d receivers cannot empty %d queues", o.receivers, o.queues)
	case o.mode == modeBoth && o.receivers < o.sources():
		return cli.Usagef("%d receivers cannot empty %d subscriptions", o.receivers, o.sources())
	}
	return nil
}

// sources returns the number of queues or subscriptions to receive from.
func (o *benchOptions) sources() int {
	if o.topic.subscriptions > 0 {
		return o.topic.copies()
	}
	return o.queues
}

func (o *benchOptions) sends() bool { return o.mode != modeReceive }

func (o *benchOptions) receives() bool { return o.mode != modeSend }

func (o *benchOptions) queue(i int) string { return o.prefix + "-" + strconv.Itoa(i%o.queues) }

func (o *benchOptions) topicName() string { return o.prefix + "-topic" }

// target returns the address to which a sender sends.
func (o *benchOptions) target(sender int) string {
	if o.topic.subscriptions > 0 {
		return o.topicName()
	}
	return o.queue(sender)
}

// source returns the address from which a receiver receives, and the index of the message copy that it gets.
func (o *benchOptions) source(receiver int) (address string, copyIndex int) {
	if o.topic.subscriptions > 0 {
		copyIndex = receiver % o.topic.copies()
		return o.subscription(copyIndex), copyIndex
	}
	return o.queue(receiver), 0
}

func (o *benchOptions) subscription(i int) string {
	return fsm.SubscriptionPath(o.topicName(), "s-"+strconv.Itoa(i))
}

// Limits of a benchmark.
const (
	benchLinksMax    = 1024    // senders, and likewise receivers
	benchQueuesMax   = 1024    //
	benchWindowMax   = 100_000 // outstanding sends of one sender
	benchCreditMax   = 100_000
	benchSettlersMax = 4096
	benchMegabytes   = 80 << 10         // quota of created queues: the largest possible
	benchIdleMax     = 15 * time.Second // without progress, unless a lock must end first
	benchEmptyMax    = 3 * time.Second  // without a message; after that a receiving run treats the queues as empty
	benchConnectMax  = 15 * time.Second // until all clients are connected
	benchCleanupMax  = 30 * time.Second
)

// Modes of a benchmark.
const (
	modeSend    = "send"
	modeReceive = "receive"
	modeBoth    = "send-receive"
)
