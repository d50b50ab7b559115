// Package schedule decides when: it knows ids, lanes and times, and nothing of callbacks.
//
// It holds the vocabulary that the engine and an index share: [Item], [Lease], [Settlement] and the requests
// and replies around them; the retry ladder ([Tiers]); the wake-up rule ([Waker]: timer, hint, bounded
// re-poll); cron specs ([Spec]), which callers' schedules and maintenance share; and the cron wrapper for
// maintenance functions that must run in one process at a time.
//
// # The index
//
// An index is what the sub-packages implement: redisq on Redis, memq in this process. Both pass queuetest. An
// index holds nothing that SQL does not also hold: it may be emptied, rolled back or lost at any time and is
// then rebuilt. Its promises are these, and queuetest checks each of them:
//
//   - An id is in exactly one of three places: the delay set, its lane's ready list, or leased.
//   - A claim returns only what is due, or was once, by the index's own clock, never more than a lane's
//     concurrency, and
//     the same batch again when it is repeated with the same token.
//   - What bounds a lane is decided within the claim, for all claimers together: its concurrency, its rate,
//     its pause, a hold, its
//     breaker. It is exact, charges nothing, and what waits behind it costs the claims of other lanes
//     nothing.
//   - A settlement with a token that is not the lease's changes nothing, unless it says that SQL's fence was
//     won.
//   - Every operation is atomic for one shard, bounded by [MaxBatch] elements, and, the claim apart,
//     idempotent.
//   - Next in a reply is never later than the shard's true next event, so whoever sleeps until then never
//     oversleeps.
//   - Below its watermark it leaves nothing out, and beyond it, it takes nothing in (see [Watermark]).
//   - Where the clock jumps, leases, locks, holds, tokens and the rest of a breaker keep what is left of
//     them. An index that nobody
//     called for ten seconds takes that for a jump: time passes only for an index in use.
//
// # Times
//
// Every time in this package is whole Unix milliseconds in an int64, rounded up where it was finer. One clock
// decides what is due: the index's, which every reply carries as Now. A [Spec] alone has times of its own:
// those on the clocks of a zone, in whole seconds.
package schedule
