package schedule

import "time"

// StartConcurrency is the number of attempts in flight that a lane starts with, before any of its attempts
// has ended. Answers double it up to the lane's limit, time-outs halve it down to 1.
const StartConcurrency = 4

// FreshShare is how many first attempts a saturated lane makes for each retry.
const FreshShare = 3

// What every index counts alike, wherever it runs. Scripts know these by names of their own.
const (
	// Quantum is the most items that a lane gives before the next one's turn comes.
	Quantum = 8
	// MaxPromote and MaxReap bound what one claim does besides leasing.
	MaxPromote = 1000
	MaxReap    = 100
	// MaxOwners is how many owners' last claims are remembered.
	MaxOwners = 1024
	// TokenStep: the tokens of a rate come in such steps, so that a lane without any is looked at again when
	// several are there, and many such lanes at once. CatchUp is for how long tokens that are not taken are
	// kept.
	TokenStep = 10 * time.Millisecond
	CatchUp   = 100 * time.Millisecond
	// StepBack is how far the clock may go back before that is a jump which is followed. Within it the
	// index's clock stands still. ClockGap is how long an index may not have been used before the clock
	// counts as put forward meanwhile: a claimer asks every second.
	StepBack = 5 * time.Second
	ClockGap = 10 * time.Second
)

// Health is what the last ended attempt of a lane says about the lane. It bounds how many slots of a process
// the lane may share (see [ClaimRequest]).
type Health int

// The healths of a lane. The zero value is Unproven.
const (
	// Unproven lanes have had no attempt end with an answer or a time-out yet.
	Unproven Health = iota
	// Answering lanes last gave an HTTP answer, whatever its status.
	Answering
	// TimingOut lanes last let an attempt time out.
	TimingOut
)

// A Signal is what the ended attempt says of its lane.
type Signal int

// The signals. The zero value says nothing.
const (
	NoSignal Signal = iota
	// Answered: an HTTP answer came, whatever its status. It doubles the lane's concurrency up to its limit,
	// and closes its breaker.
	Answered
	// TimedOut: the attempt ran into its time-out. It halves the lane's concurrency down to 1, and counts
	// towards its breaker.
	TimedOut
	// Unanswered: no HTTP answer came for another reason, such as a refused connection. It counts towards the
	// lane's breaker.
	Unanswered
)

// The breaker of a lane. It opens after BreakerAttempts attempts in a row, over at least BreakerSpan, that
// got no HTTP answer. From then on at most one item of the lane is leased: what is forced at any time,
// anything else, as a probe, when BreakerRest is over, and up to a tenth of it by which lanes differ, so that
// those that failed together are not probed together. An answer closes the breaker, and the lane begins anew
// with a concurrency of 1. An attempt without one, a probe or one that was in flight already, lets it rest
// once more. What ends without a signal, or is reaped, changes nothing: another probe may follow at once.
const (
	BreakerAttempts = 20
	BreakerSpan     = 10 * time.Second
	BreakerRest     = 15 * time.Second
)

// BreakerRestOf returns how long the lane's breaker rests, in milliseconds: lanes that failed together are
// not probed together, and those that follow each other lie far apart, as by the golden ratio.
func BreakerRestOf(lane int64) int64 {
	return BreakerRest.Milliseconds() + lane%ProbeSpread*ProbeGolden%ProbeSpread
}

// ProbeSpread is within how many milliseconds lanes that failed together are probed; see [BreakerRestOf].
const (
	ProbeSpread = 36 * 36
	ProbeGolden = 803
)

// ReapDelay returns how many milliseconds after now a reaped item is due: the leases of a process that died
// end together, and their items need not come back together. The end of an id is random.
func ReapDelay(id string) int64 {
	return (int64(id[idLength-2])*32 + int64(id[idLength-1])) % ReapSpread
}

// ReapSpread is one more than the longest [ReapDelay].
const ReapSpread = 101

// A LaneSetting is what SQL says of a lane. Settings replace each other whole; an older Version changes
// nothing.
type LaneSetting struct {
	Lane int64
	// Limit is the most attempts in flight; zero means the claim's LaneLimit.
	Limit int
	// Every is the mean time between two leases of items that are not forced, from 1 µs on; zero: no bound.
	// What was not used in the last 100 ms may be made up for at once, and no more. Tokens come in steps of
	// 10 ms, so that a lane without any is looked at again no more often.
	Every time.Duration
	// PausedUntil keeps the lane from being claimed until then; zero: not paused. Far in the future: until
	// changed. After a pause the lane's concurrency is [StartConcurrency] at most.
	PausedUntil int64
	Version     int64
}

// A BreakerState says whether a lane's breaker lets attempts pass.
type BreakerState int

// The states of a breaker. The zero value is closed.
const (
	BreakerClosed BreakerState = iota
	// BreakerOpen: nothing is claimed until the next probe.
	BreakerOpen
	// BreakerProbing: one probe is due, or under way.
	BreakerProbing
)

// String returns the state in lower case.
func (b BreakerState) String() string { return named(b, "closed", "open", "probing") }

// A LaneState is how a lane stands in an index. Times are in Unix milliseconds; zero: none.
type LaneState struct {
	Lane int64
	// InFlight is its leases that count: not those that a claim named as ended, nor prefetched ones.
	// Concurrency is how many it may have at present, Limit at most; both are zero where no claim has said
	// the limit of lanes without one of their own yet.
	InFlight, Concurrency, Limit int
	Health                       Health
	Every                        time.Duration
	// PausedUntil is its pause, HeldUntil what a receiver's Retry-After asked for, NextToken when its rate
	// lets the next attempt begin (zero: now).
	PausedUntil, HeldUntil, NextToken int64
	// HeldSince is since when it has been held without a gap; zero: it is not, or a build that does not keep
	// it held it.
	HeldSince int64
	// Unanswered counts attempts in a row without an HTTP answer, up to BreakerAttempts; since
	// UnansweredSince.
	Unanswered      int
	UnansweredSince int64
	Breaker         BreakerState
	// ProbeAt is when a breaker that is not closed lets, or let, the next probe pass.
	ProbeAt int64
	// OpenedAt is when the breaker opened; zero: it is closed.
	OpenedAt int64
	// Fresh and Retries are how many items are ready, forced ones included, each counted up to 1,000.
	Fresh, Retries int
}
