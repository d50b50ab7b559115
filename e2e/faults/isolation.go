package faults

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// noise is how much longer than its goal a tail may be here before a test fails: the machine that runs these
// tests also runs the receivers, the database and Redis, and shares its cores. The goals themselves are in
// the log.
const noise = 1.5

// commits is how many a callback waits for on its way from the request to the receiver: those of its row and
// of its stamp.
const commits = 2

// A stream sends a steady rate of callbacks to a healthy receiver and knows how long each took to arrive.
type stream struct {
	mu    sync.Mutex
	sent  map[string]time.Time
	fails []error
}

// run sends at the rate for as long as asked, in one goroutine a send, so that a slow accept delays no other.
func (s *stream) run(ctx context.Context, c *harness.Client, url string, rate int, length time.Duration) {
	var group sync.WaitGroup
	defer group.Wait()
	ticker := time.NewTicker(time.Second / time.Duration(rate))
	defer ticker.Stop()
	for i := range int(length.Seconds() * float64(rate)) {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		group.Go(func() {
			at := time.Now()
			ref := fmt.Sprintf("healthy-%d-%d", at.UnixNano(), i)
			cb, err := c.Accept(ctx, harness.Submission{"url": url, "ref": ref, "payload": harness.Payload(ref)})
			s.mu.Lock()
			defer s.mu.Unlock()
			if err != nil {
				s.fails = append(s.fails, err)
				return
			}
			s.sent[cb.ID] = at
		})
	}
}

// waits returns, once all have arrived, how long each took from before its accept to its arrival.
func (s *stream) waits(t *testing.T, r *harness.Receiver, limit time.Duration) []time.Duration {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := errors.Join(s.fails...); err != nil {
		t.Fatalf("%d accepts failed: %v", len(s.fails), err)
	}
	var all []time.Duration
	for id, at := range s.sent {
		harness.Eventually(t, limit, "all of the stream has arrived", func() error {
			if len(r.Of(id)) == 0 {
				return fmt.Errorf("%s has not", id)
			}
			return nil
		})
		all = append(all, r.Of(id)[0].At.Sub(at))
	}
	return all
}

func newStream() *stream { return &stream{sent: map[string]time.Time{}} }
