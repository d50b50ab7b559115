package sqlstore_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore"
)

// batchRows is the size of a benchmark's calls.
const batchRows = 100

// benchDrafts makes drafts of 512 bytes for ten lanes.
func benchDrafts(n int, now int64) []store.Draft {
	entropy := ulid.Monotonic(rand.Reader, 0)
	body := bytes.Repeat([]byte("x"), 512)
	drafts := make([]store.Draft, n)
	for i := range drafts {
		drafts[i] = store.Draft{
			Callback: store.Callback{
				ID: ulid.MustNew(ulid.Timestamp(time.Now()), entropy).String(), Project: store.DefaultProject, Kind: store.Notify,
				URL: "https://shop.example/notify", Method: "POST", Topic: "payment.succeeded", Ref: fmt.Sprint("order-", i),
				Lane: fmt.Sprint("lane-", i%10), Labels: map[string]string{"channel": "alipay"},
				Policy: store.Policy{Name: "payment", Timeout: 15 * time.Second, RetryAfterCap: time.Hour, Tiers: []time.Duration{
					15 * time.Second, 3 * time.Minute, 10 * time.Minute, 30 * time.Minute, 30 * time.Minute,
					time.Hour, 2 * time.Hour, 6 * time.Hour, 15 * time.Hour,
				}},
				Success: store.Success{Name: "http-2xx"}, Signer: "standard-v1", State: store.Scheduled, Trigger: store.BySchedule,
				DueAt: now, FirstDueAt: now, CreatedAt: now, UpdatedAt: now, ContentType: "application/json",
			},
			Body: body,
		}
	}
	return drafts
}

// benchmarkLife takes batches of callbacks through one step of their life and reports rows a second.
func benchmarkLife(b *testing.B, db *sqlstore.DB) {
	const now = int64(1_790_000_000_000)
	ctx := b.Context()
	accept := func(b *testing.B, drafts []store.Draft) {
		for i := 0; i < len(drafts); i += batchRows {
			accepted, err := db.Accept(ctx, drafts[i:i+batchRows])
			if err != nil || accepted[0].Err != nil {
				b.Fatalf("accept: %v, %+v", err, accepted)
			}
		}
	}
	stamp := func(b *testing.B, drafts []store.Draft) (all []*store.Stamped) {
		for i := 0; i < len(drafts); i += batchRows {
			s := store.Stamp{Token: fmt.Sprint("token-", i), Now: now, Margin: 15_000}
			for _, d := range drafts[i : i+batchRows] {
				s.Claims = append(s.Claims, store.StampClaim{ID: d.Callback.ID})
			}
			stamped, _, err := db.Stamp(ctx, s)
			if err != nil || len(stamped) != batchRows {
				b.Fatalf("stamp: %v, %d rows", err, len(stamped))
			}
			all = append(all, stamped...)
		}
		return all
	}
	commit := func(b *testing.B, stamped []*store.Stamped, known bool) {
		for i := 0; i < len(stamped); i += batchRows {
			results := make([]store.Result, batchRows)
			for n, s := range stamped[i : i+batchRows] {
				results[n] = store.Result{ID: s.ID, Fence: s.Fence, State: store.Succeeded, Charge: true, Attempt: &store.Attempt{
					Trigger: store.BySchedule, Outcome: store.AttemptSucceeded, Charged: true, Class: store.ClassOK, Status: 200,
					StartedAt: now, EndedAt: now, DueAt: now, Lateness: 1.5, ResponseBody: "success",
					RequestHeaders: []store.Header{{Name: "webhook-id", Value: s.ID}, {Name: "Content-Type", Value: "application/json"}},
				}}
				if known {
					results[n].Stamped = s
				}
			}
			committed, err := db.Commit(ctx, results, now)
			if err != nil || !committed[0].Won {
				b.Fatalf("commit: %v, %+v", err, committed)
			}
		}
	}
	rate := func(b *testing.B) { b.ReportMetric(float64(b.N*batchRows)/b.Elapsed().Seconds(), "rows/s") }
	b.Run("accept", func(b *testing.B) {
		drafts := benchDrafts(b.N*batchRows, now)
		b.ResetTimer()
		accept(b, drafts)
		rate(b)
	})
	b.Run("stamp", func(b *testing.B) {
		drafts := benchDrafts(b.N*batchRows, now)
		accept(b, drafts)
		b.ResetTimer()
		stamp(b, drafts)
		rate(b)
	})
	for name, known := range map[string]bool{"commit": true, "commit/unknown": false} { // as the engine has them, and without what was stamped
		b.Run(name, func(b *testing.B) {
			drafts := benchDrafts(b.N*batchRows, now)
			accept(b, drafts)
			stamped := stamp(b, drafts)
			b.ResetTimer()
			commit(b, stamped, known)
			rate(b)
		})
	}
}

func BenchmarkSQLite(b *testing.B) { benchmarkLife(b, sqlstore.OpenSQLite(b)) }

func BenchmarkPostgres(b *testing.B) {
	benchmarkLife(b, sqlstore.OpenPostgres(b))
}
