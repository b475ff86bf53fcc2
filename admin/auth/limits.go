package auth

import (
	"fmt"
	"time"
)

// The bounds of Limits. The longest delay leaves an AMQP client, which has 10 s from its
// connection to its open, time for the rest of the handshake.
const (
	failuresMaxMax            = 1_000_000
	failuresPerMinuteMax      = 60_000
	delayMaxMax               = 5 * time.Second
	verificationsPerClientMax = 1024
)

// Limits bound failed logins. A client is one IPv4 address, or one /64 of IPv6. No limit
// refuses a valid credential because others failed.
type Limits struct {
	// FailuresMax is how many logins of one client with one key name may fail before the next
	// failures are answered as "too many, come back later". 1 to 1,000,000.
	FailuresMax int
	// FailuresPerMinute is how many of these are forgotten in a minute. 1 to 60,000.
	FailuresPerMinute int
	// DelayMax is the longest delay of the answer to a failure. The first answer is delayed by
	// 50 ms, each further one by twice as much. 0 (no delay) to 5 s.
	DelayMax time.Duration
	// VerificationsMax is how many credentials of one client are verified at a time; further
	// ones wait their turn. 1 to 1024.
	VerificationsMax int
}

// DefaultLimits are the limits that hold unless the operator chooses others.
func DefaultLimits() Limits {
	return Limits{FailuresMax: 20, FailuresPerMinute: 60, DelayMax: 3 * time.Second, VerificationsMax: 8}
}

// Validate returns an error that names the limit that is out of its range.
func (l Limits) Validate() error {
	switch {
	case l.FailuresMax < 1 || l.FailuresMax > failuresMaxMax:
		return fmt.Errorf("failures: 1 to %d, not %d", failuresMaxMax, l.FailuresMax)
	case l.FailuresPerMinute < 1 || l.FailuresPerMinute > failuresPerMinuteMax:
		return fmt.Errorf("failures per minute: 1 to %d, not %d", failuresPerMinuteMax, l.FailuresPerMinute)
	case l.DelayMax < 0 || l.DelayMax > delayMaxMax:
		return fmt.Errorf("delay: 0 to %s, not %s", delayMaxMax, l.DelayMax)
	case l.VerificationsMax < 1 || l.VerificationsMax > verificationsPerClientMax:
		return fmt.Errorf("verifications: 1 to %d, not %d", verificationsPerClientMax, l.VerificationsMax)
	}
	return nil
}
