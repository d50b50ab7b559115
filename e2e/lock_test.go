package e2e

import (
	"fmt"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/judge"
)

// A thousand callbacks with one lock key never overlap, follow each other closely, and keep no worker waiting.
func TestOneLockKeyNeverOverlapsAndDivertsUncharged(t *testing.T) {
	blackBox(t)
	on(t, bothEnds, func(t *testing.T, b backend) {
		const n = 1000
		r := listen(t, func(a *arrival) reply { return reply{status: 200, after: time.Millisecond} })
		free := listen(t, always(200, ""))
		p := serve(t, launch{on: b, args: []string{"--workers", "64"}})
		books := newLedger()
		batch := make([]submission, n)
		for i := range batch {
			ref := fmt.Sprint("locked-", i)
			batch[i] = submission{
				"url": r.url + "/locked", "ref": ref, "payload": payload(ref), "lock_key": "order-7",
				"lane": fmt.Sprint("merchant-", i%20), // many lanes, so that no lane's concurrency serialises them
			}
		}
		accepted, err := p.acceptBatch(t.Context(), batch)
		if err != nil {
			t.Fatal(err)
		}
		for i, cb := range accepted {
			books.accepted(cb.ID, fmt.Sprint("locked-", i))
		}
		// A worker that waited for the lock would not be there for the others.
		var unlocked []time.Duration
		for i := range 20 {
			start := time.Now()
			cb, err := p.accept(t.Context(), submission{"url": free.url, "ref": fmt.Sprint("free-", i), "payload": payload("free")})
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, 10*time.Second, "a callback without a lock is sent", func() error {
				if len(free.of(cb.ID)) == 0 {
					return fmt.Errorf("%s has not arrived", cb.ID)
				}
				return nil
			})
			unlocked = append(unlocked, free.of(cb.ID)[0].at.Sub(start))
		}
		await(t, p.client, 3*time.Minute)
		books.judge(t, p, b, judge.Bounds{}, r, free)
		if got := r.overlaps["/locked"]; got > 0 {
			t.Errorf("%d arrivals overlapped another one with the same lock key", got)
		}

		arrivals := r.all()
		slices.SortFunc(arrivals, func(a, b arrival) int { return a.at.Compare(b.at) })
		var gaps []time.Duration
		for i := 1; i < len(arrivals); i++ {
			gaps = append(gaps, arrivals[i].at.Sub(arrivals[i-1].end))
		}
		rows, err := p.list(t.Context(), url.Values{"state": {"succeeded"}})
		if err != nil {
			t.Fatal(err)
		}
		diverts, diverted := 0, 0
		for _, row := range rows {
			if row.AttemptCount != 1 {
				t.Errorf("%s has %d charged attempts, want 1: a divert charges nothing", row.Ref, row.AttemptCount)
			}
			diverts += row.DivertCount
			if row.DivertCount > 0 {
				diverted++
			}
		}
		if diverts == 0 {
			t.Error("no divert was counted")
		}
		median := quantile(gaps, 0.5)
		t.Logf("%s: %d under one lock in %s; gaps: median %s (goal 5 ms), p99 %s, most %s; %d callbacks diverted, %d diverts; unlocked ones meanwhile: median %s, most %s",
			b.name, n, arrivals[len(arrivals)-1].end.Sub(arrivals[0].at).Round(time.Millisecond), median, quantile(gaps, 0.99), quantile(gaps, 1),
			diverted, diverts, quantile(unlocked, 0.5), quantile(unlocked, 1))
		if median > 50*time.Millisecond {
			t.Errorf("the median gap is %s", median)
		}
		if most := quantile(unlocked, 1); most > 2*time.Second {
			t.Errorf("a callback without a lock waited %s", most)
		}
	})
}

// A receiver that fails within a millisecond sees every ladder whole, and so does SQL.
func TestFastFailuresWalkTheirWholeLadder(t *testing.T) {
	blackBox(t)
	on(t, allFour, func(t *testing.T, b backend) {
		const n = 1000
		const attempts = 6
		r := listen(t, always(500, ""))
		p := serve(t, launch{on: b})
		batch := make([]submission, n)
		for i := range batch {
			ref := fmt.Sprint("ladder-", i)
			batch[i] = submission{
				"url": r.url, "ref": ref, "payload": payload(ref),
				"policy": submission{"tiers": []string{"50ms", "50ms", "50ms", "50ms", "50ms"}},
			}
		}
		start := time.Now()
		accepted, err := p.acceptBatch(t.Context(), batch)
		if err != nil {
			t.Fatal(err)
		}
		await(t, p.client, 2*time.Minute)
		took := time.Since(start)
		rows, err := p.list(t.Context(), url.Values{"state": {"dead"}})
		if err != nil {
			t.Fatal(err)
		}
		if len(rows) != n {
			t.Errorf("%d callbacks are dead, want %d", len(rows), n)
		}
		whole, complain := 0, complaints(t)
		for i, cb := range accepted {
			row, err := p.get(t.Context(), cb.ID)
			if err != nil {
				t.Fatal(err)
			}
			inSQL, err := p.attempts(t.Context(), cb.ID)
			if err != nil {
				t.Fatal(err)
			}
			ok := row.State == "dead" && row.Reason == "exhausted" && row.AttemptCount == attempts && len(inSQL) == attempts && len(r.of(cb.ID)) == attempts
			for k, a := range inSQL {
				ok = ok && a.Number == k+1 && a.Charged && a.Class == "http_5xx"
			}
			for k, a := range r.of(cb.ID) {
				ok = ok && a.number == k+1
			}
			if ok {
				whole++
				continue
			}
			complain("ladder %d (%s): %s %s, %d charged, %d rows, %d arrivals; want %d", i, cb.ID, row.State, row.Reason, row.AttemptCount, len(inSQL), len(r.of(cb.ID)), attempts)
		}
		t.Logf("%s: %d of %d ladders of %d attempts are whole in SQL and at the receiver, in %s", b.name, whole, n, attempts, took.Round(time.Millisecond))
	})
}
