package client

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// TestSlowRequestIsLoggedWithItsStages checks that the log shows the stages of a slow request and not its content.
func TestSlowRequestIsLoggedWithItsStages(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := slowLogger{slog.New(slog.NewTextHandler(&out, nil)), time.Second}
	if s.isSlow(time.Second-1) || !s.isSlow(time.Second) || (&slowLogger{s.logger, 0}).isSlow(time.Hour) || (&slowLogger{nil, 1}).isSlow(time.Hour) {
		t.Error("what is slow is not what takes the threshold or longer")
	}
	command := fsm.AppendCommand(nil, fsm.Header{Incarnation: 1, Serial: 9, Low: 9}, fsm.SendMessages{Entity: 1, Messages: []fsm.Message{{Payload: []byte("secret")}}})
	s.logRequest(3, requestProgress{command, time.Now().Add(-200 * time.Millisecond), "0123456789abcdef", 2}, fsm.OK, 1200*time.Millisecond)
	s.logRequest(3, requestProgress{}, fsm.ServerBusy, time.Minute)
	s.logLock(4, requestProgress{command: fsm.AppendCommand(nil, fsm.Header{Incarnation: 1, Receiver: 5, Serial: 2, Low: 2}, fsm.LockMessages{}), submissions: 1}, fsm.OK, 2*time.Second)
	for _, want := range []string{
		`operation=send partition=3 took=1.2s sought=`, `attempts=2 leader=01234567`, `serial=9`,
		`operation="not sent" partition=3 took=1m0s sought=1m0s at_leader=0s`,
		`operation=lock partition=4 late=2s attempts=1`, `receiver=5 serial=2`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "secret") {
		t.Error("it tells what was sent")
	}
}
