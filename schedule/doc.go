// Package schedule decides when an attempt may begin. It knows ids, lanes and times. It knows no callbacks.
//
// It holds the vocabulary that the engine and an index share: [Item], [Lease], [Settlement] and the requests
// and replies around them. It also holds the retry tiers ([Tiers]), the sleep of a claimer ([Waker]), cron
// specs ([Spec]) and the runner of maintenance functions ([Cron]).
//
// # The index
//
// Two sub-packages implement an index: redisq on Redis, memq in this process. Both pass the conformance suite
// queuetest. SQL is the truth: an index holds nothing that SQL does not also hold. It may be emptied, rolled
// back or lost at any time. Then it is rebuilt from SQL.
//
// An index keeps these promises, and queuetest checks each of them:
//
//   - An id is in exactly one of three places: the delay set, the ready list of its lane, or the leases.
//   - A claim returns only items that are due by the index's own clock, now or at an earlier reading. With a
//     Lookahead it also returns items that are due within it.
//   - A claim leases no more of a lane than the lane's concurrency and the prefetch that the claim allows. A
//     claim that repeats the token of the owner's last claim returns what is still leased of that batch.
//   - The claim itself applies the limits of a lane, for all claimers together: its concurrency, rate, pause,
//     hold and breaker. The limits are exact. An item that waits for them is charged no attempt. A blocked
//     lane costs the claims of other lanes nothing.
//   - A settlement with a token other than the lease's changes nothing, unless it says that its result won
//     SQL's fence (see [Settlement]).
//   - Every operation is atomic for one shard and takes at most [MaxBatch] elements. Every operation but the
//     claim is idempotent.
//   - Next in a reply is never later than the next event of the shard. A claimer that sleeps until Next never
//     oversleeps.
//   - The index takes in every item that is due before its watermark, and none that is due after it (see
//     [Watermark]).
//   - When the clock jumps, leases, locks, holds, tokens and the rest of a breaker keep their remaining time.
//     An index that was not called for ten seconds assumes a jump: time passes only for an index in use.
//
// A lease is no guard against a double send: an index may lose it. The guard is the fence of the stamp in
// SQL.
//
// # Times
//
// Every time in this package is an int64 of whole Unix milliseconds, rounded up. The index's clock decides
// what is due. Every reply carries it as Now. Only a [Spec] has other times: wall clock times of a zone, in
// whole seconds.
package schedule
