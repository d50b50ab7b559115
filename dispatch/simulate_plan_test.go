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
	// alone: one process with an index of its own, new at each start. Else several share one, which stands for Redis.
	alone     bool
	processes int
	callbacks []planned
	acts      []act
	faults    []fault
	events    []event
	// quiet is when the last fault may begin. From then on every call works.
	quiet time.Duration
	// drainTimeout of every process.
	drainTimeout time.Duration
	// workers of every process; with few of them a slot that is lost is missed.
	workers int
	// horizons are the settings of the processes; nil: none has a horizon.
	horizons []time.Duration
	// folds says that this simulation's processes fold counters; in the others they are told that somebody else does, which
	// saves a write a second.
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

type stepKind int

const (
	// answers with status after wait; stalls until the sender gives up; resets the connection after it has read the request;
	// loses its answer on the way; refuses the connection, so that nothing arrives.
	answers stepKind = iota
	stalls
	resets
	loses
	refuses
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
	// ends is how it must end if nobody interferes: "succeeded" or "dead"; empty: either.
	ends string
	// spare is how many more failures it could bear before it ended otherwise.
	spare int
	// quick: its receiver answers at once and never asks for a pause.
	quick bool
	// straggler: due long after the last fault, when all must be healed.
	straggler bool
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

// A fault befalls the n-th call of an operation by a process, counted over all its starts.
type fault struct {
	process int
	op      string
	n       int
	kind    faultKind
	// wait is how late: of calls and replies that are late.
	wait time.Duration
}

type faultKind string

const (
	crashBefore faultKind = "crash before"
	crashAfter  faultKind = "crash after"
	failed      faultKind = "failed"
	replyLost   faultKind = "reply lost"
	doubled     faultKind = "doubled"
	doubledLate faultKind = "doubled late"
	callLate    faultKind = "call late"
	replyLate   faultKind = "reply late"
	stopBefore  faultKind = "stopped before"
	stopAfter   faultKind = "stopped after"
	wipedBefore faultKind = "index wiped before"
)

// An event befalls a process, or all of them, at a time.
type event struct {
	at      time.Duration
	process int // -1: all
	kind    eventKind
	lasts   time.Duration
	jump    time.Duration
}

type eventKind string

const (
	crash      eventKind = "crash"
	pause      eventKind = "pause"
	drain      eventKind = "drain"
	wipe       eventKind = "index wiped"
	snapshot   eventKind = "index snapshot"
	rollback   eventKind = "index rolled back"
	sqlRefuses eventKind = "SQL refuses"
	sqlHangs   eventKind = "SQL stalls"
	sqlMute    eventKind = "SQL commits, replies lost"
	indexFails eventKind = "index refuses"
	indexHangs eventKind = "index stalls"
	indexMute  eventKind = "index works, replies lost"
	clockJumps eventKind = "index clock jumps"
)

// draw makes the plan of a seed. The same seed gives the same plan.
func draw(seed uint64) *plan {
	r := rand.New(rand.NewPCG(seed, 0x5eed))
	p := &plan{seed: seed, processes: 1, quiet: 45 * time.Second, drainTimeout: upTo(r, time.Second, 8*time.Second)}
	p.alone = r.IntN(5) < 2
	if !p.alone {
		p.processes = 1 + r.IntN(3)
	}
	p.folds = r.IntN(6) == 0
	p.workers = []int{64, 64, 64, 8}[r.IntN(4)]
	p.drawCallbacks(r)
	p.drawActs(r)
	if r.IntN(12) == 0 {
		p.quiet = 0 // No fault at all: then nothing may be odd.
		p.drawHorizon()
		return p
	}
	p.drawFaults(r)
	p.drawEvents(r)
	p.drawHorizon()
	return p
}

// upTo draws a duration in whole milliseconds, at least from and less than to.
func upTo(r *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(r.Int64N((to-from).Milliseconds()))*time.Millisecond
}

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
		*last = planned{
			ref: last.ref, at: last.at, host: "straggler.example", timeout: time.Second, pause: 200 * time.Millisecond, quick: true,
			script: []step{{status: 200}}, ends: "succeeded", straggler: true, delay: 130*time.Second - last.at,
		}
	}
}

// drawLadder draws the waits and the receiver's script, and how the two end.
func (c *planned) drawLadder(r *rand.Rand) {
	for range r.IntN(5) {
		longest := []time.Duration{time.Second, 5 * time.Second, 20 * time.Second}[r.IntN(3)]
		c.tiers = append(c.tiers, upTo(r, 0, longest))
	}
	if r.IntN(4) == 0 {
		c.jitter = 0.2
	}
	if r.IntN(60) == 0 {
		c.host, c.script, c.ends, c.quick = "poison.example", []step{{status: 200}}, "dead", false
		return
	}
	if r.IntN(7) == 0 { // It never succeeds.
		c.script, c.ends, c.spare = []step{c.drawFailure(r)}, "dead", 1000
		if c.script[0].status == 423 {
			c.script[0].status = 422 // Whoever is busy for ever is asked a hundred times before it is charged.
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
	switch r.IntN(13) {
	case 12:
		c.quick = false
		return step{status: 423, retryAfter: 1}
	case 0:
		c.quick = false
		return step{do: stalls}
	case 1:
		return step{do: resets}
	case 2:
		return step{do: loses, status: 200, wait: upTo(r, 0, 50*time.Millisecond)}
	case 3:
		return step{do: refuses}
	case 4:
		c.quick = false
		return step{status: 429, retryAfter: 1 + r.IntN(3)}
	case 5:
		c.quick = false
		return step{status: 503, retryAfter: 1 + r.IntN(3), wait: upTo(r, 0, 200*time.Millisecond)}
	case 6:
		c.quick = false
		return step{status: 500, wait: upTo(r, 0, c.timeout/2)}
	case 7:
		c.quick = false
		return step{status: 500, wait: c.timeout + upTo(r, 0, 3*time.Second)} // answers when nobody waits any more
	}
	return step{status: 500}
}

func (p *plan) drawActs(r *rand.Rand) {
	if r.IntN(2) == 0 {
		return
	}
	for range r.IntN(6) {
		a := act{
			at: upTo(r, 2*time.Second, 45*time.Second), via: r.IntN(p.processes), callback: r.IntN(len(p.callbacks)),
			do: []actKind{cancels, cancels, cancelsRef, retries, restarts, redirects, reschedules, reschedules}[r.IntN(8)],
		}
		if a.do == reschedules {
			a.delay = upTo(r, 0, 20*time.Second)
		}
		if p.callbacks[a.callback].straggler || p.callbacks[a.callback].host == "poison.example" {
			continue
		}
		p.acts = append(p.acts, a)
	}
}
