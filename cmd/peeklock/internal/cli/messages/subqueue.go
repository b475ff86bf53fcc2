package messages

import (
	"github.com/spf13/pflag"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
	"github.com/peeklock/peeklock/fsm"
)

// Suffixes that turn the address of an entity into the address of a sub-queue.
const (
	deadLetterSuffix         = "/$DeadLetterQueue"
	transferDeadLetterSuffix = "/$Transfer/$DeadLetterQueue"
)

// subQueue has the flags that choose a sub-queue; without them it is the main queue.
type subQueue struct{ deadLetters, transfer bool }

func (s *subQueue) flags(f *pflag.FlagSet, verb string) {
	f.BoolVar(&s.deadLetters, "dead-letters", false, verb+" the dead-letter queue of NAME")
	f.BoolVar(&s.transfer, "transfer-dead-letters", false, verb+" the transfer dead-letter queue of NAME: messages of transactions that their destination refused")
}

func (s *subQueue) check() error {
	if s.deadLetters && s.transfer {
		return cli.Usagef("give --dead-letters or --transfer-dead-letters, not both")
	}
	return nil
}

// address returns the address of the sub-queue of an entity.
func (s *subQueue) address(name string) string {
	switch {
	case s.deadLetters:
		return name + deadLetterSuffix
	case s.transfer:
		return name + transferDeadLetterSuffix
	}
	return name
}

// apiName returns the name of the sub-queue in the control API.
func (s *subQueue) apiName() string {
	switch {
	case s.deadLetters:
		return "deadLetter"
	case s.transfer:
		return "transferDeadLetter"
	}
	return ""
}

// checkSendTarget refuses to send to a subscription before any request is sent.
func checkSendTarget(name string) error {
	if topic, _, ok := fsm.SplitSubscriptionPath(name); ok {
		return cli.Usagef("messages are sent to the topic %s, not to its subscriptions", output.Printable(topic, 100))
	}
	return nil
}
