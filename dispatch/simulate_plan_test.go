package dispatch_test

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// This file is the plan of a simulation: everything that is drawn from its seed, before anything runs.

// A plan is what one seed means.
type plan struct {
	seed uint64
	// alone: one process with an index of its own, new at each start. Else several share one, which stands
	// for Redis.
	alone     bool
	processes int
	callbacks []planned
	acts      []act
	// faults befall calls, events what is there at a time.
	faults, events []fault
	// quiet is when the last fault may begin. From then on every call works.
	quiet time.Duration
	// drainTimeout of every process.
	drainTimeout time.Duration
	// workers of every process; with few of them a slot that is lost is missed.
	workers int
	// horizons are the settings of the processes.
	horizons []time.Duration
	// folds says that this simulation's processes fold counters; in the others they are told that another
	// process does, which saves a write a second.
	folds bool
}

// A step is what a receiver does with one request; the last one of a script repeats.
type step struct {
	do     stepKind
	status int
	// wait before the answer; retryAfter in seconds, zero: no header.
	wait       time.Duration
	retryAfter int
}

type stepKind string

const (
	// The empty one answers with status after wait. The others stall until the sender gives up; reset the
	// connection after they have read the request; lose their answer on the way; refuse the connection, so
	// that nothing arrives.
	stalls  stepKind = "stall"
	resets  stepKind = "reset"
	loses   stepKind = "lose"
	refuses stepKind = "refuse"
)

// A planned callback is one that a client hands over.
type planned struct {
	ref string
	// at is when the client hands it over first; delay, what it asks for.
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
	// via is the process that the client asks first, pause what it waits before it asks the next one.
	via   int
	pause time.Duration
	// with says that it is handed over in one call with the callback before it.
	with bool
	// ends is how it must end if no act interferes: "succeeded" or "dead"; empty: either.
	ends string
	// spare is how many more failures it could bear before it ended otherwise.
	spare int
	// quick: its receiver answers at once and never asks for a pause.
	quick bool
	// apart: no act is for it. It is due long after the last fault, when all must be healed, or is poison.
	apart bool
}

// An act is something that a person asks for through a process.
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

// A fault befalls a process, or all of them, at a time. One with an operation befalls the first call of it
// that the process makes from then on.
type fault struct {
	at      time.Duration
	process int // -1: all
	op      string
	kind    kind
	// lasts is how late a call or a reply is, or how long something is away; jump is of the clock.
	lasts, jump time.Duration
}

type kind string

const (
	// Of calls.
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
	// Of times.
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

// draw makes the plan of a seed. The same seed gives the same plan.
func draw(seed uint64) *plan {
	r := rand.New(rand.NewPCG(seed, 0x5eed))
	p := &plan{seed: seed, processes: 1, quiet: 45 * time.Second}
	// A short one interrupts attempts.
	p.drainTimeout = oneOf(r, upTo(r, 100*time.Millisecond, time.Second), upTo(r, time.Second, 8*time.Second))
	p.alone = r.IntN(5) < 2
	if !p.alone {
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
		p.quiet = 0 // No fault at all: then nothing may be odd.
	}
	p.drawFaults(r, r.IntN(13), hot, hot, hot, others)
	p.drawEvents(r)
	if !p.alone && r.IntN(3) == 0 {
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
			c.at, c.via, c.with = p.callbacks[i-1].at, p.callbacks[i-1].via, true
		}
		c.drawLadder(r)
		p.callbacks = append(p.callbacks, c)
	}
	if r.IntN(3) == 0 {
		last := &p.callbacks[len(p.callbacks)-1]
		*last = sure(last.ref, "straggler.example", last.at)
		last.apart, last.delay = true, 130*time.Second-last.at
	}
}

// sure is a callback that succeeds at its first attempt.
func sure(ref, host string, at time.Duration) planned {
	return planned{
		ref: ref, at: at, host: host, timeout: time.Second, pause: 200 * time.Millisecond, quick: true,
		script: []step{{status: 200}}, ends: "succeeded",
	}
}

// drawLadder draws the waits and the receiver's script, and how the two end.
func (c *planned) drawLadder(r *rand.Rand) {
	for range r.IntN(5) {
		c.tiers = append(c.tiers, upTo(r, 0, oneOf(r, time.Second, 5*time.Second, 20*time.Second)))
	}
	if r.IntN(4) == 0 {
		c.jitter = 0.2
	}
	if r.IntN(60) == 0 {
		c.host, c.script, c.ends, c.quick, c.apart = "poison.example", []step{{status: 200}}, "dead", false,
			true
		return
	}
	if r.IntN(7) == 0 { // It never succeeds.
		c.script, c.ends, c.spare = []step{c.drawFailure(r)}, "dead", 1000
		if c.script[0].status == 423 {
			// A receiver that is busy for ever is asked a hundred times before it is charged.
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

// drawFailure draws one way to fail.
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
		step{status: 500, wait: c.timeout + upTo(r, 0, 3*time.Second)},
		// answers when no sender waits any more
	)
	c.quick = c.quick && s.retryAfter == 0 && s.do != stalls && (s.wait == 0 || s.do == loses)
	return s
}

// drawActs draws so many acts on callbacks from a place on, until then, with delays of at most so long.
func (p *plan) drawActs(r *rand.Rand, n, from int, until, longest time.Duration, kinds ...actKind) {
	for range n {
		a := act{
			at: upTo(r, 2*time.Second, until), via: r.IntN(p.processes),
			callback: from + r.IntN(len(p.callbacks)-from), do: oneOf(r, kinds...),
		}
		if a.do == reschedules {
			a.delay = upTo(r, 0, longest)
		}
		if !p.callbacks[a.callback].apart {
			p.acts = append(p.acts, a)
		}
	}
}
