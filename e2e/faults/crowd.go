package faults

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// The breaker's numbers, as docs/guide/sending.md has them.
const (
	breakerOpensAt = 20
	breakerRest    = 15 * time.Second
)

// What each endpoint of a crowd is given. Every callback of it is attempted a third time ten seconds after
// the first, and only with the third of those has it had twenty attempts: so its breaker opens with them.
const (
	crowdEach = 8
	crowdTier = 5 * time.Second
	// crowdWorkers are few, so that a crowd would be seen to go past them.
	crowdWorkers = 64
	// atFirst is the concurrency of a new lane.
	atFirst = 4
)

// A member is one endpoint of a crowd, at an address of its own.
type member struct {
	// rests is when its breaker was seen open with nothing on its way any more: all that arrives after that
	// is a probe.
	rests    time.Time
	arrivals []harness.Arrival // in order
}

// crowdFails has thousands of endpoints hang up, and all of them answer at once. They are left alone but for
// a probe each fifteen seconds. Back again, each is sent one probe, and more only as it answers; all together
// never more than there are slots.
func crowdFails(tr *trial) {
	n := sized(200, 2_000, 10_000)
	limit := 2*time.Minute + time.Duration(n)*60*time.Millisecond
	// And it hangs up.
	tr.Receiver.Answer(harness.Always(harness.Reply{Cut: true, After: 5 * time.Millisecond}))
	tr.Receiver.Server.SetKeepAlivesEnabled(false) // ten thousand connections need not be kept
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

// enrol makes the endpoints, and accepts what each is to be sent.
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
		tr.Fatalf("%d endpoints were made of %d", len(byLane), n)
	}
	tr.AcceptMany(n*crowdEach, func(i int) harness.Submission {
		ref := fmt.Sprintf("member-%d-%d", i/crowdEach, i%crowdEach)
		return harness.Submission{"endpoint": fmt.Sprint("member-", i/crowdEach), "ref": ref,
			"payload": harness.Payload(ref), "idempotency_key": ref}
	})
	return members, byLane
}

// rested looks at every lane, and says how many have never been seen with an open breaker and nothing on
// their way.
func (tr *trial) rested(p *harness.Process, byLane map[string]*member) error {
	lanes, err := harness.Collect(p.Lanes("", false))
	if err != nil {
		return err
	}
	for _, l := range lanes {
		if m := byLane[l.Lane.Lane]; m != nil && m.rests.IsZero() && l.Breaker != nil &&
			l.Breaker.State == "open" &&
			l.InFlight != nil && *l.InFlight == 0 {
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
		time.Sleep(250 * time.Millisecond) // a poll, slower than pause: it looks at many
		return fmt.Errorf("of %d endpoints %d are still tried", len(byLane), awake)
	}
	return nil
}

// judgeCrowd holds what arrived against what a breaker and the slots allow.
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
	complain, processes := harness.Violations(tr), len(tr.Alive())
	// Lanes that have never answered share three quarters of the slots.
	slots := (crowdWorkers - crowdWorkers/4) * processes
	if n := atOnce(arrivals[:down]); n > slots {
		complain("%d attempts at once of endpoints that never answered; there are %d slots for them", n,
			slots)
	}
	if n := atOnce(arrivals); n > crowdWorkers*processes {
		complain("%d attempts at once, with %d slots", n, crowdWorkers*processes)
	}
	var probed, drained []time.Duration
	for n, m := range members {
		first, err := m.judge(back)
		if err != nil {
			complain("endpoint %d: %v", n, err)
			continue
		}
		probed = append(probed, first.Sub(back))
		drained = append(drained, m.arrivals[len(m.arrivals)-1].End.Sub(first))
	}
	q, d := judge.QuantilesOf(probed), judge.QuantilesOf(drained)
	tr.Remark("%d attempts while they were down, %d since; probed after %s; each one's rest within %s", down,
		len(arrivals)-down, q, d)
}

// judge is that of one endpoint. It returns when the first probe that it answered came.
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
		// One probe; after its answer one at a time, and twice as many after each answer more.
		if most := 1 << max(0, min(answers, 6)-1); i >= down && present > most {
			return first, fmt.Errorf("%d attempts at once after %d answers, %d are allowed", present, answers,
				most)
		}
	}
	return m.arrivals[down].At, nil
}

// atOnce is the most arrivals, of those in order, that were being answered at one moment.
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
