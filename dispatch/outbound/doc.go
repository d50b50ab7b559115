// Package outbound is everything that leaves: the guarded client, the signers, the success rules, and the table that
// turns an answer or an error into a class.
//
// One [Client] sends everything. Its promises:
//
//   - One call of Send is at most one request on the wire. Redirects are never followed, nothing is re-sent inside.
//   - No connection is opened to an address that the [Guard] refuses, whatever the name resolved to.
//   - At most 64 KiB of decoded response are read, whatever the receiver sends and however it encodes it.
//   - Send returns within the request's timeout and a small constant; it never panics on what a receiver answers.
//   - Secrets, credentials and URL query values are in no error and no log.
//   - An attempt has its connection for itself (HTTP/1.1), and one destination's failure closes no other's connections.
//   - To a destination there are no more connections than there were attempts at once, however slow its handshakes are.
//
// The package decides what an attempt was (its class, whether it succeeded, whether it is charged). What follows from
// that (the next due time, the state, whether the endpoint is stopped) is the engine's: nothing is tried again here,
// nothing is waited for, and no state is kept but idle connections, TLS sessions and whether name servers answer.
package outbound
