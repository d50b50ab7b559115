package main

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// A seeding fills the stores through the API: the rows are those of a day's work, not copies. Some end,
// others stay open.
type seeding struct {
	rows, pending, lanes int
}

const (
	// Pending callbacks fall due from seedDueFrom on, after the longest run, over seedDueSpan.
	seedDueFrom = 2 * 24 * time.Hour
	seedDueSpan = 30 * 24 * time.Hour
	// Of the callbacks, one in keyEvery has an idempotency key, and one in rareEvery the rare label.
	keyEvery  = 10
	rareEvery = 100_000
	// overdueRows fall due while no dispatcher runs: the first arrival shows how long a start takes.
	overdueRows = 1000
	overdueIn   = 10 * time.Second
)

// A fate is what becomes of a callback that is seeded: the status that each of its attempts is answered, and
// how many attempts the policy allows.
type fate struct {
	status, attempts int
	open             bool
	// share is in thousandths of those that are open, or of the others.
	share int
}

var fates = []fate{
	{status: 200, attempts: 1, share: 970},
	{status: 503, attempts: 10, share: 12},
	{status: 500, attempts: 5, share: 10},
	{status: 404, attempts: 2, share: 5},
	{status: 429, attempts: 2, share: 3},
	{attempts: 0, open: true, share: 760},              // not due yet
	{status: 503, attempts: 1, open: true, share: 240}, // waits after its first attempt
}

// thousandth is a number below 1,000 that depends on i and the draw alone, and looks random.
func thousandth(i int, draw uint64) int { return int(rand.NewPCG(uint64(i), draw).Uint64() % 1000) }

// fate is that of callback i.
func (s seeding) fate(i int) fate {
	open := thousandth(i, 1) < s.pending*1000/s.rows
	sum, at := 0, thousandth(i, 2)
	for _, f := range fates {
		if f.open == open {
			if sum += f.share; at < sum {
				return f
			}
		}
	}
	panic("the shares of the fates do not add up to 1,000") // a test adds them up
}

func (s seeding) due(i int) time.Time {
	if f := s.fate(i); f.attempts > 0 {
		return time.Time{}
	}
	return time.Now().Add(seedDueFrom + time.Duration(i*7919%int(seedDueSpan.Seconds()))*time.Second)
}

// members writes what callback i has beside its URL and its body.
func (s seeding) members(b []byte, i int) []byte {
	b = fmt.Appendf(b, `,"lane":%q,"ref":"order-%d","topic":%q,"labels":{"channel":%q,"shop":"%d"}`,
		laneKey(i*104729%s.lanes), i, topics[i%len(topics)], s.channel(i), i%1000)
	if i%keyEvery == 0 {
		b = fmt.Appendf(b, `,"idempotency_key":"key-%d"`, i)
	}
	f := s.fate(i)
	if f.open && f.attempts > 0 {
		return append(b, `,"policy":{"tiers":["30d"]}`...)
	}
	if f.attempts > 1 {
		b = append(b, `,"policy":{"tiers":["0s"`...)
		for range f.attempts - 2 {
			b = append(b, `,"0s"`...)
		}
		b = append(b, `]}`...)
	}
	return b
}

var topics = []string{"payment.succeeded", "payment.succeeded", "payment.failed", "refund.succeeded"}

// laneKey is the lane of a merchant as callers name it.
func laneKey(i int) string { return fmt.Sprintf("merchant-%06d", i) }

func (s seeding) channel(i int) string {
	if i%min(rareEvery, s.rows) == 55 {
		return "rare"
	}
	return []string{"alipay", "alipay", "wechat", "card", "wechat"}[i%5]
}

// A seeded is what a seeding has made.
type seeded struct {
	open, ended, attempts int
	from, to              time.Time // when the first and the last were accepted
}

// seed accepts everything with a dispatcher of its own, waits until what is to end has ended, and ends the
// dispatcher.
func (s seeding) seed(r *run, args []string) seeded {
	made := seeded{from: time.Now()}
	waiting := 0 // for a second attempt
	for i := range s.rows {
		f := s.fate(i)
		made.attempts += f.attempts
		switch {
		case f.open && f.attempts > 0:
			waiting++
			made.open++
		case f.open:
			made.open++
		default:
			made.ended++
		}
	}
	d := r.launch(args)
	defer d.kill()
	r.awaitReady(d, startTime)
	x := &session{run: r, dispatcher: d, url: r.receiver.url, members: s.members}
	arriving := r.receiver.expect(s.rows)
	arriving.status = func(n int) int { return s.fate(n).status }
	x.acceptBatches(s.rows, s.due)
	made.to = time.Now()
	limit := 5*time.Minute + time.Duration(s.rows)*time.Millisecond // a thousand a second
	r.awaitStats(d, "what is to end has ended", limit, func(st stats) bool {
		return st.States.Succeeded+st.States.Dead == made.ended && st.States.Scheduled == made.open &&
			int(arriving.left.Load()) == made.open-waiting && st.Index != nil && st.Index.Delayed == made.open
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
	return made
}
