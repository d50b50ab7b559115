package dispatch_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// activityLog remembers what is written of what happens. While it is down nothing is.
type activityLog struct {
	dispatch.Store
	down   atomic.Bool
	mu     sync.Mutex
	rows   []store.Activity
	writes int
}

func (l *activityLog) AddActivity(ctx context.Context, rows []store.Activity) error {
	if l.down.Load() {
		return fmt.Errorf("add activity: %w", store.ErrUnavailable)
	}
	if err := l.Store.AddActivity(ctx, rows); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rows, l.writes = append(l.rows, rows...), l.writes+1
	return nil
}

// watchActivity has an engine write what happens into the log.
func watchActivity(l *activityLog) tweak {
	return func(o *dispatch.Options) { l.Store, o.Store = o.Store, l }
}

func (l *activityLog) written() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.writes
}

// sums adds up what was written of the spans of that length, of lanes or of projects. Each row must begin with its span.
func (l *activityLog) sums(t *testing.T, span store.Span, lanes bool) (sum store.Activity) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.rows {
		r := &l.rows[i]
		if r.Project != store.DefaultProject || r.At != r.Span.Begin(r.At) || r.LaneID != 0 && r.Span != store.Hour {
			t.Errorf("a row of %q, lane %d, %s at %d", r.Project, r.LaneID, time.Duration(r.Span), r.At)
		}
		if r.Span == span && (r.LaneID != 0) == lanes {
			sum.Add(r)
		}
	}
	return sum
}

// expect compares the sums of every span, and of lanes, with what has happened; how many attempts were timed with both histograms.
func (l *activityLog) expect(t *testing.T, want store.Activity, late, took int64) {
	t.Helper()
	for _, span := range store.Spans {
		l.expectOf(t, want, late, took, span, false)
	}
	l.expectOf(t, want, late, took, store.Hour, true)
}

func (l *activityLog) expectOf(t *testing.T, want store.Activity, late, took int64, span store.Span, lanes bool) {
	t.Helper()
	got := l.sums(t, span, lanes)
	var nLate, nTook int64
	for i := range got.Lateness {
		nLate, nTook = nLate+got.Lateness[i], nTook+got.Took[i]
	}
	if nLate != late || nTook != took {
		t.Errorf("%s, lanes %t: %d were timed for lateness and %d for how long they took, want %d and %d", time.Duration(span), lanes, nLate, nTook, late, took)
	}
	got.Lateness, got.Took = want.Lateness, want.Took
	if got != want {
		t.Errorf("%s, lanes %t: %+v, want %+v", time.Duration(span), lanes, got, want)
	}
}

// byPath answers as the path of the address says.
func byPath(_ context.Context, h hit, before int) (*http.Response, error) {
	switch {
	case strings.Contains(h.url, "/good"), strings.Contains(h.url, "/second") && before > 0:
		return answer(200, ""), nil
	}
	return answer(500, ""), nil
}

func at(path string, s dispatch.Submission) dispatch.Submission {
	s.URL, s.Body = "https://shop.example/"+path, []byte("{}")
	return s
}
