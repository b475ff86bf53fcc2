// Package account divides what the gateway of a member can give at a time among the owners of requests: a key of a
// namespace is one owner, over AMQP and HTTP together, on however many connections.
//
// An owner may hold at most as much of a Resource as is free. One owner alone can hold a half, two can hold a third each,
// and so on: the rest is there for the next one, who therefore is not refused because of the others. The owner that
// holds the most is the first whose growth is refused; release is never refused.
//
// An Account is found when a connection signs in or when an HTTP request is authorized. After that, taking and releasing
// are atomic additions. The package imports nothing of ours and knows neither AMQP nor HTTP. What connections hold is
// counted by package budget, and the work of processors by package work.
package account
