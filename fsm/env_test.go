package fsm_test

import "github.com/peeklock/peeklock/fsm"

// oneTime returns an Env without a serving time as one in which serving time is the time of day.
func oneTime(env fsm.Env) fsm.Env {
	if env.Serving == 0 {
		env.Serving = env.Now
	}
	return env
}
