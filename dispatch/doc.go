// Package dispatch is the engine: it accepts callbacks, claims those that are due, attempts them and settles them.
//
// # The life of a callback
//
//	accept → SQL commit → enqueue            accept.go, validate.go, enqueue.go
//	claim → lock → stamp                     claim.go, prepare.go, lock.go
//	attempt → decide                         attempt.go, decide.go
//	result commit → settle                   settle.go
//	sweep, rebuild, verify, upkeep           sweep.go, rebuild.go, verify.go, upkeep.go
//	what comes within the horizon            horizon.go, load.go
//	what has happened, who runs              activity.go, presence.go
//
// # What holds at every line
//
//   - A callback is known to a caller only after it is in SQL. What the index holds follows from SQL alone.
//   - Nothing is sent without a stamp: SQL's fence is what makes a claim ours, the index only says whom to ask for.
//   - A result takes effect only if the fence is still the stamp's. Then, and only then, is the index told.
//   - Whatever is lost in between (this process, the index, a reply) is found again by a lease that runs out, by
//     the sweep, or by the rebuild; none of them can send what SQL says is not due.
//   - A lock guards the wire: it is taken after the claim and released when the attempt ends, before its result
//     commits. A conflict costs nobody an attempt and no worker a sleep.
//
// # What it does not do
//
// It knows no SQL, no Redis and no HTTP server: it declares the small interfaces that it needs (needs.go) and is
// given what satisfies them. Exactly-once is not on offer: the receiver drops what it has seen, by webhook-id.
package dispatch
