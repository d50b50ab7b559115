package faults

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// With ten times as much to send as its rate allows, an endpoint gets its rate, in the order in which they
// were due.
func TestARateIsExact(t *testing.T) {
	harness.BlackBox(t)
	harness.OnEach(t, harness.BothEnds, func(t *testing.T, b harness.Backend) {
		const rate, seconds = 50, 9
		r := harness.NewReceiver(t, harness.Always(200, ""))
		p := harness.Serve(t, harness.Launch{On: b})
		id := p.Endpoint(t, harness.EndpointBody{"url": r.URL, "rate": fmt.Sprintf("%d/s", rate)})
		places := p.Flood(t, id, 10*rate*seconds)
		harness.Eventually(t, 30*time.Second, "it begins", func() error {
			if r.Count() < rate {
				return fmt.Errorf("%d arrived", r.Count())
			}
			return nil
		})
		time.Sleep(seconds * time.Second) // what is measured is a span of time
		all := r.All()[rate:]
		first := all[0].At
		n := 0
		for _, a := range all {
			if a.At.Sub(first) < (seconds-1)*time.Second {
				n++
			}
		}
		want := rate * (seconds - 1)
		t.Logf("%d arrived in %d s at %d/s", n, seconds-1, rate)
		if n < want*98/100 || n > want*102/100 {
			t.Errorf("%d arrived in %d s; want %d, within 2 %%", n, seconds-1, want)
		}
		late := 0
		for i, a := range r.All() {
			if place := places[a.ID]; place < i-8 || place > i+8 {
				late++
			}
		}
		if late > 0 {
			t.Errorf("%d came more than eight places from where they were due", late)
		}
		// A place is free for an instant whenever a callback's turn has come.
		harness.Eventually(t, 10*time.Second, "the lane is shown as held by its rate", func() error {
			lane, err := p.Lane(t.Context(), id)
			if err != nil || lane.Held != "rate_limited" || lane.Open == 0 {
				return fmt.Errorf("it is %+v, %v", lane, err)
			}
			return nil
		})
	})
}

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
