package alert

import (
	"context"
	"errors"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// windowParts is in how many parts a window is sampled. So it may be longer by one part.
	windowParts = 10
	// maxSamples bounds the samples of all windows together, at about 100 B each.
	maxSamples = 1_000_000
)

// errTooMany: the memory for samples is used up.
var errTooMany = errors.New("too many endpoints are watched by all alerts together; use shorter windows")

type windowKey struct {
	project string
	window  time.Duration
}

// A sample has the attempts of endpoints up to a time.
type sample struct {
	at     int64
	totals map[string]attempts
}

type attempts struct{ succeeded, failed int64 }

// A totalWindow is the samples of a project over a window, the oldest first.
type totalWindow struct {
	samples []sample
	usedAt  int64
}

// totalWindows keep samples of endpoints' totals: the difference of two is what happened in between. They are
// of this process, so after another process takes over, a window starts empty.
type totalWindows struct {
	windows map[windowKey]*totalWindow
	samples int
}

// since returns the sample that begins the window, and adds one of now if a part of the window has passed.
// After a time without evaluations here, as when another process did them, a sample that is too old begins no
// window.
func (t *totalWindows) since(key windowKey, now int64, totals []store.EndpointTotal) (sample, error) {
	w := t.windows[key]
	if w == nil {
		w = new(totalWindow)
		t.windows[key] = w
	}
	w.usedAt = now
	length, part := key.window.Milliseconds(), key.window.Milliseconds()/windowParts
	for len(w.samples) > 0 && now-w.samples[0].at > length+part+forgetAfter.Milliseconds() {
		t.dropFirst(w)
	}
	if n := len(w.samples); n == 0 || now-w.samples[n-1].at >= part {
		if t.samples+len(totals) > maxSamples {
			return sample{}, errTooMany
		}
		s := sample{now, make(map[string]attempts, len(totals))}
		for i := range totals {
			s.totals[totals[i].ID] = attempts{totals[i].Succeeded, totals[i].Failed}
		}
		w.samples, t.samples = append(w.samples, s), t.samples+len(totals)
	}
	// The second sample begins the window as soon as it is old enough.
	for len(w.samples) > 1 && now-w.samples[1].at >= length {
		t.dropFirst(w)
	}
	return w.samples[0], nil
}

func (t *totalWindows) dropFirst(w *totalWindow) {
	t.samples -= len(w.samples[0].totals)
	w.samples = w.samples[1:]
}

// forgetAfter is how long the samples of a window are kept that no alert uses any more.
const forgetAfter = time.Minute

// forget drops unused windows.
func (t *totalWindows) forget(now int64) {
	for key, w := range t.windows {
		if now-w.usedAt <= forgetAfter.Milliseconds() {
			continue
		}
		for len(w.samples) > 0 {
			t.dropFirst(w)
		}
		delete(t.windows, key)
	}
}

// endpointSuccess compares the share of successful attempts in the window with the threshold.
func (v *projectView) endpointSuccess(ctx context.Context, w *store.AlertWhen) ([]finding, error) {
	if !v.read.totals {
		totals, err := v.as.o.Store.EndpointTotals(ctx, v.project, maxEndpoints)
		if err != nil {
			return nil, err
		}
		v.totals, v.read.totals = totals, true
	}
	begin, err := v.as.totals.since(windowKey{v.project, w.Window}, v.now, v.totals)
	if err != nil {
		return nil, err
	}
	var found []finding
	for i := range v.totals {
		e := &v.totals[i]
		before, known := begin.totals[e.ID]
		if w.Endpoint != "" && w.Endpoint != e.ID || !known && e.CreatedAt <= begin.at {
			continue
		}
		f := finding{instance: e.ID, name: e.Title()}
		succeeded, failed := e.Succeeded-before.succeeded, e.Failed-before.failed
		if n := succeeded + failed; n >= w.MinAttempts {
			f.value = 100 * float64(succeeded) / float64(n)
			f.near = f.value >= w.Below
			if f.value >= w.Below+(100-w.Below)*(1-clearShare) {
				continue
			}
		} else if e.FailingSince == 0 {
			continue // too few attempts for a share, and the last one succeeded
		} else {
			f.near = true
		}
		found = append(found, f)
	}
	return found, nil
}
