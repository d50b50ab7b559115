package schedule

import "time"

// StartConcurrency is the concurrency with which a lane starts. Each answer doubles the concurrency up to the
// lane's limit. Each timeout halves it, down to 1.
const StartConcurrency = 4

// FreshShare is how many first attempts a lane makes for each retry while it has ready items of both kinds.
const FreshShare = 3

// Both indexes use these numbers. Scripts know them by the names in redisq's table of numbers.
const (
	// Quantum is the most items that a lane gives before another lane has its turn.
	Quantum = 8
	// MaxPromote and MaxReap bound how many items one claim promotes and reaps, so that its duration is
	// bounded.
	MaxPromote = 1000
	MaxReap    = 100
	// MaxOwners is the number of owners whose last claim an index remembers for a repetition.
	MaxOwners = 1024
	// TokenStep is the resolution of a rate: tokens come in multiples of it, so that a lane without tokens is
	// visited again only when several are there, together with other such lanes. CatchUp is how long unused
	// tokens are kept.
	TokenStep = 10 * time.Millisecond
	CatchUp   = 100 * time.Millisecond
	// StepBack is the largest step back of the server's clock for which the index's clock stands still. It
	// follows a larger step. ClockGap is how long an index may go uncalled before it assumes that its clock
	// was set forward. A claimer calls at least every second. See docs/adr/0006.
	StepBack = 5 * time.Second
	ClockGap = 10 * time.Second
)

// Health is what the last answer or timeout of a lane showed. Other ends of attempts leave it as it is. It
// bounds how many slots of a process the lane may use (see [ClaimRequest]).
type Health int

// The healths of a lane. The zero value is Unproven.
const (
	// Unproven lanes: no attempt has ended with an answer or a timeout yet.
	Unproven Health = iota
	// Answering lanes: the last of these was an HTTP answer, whatever its status.
	Answering
	// TimingOut lanes: the last of these was a timeout.
	TimingOut
)

// A Signal is what an ended attempt showed about its lane.
type Signal int

// The signals. The zero value changes nothing.
const (
	NoSignal Signal = iota
	// Answered: an HTTP answer came, whatever its status. It doubles the lane's concurrency up to its limit
	// and closes its breaker.
	Answered
	// TimedOut: the attempt timed out. It halves the lane's concurrency, down to 1, and counts towards its
	// breaker.
	TimedOut
	// Unanswered: no HTTP answer came for another reason, such as a refused connection. It counts towards the
	// lane's breaker.
	Unanswered
)

// The breaker of a lane opens after BreakerAttempts attempts in a row, over at least BreakerSpan, that got no
// HTTP answer. While it is open, the lane has at most one lease at a time: a forced item at any time, another
// item, as a probe, when [BreakerRestOf] the lane is over. An answer closes the breaker, and the lane's
// concurrency restarts at 1. An attempt without an answer, the probe or an earlier one, starts the rest
// again. A lease that ends without a signal, or is reaped, changes nothing: another probe may follow at once.
const (
	BreakerAttempts = 20
	BreakerSpan     = 10 * time.Second
	BreakerRest     = 15 * time.Second
)

// BreakerRestOf returns how long the lane's breaker rests, in milliseconds: BreakerRest and up to a tenth
// more. The extra time depends on the lane's number, in steps of the golden ratio. So lanes that failed
// together are probed at different times, even if their numbers follow each other.
func BreakerRestOf(lane int64) int64 {
	return BreakerRest.Milliseconds() + lane%ProbeSpread*ProbeGolden%ProbeSpread
}

// ProbeSpread bounds the extra time of [BreakerRestOf], in milliseconds. It is a power of 36: the scripts
// take the remainder from the last two digits of a lane. ProbeGolden is the step from one lane to the next:
// about ProbeSpread divided by the golden ratio, and coprime to it.
const (
	ProbeSpread = 36 * 36
	ProbeGolden = 803
)

// ReapDelay returns how many milliseconds after the reap an item is due. The leases of a process that died
// end together. The delay spreads their items. It comes from the last two characters of the id, which are
// random.
func ReapDelay(id string) int64 {
	return (int64(id[idLength-2])*32 + int64(id[idLength-1])) % ReapSpread
}

// ReapSpread bounds [ReapDelay]: the longest delay is one less.
const ReapSpread = 101

// A LaneSetting is a lane's setting in SQL. A setting replaces the earlier one as a whole. An older Version
// changes nothing.
type LaneSetting struct {
	Lane int64
	// Limit is the most attempts in flight; zero: the claim's LaneLimit applies.
	Limit int
	// Every is the mean time between two leases of items that are not forced, at least 1 µs; zero: no rate.
	// Tokens come in steps of [TokenStep]. Unused tokens are kept for [CatchUp].
	Every time.Duration
	// PausedUntil pauses the lane until that time, in Unix milliseconds: nothing is claimed. Zero: not
	// paused. A time far in the future pauses until the next setting. After a pause the lane's concurrency is
	// at most [StartConcurrency].
	PausedUntil int64
	Version     int64
}

// A BreakerState is the state of a lane's breaker.
type BreakerState int

// The states of a breaker. The zero value is closed.
const (
	BreakerClosed BreakerState = iota
	// BreakerOpen: until the next probe only forced items are claimed.
	BreakerOpen
	// BreakerProbing: one probe may be claimed, or is in flight.
	BreakerProbing
)

// String returns the state in lower case.
func (b BreakerState) String() string { return named(b, "closed", "open", "probing") }

// A LaneState is the state of a lane in an index. Times are in Unix milliseconds; zero: none.
type LaneState struct {
	Lane int64
	// InFlight is the number of leases that count: without those that a claim named as ended, and without
	// prefetched ones. Concurrency is how many of them the lane may have now, at most Limit. For a lane
	// without its own limit both are zero until a claim has brought the limit of such lanes.
	InFlight, Concurrency, Limit int
	Health                       Health
	Every                        time.Duration
	// PausedUntil is the end of the pause, HeldUntil the end of the hold (Retry-After), NextToken when the
	// rate lets the next attempt begin (zero: now).
	PausedUntil, HeldUntil, NextToken int64
	// HeldSince is when the hold began, counted over holds without a gap between them. Zero: no hold, or the
	// hold comes from an older build, which does not record it.
	HeldSince int64
	// Unanswered is the number of attempts in a row without an HTTP answer, at most BreakerAttempts.
	// UnansweredSince is when the first of them ended.
	Unanswered      int
	UnansweredSince int64
	Breaker         BreakerState
	// ProbeAt is when an open breaker lets, or let, the next probe pass.
	ProbeAt int64
	// OpenedAt is when the breaker opened; zero: it is closed.
	OpenedAt int64
	// Fresh and Retries are the numbers of ready items, forced ones included. Each is counted up to 1,000.
	Fresh, Retries int
}
