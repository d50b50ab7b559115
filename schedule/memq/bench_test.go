package memq_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/memq"
)

// BenchmarkCycle is the life of an item that succeeds at once: ensured, claimed, acknowledged, 64 at a time, beside a
// number of pending items that are due later and over a number of lanes. It reports the time of one item.
func BenchmarkCycle(b *testing.B) {
	for _, pending := range []int{1_000, 100_000, 1_000_000} {
		for _, lanes := range []int{1, 1_000, 100_000} {
			b.Run(fmt.Sprintf("pending=%d/lanes=%d", pending, lanes), func(b *testing.B) {
				c := newCycle(b, lanes)
				c.pend(pending, func() int64 { return c.now + 3600_000 + rand.Int64N(3600_000) })
				b.ReportAllocs()
				for n := 0; b.Loop(); n++ {
					if n%c.batch == 0 {
						c.ensure(c.fresh)
						c.attempt()
					}
				}
			})
		}
	}
}

// BenchmarkBacklog is the worst that can wait: all pending items are due in the same millisecond, and each that is
// acknowledged is replaced by one that is due just as long.
func BenchmarkBacklog(b *testing.B) {
	for _, pending := range []int{1_000, 100_000, 1_000_000} {
		for _, lanes := range []int{1, 1_000, 100_000} {
			b.Run(fmt.Sprintf("pending=%d/lanes=%d", pending, lanes), func(b *testing.B) {
				c := newCycle(b, lanes)
				c.pend(pending, func() int64 { return c.now - 1000 })
				for c.attempt() == 0 {
				}
				b.ReportAllocs()
				for n := 0; b.Loop(); n++ {
					if n%c.batch == 0 {
						c.ensure(c.fresh)
						c.attempt()
					}
				}
			})
		}
	}
}

// A cycle holds one index and the buffers of its benchmark, so that what is measured is the index.
type cycle struct {
	b           *testing.B
	ix          *memq.Index
	now         int64
	lanes       int
	batch       int
	ids         []string
	next        int
	tokens      int
	fresh       []schedule.Item
	settlements []schedule.Settlement
}

func newCycle(b *testing.B, lanes int) *cycle {
	c := &cycle{b: b, lanes: lanes, batch: 64, now: 1_800_000_000_000}
	c.ix = memq.New(memq.Options{Now: func() time.Time { return time.UnixMilli(c.now) }})
	entropy := ulid.Monotonic(rand.NewChaCha8([32]byte{}), 0)
	for range 1 << 20 {
		c.ids = append(c.ids, ulid.MustNew(uint64(c.now), entropy).String())
	}
	rand.Shuffle(len(c.ids), func(i, j int) { c.ids[i], c.ids[j] = c.ids[j], c.ids[i] })
	c.fresh = make([]schedule.Item, c.batch)
	return c
}

func (c *cycle) ensure(items []schedule.Item) {
	for i := range items {
		c.next++
		items[i] = schedule.Item{ID: c.ids[c.next%len(c.ids)], Lane: int64(c.next%c.lanes) + 1, Due: c.now - 1}
	}
	if _, err := c.ix.Ensure(context.Background(), items); err != nil {
		c.b.Fatal(err)
	}
}

// pend puts n items in that are due as it says.
func (c *cycle) pend(n int, due func() int64) {
	entropy := ulid.Monotonic(rand.NewChaCha8([32]byte{1}), 0)
	for n > 0 {
		items := make([]schedule.Item, min(n, schedule.MaxBatch))
		for i := range items {
			id := ulid.MustNew(uint64(c.now), entropy).String()
			items[i] = schedule.Item{ID: id, Lane: int64((n-i)%c.lanes) + 1, Due: due()}
		}
		if _, err := c.ix.Ensure(context.Background(), items); err != nil {
			c.b.Fatal(err)
		}
		n -= len(items)
	}
}

// attempt claims a batch and acknowledges it, and says how many that were.
func (c *cycle) attempt() int {
	c.tokens++
	claimed, err := c.ix.Claim(context.Background(), 0, schedule.ClaimRequest{
		Owner: "bench", Token: fmt.Sprint(c.tokens), Max: c.batch, MaxUncertain: c.batch, MaxTimingOut: c.batch,
		Lease: time.Minute, LaneLimit: c.batch,
	})
	if err != nil {
		c.b.Fatal(err)
	}
	c.settlements = c.settlements[:0]
	for _, l := range claimed.Leases {
		c.settlements = append(c.settlements, schedule.Settlement{
			Item: l.Item, Token: l.Token, Outcome: schedule.Ack, Signal: schedule.Answered,
		})
	}
	if _, err := c.ix.Settle(context.Background(), c.settlements); err != nil {
		c.b.Fatal(err)
	}
	return len(claimed.Leases)
}
