package operate

import (
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/topology"
)

const (
	topEntities = 20 // entities of the table
	topInterval = 5 * time.Second
	// clearTerminal moves the cursor to the first line, and clears everything after it.
	clearTerminal = "\x1b[H\x1b[J"
)

func topVerb() command.Verb {
	once, most := false, topEntities
	return command.Verb{
		Use: "top [NAME]", Short: "Show the busiest queues, topics and subscriptions", Long: `Show the messages per second of the busiest queues, topics and subscriptions of the namespace, averaged over the last minute,
busiest first. On a terminal the table is refreshed every 5 s until Ctrl-C. With the name of an entity, show its last hour, one line per minute.`,
		Example: `  peeklock top
  peeklock top --once -o json
  peeklock top orders`,
		Args: cli.ArgCount(0, 1), Complete: command.CompleteNames("queues", "topics", "subscriptions"),
		Flags: func(cmd *cobra.Command) {
			cmd.Flags().BoolVar(&once, "once", false, "print one table")
			cmd.Flags().IntVar(&most, "max", topEntities, "number of entities, 1 to 1000")
		},
		Run: func(i command.Invocation) error {
			if len(i.Args) > 0 {
				return topOfEntity(i, i.Args[0])
			}
			return top(i, most, once)
		},
	}
}

// top prints the busiest entities, again and again on a terminal.
func top(i command.Invocation, most int, once bool) error {
	out, isFile := i.Client.Out.(*os.File)
	once = once || !i.Out.IsTable() || !isFile || !cli.IsTerminal(out)
	for {
		var rates api.Rates
		if err := i.Client.Call(i.Ctx, http.MethodGet, fmt.Sprintf("/v1/rates?max=%d", most), nil, &rates); err != nil {
			return err
		}
		if !once {
			_, _ = fmt.Fprint(i.Client.Out, clearTerminal)
		}
		if err := i.Out.Rows(rates, append(ratesHeader("NAME"), "CONSUMERS"), rateRows(rates.Entities)); err != nil || once {
			return err
		}
		select {
		case <-i.Ctx.Done():
			return nil
		case <-time.After(topInterval):
		}
	}
}

func ratesHeader(first string) []any {
	return []any{first, "IN/S", "OUT/S", "COMPLETED/S", "ABANDONED/S", "DEAD-LETTERED/S", "ACTIVE", "DEAD LETTERS"}
}

func rateRows(entities []topology.EntityRates) (rows [][]any) {
	for i := range entities {
		rows = append(rows, append(rateRow(entities[i].Name, &entities[i].Rates), entities[i].Consumers))
	}
	return rows
}

func rateRow(first any, r *topology.Rates) []any {
	perSecond := func(rate float64) string { return fmt.Sprintf("%.1f", rate) }
	return []any{first, perSecond(r.Incoming), perSecond(r.Outgoing), perSecond(r.Completed), perSecond(r.Abandoned), perSecond(r.DeadLettered), r.Active, r.DeadLetter}
}

// topOfEntity prints the last hour of an entity.
func topOfEntity(i command.Invocation, name string) error {
	var rates api.Rates
	if err := i.Client.Call(i.Ctx, http.MethodGet, client.NamePath("/v1/rates/", name), nil, &rates); err != nil {
		return err
	}
	if i.Out.IsTable() && len(rates.Entities) == 0 {
		return i.Out.Note("%s had no messages in the last hour.", name)
	}
	var rows [][]any
	for _, e := range rates.Entities {
		rows = append(rows, minuteRows(e.Samples, rates.EverySeconds)...)
	}
	return i.Out.Rows(rates, ratesHeader("MINUTES AGO"), rows)
}

// minuteRows returns a row for each full minute of samples, oldest first.
func minuteRows(samples []topology.Sample, everySeconds int) (rows [][]any) {
	perMinute := max(1, 60/max(1, everySeconds))
	for start := len(samples) % perMinute; start < len(samples); start += perMinute {
		var r topology.Rates
		for _, s := range samples[start : start+perMinute] {
			r.Incoming += float64(s.Incoming) / 60
			r.Outgoing += float64(s.Outgoing) / 60
			r.Completed += float64(s.Completed) / 60
			r.Abandoned += float64(s.Abandoned) / 60
			r.DeadLettered += float64(s.DeadLettered) / 60
			r.Active, r.DeadLetter = uint64(s.Active), uint64(s.DeadLetter)
		}
		rows = append(rows, rateRow((len(samples)-start)/perMinute-1, &r))
	}
	return rows
}
