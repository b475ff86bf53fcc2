package fsm

// Times are the two times of a state machine, in milliseconds since the Unix epoch. Neither goes
// back.
type Times struct {
	// Wall is the time of day. Times to live, schedules, delays of redelivery and the windows of
	// duplicate detection run on it.
	Wall Instant
	// Serving counts while the partition has a leader. Locks of messages and sessions, automatic
	// deletion, remembered answers and remembered batches of sources run on it. It is no time of day:
	// it lags behind Wall by all outages of the partition.
	Serving Instant
}

// Timeline is one of the two times, on which a timer runs.
type Timeline uint8

// The timelines.
const (
	WallTime    Timeline = 0
	ServingTime Timeline = 1
)

// Advance returns the times of an entry that follows one with the times t.
func (t Times) Advance(env Env) Times {
	wall := max(t.Wall, env.Now)
	return Times{Wall: wall, Serving: max(t.Serving, env.Serving)}
}

// OnWall returns the wall time at which a serving time will be reached if the partition keeps its
// leader; 0 for 0. Clients see the ends of locks so.
func (t Times) OnWall(at Instant) Instant {
	if at == 0 {
		return 0
	}
	return at + t.Wall - t.Serving
}

// Until returns the time until the first of two deadlines, 0 for none, if both times go on alike; ok is
// false without a deadline. It is not above 0 if one of them has come.
func (t Times) Until(deadline Times) (d Millis, ok bool) {
	d = Forever
	if deadline.Wall != 0 {
		d = Millis(deadline.Wall - t.Wall)
	}
	if deadline.Serving != 0 {
		d = min(d, Millis(deadline.Serving-t.Serving))
	}
	return d, deadline != Times{}
}

// Earlier returns the earlier of two deadlines; 0 stands for none.
func Earlier(a, b Instant) Instant {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
