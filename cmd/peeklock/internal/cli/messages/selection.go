package messages

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
)

// whereHelp explains --where and --path.
const whereHelp = `--where takes an SQL expression, as in the filter of a subscription. Plain names are application properties, including
DeadLetterReason and DeadLetterErrorDescription; names that begin with sys. are properties of Service Bus (sys.Label,
sys.CorrelationId, sys.DeliveryCount, sys.SequenceNumber, ...). Messages for which the expression is unknown, for example
because a property is missing, are left out. --path takes a path in a JSON body, such as $.customer.id, $['a b'][0] or, with
a value, $.customer.id=7. The member evaluates all conditions; a message has to meet every one that is given.`

// selection has the flags that choose messages.
type selection struct {
	subQueue

	states    []string
	session   *string
	sequences []int64
	where     *filter.Expr
	contains  string
	path      string
	reason    string
	before    string
	olderThan *entity.Duration
}

func (s *selection) flags(f *pflag.FlagSet) {
	f.StringSliceVar(&s.states, "state", nil, "only messages in these states: active, locked, deferred, scheduled")
	f.Var(sessionFlag{&s.session}, "session", "only messages of this session")
	f.Int64SliceVar(&s.sequences, "sequence", nil, "only messages with these sequence numbers, separated by commas")
	f.Var(whereFlag{&s.where}, "where", "only messages for which this expression is true")
	f.StringVar(&s.contains, "contains", "", "only messages whose body contains this text")
	f.StringVar(&s.path, "path", "", "only messages whose body is JSON with this path, such as $.customer.id=7")
	f.StringVar(&s.reason, "reason", "", "only messages that were dead-lettered with this reason")
	f.StringVar(&s.before, "before", "", "only messages that were enqueued before this time, such as 2026-11-20T12:00:00Z")
	f.Var(command.DurationFlag(&s.olderThan), "older-than", "only messages that were enqueued longer ago than this, such as 90m or P7D")
}

// selects reports whether a condition is given.
func (s *selection) selects() bool { return len(s.sequences) > 0 || !s.onlyNumbers() }

// onlyNumbers reports whether there is no other condition than sequence numbers.
func (s *selection) onlyNumbers() bool {
	return len(s.states) == 0 && s.session == nil && s.where == nil && s.contains == "" && s.path == "" && s.reason == "" && s.before == "" && s.olderThan == nil
}

// request returns the selection as the control API takes it. Errors are usage errors.
func (s *selection) request(now time.Time) (api.Selection, error) {
	if err := s.check(); err != nil {
		return api.Selection{}, err
	}
	for _, state := range s.states {
		if !slices.Contains([]string{api.StateActive, api.StateLocked, api.StateDeferred, api.StateScheduled}, state) {
			return api.Selection{}, cli.Usagef("--state %q: a state is active, locked, deferred or scheduled", state)
		}
	}
	r := api.Selection{SubQueue: s.apiName(), States: s.states, Session: s.session, Contains: s.contains, Path: s.path, Reason: s.reason}
	for _, n := range s.sequences {
		if n < 0 {
			return r, cli.Usagef("--sequence %d: sequence numbers are 0 or more", n)
		}
		r.Sequences = append(r.Sequences, fsm.SequenceNumber(n))
	}
	if s.where != nil {
		r.Where = s.where.String()
	}
	switch {
	case s.before != "" && s.olderThan != nil:
		return r, cli.Usagef("give --before or --older-than, not both")
	case s.before != "":
		at, err := time.Parse(time.RFC3339, s.before)
		if err != nil {
			return r, cli.Usagef("--before %q: write it like 2026-11-20T12:00:00Z", s.before)
		}
		r.Before = &at
	case s.olderThan != nil:
		at := now.Add(-time.Duration(*s.olderThan))
		r.Before = &at
	}
	return r, nil
}

// query returns a selection as the query of GET /v1/messages.
func query(s *api.Selection) url.Values {
	q := url.Values{}
	for name, value := range map[string]string{
		"subQueue": s.SubQueue, "state": strings.Join(s.States, ","), "where": s.Where, "contains": s.Contains, "path": s.Path, "reason": s.Reason,
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if s.Session != nil {
		q.Set("session", *s.Session)
	}
	if len(s.Sequences) > 0 {
		texts := make([]string, len(s.Sequences))
		for i, n := range s.Sequences {
			texts[i] = strconv.FormatUint(uint64(n), 10)
		}
		q.Set("sequence", strings.Join(texts, ","))
	}
	if s.Before != nil {
		q.Set("before", s.Before.UTC().Format(time.RFC3339Nano))
	}
	return q
}
