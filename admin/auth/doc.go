// Package auth verifies credentials: shared access signatures, passwords and certificates against the access rules of the
// cluster and the configured keys, and JWTs against the keys of an identity provider. The gateway (by cmd/peeklock) and
// package admin call it. It does not decide which right an operation needs.
// A shared access signature (SAS) is an HMAC over a resource and an expiry, which the client computes from a key that it
// does not send. A password is SASL PLAIN: the name of a key and the key itself. The result is a [Grant].
//
//	token ─ parseSAS ─ key by name ─ HMAC compare ─ expiry ─ target under resource ─ host selects namespace ─ Grant
//
// Invariants:
//
//   - Keys, tokens and signatures are in no error text and no log line.
//   - Secrets are compared in constant time, and an unknown key name costs as much and
//     reads the same as a wrong signature.
//   - Memory does not grow with the input of clients: a token longer than tokenBytesMax is refused before it is parsed, and
//     the memory of failures is bounded (limiter).
//   - A valid credential is never refused because of earlier failures, and waits for none of them.
package auth
