// Package linear checks histories of a queue and of sessions with Porcupine, which knows nothing of the judges of test/history and test/sim/judge:
// it searches for an order of all operations, each between its request and its answer, that a machine of one message, or of
// one session, could have performed.
//
// The machine of a message is absent, ready, locked for a client, or gone; a lock may end at any time after the one until which it lasts
// at least. The machine of a session has a holder and a state. Each message and each session is a history of its own, because what
// happens to one does not depend on another, and is searched for a limited time; what is undecided then counts as neither right nor wrong.
//
// Only package test/sim/judge uses it. It runs in real time: not in a synctest bubble.
package linear
