// Package dataplane serves the HTTP interface of the service for messages: send one or a batch, receive with a lock or
// destructively, complete, unlock and renew. Clients without AMQP use it: curl, gateways, retired SDKs.
//
//	POST        /ENTITY/messages                  send, or a batch
//	POST/DELETE /ENTITY/messages/head             receive with a lock; receive and delete
//	DELETE, PUT, POST /ENTITY/messages/ID/TOKEN   complete, unlock, renew; ID is the message id or the sequence number
//
// Method and path alone decide what a request is ([Claims]): clients send the media type of ATOM with messages. Package admin
// calls [Server.Serve] for requests that Claims accepts, with what it knows of the caller. The package knows the cluster
// through [Broker] and credentials through [Authority]; it imports the codec of messages (amqp/message, amqp/jsonmessage, amqp/wire) and the
// Error element of package admin/atom, and nothing else of the gateway or of administration.
//
// Invariants:
//
//   - A message that was locked for a client that has gone is released. Receive and delete locks first, and completes
//     before it answers.
//   - A message that was locked can be answered, whatever its body and its properties are: bodyOf defines all of them.
//   - Memory is bounded: sends, and receives that wait, have a limit each, and a body has that of its entity.
//
// A Server is safe for concurrent use.
package dataplane
