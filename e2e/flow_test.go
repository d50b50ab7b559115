package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"
	"time"
)

// An endpointBody is an endpoint as the API is given and shows it; fields that no test reads are left out.
type endpointBody map[string]any

func (p *process) endpoint(t *testing.T, e endpointBody) string {
	t.Helper()
	var made struct {
		ID string `json:"id"`
	}
	if err := p.call(t.Context(), http.MethodPost, "/v1/endpoints", e, http.StatusCreated, &made); err != nil {
		t.Fatal(err)
	}
	return made.ID
}

// A laneBody is a lane as the API shows it.
type laneBody struct {
	Lane     string `json:"lane"`
	Open     int    `json:"open"`
	InFlight int    `json:"in_flight"`
	Held     string `json:"held"`
	Breaker  struct {
		State      string `json:"state"`
		Unanswered int    `json:"unanswered"`
	} `json:"breaker"`
}

func (p *process) lane(ctx context.Context, key string) (laneBody, error) {
	var page struct {
		Data []laneBody `json:"data"`
	}
	if err := p.call(ctx, http.MethodGet, "/v1/lanes?search="+url.QueryEscape(key), nil, http.StatusOK, &page); err != nil {
		return laneBody{}, err
	}
	for _, l := range page.Data {
		if l.Lane == key {
			return l, nil
		}
	}
	return laneBody{}, fmt.Errorf("no lane %s among %d", key, len(page.Data))
}

// flood accepts n callbacks to the endpoint, in batches, and returns their places in that order.
func (p *process) flood(t *testing.T, endpoint string, n int) map[string]int {
	t.Helper()
	places := make(map[string]int, n)
	for len(places) < n {
		batch := make([]submission, min(500, n-len(places)))
		for i := range batch {
			batch[i] = submission{"endpoint": endpoint, "payload": i}
		}
		accepted, err := p.acceptBatch(t.Context(), batch)
		if err != nil {
			t.Fatal(err)
		}
		for _, cb := range accepted {
			places[cb.ID] = len(places)
		}
	}
	return places
}

// With ten times as much to send as its rate allows, an endpoint gets its rate, in the order in which they were due.
func TestARateIsExact(t *testing.T) {
	blackBox(t)
	on(t, bothEnds, func(t *testing.T, b backend) {
		const rate, seconds = 50, 9
		r := listen(t, always(200, ""))
		p := serve(t, launch{on: b})
		id := p.endpoint(t, endpointBody{"url": r.url, "rate": fmt.Sprintf("%d/s", rate)})
		places := p.flood(t, id, 10*rate*seconds)
		eventually(t, 30*time.Second, "it begins", func() error {
			if r.count() < rate {
				return fmt.Errorf("%d arrived", r.count())
			}
			return nil
		})
		time.Sleep(seconds * time.Second) // what is measured is a span of time
		all := r.all()[rate:]
		first := all[0].at
		n := 0
		for _, a := range all {
			if a.at.Sub(first) < (seconds-1)*time.Second {
				n++
			}
		}
		want := rate * (seconds - 1)
		t.Logf("%d arrived in %d s at %d/s", n, seconds-1, rate)
		if n < want*98/100 || n > want*102/100 {
			t.Errorf("%d arrived in %d s; want %d, within 2 %%", n, seconds-1, want)
		}
		late := 0
		for i, a := range r.all() {
			if place := places[a.id]; place < i-8 || place > i+8 {
				late++
			}
		}
		if late > 0 {
			t.Errorf("%d came more than eight places from where they were due", late)
		}
		// A place is free for an instant whenever a callback's turn has come.
		eventually(t, 10*time.Second, "the lane is shown as held by its rate", func() error {
			lane, err := p.lane(t.Context(), id)
			if err != nil || lane.Held != "rate_limited" || lane.Open == 0 {
				return fmt.Errorf("it is %+v, %v", lane, err)
			}
			return nil
		})
	})
}

// A stop is in force within a second, whichever process it is asked of and whichever sends; what was open goes on when it ends.
func TestAStopTakesEffectWithinASecond(t *testing.T) {
	blackBox(t)
	on(t, bothEnds, func(t *testing.T, b backend) {
		r := listen(t, func(*arrival) reply { return reply{status: 200, after: 5 * time.Millisecond} })
		processes := []*process{serve(t, launch{on: b})}
		if b.redis != "" {
			processes = append(processes, serve(t, launch{on: b}))
		}
		p := processes[0]
		id := p.endpoint(t, endpointBody{"url": r.url})
		const n = 30_000
		p.flood(t, id, n)
		for _, stop := range []struct{ pause, resume string }{
			{"/v1/endpoints/" + id + "/pause", "/v1/endpoints/" + id + "/resume"},
			{"/v1/lanes/" + id + "/pause", "/v1/lanes/" + id + "/resume"},
			{"/v1/pause", "/v1/resume"},
		} {
			before := r.count()
			eventually(t, 30*time.Second, "it is being sent", func() error {
				if r.count() < before+200 {
					return fmt.Errorf("%d arrived", r.count()-before)
				}
				return nil
			})
			if err := processes[len(processes)-1].call(t.Context(), http.MethodPost, stop.pause, submission{"reason": "a test"}, http.StatusOK, nil); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second) // the time that it may take
			stopped := r.count()
			time.Sleep(2 * time.Second)
			if after := r.count(); after != stopped {
				t.Errorf("%s: %d arrived more than a second later", stop.pause, after-stopped)
			}
			if stopped >= n {
				t.Fatalf("%s: all had arrived before it", stop.pause)
			}
			if err := p.call(t.Context(), http.MethodPost, stop.resume, nil, http.StatusOK, nil); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, 2*time.Minute, "all arrive", func() error {
			if r.count() < n {
				return fmt.Errorf("%d of %d arrived", r.count(), n)
			}
			return nil
		})
		await(t, p.client, time.Minute)
		if got := r.count(); got != n {
			t.Errorf("%d arrived of %d", got, n)
		}
	})
}

// A destination that does not answer is left alone but for a probe now and then; when it is back, all that waited is sent.
func TestABreakerOpensAndCloses(t *testing.T) {
	blackBox(t)
	t.Parallel() // it mostly waits
	on(t, bothEnds, func(t *testing.T, b backend) {
		p := serve(t, launch{on: b})
		address := "127.0.0.1:" + freePorts(t, 1)[0]
		id := p.endpoint(t, endpointBody{
			"url": "http://" + address, "policy": submission{"tiers": []string{"1s"}, "repeat_last": true, "deadline": "1h"},
		})
		const n = 60
		p.flood(t, id, n)
		eventually(t, 60*time.Second, "the breaker opens", func() error {
			lane, err := p.lane(t.Context(), id)
			if err == nil && lane.Breaker.State != "open" {
				err = fmt.Errorf("%d unanswered, %s", lane.Breaker.Unanswered, lane.Breaker.State)
			}
			return err
		})
		attempts := func() float64 {
			made, err := p.metric("dispatcher_attempts_total", `class="connect_refused"`)
			if err != nil {
				t.Fatal(err)
			}
			return made
		}
		time.Sleep(time.Second) // for those in flight
		before := attempts()
		time.Sleep(20 * time.Second) // one probe or two fit in
		if made := attempts() - before; made < 1 || made > 2 {
			t.Errorf("%v attempts in 20 s with the breaker open; want a probe or two", made)
		}
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		var arrived atomic.Int64
		server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { arrived.Add(1) })}}
		server.Start()
		t.Cleanup(server.Close)
		await(t, p.client, time.Minute)
		if got := arrived.Load(); got != n {
			t.Errorf("%d of %d arrived", got, n)
		}
		if lane, err := p.lane(t.Context(), id); err != nil || lane.Breaker.State != "closed" {
			t.Errorf("the lane is shown as %+v, %v", lane, err)
		}
	})
}
