package linear_test

import (
	"testing"
	"time"

	"github.com/peeklock/peeklock/test/history"
	"github.com/peeklock/peeklock/test/history/linear"
)

func at(seconds int) time.Time { return time.Unix(1_000_000_000+int64(seconds), 0) }

// sent is the history of a message up to its first delivery, which is locked until 20.
func sent(more ...history.Event) []history.Event {
	return append([]history.Event{
		{Kind: history.SendBegun, ID: "a", At: at(0)},
		{Kind: history.SendAccepted, ID: "a", At: at(1)},
		{Kind: history.Delivered, ID: "a", Client: "r", At: at(5), Asked: at(2), LockedUntil: at(20)},
	}, more...)
}

func TestQueueHistories(t *testing.T) {
	t.Parallel()
	begin := func(client string, second int) history.Event {
		return history.Event{Kind: history.SettleBegun, ID: "a", Client: client, At: at(second)}
	}
	end := func(kind history.Kind, client string, second int) history.Event {
		return history.Event{Kind: kind, ID: "a", Client: client, At: at(second)}
	}
	again := func(client string, asked, second int) history.Event {
		return history.Event{Kind: history.Delivered, ID: "a", Client: client, At: at(second), Asked: at(asked), LockedUntil: at(second + 15)}
	}
	for name, row := range map[string]struct {
		events []history.Event
		isBad  bool
	}{
		"completed":                     {events: sent(begin("r", 6), end(history.Completed, "r", 7))},
		"returned and completed":        {events: sent(begin("r", 6), end(history.Returned, "r", 7), again("s", 6, 8), begin("s", 9), end(history.Completed, "s", 10))},
		"the lock ends":                 {events: sent(again("s", 6, 21), begin("s", 22), end(history.Completed, "s", 23))},
		"returned while another waits":  {events: sent(begin("r", 6), again("s", 3, 7), end(history.Returned, "r", 8))},
		"renewed":                       {events: sent(history.Event{Kind: history.Renewed, ID: "a", Client: "r", At: at(10), LockedUntil: at(25)}, begin("r", 24), end(history.Completed, "r", 24))},
		"settled without an answer":     {events: sent(begin("r", 6), end(history.SettleFailed, "r", 7), again("s", 6, 8))},
		"unknown send":                  {events: []history.Event{{Kind: history.SendBegun, ID: "a", At: at(0)}, {Kind: history.SendUnknown, ID: "a", At: at(1)}, again("r", 3, 4)}},
		"delivered after completion":    {events: sent(begin("r", 6), end(history.Completed, "r", 7), again("s", 8, 30)), isBad: true},
		"two holders":                   {events: sent(again("s", 6, 10)), isBad: true},
		"late settlement":               {events: sent(again("s", 19, 21), begin("r", 22), end(history.Completed, "r", 23)), isBad: true},
		"refused and delivered":         {events: []history.Event{{Kind: history.SendBegun, ID: "a", At: at(0)}, {Kind: history.SendRefused, ID: "a", At: at(1)}, again("r", 3, 4)}, isBad: true},
		"renewed, and lost too early":   {events: sent(history.Event{Kind: history.Renewed, ID: "a", Client: "r", At: at(10), LockedUntil: at(25)}, again("s", 21, 22)), isBad: true},
		"delivered before it was asked": {events: sent(begin("r", 6), end(history.Returned, "r", 7), again("s", 9, 10), again("u", 6, 8)), isBad: true},
	} {
		if r := linear.Queue(row.events, time.Minute); r.Checked != 1 || r.Undecided != 0 || (len(r.Found) > 0) != row.isBad {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestSessionHistories(t *testing.T) {
	t.Parallel()
	do := func(kind linear.SessionKind, client string, begun, ended, state int) linear.SessionRequest {
		q := linear.SessionRequest{Kind: kind, Session: "1", Client: client, Begun: at(begun), Ended: at(ended), State: state}
		switch kind {
		case linear.Accept, linear.TakeOver, linear.Renew:
			q.Until = at(begun + 15)
		case linear.Release:
			q.Ended = time.Time{}
		case linear.Use, linear.Read, linear.Write:
		}
		return q
	}
	unknown := func(q linear.SessionRequest) linear.SessionRequest { q.Ended = time.Time{}; return q }
	for name, row := range map[string]struct {
		requests []linear.SessionRequest
		isBad    bool
	}{
		"read what was written": {requests: []linear.SessionRequest{do(linear.Accept, "a", 0, 1, 0), do(linear.Write, "a", 2, 3, 7), do(linear.Release, "a", 4, 0, 0), do(linear.Accept, "b", 4, 6, 0), do(linear.Read, "b", 7, 8, 7)}},
		"the lock ends":         {requests: []linear.SessionRequest{do(linear.Accept, "a", 0, 1, 0), do(linear.Accept, "b", 3, 16, 0), do(linear.Use, "b", 17, 18, 0)}},
		"taken over":            {requests: []linear.SessionRequest{do(linear.Accept, "a", 0, 1, 0), do(linear.TakeOver, "b", 3, 4, 0), do(linear.Use, "b", 5, 6, 0)}},
		"taken over while renewed": {requests: []linear.SessionRequest{
			do(linear.Accept, "a", 0, 1, 0), do(linear.TakeOver, "b", 7, 20, 0), do(linear.Renew, "a", 5, 20, 0), do(linear.Accept, "c", 30, 31, 0),
		}},
		"unknown write":         {requests: []linear.SessionRequest{do(linear.Accept, "a", 0, 1, 0), unknown(do(linear.Write, "a", 2, 0, 7)), do(linear.Read, "a", 5, 6, 0), do(linear.Read, "a", 7, 8, 7)}},
		"two holders":           {requests: []linear.SessionRequest{do(linear.Accept, "a", 0, 1, 0), do(linear.Accept, "b", 3, 14, 0)}, isBad: true},
		"use after a take-over": {requests: []linear.SessionRequest{do(linear.Accept, "a", 0, 1, 0), do(linear.TakeOver, "b", 3, 4, 0), do(linear.Use, "a", 5, 6, 0)}, isBad: true},
		"lost write":            {requests: []linear.SessionRequest{do(linear.Accept, "a", 0, 1, 0), do(linear.Write, "a", 2, 3, 7), do(linear.Read, "a", 4, 5, 0)}, isBad: true},
		"read before a write":   {requests: []linear.SessionRequest{do(linear.Accept, "a", 0, 1, 0), do(linear.Read, "a", 2, 3, 7), do(linear.Write, "a", 4, 5, 7)}, isBad: true},
		"renewed":               {requests: []linear.SessionRequest{do(linear.Accept, "a", 0, 1, 0), do(linear.Renew, "a", 10, 11, 0), do(linear.Accept, "b", 3, 16, 0)}, isBad: true},
	} {
		if r := linear.Sessions(row.requests, time.Minute); r.Checked != 1 || r.Undecided != 0 || (len(r.Found) > 0) != row.isBad {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
