package cluster

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// A request that took long is told with its parts and without what is in it.
func TestSlowRequest(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := slowness{slog.New(slog.NewTextHandler(&out, nil)), time.Second}
	if s.is(time.Second-1) || !s.is(time.Second) || (&slowness{s.to, 0}).is(time.Hour) || (&slowness{nil, 1}).is(time.Hour) {
		t.Error("what is slow is not what takes the threshold or longer")
	}
	command := fsm.AppendCommand(nil, fsm.Header{Origin: 1, Serial: 9, Low: 9}, fsm.SendMessages{Entity: 1, Messages: []fsm.Message{{Payload: []byte("secret")}}})
	s.request(3, progress{command, time.Now().Add(-200 * time.Millisecond), "0123456789abcdef", 2}, fsm.OK, 1200*time.Millisecond)
	s.request(3, progress{}, fsm.ServerBusy, time.Minute)
	s.lock(4, progress{command: fsm.AppendCommand(nil, fsm.Header{Origin: 1, Lane: 5, Serial: 2, Low: 2}, fsm.LockMessages{}), attempts: 1}, fsm.OK, 2*time.Second)
	for _, want := range []string{
		`operation=send partition=3 took=1.2s sought=`, `attempts=2 leader=01234567`, `serial=9`,
		`operation="not sent" partition=3 took=1m0s sought=1m0s at_leader=0s`,
		`operation=lock partition=4 late=2s attempts=1`, `lane=5 serial=2`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "secret") {
		t.Error("it tells what was sent")
	}
}

// Every command that clients cause has a word.
func TestOperationNames(t *testing.T) {
	t.Parallel()
	if name := operationName(fsm.KindPutRule); name != "command 14" {
		t.Error(name)
	}
	for _, kind := range []fsm.Kind{fsm.KindSendMessages, fsm.KindLockMessages, fsm.KindSettleMessages, fsm.KindRenewLocks, fsm.KindTransact} {
		if strings.HasPrefix(operationName(kind), "command") {
			t.Errorf("kind %d has no word", kind)
		}
	}
}
