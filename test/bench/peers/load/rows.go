package main

import "fmt"

// row says what is measured.
type row struct {
	queues int
	window int     // sends of a queue that wait for their confirmation
	rate   float64 // sends in a second, 0: as many as the window allows
	cycle  bool    // messages are received and settled, too
}

// warmupSeconds is the time before the measurement.
const warmupSeconds = 0.5

// rowNames returns the rows in the order in which they are measured: those that leave many messages behind come last.
func rowNames() []string { return []string{"w1", "r500", "c1", "c4", "c16", "w100", "w1000"} }

func rows() map[string]row {
	return map[string]row{
		"w1":    {queues: 1, window: 1},
		"w100":  {queues: 1, window: 100},
		"w1000": {queues: 1, window: 1000},
		"r500":  {queues: 1, window: 1000, rate: 500},
		"c1":    {queues: 1, window: 100, cycle: true},
		"c4":    {queues: 4, window: 100, cycle: true},
		"c16":   {queues: 16, window: 100, cycle: true},
	}
}

// titleOf returns the name of a row for the table.
func titleOf(name string) string {
	switch name {
	case "w1":
		return "send, 1 outstanding"
	case "w100":
		return "send, 100 outstanding"
	case "w1000":
		return "send, 1,000 outstanding"
	case "r500":
		return "send, 500/s on one queue"
	case "c1":
		return "send + receive + settle, 1 queue"
	case "c4":
		return "send + receive + settle, 4 queues"
	case "c16":
		return "send + receive + settle, 16 queues"
	}
	return name
}

// queueName returns the name of the i-th queue of the row. Rows share no queue.
func (r row) queueName(i int) string {
	kind := "send"
	switch {
	case r.cycle:
		kind = "cycle"
	case r.rate > 0:
		kind = "rate"
	}
	return fmt.Sprintf("%s-%d-%d-%d", kind, r.window, r.queues, i)
}

// queueNames returns the names of the queues of all rows.
func queueNames() (names []string) {
	for _, name := range rowNames() {
		r := rows()[name]
		for i := range r.queues {
			names = append(names, r.queueName(i))
		}
	}
	return names
}
