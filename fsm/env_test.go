package fsm_test

import "github.com/peeklock/peeklock/fsm"

// oneTime returns an Env without a serving time as one in which serving time is the time of day.
func oneTime(env fsm.Env) fsm.Env {
	if env.Serving == 0 {
		env.Serving = env.Now
	}
	return env
}

// firstDeadline returns the first deadline of a state machine whose times are equal.
func firstDeadline(m interface{ NextDeadline() fsm.Times }) (at fsm.Instant, ok bool) {
	due := m.NextDeadline()
	at = fsm.Earlier(due.Wall, due.Serving)
	return at, at != 0
}
