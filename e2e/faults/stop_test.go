package faults

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// A stop is in force within a second, whichever process it is asked of and whichever sends; what was open
// goes on when it ends.
func TestAStopTakesEffectWithinASecond(t *testing.T) {
	harness.BlackBox(t)
	harness.OnEach(t, harness.BothEnds, func(t *testing.T, b harness.Backend) {
		r := harness.NewReceiver(t, func(*harness.Arrival) harness.Reply {
			return harness.Reply{Status: 200,
				After: 5 * time.Millisecond}
		})
		processes := []*harness.Process{harness.Serve(t, harness.Launch{On: b})}
		if b.Redis != "" {
			processes = append(processes, harness.Serve(t, harness.Launch{On: b}))
		}
		p := processes[0]
		id := p.Endpoint(t, harness.EndpointBody{"url": r.URL})
		const n = 30_000
		p.Flood(t, id, n)
		for _, stop := range []struct{ pause, resume string }{
			{"/v1/endpoints/" + id + "/pause", "/v1/endpoints/" + id + "/resume"},
			{"/v1/lanes/" + id + "/pause", "/v1/lanes/" + id + "/resume"},
			{"/v1/pause", "/v1/resume"},
		} {
			before := r.Count()
			harness.Eventually(t, 30*time.Second, "it is being sent", func() error {
				if r.Count() < before+200 {
					return fmt.Errorf("%d arrived", r.Count()-before)
				}
				return nil
			})
			if err := processes[len(processes)-1].Call(t.Context(), http.MethodPost, stop.pause,
				harness.Submission{"reason": "a test"}, http.StatusOK, nil); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second) // the time that it may take
			stopped := r.Count()
			time.Sleep(2 * time.Second)
			if after := r.Count(); after != stopped {
				t.Errorf("%s: %d arrived more than a second later", stop.pause, after-stopped)
			}
			if stopped >= n {
				t.Fatalf("%s: all had arrived before it", stop.pause)
			}
			if err := p.Call(t.Context(), http.MethodPost, stop.resume, nil, http.StatusOK, nil); err != nil {
				t.Fatal(err)
			}
		}
		harness.Eventually(t, 2*time.Minute, "all arrive", func() error {
			if r.Count() < n {
				return fmt.Errorf("%d of %d arrived", r.Count(), n)
			}
			return nil
		})
		harness.Await(t, p.Client, time.Minute)
		if got := r.Count(); got != n {
			t.Errorf("%d arrived of %d", got, n)
		}
	})
}
