// Package notify wakes goroutines that wait for a change: all of them (Broadcast), or the one that
// receives from a channel (WakeUp). It carries no data: a goroutine that wakes up reads the state that changed. Pause lets one wait for a time.
package notify
