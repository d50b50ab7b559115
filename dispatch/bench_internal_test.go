package dispatch

import (
	"context"
	"encoding/base64"
	"fmt"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/memq"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A quickStore takes every callback and every result, at once.
type quickStore struct {
	Store
	accepted []store.Accepted
}

func (q *quickStore) Accept(_ context.Context, drafts []store.Draft) ([]store.Accepted, error) {
	if q.accepted == nil {
		q.accepted = make([]store.Accepted, len(drafts))
		for i := range drafts {
			q.accepted[i].Callback = drafts[i].Callback
		}
	}
	return q.accepted, nil
}

type nowhere struct{}

func (nowhere) Send(context.Context, outbound.Request) outbound.Response { return outbound.Response{} }

// quickEngine is an engine whose own work is all there is to measure. It does not run.
func quickEngine(b *testing.B) *Engine {
	b.Helper()
	keys, err := NewKeyring([]string{base64.StdEncoding.EncodeToString(make([]byte, 32))})
	if err != nil {
		b.Fatal(err)
	}
	e, err := New(Options{Store: &quickStore{}, Schedule: memq.New(memq.Options{}), Sender: nowhere{}, Keyring: keys, Alone: true})
	if err != nil {
		b.Fatal(err)
	}
	return e
}

// quickBatch are n claimed callbacks in some lanes.
func quickBatch(n, lanes int) []*store.Stamped {
	batch := make([]*store.Stamped, n)
	for i := range batch {
		batch[i] = &store.Stamped{Callback: store.Callback{
			ID: fmt.Sprintf("%026d", i), Project: store.DefaultProject, LaneID: int64(i%lanes + 1), State: store.Scheduled, DueAt: 1_700_000_000_000,
		}}
	}
	return batch
}

// BenchmarkAccept is the engine's part of an accept, of one callback and of a batch.
func BenchmarkAccept(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprint("of=", n), func(b *testing.B) {
			e, drafts := quickEngine(b), make([]store.Draft, n)
			for i, w := range quickBatch(n, 16) {
				drafts[i].Callback = w.Callback
			}
			var r Receipt
			receipt := func(int) *Receipt { return &r }
			b.ReportAllocs()
			for b.Loop() {
				if err := e.commit(b.Context(), drafts, 0, receipt); err != nil {
					b.Fatal(err)
				}
				for range n {
					<-e.enqueue.items
				}
			}
		})
	}
}

// BenchmarkSettle is the engine's part of what a commit of results has brought.
func BenchmarkSettle(b *testing.B) {
	for _, n := range []int{1, 128} {
		b.Run(fmt.Sprint("of=", n), func(b *testing.B) {
			e, batch, committed := quickEngine(b), make([]ended, n), make([]store.Committed, n)
			for i, w := range quickBatch(n, 16) {
				batch[i] = ended{lease: &schedule.Lease{}, class: store.ClassOK, result: store.Result{
					ID: w.ID, State: store.Succeeded, Charge: true, Stamped: w, Attempt: &store.Attempt{
						Project: w.Project, Trigger: store.BySchedule, Outcome: store.AttemptSucceeded, Charged: true, Class: store.ClassOK,
						EndedAt: w.DueAt + 12, Lateness: 3, Timings: store.Timings{Total: 9},
					},
				}}
				committed[i] = store.Committed{Won: true, State: store.Succeeded}
			}
			var settlements []schedule.Settlement
			b.ReportAllocs()
			for b.Loop() {
				settlements, _, _ = e.settler.record(settlements[:0], batch, committed)
			}
			if len(settlements) != n {
				b.Fatal(len(settlements))
			}
		})
	}
}
