package messages

import (
	"os"
	"time"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/amqp/jsonmessage"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
)

// redriveBodyMax is the size of a body that replaces others: it has to fit into a request.
const redriveBodyMax = 64 << 10

// redriveOptions are the flags of message redrive.
type redriveOptions struct {
	changeOptions

	to         string
	properties []string
	remove     []string
	bodyFile   string
	newID      bool
}

// redriven is the answer of message redrive. Without DryRun, Matched minus Redriven is the number of messages that
// were locked or gone when redrive reached them.
type redriven struct {
	Queue    string `json:"queue"`
	Matched  int    `json:"matched"`
	Redriven int    `json:"redriven"`
	DryRun   bool   `json:"dryRun"`
}

func redrive(i command.Invocation, o *redriveOptions) error {
	queue := i.Args[0]
	if o.transfer {
		return cli.Usagef("the messages of the transfer dead-letter queue cannot be moved back: receive them and send them again")
	}
	o.deadLetters, o.states = true, []string{api.StateActive}
	change, err := o.request(time.Now())
	if err != nil {
		return err
	}
	request := api.RedriveRequest{MessageChange: change, To: o.to, Remove: o.remove, NewID: o.newID}
	for _, pair := range o.properties {
		key, value, err := command.AMQPPair("--set", pair)
		if err != nil {
			return err
		}
		if request.Properties == nil {
			request.Properties = make(map[string]jsonmessage.Value)
		}
		request.Properties[key] = value
	}
	if o.bodyFile != "" {
		body, err := os.ReadFile(o.bodyFile)
		if err != nil {
			return cli.Usage(err)
		}
		if len(body) > redriveBodyMax {
			return cli.Usagef("--body-file: a body has at most %d bytes here, not %d: receive the messages and send them again", redriveBodyMax, len(body))
		}
		text := string(body)
		request.Body = &text
	}
	if o.dryRun {
		matched, err := o.show(i, &change)
		if err != nil {
			return err
		}
		return i.Out.Note("%d of %s would be moved back", matched, o.address(queue))
	}
	run := changeRun{Invocation: i, path: "/v1/redrive/", max: o.max, verb: "redriving"}
	err = run.all(&request.MessageChange, &request)
	if err != nil {
		return err
	}
	if !i.Out.IsTable() {
		return i.Out.Data(redriven{Queue: queue, Matched: run.matched, Redriven: run.count})
	}
	to := queue
	if o.to != "" {
		to = o.to
	}
	return i.Out.Note("%d of %d redriven to %s", run.count, run.matched, to)
}

// deleteMessages is message delete.
func deleteMessages(i command.Invocation, o *changeOptions) error {
	return o.run(i, changeVerb{"/v1/delete/", "deleting", "deleted", true, []string{api.StateActive, api.StateDeferred, api.StateScheduled}})
}

// undefer is message undefer.
func undefer(i command.Invocation, o *changeOptions) error {
	return o.run(i, changeVerb{"/v1/undefer/", "returning deferred messages of", "ready again", false, []string{api.StateDeferred}})
}

// cancelSelected is message cancel with conditions.
func cancelSelected(i command.Invocation, o *changeOptions) error {
	return o.run(i, changeVerb{"/v1/cancel/", "cancelling in", "cancelled", true, []string{api.StateScheduled}})
}

// changeVerb is a change of messages by number and by conditions.
type changeVerb struct {
	path, doing, done string
	deletes           bool
	states            []string // that it changes
}

// changed is the answer of a change. Matched minus Changed is the number of messages that were locked, gone or in another
// state when the command reached them.
type changed struct {
	Queue   string `json:"queue"` // or subscription
	Matched int    `json:"matched"`
	Changed int    `json:"changed"`
	DryRun  bool   `json:"dryRun"`
}

func (o *changeOptions) run(i command.Invocation, v changeVerb) error {
	name := i.Args[0]
	numbers, err := parseNumbers(i.Args[1:])
	if err != nil {
		return err
	}
	o.sequences = append(o.sequences, numbers...)
	if v.deletes && !o.yes && !o.dryRun {
		return cli.Usagef("the command deletes messages for good: add --yes to do so, or --dry-run to see which")
	}
	if len(o.states) == 0 {
		o.states = v.states
		if len(o.sequences) > 0 && o.onlyNumbers() {
			o.states = nil // the numbers say it all
		}
	}
	request, err := o.request(time.Now())
	if err != nil {
		return err
	}
	if o.dryRun {
		request.States = o.states
		if len(request.States) == 0 {
			request.States = v.states
		}
		matched, err := o.show(i, &request)
		if err != nil {
			return err
		}
		return i.Out.Note("%d of %s would be %s", matched, o.address(name), v.done)
	}
	run := changeRun{Invocation: i, path: v.path, max: o.max, verb: v.doing}
	if err := run.all(&request, &request); err != nil {
		return err
	}
	if !i.Out.IsTable() {
		return i.Out.Data(changed{Queue: name, Matched: run.matched, Changed: run.count})
	}
	return i.Out.Note("%d of %d %s in %s", run.count, run.matched, v.done, o.address(name))
}
