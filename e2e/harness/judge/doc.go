// Package judge decides whether what a run of faults left behind keeps the guarantees. It is given evidence
// from four sides that do not know of each other: what clients were answered 2xx for, what receivers wrote
// down, what SQL holds, and what the index holds. It answers with a verdict that names each invariant that
// broke and the ids that broke it.
//
// The invariants are numbered as docs/guide/guarantees.md lists them:
//
//	I1  no loss: every accepted callback is in SQL and terminal, as expected; one that succeeded arrived
//	I2  no phantom: whatever arrived is in SQL, and its bytes are the accepted ones; no order was taken twice
//	I3  bounded duplicates: sends that no charged attempt accounts for, each callback's and in all
//	I4  never early, by what SQL wrote and by the receiver's clock
//	I5  no overlap of two sends of one callback, nor of two callbacks with one lock key
//	I6  every send has an attempt in SQL, and every attempt with an answer was sent
//	I7  nothing is sent after the callback became terminal
//	I8  conservation: the index holds the open callbacks, each once, and nothing else
//	I9  liveness: after the last fault the backlog drained in bounded time
//
// It uses the standard library alone and knows nothing of the program's packages, so that it cannot share
// their mistakes. ReadRows and ReadAttempts read the evidence of SQL; the other sides are gathered by the caller.
// It keeps no state.
package judge
