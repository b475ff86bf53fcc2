// Command load is the load generator of the comparison with other brokers: one engine, and a client for each
// protocol. It measures one row, or prints the table of all measured rows.
//
//	load run -protocol amqp|nats -members ADDR,ADDR,ADDR -pids PID,PID,PID -row ROW ...   one JSON object
//	load rows                                                                            the rows in their order
//	load queues                                                                          the queues of all rows
//	load create -members ADDR,...                                                        creates the queues in NATS
//	load count -members ADDR,...                                                         messages in each NATS stream
//	load report FILE                                                                     the tables, as Markdown
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) < 2 {
		return fmt.Errorf("name a command: run, rows, queues, create, count or report")
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeMax)
	defer cancel()
	switch os.Args[1] {
	case "run":
		return runRow(ctx, os.Args[2:])
	case "rows":
		fmt.Println(strings.Join(rowNames(), " "))
		return nil
	case "queues":
		fmt.Println(strings.Join(queueNames(), "\n"))
		return nil
	case "create":
		return createStreams(ctx, os.Args[2:])
	case "count":
		return countStreams(ctx, os.Args[2:])
	case "report":
		return report(os.Args[2:])
	}
	return fmt.Errorf("unknown command %q: use run, rows, queues, create, count or report", os.Args[1])
}

// timeMax bounds one row, its preparation and its end included; drainTimeMax the wait for messages that are still in flight.
const (
	timeMax      = 2 * time.Minute
	drainTimeMax = 20 * time.Second
)

func runRow(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	protocol := flags.String("protocol", "amqp", "amqp or nats")
	members := flags.String("members", "", "addresses of the members, separated by commas")
	pids := flags.String("pids", "", "process ids of the members, separated by commas")
	user := flags.String("user", "", "AMQP user and password, with a colon between them")
	prefix := flags.String("prefix", "", "what an AMQP address has before the name of the queue")
	name := flags.String("row", "", "row to measure: "+strings.Join(rowNames(), ", "))
	seconds := flags.Float64("seconds", 4, "measured time")
	size := flags.Int("size", 1024, "size of a message in bytes")
	settle := flags.String("settle", "sent", "confirmed: a settlement waits for its answer; sent: it does not")
	product := flags.String("product", "", "name for the table")
	round := flags.Int("round", 1, "number of the round for the table")
	ledger := flags.String("ledger", "", "file to which the numbers of messages that stay in each queue are appended")
	if err := flags.Parse(args); err != nil {
		return err
	}
	r, known := rows()[*name]
	if !known {
		return fmt.Errorf("unknown row %q: use one of %s", *name, strings.Join(rowNames(), ", "))
	}
	processes, err := parsePIDs(*pids)
	if err != nil {
		return err
	}
	var b broker
	addresses := strings.Split(*members, ",")
	switch *protocol {
	case "amqp":
		b = &amqpBroker{members: addresses, user: *user, prefix: *prefix, confirm: *settle == confirmed}
	case "nats":
		b = &natsBroker{members: addresses, confirm: *settle == confirmed}
	default:
		return fmt.Errorf("unknown protocol %q: use amqp or nats", *protocol)
	}
	e := &engine{
		broker: b, row: r, size: max(*size, serialBytes), duration: time.Duration(*seconds * float64(time.Second)), members: processes,
		confirm: *settle == confirmed, drainMax: drainTimeMax, stop: make(chan struct{}), failed: make(chan error, 1),
	}
	result, err := e.run(ctx)
	if err != nil {
		return fmt.Errorf("measure %s of %s: %w", *name, *product, err)
	}
	result.Product, result.Round, result.Row = *product, *round, *name
	if *ledger != "" {
		if err := e.appendLedger(*ledger); err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

// confirmed is the value of -settle with which settlements wait for their answer.
const confirmed = "confirmed"

func parsePIDs(list string) (pids []int, err error) {
	for part := range strings.SplitSeq(list, ",") {
		pid, err := strconv.Atoi(part)
		if err != nil {
			return nil, fmt.Errorf("read process id %q: %w", part, err)
		}
		pids = append(pids, pid)
	}
	return pids, nil
}
