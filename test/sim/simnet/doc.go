// Package simnet is a network for members that run in one process in virtual time, under testing/synctest:
// streams that satisfy net.Conn, listeners, and the packets of gossip. Nothing of it waits for the operating
// system, so every goroutine that waits for the network is durably blocked.
//
// Each [Host] has one address. A link leads from one host to another, in one direction. Bytes take the latency of
// their link and arrive in order within one direction of one stream; streams overtake each other. While a link is
// cut, its bytes wait and arrive some time after it is healed, as TCP sends them again; packets are lost.
// A host whose process ends ([Host.Kill]) resets its streams and refuses new ones; a host that loses power
// ([Host.PowerOff]) resets nothing: its peers learn of it when they send something after its next start.
//
// The latencies come from a seed. The order in which goroutines draw them does so only with the runtime that
// command sim/repeat patches; otherwise two runs with one seed are similar and not equal.
package simnet
