// Package consumers knows which durable subscriptions of JMS have consumers at a member. amqp uses it when a client attaches to
// one or deletes it. Consumers at other members are not known: a client that lost its member must get its subscription at another
// one at once.
package consumers
