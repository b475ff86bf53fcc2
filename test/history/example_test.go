package history_test

import (
	"fmt"
	"time"

	"github.com/peeklock/peeklock/test/history"
)

func ExampleCheck() {
	var log history.Log
	at := time.Unix(1_000_000_000, 0)
	log.Add(history.Event{Kind: history.SendBegun, ID: "m1", Client: "sender", At: at})
	log.Add(history.Event{Kind: history.SendAccepted, ID: "m1", Client: "sender", At: at.Add(time.Second)})
	for _, violation := range history.Check(log.Events()) {
		fmt.Println(violation.Rule, violation.ID)
	}
	// Output: lost m1
}
