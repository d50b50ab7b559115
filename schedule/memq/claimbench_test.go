package memq_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/queuetest"
)

// BenchmarkIndex is the benchmark of that name of package redisq, in the process: ensure by the thousand, claim and settle by 64,
// beside so many pending items in so many lanes. The medians are of whole calls; B/pending is of the heap.
func BenchmarkIndex(b *testing.B) {
	for _, pending := range queuetest.BenchSizes(b, "DISPATCHER_BENCH_PENDING", 1_000, 1_000_000) {
		for _, lanes := range queuetest.BenchSizes(b, "DISPATCHER_BENCH_LANES", 1, 1_000) {
			b.Run(fmt.Sprintf("pending=%d/lanes=%d", pending, lanes), func(b *testing.B) { benchIndex(b, pending, lanes) })
		}
	}
}

func benchIndex(b *testing.B, pending, lanes int) {
	c := newCycle(b, lanes)
	empty := heapBytes()
	c.pend(pending, func() int64 { return c.now + 3600_000 + rand.Int64N(3600_000) })
	perItem := float64(heapBytes()-empty) / float64(pending)
	c.run()
	b.ReportMetric(perItem, "B/pending")
	runtime.KeepAlive(c)
}

// BenchmarkKept is the same in a thousand lanes, beside ten thousand that have something ready and keep it back.
func BenchmarkKept(b *testing.B) {
	const lanes, kept = 1000, 10_000
	for _, how := range append([]string{"none"}, queuetest.Keeps()...) {
		b.Run(how, func(b *testing.B) {
			c := newCycle(b, lanes)
			if how != "none" {
				h := queuetest.Harness{
					Index: c.ix, Now: func() int64 { return c.now }, Advance: func(d time.Duration) { c.now += d.Milliseconds() },
				}
				queuetest.Keep(b, h, how, lanes+1, kept)
			}
			c.run()
		})
	}
}

// run ensures, claims and settles, and reports how long calls took.
func (c *cycle) run() {
	const due = 960
	b, lanes := c.b, c.lanes
	var ensures, claims, settles []time.Duration
	timed := func(into *[]time.Duration, call func() error) {
		began := time.Now()
		if err := call(); err != nil {
			b.Fatal(err)
		}
		*into = append(*into, time.Since(began))
	}
	ctx := context.Background()
	items := make([]schedule.Item, due)
	b.ResetTimer()
	for b.Loop() {
		for i := range items {
			c.next++
			items[i] = schedule.Item{ID: c.ids[c.next%len(c.ids)], Lane: int64(c.next%lanes) + 1, Due: c.now - 1}
		}
		timed(&ensures, func() error { _, err := c.ix.Ensure(ctx, items); return err })
		// What is due is promoted first, so that the claims that follow are measured by themselves.
		c.claim(0)
		for left := due; left > 0; {
			var claimed schedule.Claimed
			timed(&claims, func() error { claimed = c.claim(c.batch); return nil })
			if len(claimed.Leases) == 0 {
				b.Fatal("nothing was claimed")
			}
			left -= len(claimed.Leases)
			done := make([]schedule.Settlement, len(claimed.Leases))
			for i, l := range claimed.Leases {
				done[i] = schedule.Settlement{Item: l.Item, Token: l.Token, Outcome: schedule.Ack, Signal: schedule.Answered}
			}
			timed(&settles, func() error { _, err := c.ix.Settle(ctx, done); return err })
		}
	}
	b.ReportMetric(0, "ns/op")
	for name, times := range map[string][]time.Duration{"ensure-960": ensures, "claim-64": claims, "settle-64": settles} {
		slices.Sort(times)
		b.ReportMetric(float64(times[len(times)/2].Nanoseconds())/1000, name+"-p50-us")
		b.ReportMetric(float64(times[len(times)*99/100].Nanoseconds())/1000, name+"-p99-us")
	}
}

// heapBytes is what lives on the heap.
func heapBytes() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// claim claims up to so many.
func (c *cycle) claim(most int) schedule.Claimed {
	c.tokens++
	claimed, err := c.ix.Claim(context.Background(), 0, schedule.ClaimRequest{
		Owner: "bench", Token: fmt.Sprint(c.tokens), Max: most, MaxUncertain: most, MaxTimingOut: most,
		Lease: time.Minute, LaneLimit: 1000,
	})
	if err != nil {
		c.b.Fatal(err)
	}
	return claimed
}
