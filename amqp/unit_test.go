package amqp

import (
	"math"
	"net"
	"testing"

	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/fsm"
)

// nopConn is a net.Conn that does nothing.
type nopConn struct{ net.Conn }

func (nopConn) RemoteAddr() net.Addr { return &net.TCPAddr{} }

func TestSerialNumbersWrap(t *testing.T) {
	t.Parallel()
	m := uint32(math.MaxUint32)
	for _, c := range []struct{ a, b, want uint32 }{{5, 3, 2}, {3, 5, 0}, {3, 3, 0}, {1, m, 2}, {m, 1, 0}} {
		if got := ahead(c.a, c.b); got != c.want {
			t.Errorf("%d ahead of %d: %d, want %d", c.a, c.b, got, c.want)
		}
	}
	for _, c := range []struct{ a, b, want uint32 }{{5, 3, 2}, {3, 5, 0}, {m, 0, m}, {m, 7, m - 7}} {
		if got := remaining(c.a, c.b); got != c.want {
			t.Errorf("%d less %d: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestCreditFromReceiversFollowsTheirFlow(t *testing.T) {
	t.Parallel()
	at := func(n uint32) *uint32 { return &n }
	send := func(c *sendingCredit, n int) {
		for range n {
			c.take()
		}
	}
	var c sendingCredit
	c.flow(nil, 10, false) // before the receiver saw our attach
	if c.left != 10 {
		t.Errorf("first credit %d", c.left)
	}
	send(&c, 4)
	c.flow(at(2), 10, false) // two are in flight
	if c.left != 8 {
		t.Errorf("credit %d with two on the way", c.left)
	}
	c.flow(at(0), 3, false) // a late flow grants less than is in flight
	if c.left != 0 {
		t.Errorf("credit %d although more is on the way", c.left)
	}
	c.flow(at(4), math.MaxUint32, false) // .NET
	if c.left != math.MaxUint32 {
		t.Errorf("credit %d of endless", c.left)
	}
	c = sendingCredit{count: math.MaxUint32 - 1}
	c.flow(at(math.MaxUint32-1), 4, false)
	send(&c, 3)
	c.flow(at(0), 4, false) // one in flight, across the wrap
	if c.left != 3 || c.count != 1 {
		t.Errorf("credit %d at %d across the wrap", c.left, c.count)
	}
}

// After a drain some clients continue from our delivery-count and some from their own.
func TestSendingCreditAfterDrain(t *testing.T) {
	t.Parallel()
	at := func(n uint32) *uint32 { return &n }
	for name, theirs := range map[string]uint32{"as the standard says": 10, "as go-amqp does": 4} {
		var c sendingCredit
		c.flow(at(0), 10, true)
		for range 4 {
			c.take()
		}
		c.endDrain()
		if c.count != 10 || c.left != 0 || c.drain {
			t.Fatalf("after the drain: %+v", c)
		}
		for round := range uint32(3) {
			c.flow(at(theirs), 5, false)
			if c.left != 5 {
				t.Errorf("%s, round %d: credit %d, want 5", name, round, c.left)
			}
			for range 5 {
				c.take()
			}
			theirs += 5
		}
	}
	// The receiver's flow and our answer crossed, so at first it seems to count like go-amqp.
	var c sendingCredit
	c.flow(at(0), 10, true)
	c.endDrain()
	c.flow(at(0), 3, false)
	for range 3 {
		c.take()
	}
	c.flow(at(13), 5, false)
	if c.left != 5 || c.lag != 0 {
		t.Errorf("after crossing: %+v", c)
	}
}

func TestCreditGrantedToSendersIsRefilled(t *testing.T) {
	t.Parallel()
	var c receivingCredit
	if c.take() {
		t.Error("took without credit")
	}
	c.refill(0)
	for range linkCreditMax {
		if !c.take() {
			t.Fatal("no credit")
		}
	}
	flows := 0
	for range linkCreditMax {
		c.unstored--
		if c.refill(linkCreditMax / 2) {
			flows++
		}
		if c.left+c.unstored > linkCreditMax {
			t.Fatalf("credit %d and %d unstored", c.left, c.unstored)
		}
	}
	if flows != 2 || c.left != linkCreditMax {
		t.Errorf("%d flows, credit %d", flows, c.left)
	}
}

// Every code has its own row in the table.
func TestEveryCodeHasItsOwnCondition(t *testing.T) {
	t.Parallel()
	for code := fsm.OK; code <= fsm.NamespaceFull; code++ {
		v := refusal.ReplyOf(code)
		if (v.Condition == "") != (code == fsm.OK) || v.Text == "" || v.Status < 200 || v.Status > 599 {
			t.Errorf("%v: %+v", code, v)
		}
		if v.Condition == refusal.ReplyOf(fsm.Internal).Condition && code != fsm.Internal && code != fsm.Stale {
			t.Errorf("%v has no row", code)
		}
	}
	if v := refusal.ReplyOf(200); v.Condition == "" {
		t.Error("an unknown code is a success")
	}
}
