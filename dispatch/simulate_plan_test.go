package dispatch_test

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// A plan contains everything that is drawn from a seed before anything runs.

// A plan is the meaning of one seed.
type plan struct {
	seed uint64
	// embedded: one process with its own index, new at each start. Otherwise several processes share an
	// index, like Redis.
	embedded  bool
	processes int
	callbacks []planned
	acts      []act
	// faults apply to calls, events happen at times.
	faults, events []fault
	// quiet is the latest start of a fault. Every later call works.
	quiet time.Duration
	// drainTimeout of every process.
	drainTimeout time.Duration
	// workers of every process. With few of them a lost slot shows.
	workers int
	// horizons are the settings of the processes.
	horizons []time.Duration
	// folds: the processes fold counters. Otherwise the simulation pretends that another process does, which
	// saves a write a second.
	folds bool
}

// A step is a receiver's reaction to one request; the last one of a script repeats.
type step struct {
	do     stepKind
	status int
	// wait is the delay of the response; retryAfter is in seconds, zero: no header.
	wait       time.Duration
	retryAfter int
}

type stepKind string

const (
	// The empty kind responds with status after wait. stalls waits until the sender gives up. resets closes
	// the connection after it has read the request. With loses the response is lost on the way. refuses
	// rejects the connection, so nothing arrives.
	stalls  stepKind = "stall"
	resets  stepKind = "reset"
	loses   stepKind = "lose"
	refuses stepKind = "refuse"
)

// A planned callback is one that a client submits.
type planned struct {
	ref string
	// at is when the client submits it first; delay is the requested delay.
	at, delay time.Duration
	expires   time.Duration
	host      string
	lock      string
	tiers     []time.Duration
	jitter    float64
	timeout   time.Duration
	stopOn    []int
	unsigned  bool
	script    []step
	// via is the process that the client calls first, pause the time before it calls the next one.
	via   int
	pause time.Duration
	// withPrevious: it is submitted in one call with the previous callback.
	withPrevious bool
	// ends is the expected end if no act interferes: "succeeded" or "dead"; empty: either.
	ends string
	// spare is how many more failures it can have before it ends differently.
	spare int
	// quick: its receiver responds at once and never asks for a pause.
	quick bool
	// untouched: no act changes it. It is due long after the last fault, when everything must have recovered,
	// or it is poison.
	untouched bool
}

// An act is a request of a person through a process.
type act struct {
	at       time.Duration
	via      int
	callback int
	do       actKind
	delay    time.Duration
}

type actKind string

const (
	cancels     actKind = "cancel"
	cancelsRef  actKind = "cancel ref"
	retries     actKind = "retry once"
	restarts    actKind = "retry restart"
	redirects   actKind = "retry elsewhere"
	reschedules actKind = "reschedule"
)

// A fault affects a process, or all of them, from a time on. With an operation it applies to the first such
// call that the process makes then.
type fault struct {
	at      time.Duration
	process int // -1: all
	op      string
	kind    kind
	// lasts is the delay of a call or a reply, or the length of an outage; jump is that of the clock.
	lasts, jump time.Duration
}

type kind string

const (
	// Faults of calls.
	crashBefore kind = "crash before"
	crashAfter  kind = "crash after"
	failed      kind = "failed"
	replyLost   kind = "reply lost"
	doubled     kind = "doubled"
	doubledLate kind = "doubled late"
	callLate    kind = "call late"
	replyLate   kind = "reply late"
	stopBefore  kind = "stopped before"
	stopAfter   kind = "stopped after"
	wipedBefore kind = "index wiped before"
	// Events at times.
	crash      kind = "crash"
	pause      kind = "pause"
	drain      kind = "drain"
	wipe       kind = "index wiped"
	snapshot   kind = "index snapshot"
	rollback   kind = "index rolled back"
	sqlRefuses kind = "SQL refuses"
	sqlHangs   kind = "SQL stalls"
	sqlMute    kind = "SQL commits, replies lost"
	indexFails kind = "index refuses"
	indexHangs kind = "index stalls"
	indexMute  kind = "index works, replies lost"
	clockJumps kind = "index clock jumps"
)

// draw returns the plan of a seed. The same seed gives the same plan.
func draw(seed uint64) *plan {
	r := rand.New(rand.NewPCG(seed, 0x5eed))
	p := &plan{seed: seed, processes: 1, quiet: 45 * time.Second}
	// A short one interrupts attempts.
	p.drainTimeout = oneOf(r, upTo(r, 100*time.Millisecond, time.Second), upTo(r, time.Second, 8*time.Second))
	p.embedded = r.IntN(5) < 2
	if !p.embedded {
		p.processes = 1 + r.IntN(3)
	}
	p.horizons = make([]time.Duration, p.processes)
	p.folds = r.IntN(6) == 0
	p.workers = oneOf(r, 64, 64, 64, 8)
	p.drawCallbacks(r)
	if r.IntN(2) > 0 {
		p.drawActs(r, r.IntN(6), 0, 45*time.Second, 20*time.Second, cancels, cancels, cancelsRef, retries,
			restarts, redirects, reschedules, reschedules)
	}
	if r.IntN(12) == 0 {
		p.quiet = 0 // without faults every check must hold strictly
	}
	p.drawFaults(r, r.IntN(13), hot, hot, hot, others)
	p.drawEvents(r)
	if !p.embedded && r.IntN(3) == 0 {
		p.drawHorizon(r)
	}
	if p.quiet == 0 {
		p.faults, p.events = nil, nil
	}
	return p
}

// upTo draws a duration in whole milliseconds, at least from and less than to.
func upTo(r *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(r.Int64N((to-from).Milliseconds()))*time.Millisecond
}

func oneOf[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

func (p *plan) drawCallbacks(r *rand.Rand) {
	n := 5 + r.IntN(26)
	if r.IntN(10) == 0 {
		n = 30 + r.IntN(31)
	}
	hosts, locks := 1+r.IntN(5), 1+r.IntN(4)
	for i := range n {
		c := planned{
			ref:      fmt.Sprintf("order-%d", i),
			at:       upTo(r, 0, 25*time.Second),
			host:     fmt.Sprintf("h%d.example", r.IntN(hosts)),
			timeout:  upTo(r, 500*time.Millisecond, 5*time.Second),
			unsigned: r.IntN(3) > 0,
			via:      r.IntN(p.processes),
			pause:    upTo(r, 100*time.Millisecond, time.Second),
			quick:    true,
		}
		if r.IntN(3) == 0 {
			c.delay = upTo(r, 0, 25*time.Second)
		}
		if r.IntN(3) == 0 {
			c.lock = fmt.Sprintf("lock-%d", r.IntN(locks))
		}
		if r.IntN(10) == 0 {
			c.expires = upTo(r, 100*time.Millisecond, 20*time.Second)
		}
		if r.IntN(6) == 0 && i > 0 {
			c.at, c.via, c.withPrevious = p.callbacks[i-1].at, p.callbacks[i-1].via, true
		}
		c.drawLadder(r)
		p.callbacks = append(p.callbacks, c)
	}
	if r.IntN(3) == 0 {
		last := &p.callbacks[len(p.callbacks)-1]
		*last = succeeding(last.ref, "straggler.example", last.at)
		last.untouched, last.delay = true, 130*time.Second-last.at
	}
}

// succeeding returns a callback that succeeds at its first attempt.
func succeeding(ref, host string, at time.Duration) planned {
	return planned{
		ref: ref, at: at, host: host, timeout: time.Second, pause: 200 * time.Millisecond, quick: true,
		script: []step{{status: 200}}, ends: "succeeded",
	}
}

// drawLadder draws the tiers and the receiver's script, and sets how they end.
func (c *planned) drawLadder(r *rand.Rand) {
	for range r.IntN(5) {
		c.tiers = append(c.tiers, upTo(r, 0, oneOf(r, time.Second, 5*time.Second, 20*time.Second)))
	}
	if r.IntN(4) == 0 {
		c.jitter = 0.2
	}
	if r.IntN(60) == 0 {
		c.host, c.script, c.ends = "poison.example", []step{{status: 200}}, "dead"
		c.quick, c.untouched = false, true
		return
	}
	if r.IntN(7) == 0 { // It never succeeds.
		c.script, c.ends, c.spare = []step{c.drawFailure(r)}, "dead", 1000
		if c.script[0].status == 423 {
			// A receiver that is always busy gets a hundred requests before an attempt counts.
			c.script[0].status = 422
		}
		if r.IntN(3) == 0 {
			c.script, c.stopOn = []step{{status: 410}}, []int{410}
		}
		return
	}
	for range r.IntN(len(c.tiers) + 1) {
		c.script = append(c.script, c.drawFailure(r))
	}
	c.spare = len(c.tiers) - len(c.script)
	c.ends = "succeeded"
	last := step{status: 200}
	if r.IntN(2) == 0 {
		last.wait = upTo(r, 0, c.timeout/2)
		c.quick = c.quick && last.wait < 100*time.Millisecond
	}
	c.script = append(c.script, last)
}

// drawFailure draws a failure.
func (c *planned) drawFailure(r *rand.Rand) step {
	s := oneOf(r,
		step{status: 500}, step{status: 500}, step{status: 500}, step{status: 500}, step{do: resets},
		step{do: refuses},
		step{do: loses, status: 200, wait: upTo(r, 0, 50*time.Millisecond)},
		// These keep a lane waiting.
		step{status: 423, retryAfter: 1},
		step{do: stalls},
		step{status: 429, retryAfter: 1 + r.IntN(3)},
		step{status: 503, retryAfter: 1 + r.IntN(3), wait: upTo(r, 0, 200*time.Millisecond)},
		step{status: 500, wait: upTo(r, time.Millisecond, c.timeout/2)},
		step{status: 500, wait: c.timeout + upTo(r, 0, 3*time.Second)}, // after the sender has given up
	)
	c.quick = c.quick && s.retryAfter == 0 && s.do != stalls && (s.wait == 0 || s.do == loses)
	return s
}

// drawActs draws n acts on callbacks at index from and above, before until, with delays below longest.
func (p *plan) drawActs(r *rand.Rand, n, from int, until, longest time.Duration, kinds ...actKind) {
	for range n {
		a := act{
			at: upTo(r, 2*time.Second, until), via: r.IntN(p.processes),
			callback: from + r.IntN(len(p.callbacks)-from), do: oneOf(r, kinds...),
		}
		if a.do == reschedules {
			a.delay = upTo(r, 0, longest)
		}
		if !p.callbacks[a.callback].untouched {
			p.acts = append(p.acts, a)
		}
	}
}
