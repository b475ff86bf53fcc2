// Package savedlog writes the log of a group as lines of text and reads them: for people, and for package partition, which replays
// them. The simulation saves the logs of a failed run, and debug replay of the command line shows them.
//
// It has no state, and only imports fsm.
package savedlog
