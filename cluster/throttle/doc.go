// Package throttle limits how often events that a peer can cause are logged.
//
// Packages of cluster use it for refused streams and gossip. It only decides; it writes no log line.
package throttle
