// Package outbound is everything that leaves: the guarded client, and the table that turns an answer or an
// error into a class.
//
// One [Client] sends everything. Its promises:
//
//   - One call of Send is at most one request on the wire. Redirects are never followed, nothing is re-sent
//     inside.
//   - No connection is opened to an address that the [Guard] refuses, whatever the name resolved to.
//   - At most 64 KiB of decoded response are read, whatever the receiver sends and however it encodes it.
//   - A compressed answer is one gzip member of at most 128 KiB. Judging an answer takes at most 10 ms of CPU
//     time, whatever the rule and the body.
//   - Send returns within the request's timeout and a small constant; it never panics on what a receiver
//     answers.
//   - Nothing is sent unsigned, or with a signature that anybody could have made, because a key is missing or
//     unfit.
//   - Secrets, credentials and URL query values are in no error and no log, nor in what is kept of an answer
//     that echoes them.
//   - An attempt has its connection for itself (HTTP/1.1), and one destination's failure closes no other's
//     connections.
//   - To a destination there are no more connections than there were attempts at once, however slow its
//     handshakes are.
//
// What judges an answer is in package rule, what signs a request and verifies it in package sign. Rules,
// signers and RSA keys are compiled once and kept.
//
// The package decides what an attempt was (its class, whether it succeeded, whether it is charged, put off or
// final). What follows from that (the next due time, the state, whether the endpoint is stopped) is the
// engine's: nothing is tried again here, nothing is waited for, and no state is kept but idle connections,
// TLS sessions, what was compiled, and whether name servers answer.
package outbound
