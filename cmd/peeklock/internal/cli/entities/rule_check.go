package entities

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/amqp/jsonmessage"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
)

// ruleTestBytesMax is the size of a message for rule test: it has to fit into a request.
const ruleTestBytesMax = 100 << 10

// ruleTestVerb is rule test.
func ruleTestVerb() command.Verb {
	var file string
	var properties []string
	texts := map[string]*string{}
	return command.Verb{
		Use: "test TOPIC", Short: "Show which subscriptions would get a message",
		Long: `Show which subscriptions of a topic would get a message, by which of their rules. The member evaluates the rules as it does for
a message that is sent; nothing is sent. The message comes from the flags, or from a file in the form that "message peek -o json"
prints; the flags then change it.`,
		Example: `  peeklock rule test orders --subject order --property region=eu --property size:=7
  peeklock rule test orders --file message.json`,
		Args: cli.ArgCount(1, 1), Complete: command.CompleteNames("topics"),
		Flags: func(cmd *cobra.Command) {
			f := cmd.Flags()
			f.StringVar(&file, "file", "", "file with the message as JSON; - for standard input")
			f.StringArrayVar(&properties, "property", nil, "application property as key=value, or key:=json for a number or another type; repeatable")
			for name, usage := range map[string]string{
				"subject": "subject (label)", "message-id": "message id", "correlation-id": "correlation id", "content-type": "content type",
				"to": "to address", "reply-to": "reply-to address", "session": "session id",
			} {
				texts[name] = f.String(name, "", usage)
			}
		},
		Run: func(i command.Invocation) error {
			m, err := ruleTestMessage(i, file)
			if err != nil {
				return err
			}
			if err := setRuleTest(&m, texts, properties); err != nil {
				return err
			}
			var answer api.RuleTest
			if err := i.Client.Call(i.Ctx, http.MethodPost, client.NamePath("/v1/rule-test/", i.Args[0]), m, &answer); err != nil {
				return err
			}
			rows := make([][]any, 0, len(answer.Subscriptions)+len(answer.Failed))
			for _, s := range answer.Subscriptions {
				rows = append(rows, []any{s.Name, s.Copies, strings.Join(s.Rules, ", ")})
			}
			for _, f := range answer.Failed {
				rows = append(rows, []any{f.Subscription, 0, fmt.Sprintf("%s fails: %s", f.Rule, f.Error)})
			}
			return i.Out.Rows(answer, []any{"subscription", "copies", "rules"}, rows)
		},
	}
}

// ruleTestMessage reads the message from a file, if one is given. Fields that "message peek" shows besides the message
// itself are ignored.
func ruleTestMessage(i command.Invocation, file string) (m jsonmessage.Message, err error) {
	if file == "" {
		return m, nil
	}
	in := i.Client.In
	if file != "-" {
		f, err := os.Open(file) //nolint:gosec // the user names the file
		if err != nil {
			return m, cli.Usage(err)
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, ruleTestBytesMax+1))
	switch {
	case err != nil:
		return m, fmt.Errorf("read the message: %w", err)
	case len(text) > ruleTestBytesMax:
		return m, cli.Usagef("--file: the message has more than %d bytes", ruleTestBytesMax)
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, cli.Usagef("--file: %v", err)
	}
	return m, nil
}

// setRuleTest sets what the flags say.
func setRuleTest(m *jsonmessage.Message, texts map[string]*string, properties []string) error {
	for name, to := range map[string]**string{"subject": &m.Subject, "content-type": &m.ContentType, "session": &m.Session} {
		if *texts[name] != "" {
			*to = texts[name]
		}
	}
	for name, to := range map[string]**jsonmessage.Value{"message-id": &m.MessageID, "correlation-id": &m.CorrelationID, "to": &m.To, "reply-to": &m.ReplyTo} {
		if *texts[name] != "" {
			*to = &jsonmessage.Value{Go: *texts[name]}
		}
	}
	for _, pair := range properties {
		key, value, err := command.AMQPPair("--property", pair)
		if err != nil {
			return err
		}
		if m.Properties == nil {
			m.Properties = make(map[string]jsonmessage.Value)
		}
		m.Properties[key] = value
	}
	return nil
}
