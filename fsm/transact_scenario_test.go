package fsm_test

import (
	"strconv"
	"strings"

	"github.com/cockroachdb/datadriven"

	"github.com/peeklock/peeklock/fsm"
)

// transacting makes a transaction of its lines:
//
//	settle ENTITY[/dead-letter] complete 1/1 ...   as a line of settle
//	send ENTITY message                            as a line of send
//	transfer VIA to=N name=TEXT message            to entity N of partition 2
func (s *scenario) transacting(d *datadriven.TestData) fsm.Command {
	if d.Cmd != "transact" {
		return nil
	}
	var c fsm.Transact
	for _, line := range strings.Split(d.Input, "\n") {
		words := strings.SplitN(line, " ", 3)
		entity, dead, _ := strings.Cut(words[1], "/")
		n, err := strconv.Atoi(entity)
		if err != nil {
			s.t.Fatal(err)
		}
		id := fsm.EntityID(n)
		switch words[0] {
		case "settle":
			x := fsm.SettleMessages{Address: fsm.Address{Entity: id}, Settlements: []fsm.Settlement{s.settlement(words[2])}}
			if dead != "" {
				x.Address.Sub = fsm.DeadLetterQueue
			}
			c.Settles = append(c.Settles, x)
		case "send":
			c.Sends = append(c.Sends, fsm.SendMessages{Entity: id, Messages: []fsm.Message{s.message(d, words[2])}})
		case "transfer":
			words = strings.SplitN(words[2], " ", 3)
			to, err := strconv.Atoi(strings.TrimPrefix(words[0], "to="))
			if err != nil {
				s.t.Fatal(err)
			}
			c.Transfers = append(c.Transfers, fsm.TransferOut{
				Via: id, To: fsm.Destination{Partition: 2, Entity: fsm.EntityID(to)}, Name: strings.TrimPrefix(words[1], "name="),
				Messages: []fsm.Message{s.message(d, words[2])},
			})
		default:
			s.t.Fatalf("no operation %s", line)
		}
	}
	return c
}
