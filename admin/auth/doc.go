// Package auth says what a credential allows: it checks shared access signatures and
// passwords against the configured keys, and JWTs against those of an identity provider.
//
// It knows two ways in. A shared access signature (SAS) is an HMAC over a resource and
// an expiry, made by the client from a key that never travels. A password is SASL
// PLAIN: the name of a key and the key itself. Both end in a [Grant].
//
//	token ─ parseSAS ─ key by name ─ HMAC compare ─ expiry ─ target under resource ─ host selects namespace ─ Grant
//
// Invariants:
//
//   - Keys, tokens and signatures are in no error text and no log line.
//   - Secrets are compared in constant time, and an unknown key name costs as much and
//     reads the same as a wrong signature.
//   - Nothing here grows with what a client sends: a token longer than tokenBytesMax is
//     refused before it is looked at, and what is remembered of failures is bounded (limiter).
//   - A valid credential is never refused for what failed before, and waits for no failure.
package auth
