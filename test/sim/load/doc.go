// Package load has the clients of a simulation. They use every kind of entity through the routers of the members, and, with go-amqp,
// through their AMQP gateways, and tell package judge what they ask and hear.
//
// [Load.Build] creates the entities of all streams, and [Load.Start] starts the clients: a sender, receivers of each source, and what else
// a stream has. [Load.StopSending] ends what sends, and [Load.Finish] waits until everything has been received. A client uses one
// member, and goes to another one when its process has ended; what a process answers after its end reaches no client.
//
// What a client does follows from the seed and its number.
package load
