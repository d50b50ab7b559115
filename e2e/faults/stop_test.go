package faults

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// A stop is in force within a second, whichever process it is asked of and whichever sends; what was open
// goes on when it ends.
func TestAStopTakesEffectWithinASecond(t *testing.T) {
	harness.BlackBox(t)
	harness.OnEach(t, harness.BothEnds, func(t *testing.T, b harness.Backend) {
		tr := newTrial(t, "stops")
		tr.Backend = b
		r := tr.Receiver
		p := tr.ServeAll()
		other := tr.Alive()[len(tr.Alive())-1]
		id := p.Make("/v1/endpoints", harness.Submission{"url": r.URL}, http.StatusCreated)
		const n = 30_000
		for some := range slices.Chunk(harness.Numbers(n), 500) {
			var batch []harness.Submission
			for _, i := range some {
				batch = append(batch, harness.Submission{"endpoint": id, "payload": i})
			}
			_, err := p.AcceptBatch(t.Context(), batch)
			tr.Check(err)
		}
		for _, stop := range []struct{ pause, resume string }{
			{"/v1/endpoints/" + id + "/pause", "/v1/endpoints/" + id + "/resume"},
			{"/v1/lanes/" + id + "/pause", "/v1/lanes/" + id + "/resume"},
			{"/v1/pause", "/v1/resume"},
		} {
			harness.AtLeast(t, 30*time.Second, "it is being sent", r.Count()+200, r.Count)
			other.Post(stop.pause, harness.Submission{"reason": "a test"}, nil, http.StatusOK)
			time.Sleep(time.Second) // the time that it may take
			stopped := r.Count()
			time.Sleep(2 * time.Second)
			if after := r.Count(); after != stopped {
				t.Errorf("%s: %d arrived more than a second later", stop.pause, after-stopped)
			}
			if stopped >= n {
				t.Fatalf("%s: all had arrived before it", stop.pause)
			}
			p.Post(stop.resume, nil, nil, http.StatusOK)
		}
		harness.AtLeast(t, 2*time.Minute, "all arrive", n, r.Count)
		harness.Await(t, p.Client, time.Minute)
		if got := r.Count(); got != n {
			t.Errorf("%d arrived of %d", got, n)
		}
	})
}
