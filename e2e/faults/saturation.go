package faults

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// A saturation keeps a dispatcher as busy as it can be: callers hand over batches as long as fewer than a few
// thousand callbacks are open, and the receiver answers at once.
type saturation struct {
	p        *harness.Process
	address  string
	accepted atomic.Int64
}

// The load of a saturation.
const (
	saturationCallers = 4
	saturationBatch   = 250
	saturationOpen    = 4000
)

// saturate loads the dispatcher until the test ends.
func saturate(t *testing.T, p *harness.Process) *saturation {
	t.Helper()
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s := &saturation{p: p, address: receiver.URL}
	ctx, cancel := context.WithCancel(context.Background())
	var callers errgroup.Group
	for caller := range saturationCallers {
		callers.Go(func() error { return s.call(ctx, caller) })
	}
	t.Cleanup(func() {
		cancel()
		if err := callers.Wait(); err != nil {
			t.Errorf("the load ended: %v", err)
		}
		receiver.Close()
	})
	return s
}

// call hands over batches until ctx ends.
func (s *saturation) call(ctx context.Context, caller int) error {
	for n := 0; ctx.Err() == nil; {
		ended, err := s.ended()
		if err != nil {
			return err
		}
		if float64(s.accepted.Load())-ended > saturationOpen {
			harness.Pause()
			continue
		}
		list := make([]harness.Submission, saturationBatch)
		for i := range list {
			ref := fmt.Sprintf("order-%d-%d", caller, n)
			list[i] = harness.Submission{
				"url": s.address, "ref": ref, "payload": harness.Payload(ref), "idempotency_key": ref,
			}
			n++
		}
		s.accepted.Add(saturationBatch)
		if _, err := s.p.AcceptBatch(ctx, list); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// ended is how many callbacks have become terminal.
func (s *saturation) ended() (float64, error) { return s.count("dispatcher_callbacks_terminal_total") }

// count is a counter that has no series before it first counts.
func (s *saturation) count(name string, parts ...string) (float64, error) {
	n, err := s.p.Metric(name, parts...)
	if errors.Is(err, harness.ErrNoMetric) {
		return 0, nil
	}
	return n, err
}

// rates are what two counters did in a span of time, each a second.
type rates struct{ delivered, removed float64 }

// during measures for that long.
func (s *saturation) during(t *testing.T, span time.Duration) rates {
	t.Helper()
	began := time.Now()
	first := s.read(t)
	timer := time.NewTimer(span)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
	last, took := s.read(t), time.Since(began).Seconds()
	return rates{(last.delivered - first.delivered) / took, (last.removed - first.removed) / took}
}

func (s *saturation) read(t *testing.T) rates {
	t.Helper()
	delivered, err := s.ended()
	removed, err2 := s.count("dispatcher_purged_total", `what="callback"`)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	return rates{delivered, removed}
}
