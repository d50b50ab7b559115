package faults

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// costLimit is how much more heap an open poll may take than an open callback.
const costLimit = 1.25

// Open polls are kept as open callbacks are: after a restart they take no more memory.
func TestOpenPollsCostNoMoreThanScheduledCallbacks(t *testing.T) {
	mostlyWaits(t)
	n := sized(10_000, 30_000, 100_000)
	r := harness.NewReceiver(t, harness.Always(200, ""))
	empty := heapOfOpen(t, 0, nil)
	callbacks := heapOfOpen(t, n, func(p *harness.Process) error { return acceptLater(t, p, r, n) })
	polls := heapOfOpen(t, n, func(p *harness.Process) error { return askLater(t, p, r, n) })
	each, eachPoll := (callbacks-empty)/float64(n), (polls-empty)/float64(n)
	t.Logf("%d open: %.0f bytes of the heap for each callback, %.0f for each poll", n, each, eachPoll)
	if eachPoll > each*costLimit {
		t.Errorf("an open poll takes %.2f times the heap of a callback, over %.2f", eachPoll/each, costLimit)
	}
}

// heapOfOpen is how many bytes of its heap a dispatcher uses after a restart with n open in its
// index.
func heapOfOpen(t *testing.T, n int, fill func(*harness.Process) error) float64 {
	t.Helper()
	b := harness.NewBackend(t, harness.SQLiteEmbedded)
	p := harness.Serve(t, harness.Launch{On: b})
	if fill != nil {
		if err := fill(p); err != nil {
			t.Fatal(err)
		}
	}
	p.Terminate()
	if code := p.ExitCode(time.Minute); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	p = harness.Serve(t, harness.Launch{On: b})
	harness.Eventually(t, time.Minute, "all of them are in the index", func() error {
		var drift struct {
			Items   int `json:"items"`
			Missing int `json:"missing"`
		}
		err := p.Call(t.Context(), http.MethodPost, "/v1/index/verify", nil, http.StatusOK, &drift)
		if err == nil && (drift.Items < n || drift.Missing > 0) {
			err = fmt.Errorf("%+v", drift)
		}
		return err
	})
	heap, err := p.HeapInUse(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return heap
}

// openRef and openLane are those of the n-th that is open, of either kind.
func openRef(n int) string  { return fmt.Sprintf("order-20261122-%08d", n) }
func openLane(n int) string { return fmt.Sprint("merchant-", n%200) }

// acceptLater accepts n callbacks that are due far away.
func acceptLater(t *testing.T, p *harness.Process, r *harness.Receiver, n int) error {
	const batch = 500
	var group errgroup.Group
	group.SetLimit(8)
	for first := 0; first < n; first += batch {
		group.Go(func() error {
			var list []harness.Submission
			for i := first; i < min(first+batch, n); i++ {
				list = append(list, harness.Submission{
					"url": r.URL + "/later", "ref": openRef(i), "lane": openLane(i), "payload": harness.Payload(openRef(i)),
					"delay": "2d", "policy": harness.AskAfter("5s", "15s", "1m"),
				})
			}
			_, err := p.AcceptBatch(t.Context(), list)
			return err
		})
	}
	return group.Wait()
}

// askLater accepts n polls that are due far away.
func askLater(t *testing.T, p *harness.Process, r *harness.Receiver, n int) error {
	var group errgroup.Group
	group.SetLimit(32)
	for i := range n {
		group.Go(func() error {
			_, err := p.AcceptPoll(t.Context(), harness.Submission{
				"ref": openRef(i), "lane": openLane(i), "delay": "2d", "policy": harness.AskAfter("5s", "15s", "1m"),
				"request": harness.Submission{"url": r.URL + "/later", "payload": harness.Payload(openRef(i))},
				"until":   harness.Finals(), "context": harness.Submission{"shop": 7},
				"on_result": harness.Submission{"url": r.URL + "/told", "policy": harness.AskAfter("5s")},
			})
			return err
		})
	}
	return group.Wait()
}
