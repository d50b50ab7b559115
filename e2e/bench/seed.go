package main

import (
	"fmt"
	"net/http"
	"time"
)

// A seeding fills the stores through the API: the rows are those of a day's work, not copies. Some end,
// others stay open.
type seeding struct{ rows, pending int }

const (
	seedLanes = 10_000
	// Pending callbacks fall due from seedDueFrom on, after the longest run, over seedDueSpan.
	seedDueFrom = 2 * 24 * time.Hour
	seedDueSpan = 30 * 24 * time.Hour
	// Of the callbacks, one in failEvery is answered 503, and one in keyEvery has an idempotency key.
	failEvery = 31
	keyEvery  = 10
	// overdueRows fall due while no dispatcher runs: the first arrival shows how long a start takes.
	overdueRows = 1000
	overdueIn   = 10 * time.Second
)

// open says whether callback i stays open. Those that do are spread evenly.
func (s seeding) open(i int) bool { return (i+1)*s.pending/s.rows > i*s.pending/s.rows }

// attempts is how many callback i has had when nothing moves any more. An open one that fails waits for its
// second attempt, an ended one that fails has died of three.
func (s seeding) attempts(i int) int {
	switch fails := i%failEvery == 0; {
	case s.open(i) && !fails:
		return 0
	case s.open(i) || !fails:
		return 1
	}
	return 3
}

func (s seeding) status(i int) int {
	if i%failEvery == 0 {
		return http.StatusServiceUnavailable
	}
	return http.StatusOK
}

func (s seeding) due(i int) time.Time {
	if s.attempts(i) > 0 {
		return time.Time{}
	}
	return time.Now().Add(seedDueFrom + time.Duration(i*7919%int(seedDueSpan.Seconds()))*time.Second)
}

// members writes what callback i has beside its URL and its body.
func (s seeding) members(b []byte, i int) []byte {
	b = fmt.Appendf(b, `,"lane":%q,"ref":"order-%d","labels":{"channel":"alipay","shop":"%d"}`,
		laneKey(i*104729%seedLanes), i, i%1000)
	b = append(b, `,"topic":"payment.succeeded"`...)
	if i%keyEvery == 0 {
		b = fmt.Appendf(b, `,"idempotency_key":"key-%d"`, i)
	}
	switch {
	case i%failEvery > 0:
		return b
	case s.open(i):
		return append(b, `,"policy":{"tiers":["30d"]}`...)
	}
	return append(b, `,"policy":{"tiers":["0s","0s"]}`...)
}

// laneKey is the lane of a merchant as callers name it.
func laneKey(i int) string { return fmt.Sprintf("merchant-%06d", i) }

// seed accepts everything with a dispatcher of its own, waits until what is to end has ended, and ends the
// dispatcher. It returns how many callbacks stay open.
func (s seeding) seed(r *run, args []string) (open int) {
	attempted := 0
	for i := range s.rows {
		if s.open(i) {
			open++
		}
		if s.attempts(i) > 0 {
			attempted++
		}
	}
	d := r.launch(args)
	defer d.kill()
	r.awaitReady(d, startTime)
	x := &session{run: r, dispatcher: d, url: r.receiver.url, members: s.members}
	arriving := r.receiver.expect(s.rows)
	arriving.status = s.status
	x.acceptBatches(s.rows, s.due)
	limit := 5*time.Minute + time.Duration(s.rows)*time.Millisecond // a thousand a second
	r.awaitStats(d, "what is to end has ended", limit, func(st stats) bool {
		return st.States.Succeeded+st.States.Dead == s.rows-open && st.States.Scheduled == open &&
			int(arriving.left.Load()) == s.rows-attempted && st.Index != nil && st.Index.Delayed == open
	})
	x.members = nil
	r.receiver.expect(overdueRows)
	due := time.Now().Add(overdueIn)
	x.acceptBatches(overdueRows, dueAll(due))
	if time.Now().After(due) {
		r.Fatalf("accepting %d callbacks took %s", overdueRows, overdueIn)
	}
	d.kill()
	time.Sleep(time.Until(due)) // what is overdue falls due by the clock
	return open
}
