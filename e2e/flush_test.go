package e2e

import (
	"fmt"
	"testing"
	"time"
)

// Redis emptied under load loses nothing, needs no restart and no operator.
func TestRedisEmptiedUnderLoadLosesNothing(t *testing.T) {
	blackBox(t)
	on(t, []combination{sqliteRedis, full}, func(t *testing.T, b backend) {
		r := listen(t, func(a *arrival) reply {
			if a.nth == 1 && a.path == "/retry" {
				return reply{status: 503}
			}
			return reply{status: 200, after: 5 * time.Millisecond}
		})
		p := serve(t, launch{on: b})
		rdb := b.redisClient(t)
		books := newLedger()
		rebuilt := func() float64 {
			t.Helper()
			n, err := p.metric("dispatcher_rebuilds_total")
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		rebuiltBefore := rebuilt()

		const rate, seconds = 150, 14
		ticker := time.NewTicker(time.Second / rate)
		defer ticker.Stop()
		sent := map[string]time.Time{}
		for i := range rate * seconds {
			<-ticker.C
			if i == rate*4 || i == rate*9 {
				if err := rdb.FlushAll(t.Context()).Err(); err != nil {
					t.Fatal(err)
				}
			}
			ref, path := fmt.Sprint("plain-", i), "/plain"
			if i%5 == 0 {
				ref, path = fmt.Sprint("retry-", i), "/retry"
			}
			s := submission{"url": r.url + path, "ref": ref, "payload": payload(ref), "policy": submission{"tiers": []string{"2s", "2s", "2s"}, "timeout": "5s"}}
			if i%10 == 0 {
				s["lock_key"] = fmt.Sprint("lock-", i%50)
			}
			at := time.Now()
			cb, err := p.accept(t.Context(), s)
			if err != nil {
				t.Fatalf("accept %d while Redis is empty: %v", i, err)
			}
			books.accepted(cb.ID, ref)
			sent[cb.ID] = at
		}
		await(t, p.client, 2*time.Minute)
		if p.ended() {
			t.Fatal("the process ended")
		}
		if n := rebuilt() - rebuiltBefore; n < 2 {
			t.Errorf("the index was rebuilt %.0f times after it was emptied twice", n)
		}
		duplicates := books.judge(t, p.client, r, crashSends, 2) // emptied twice
		var waits []time.Duration
		for id, at := range sent {
			if got := r.of(id); len(got) > 0 {
				waits = append(waits, got[0].at.Sub(at))
			}
		}
		t.Logf("%s: %d accepted, emptied twice, 0 lost; accept to first arrival: median %s, p99 %s, most %s; %d duplicate sends",
			b.name, books.len(), quantile(waits, 0.5), quantile(waits, 0.99), quantile(waits, 1), duplicates)
	})
}
