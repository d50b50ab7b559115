package faults

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// The breaker's numbers, from docs/guide/sending.md.
const (
	breakerOpensAt = 20
	breakerRest    = 15 * time.Second
)

// Each endpoint of a crowd gets crowdEach callbacks. Their third attempts come ten seconds after the first,
// and only these bring the endpoint to breakerOpensAt attempts. So its breaker opens then.
const (
	crowdEach = 8
	crowdTier = 5 * time.Second
	// crowdWorkers is small, so that a test would see a crowd exceed it.
	crowdWorkers = 64
	// atFirst is the concurrency of a new lane.
	atFirst = 4
)

// A member is one endpoint of a crowd, with its own address.
type member struct {
	// rests is when its breaker was first seen open with no attempt in flight. Every later arrival while it
	// is down is a probe.
	rests    time.Time
	arrivals []harness.Arrival // in order
}

// crowdFails lets thousands of endpoints hang up, and then lets all of them respond at once. While they are
// down each gets only a probe every 15 seconds. After that each first gets one probe, and more only as it
// responds. All together never exceed the slots.
func crowdFails(tr *trial) {
	n := testserver.Sized(200, 2_000, 10_000)
	limit := 2*time.Minute + time.Duration(n)*60*time.Millisecond
	tr.Receiver.Answer(harness.Always(harness.Reply{Cut: true, After: 5 * time.Millisecond}))
	tr.Receiver.Server.SetKeepAlivesEnabled(false) // ten thousand idle connections would cost too much
	p := tr.ServeAll("--workers", fmt.Sprint(crowdWorkers))
	began := time.Now()
	members, byLane := tr.enrol(p, n)
	accepted, goroutines := time.Since(began), 0
	tr.Eventually(limit, "every breaker opens", func() error {
		some, err := p.Goroutines()
		goroutines = max(goroutines, some)
		return errors.Join(err, tr.rested(p, byLane))
	})
	opened := time.Since(began)
	if goroutines > maxGoroutines {
		tr.Errorf("%d goroutines while all endpoints were down, over %d", goroutines, maxGoroutines)
	}
	back := time.Now()
	tr.Receiver.Answer(harness.Always(harness.Reply{After: 20 * time.Millisecond}))
	tr.MarkFault()
	tr.Settle(limit)
	tr.Remark("%d endpoints with %d callbacks each: accepted in %s, all open after %s; at most %d goroutines",
		n, crowdEach, accepted, opened, goroutines)
	tr.judgeCrowd(members, back)
	tr.Verdict(judge.Bounds{})
}

// enrol creates the endpoints, and accepts the callbacks of each.
func (tr *trial) enrol(p *harness.Process, n int) (members []*member, byLane map[string]*member) {
	port, byLane := tr.everywhere(), map[string]*member{}
	for some := range slices.Chunk(harness.Numbers(n), 1000) {
		var endpoints []harness.Submission
		for _, i := range some {
			endpoints = append(endpoints, harness.Submission{
				"external_id": fmt.Sprint("member-", i),
				"url":         fmt.Sprintf("http://127.1.%d.%d:%s/", i/200, 1+i%200, port),
				"policy": harness.Submission{"tiers": []string{crowdTier.String()}, "repeat_last": true,
					"deadline": "1h", "timeout": "10s"},
			})
		}
		var made struct{ Results []client.EndpointResult }
		p.Post("/v1/endpoints/batch", harness.Submission{"endpoints": endpoints}, &made)
		for _, r := range made.Results {
			members = append(members, &member{})
			byLane[r.Endpoint.ID] = members[len(members)-1]
		}
	}
	if len(byLane) != n {
		tr.Fatalf("%d of %d endpoints were created", len(byLane), n)
	}
	tr.AcceptMany(n*crowdEach, func(i int) harness.Submission {
		ref := fmt.Sprintf("member-%d-%d", i/crowdEach, i%crowdEach)
		return harness.Submission{"endpoint": fmt.Sprint("member-", i/crowdEach), "ref": ref,
			"payload": harness.Payload(ref), "idempotency_key": ref}
	})
	return members, byLane
}

// rested reads every lane, and returns an error with the number of lanes that have not yet been seen with an
// open breaker and no attempt in flight.
func (tr *trial) rested(p *harness.Process, byLane map[string]*member) error {
	lanes, err := harness.Collect(p.Lanes("", false))
	if err != nil {
		return err
	}
	for _, l := range lanes {
		open := l.Breaker != nil && l.Breaker.State == "open"
		idle := l.InFlight != nil && *l.InFlight == 0
		if m := byLane[l.Lane.Lane]; m != nil && m.rests.IsZero() && open && idle {
			m.rests = time.Now()
		}
	}
	awake := 0
	for _, m := range byLane {
		if m.rests.IsZero() {
			awake++
		}
	}
	if awake > 0 {
		time.Sleep(250 * time.Millisecond) // slower than Pause: it reads many lanes
		return fmt.Errorf("of %d endpoints %d are still tried", len(byLane), awake)
	}
	return nil
}

// judgeCrowd compares the arrivals with the limits of the breaker and the slots.
func (tr *trial) judgeCrowd(members []*member, back time.Time) {
	arrivals := tr.Receiver.All()
	of := map[string]*member{} // by callback
	for _, a := range tr.Accepted {
		var n int
		_, err := fmt.Sscanf(a.Ref, "member-%d-", &n)
		tr.Check(err)
		of[a.ID] = members[n]
	}
	down := 0
	for _, a := range arrivals {
		m := of[a.ID]
		m.arrivals = append(m.arrivals, a)
		if a.At.Before(back) {
			down++
		}
	}
	violation, processes := harness.Violations(tr), len(tr.Alive())
	// Lanes that have never responded share three quarters of the slots.
	slots := (crowdWorkers - crowdWorkers/4) * processes
	if n := atOnce(arrivals[:down]); n > slots {
		violation("%d attempts at once of endpoints that never answered; there are %d slots for them", n,
			slots)
	}
	if n := atOnce(arrivals); n > crowdWorkers*processes {
		violation("%d attempts at once, with %d slots", n, crowdWorkers*processes)
	}
	var probed, drained []time.Duration
	for n, m := range members {
		first, err := m.judge(back)
		if err != nil {
			violation("endpoint %d: %v", n, err)
			continue
		}
		probed = append(probed, first.Sub(back))
		drained = append(drained, m.arrivals[len(m.arrivals)-1].End.Sub(first))
	}
	q, d := judge.QuantilesOf(probed), judge.QuantilesOf(drained)
	tr.Remark("%d attempts while they were down, %d since; probed after %s; the rest of each within %s", down,
		len(arrivals)-down, q, d)
}

// judge judges one endpoint. It returns the time of the first probe that got a response.
func (m *member) judge(back time.Time) (first time.Time, err error) {
	down, ok := slices.BinarySearchFunc(m.arrivals, back, func(a harness.Arrival, t time.Time) int {
		return a.At.Compare(t)
	})
	if down < breakerOpensAt || ok || down == len(m.arrivals) {
		return first, fmt.Errorf("it was tried %d times of %d before it was back", down, len(m.arrivals))
	}
	if n := atOnce(m.arrivals[:down]); n > atFirst {
		return first, fmt.Errorf("%d attempts at once before it had answered any", n)
	}
	for i, a := range m.arrivals {
		if i <= down && a.At.After(m.rests) {
			if rest := a.At.Sub(m.arrivals[i-1].End); rest < breakerRest {
				return first, fmt.Errorf("attempt %d came %s after the one before it", i+1, rest)
			}
		}
		present, answers := 1, 0
		for _, before := range m.arrivals[:i] {
			switch {
			case before.End.After(a.At):
				present++
			case before.Answered:
				answers++
			}
		}
		// One probe is allowed first. After its response one attempt at a time is allowed, and twice as many
		// after each further response.
		if most := 1 << max(0, min(answers, 6)-1); i >= down && present > most {
			return first, fmt.Errorf("%d attempts at once after %d answers, %d are allowed", present, answers,
				most)
		}
	}
	return m.arrivals[down].At, nil
}

// atOnce returns the highest number of arrivals without a response at one moment. The arrivals are in order.
func atOnce(arrivals []harness.Arrival) int {
	ends := make([]time.Time, 0, len(arrivals))
	for _, a := range arrivals {
		ends = append(ends, a.End)
	}
	slices.SortFunc(ends, time.Time.Compare)
	most, over := 0, 0
	for i, a := range arrivals {
		for over < len(ends) && !ends[over].After(a.At) {
			over++
		}
		most = max(most, i+1-over)
	}
	return most
}
