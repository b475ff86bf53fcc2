// Package address reads the addresses of links. Clients spell the path of an entity in several ways. Its functions hold
// no state and may be called concurrently; it imports nothing of ours.
package address
