package fsm

// FirstDeadline returns the first deadline of a state machine whose times are equal.
func FirstDeadline(m interface{ NextDeadline() Times }) (at Instant, ok bool) {
	due := m.NextDeadline()
	at = earlier(due.Wall, due.Serving)
	return at, at != 0
}
