package queue

import "github.com/peeklock/peeklock/fsm/evaluate"

// Publishing is limited by steps: they count the work of the rules of a topic for a message (see
// package filter) and of making its copies.
//
//	one rule, one message       ruleStepsMax; the rule fails if it needs more
//	one entry, all messages     no message begins after entryStepsStart, so entryStepsMax at most
//	messages that do not begin  Pending, published by the following pulses
//
// Most steps take half a nanosecond, and less than one if they compute. Those of correlation filters that
// match wait for memory and take 1 to 2 ns (BenchmarkPublishWorstFilters).
const (
	ruleStepsMax = evaluate.StepsMax
	// messageStepsMax is the most that one message takes, apart from patches that it already has
	// because it was forwarded: ruleStepsMax for each of sqlRulesMax rules, as much for the actions
	// of all correlation filters, and as much again to find those filters and to make copies, of
	// which at most some two thirds are needed.
	messageStepsMax = 3 * sqlRulesMax * ruleStepsMax
	// correlationStepsMax is what the actions of all correlation filters may take together for one message:
	// some 3,000 short actions, so that a message whose rules are all as expensive as they can be takes less
	// than 50 ms.
	correlationStepsMax = sqlRulesMax * ruleStepsMax / 4
	// An entry begins a new message while it has taken fewer than entryStepsStart steps, and a
	// Pending one while it has taken fewer than pulseStepsStart: that leaves steps to the commands
	// that follow the pulse in the entry.
	entryStepsStart = 8_192_000
	pulseStepsStart = entryStepsStart / 2
	// entryStepsMax is the most that one entry takes.
	entryStepsMax = entryStepsStart + messageStepsMax
	// turnSteps is the number of steps after which the Pending messages of the next topic have
	// their turn.
	turnSteps = pulseStepsStart / 8
)

// Steps that a message takes in addition to those of its rules.
const (
	stepsMessage       = 512
	stepsPropertyByte  = 16   // a byte of its properties, which are decoded
	stepsMatch         = 64   // a correlation filter that matches
	stepsCopy          = 128  // a copy for a subscription
	stepsActionAttempt = 32   // an action, within the budget of its rule or not
	stepsChangedCopy   = 2048 // in addition, a copy that an action or a failure changed
	patchBytes         = 16   // bytes of the patches of a copy per step
)

// ruleBudget returns the steps that a rule has left after it took some.
func ruleBudget(taken uint64) uint64 { return ruleStepsMax - min(taken, ruleStepsMax) }

// sharedBudget returns the steps that the actions of all correlation filters of a subscription may
// take together for one message. A topic has up to correlationRulesMax of them, more than an entry
// has steps for; each subscription has a budget of its own.
func (h *topicState) sharedBudget() uint64 {
	return correlationStepsMax / uint64(max(1, len(h.subscriptions)))
}

// Exceeded returns how often a rule exceeded its budget since this replica was opened.
func (q *topics) Exceeded() uint64 { return q.exceeded }

// Steps returns the steps that publishing took in the newest entry.
func (q *topics) Steps() uint64 { return q.spent }

// EntryStepsMax returns the most steps that publishing takes in one entry.
func EntryStepsMax() uint64 { return entryStepsMax }
