// Package broker adapts the router of a member to the AMQP gateway: amqp and cluster do not import each other, so
// amqp declares the interface and this package converts the types. The program and the simulation use it.
package broker
