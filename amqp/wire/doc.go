// Package wire reads and writes AMQP 1.0: the type system (part 1), frames and
// performatives (part 2), the message format (part 3), and the SASL frames (part 5). It
// knows bytes and nothing of sessions, links, queues or clocks.
//
//	 connection                                           gateway
//	───────────►  Reader ── ReadFrame ──► *Transfer ...  ─────────►
//	                │                        │ Payload
//	                │ fields                 ▼
//	                ▼                NextSection ─► MapIter, ListIter, TextOf ...
//	          DecodeValue                    │ (encoded slices, nothing allocated)
//	                                         ▼
//	◄───────────  AppendFrame, AppendTransfer, AppendValue, AppendMapOf ...
//
// There are two ways to read a value. DecodeValue converts it into Go values; it is for
// performatives, management requests and everything rare. NextSection, CheckValue, ListIter,
// MapIter and the ...Of functions iterate over the encoded bytes; they are for messages, which
// the broker passes on without interpreting them.
//
// Invariants:
//
//   - No input makes the package panic. Every fault of the peer is an error.
//   - Memory used for decoding n bytes is O(n) and at most zeroWidthElementsMax elements
//     more; no length or count is trusted that the bytes present do not cover.
//   - Nesting is followed to depthMax and no deeper.
//   - encode(decode(x)) is stable: decoding it and encoding again gives the same bytes.
//   - What is written has all its fields, in list8 or list32, never list0, under a small
//     ulong descriptor; an error has three elements. The Python SDK depends on each.
//   - Transfer, Flow, Disposition and messages are read and written without allocating (delivery
//     states other than accepted and released excepted).
//
// The package has no variables that change and starts no goroutines. A Reader is for one
// goroutine; everything else may be called from anywhere.
package wire
