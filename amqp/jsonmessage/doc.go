// Package jsonmessage is the JSON form of AMQP messages: every section of a message, with the AMQP type of every value, so
// that a message read from its JSON form equals the one that was written. The control API and the command line use it. It
// imports the codec of AMQP (amqp/wire) and nothing else.
//
// A string, a boolean and null are themselves. Every other value is an object with one field, the name of its AMQP type:
// {"int": 7}, {"uuid": "6f2c..."}, {"timestamp": "2026-11-20T12:00:00Z"}, {"list": [...]}, {"map": [[key, value], ...]}. A value
// whose type has no such name (an array, a decimal, a described value) is {"amqp": "..."}: its encoding in base64.
//
// All functions are safe for concurrent use.
package jsonmessage
