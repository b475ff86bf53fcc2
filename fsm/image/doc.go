// Package image reads and writes images: the frozen state of a state machine as bytes.
//
// A [Writer] writes, and a [Reader] reads, the header, the values of which all state is made, and the checksum. The state machines
// embed them and add their own records. A Reader keeps its first error, returns zeros from then on and refuses everything that
// a Writer does not write, so callers check for an error once. Neither is safe for concurrent use.
package image
