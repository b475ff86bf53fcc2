package audit

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/peeklock/peeklock/test/kit"
)

// wants fails the test for each part that a text does not contain.
func wants(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("got %q, want %q in it", text, part)
		}
	}
}

// refuse logs a refusal in the form that the packages use.
func refuse(to *slog.Logger, event, peer string) {
	to.Warn("audit", "event", event, "peer", peer)
}

// Some refusals of each client are logged. The others are counted, and their number is logged within two
// intervals, or at the end. Lines that are not refusals are always logged.
func TestAuditedRefusalsAreBoundedPerClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out kit.LogLines
		h := newRefusalLimiter(slog.NewTextHandler(&out, nil), time.Now)
		one, other := slog.New(h), slog.New(h).With("member", "m")
		for i := range RefusalsMax {
			refuse(one, "login_refused", fmt.Sprint("192.0.2.1:", i))
			refuse(other, "right_missing", fmt.Sprint("[::ffff:192.0.2.1]:", i))
		}
		if n := strings.Count(out.String(), "192.0.2.1"); n != RefusalsMax {
			t.Errorf("%d lines:\n%s", n, out.String())
		}
		refuse(one, "login_refused", "[2001:db8::1]:1")
		refuse(one, "login_refused", "pipe")
		for range 2 * RefusalsMax {
			one.Info("audit", "event", "admin_change", "peer", "192.0.2.1:1")
		}
		wants(t, out.String(), "2001:db8::1", "peer=pipe")
		if n := strings.Count(out.String(), "admin_change"); n != 2*RefusalsMax {
			t.Errorf("%d of the other lines", n)
		}
		time.Sleep(2 * refusalsEvery) //nolint:forbidigo // in a bubble
		synctest.Wait()
		wants(t, out.String(), fmt.Sprintf("event=refusals_omitted client=192.0.2.1 count=%d", RefusalsMax))
		before := strings.Count(out.String(), "\n")
		refuse(one, "login_refused", "192.0.2.1:1")
		if strings.Count(out.String(), "\n") != before+1 {
			t.Error("the next interval has no lines")
		}
		for range RefusalsMax + 4 {
			refuse(one, "login_refused", "[2001:db8::2]:1")
		}
		h.close()
		wants(t, out.String(), "client=2001:db8::/64 count=4")
	})
}

func TestAuditedClientsAreBounded(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	var out bytes.Buffer
	h := newRefusalLimiter(slog.NewTextHandler(&out, nil), func() time.Time { return now })
	log := slog.New(h)
	for i := range clientsMax {
		refuse(log, "login_refused", fmt.Sprintf("10.0.%d.%d:1", i>>8, i&0xff))
	}
	for i := range RefusalsMax + 5 {
		refuse(log, "login_refused", fmt.Sprintf("10.1.0.%d:1", i))
	}
	if len(h.state.clients) != clientsMax+1 {
		t.Errorf("%d clients are told apart", len(h.state.clients))
	}
	now = now.Add(refusalsEvery)
	refuse(log, "login_refused", "10.2.0.1:1")
	if len(h.state.clients) != 2 {
		t.Errorf("an interval later %d", len(h.state.clients))
	}
	h.close()
	wants(t, out.String(), "client=others count=5")
}
