package cli

import (
	"github.com/spf13/pflag"

	"github.com/peeklock/peeklock/fsm"
)

// The addresses of sub-queues are the name of the entity and one of these.
const (
	deadLetterSuffix         = "/$DeadLetterQueue"
	transferDeadLetterSuffix = "/$Transfer/$DeadLetterQueue"
)

// subQueue are the flags that choose a sub-queue; without them it is the main one.
type subQueue struct{ deadLetters, transfer bool }

func (s *subQueue) flags(f *pflag.FlagSet, verb string) {
	f.BoolVar(&s.deadLetters, "dead-letters", false, verb+" the dead-letter queue of NAME")
	f.BoolVar(&s.transfer, "transfer-dead-letters", false, verb+" the transfer dead-letter queue of NAME: messages that could not be forwarded")
}

func (s *subQueue) check() error {
	if s.deadLetters && s.transfer {
		return Usagef("give --dead-letters or --transfer-dead-letters, not both")
	}
	return nil
}

// address is the address of the sub-queue of an entity.
func (s *subQueue) address(name string) string {
	switch {
	case s.deadLetters:
		return name + deadLetterSuffix
	case s.transfer:
		return name + transferDeadLetterSuffix
	}
	return name
}

// apiName is what the control API calls it.
func (s *subQueue) apiName() string {
	switch {
	case s.deadLetters:
		return "deadLetter"
	case s.transfer:
		return "transferDeadLetter"
	}
	return ""
}

// checkSendTarget refuses to send to a subscription before anything is asked.
func checkSendTarget(name string) error {
	if topic, _, ok := fsm.SplitSubscriptionPath(name); ok {
		return Usagef("messages are sent to the topic %s, not to its subscriptions", Printable(topic, 100))
	}
	return nil
}
