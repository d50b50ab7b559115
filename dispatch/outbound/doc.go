// Package outbound sends attempts: a client that reaches only allowed addresses, and a table that maps a
// response or an error to a class.
//
// One [Client] sends everything. It guarantees:
//
//   - One call of Send writes at most one request. It follows no redirect and repeats nothing.
//   - It opens no connection to an address that the [Guard] refuses, whatever the name resolved to.
//   - It reads at most 64 KiB of a decoded response.
//   - It accepts a compressed response of one gzip member and at most 128 KiB.
//   - The check of a response takes at most 10 ms of CPU time, whatever the rule and the body.
//   - Send returns within the request's timeout and a small constant. It does not panic.
//   - If a signing key is missing or unfit, nothing is sent. It sends no unsigned request in its place.
//   - Secrets, credentials and URL query values are in no error and no log. They are also redacted from the
//     stored response if the receiver echoes them.
//   - An attempt has its connection to itself (HTTP/1.1). A failure of one destination closes no connection
//     of another.
//   - A destination has at most as many connections as it had concurrent attempts, however slow its
//     handshakes are.
//
// A request to a mail server is one mail, for the sinks of alerts only. Package sink has their formats.
//
// Package rule checks responses. Package sign signs requests and verifies signatures. Rules, signers and RSA
// keys are compiled once and cached.
//
// This package decides the result of an attempt: its class, whether it succeeded, whether it is charged,
// diverted or final. The caller (dispatch/attempt) decides what follows: the next due time, the state,
// whether the endpoint is stopped. So this package does not retry and does not wait. Its only state is idle
// connections, TLS sessions, compiled rules and signers, and the health of the name servers.
package outbound
