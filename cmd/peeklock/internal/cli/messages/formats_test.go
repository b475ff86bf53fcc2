package messages

import (
	"testing"

	"github.com/peeklock/peeklock/amqp/jsonmessage"
	"github.com/peeklock/peeklock/test/golden"
)

func TestPrintedFormats(t *testing.T) {
	t.Parallel()
	golden.JSON(t, "testdata/printed.golden", []golden.Format{
		{Name: "message", Of: ShownMessage{}},
		{Name: "message purge", Of: purged{}},
		{Name: "message redrive", Of: redriven{}},
		{Name: "session state", Of: sessionState{}},
		{Name: "message delete", Of: changed{}},
		{Name: "message schedule", Of: Scheduled{}},
		{Name: "message cancel", Of: cancelled{}},
		{Name: "message send", Of: sent{}},
		{Name: "message tail", Of: tailedMessage{}},
		{Name: "message dump", Of: dumped{}},
		{Name: "message load, progress", Of: loadProgress{}},
	}, jsonmessage.Value{Go: int32(-7)})
}
