package amqp

// The types below compute flow control: they take and return numbers, and use no locks and no frames. Delivery
// counts and transfer ids are serial numbers (RFC 1982): they wrap, and only their differences are meaningful.

// ahead returns how far a is ahead of b among 32-bit serial numbers, 0 if it is not ahead (RFC 1982, 3.2).
func ahead(a, b uint32) uint32 {
	if d := a - b; d < 1<<31 {
		return d
	}
	return 0
}

// remaining returns the rest of an allowance after used units of it.
func remaining(allowance, used uint32) uint32 {
	if allowance <= used {
		return 0
	}
	return allowance - used
}

// sendingCredit is the credit that a receiver has granted on one link (part 2, 2.6.7).
// The zero value is a link that was just attached with initial-delivery-count 0.
type sendingCredit struct {
	count uint32 // delivery-count: deliveries begun, and credit drained
	left  uint32 // deliveries that may still begin
	drain bool   // the receiver requests that the credit is used up or returned

	// go-amqp does not advance its own delivery-count when a drain is answered, which 2.6.7 requires, so all
	// its later flows start from a count that is too low. lag is the difference.
	lag       uint32
	drained   uint32 // credit returned by the latest answer to a drain
	undecided bool   // no flow was received since that answer
}

// flow applies the delivery-count (nil before the receiver has seen our attach) and the link-credit of a flow.
// It subtracts deliveries that were sent after the receiver counted, because a receiver must never get more
// than it asked for.
func (c *sendingCredit) flow(deliveryCount *uint32, linkCredit uint32, drain bool) {
	theirs := uint32(0)
	if deliveryCount != nil {
		theirs = *deliveryCount
	}
	if c.undecided {
		c.undecided = false
		if theirs+c.lag != c.count {
			c.lag += c.drained
		}
	}
	if c.lag != 0 && ahead(theirs+c.lag, c.count) > 0 {
		c.lag = 0 // the receiver counts as 2.6.7 requires: its flow and our answer crossed
	}
	c.left = remaining(linkCredit, ahead(c.count, theirs+c.lag))
	c.drain = drain
}

// take uses one credit for a delivery that begins now.
func (c *sendingCredit) take() {
	c.count++
	c.left--
}

// endDrain returns the remaining credit for the answer to a drain.
func (c *sendingCredit) endDrain() {
	c.drained, c.undecided = c.left, c.left > 0
	c.count += c.left
	c.left, c.drain = 0, false
}

// receivingCredit is the credit that the gateway grants a sender on one link. The sum of the credit and the
// deliveries that are received but not yet answered never exceeds linkCreditMax, so a slow log slows its
// senders down.
type receivingCredit struct {
	count    uint32 // delivery-count as the gateway sees it; it begins with the sender's initial-delivery-count
	left     uint32 // deliveries that the sender may still begin
	unstored uint32 // deliveries received and not yet answered
}

// take counts a delivery that begins; it returns false if the sender had no credit for the delivery.
func (c *receivingCredit) take() bool {
	if c.left == 0 {
		return false
	}
	c.left--
	c.count++
	c.unstored++
	return true
}

// advance follows a sender that advances its delivery-count without sending, which uses its credit up (part 2, 2.6.7). It
// returns false if count is not ahead.
func (c *receivingCredit) advance(count uint32) bool {
	used := ahead(count, c.count)
	c.count, c.left = c.count+used, remaining(c.left, used)
	return used > 0
}

// refill raises the credit to the unused part of linkCreditMax if that raises it by at least step.
func (c *receivingCredit) refill(step uint32) bool {
	free := remaining(linkCreditMax, c.unstored)
	if free < c.left+step {
		return false
	}
	c.left = free
	return true
}
