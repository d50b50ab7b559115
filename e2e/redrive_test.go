package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"
)

var redriveForm = flag.String("redrives", "short", "form of the redrive that is killed half-way: short (3,000 callbacks) or full (50,000)")

const (
	// redriveRate is how many callbacks a second are redriven, and liveRate how many others are accepted meanwhile.
	redriveRate = 500
	liveRate    = 50
	// liveNoise is how much longer than before the tail of the others may be during a redrive, and liveSlack what is added to that: the
	// machine that redrives also runs both receivers, the database and its disk.
	liveNoise = 3
	liveSlack = 50 * time.Millisecond
	// redrivePatience is how long a redrive may stand still: whoever did it is dead, and its lease has to run out.
	redrivePatience = 45 * time.Second
)

// A redriveBody is a redrive as the API shows it; fields that no test reads are left out.
type redriveBody struct {
	ID         string     `json:"id"`
	State      string     `json:"state"`
	Matched    int        `json:"matched"`
	Done       int        `json:"done"`
	Failed     int        `json:"failed"`
	FinishedAt *time.Time `json:"finished_at"`
}

func (c *client) redrive(ctx context.Context, id string) (r redriveBody, err error) {
	err = c.call(ctx, http.MethodGet, "/v1/redrives/"+id, nil, http.StatusOK, &r)
	return r, err
}

// Dead callbacks by the thousand are redriven at a rate, and half-way kill -9 takes the dispatcher that does it: each of them is attempted
// once more, no more and no less, and what others send meanwhile is as quick as before.
func TestARedriveIsKilledHalfWay(t *testing.T) {
	blackBox(t)
	n := 3000
	switch *redriveForm {
	case "short":
	case "full":
		n = 50_000
	default:
		t.Fatalf("-redrives is short or full, not %q", *redriveForm)
	}
	on(t, bothEnds, func(t *testing.T, b backend) {
		r := &redriven{lab: newLab(t, "redrive killed half-way", n > 3000), n: n}
		r.on = b
		r.live = listen(t, always(200, ""))
		r.run()
	})
}

// A redriven lab is one of a redrive of n callbacks, beside which others are accepted for a receiver that has nothing to do with it.
type redriven struct {
	*lab
	n    int
	live *receiver
	// going is the process that goes on when the other one is killed; nil: one is started then.
	going *process
	job   redriveBody
}

func (l *redriven) run() {
	first := l.serve()
	if l.on.redis != "" {
		l.going = l.serve()
	}
	began := time.Now()
	l.die()
	l.Logf("%d are dead after %s", l.n, time.Since(began).Round(10*time.Millisecond))

	stalled := stalls(l.T)
	before := l.calm(first.client)

	// Whoever is asked for it is the one who does it.
	l.begin(first)
	busy := newStream()
	other := first.client
	if l.going != nil {
		other = l.going.client
	}
	began = time.Now()
	l.beside(busy, other, func() bool { return l.job.Done >= l.n/2 })
	during := busy.waits(l.T, l.live, 10*time.Second)
	if l.job.State != "running" {
		l.Fatalf("half-way it is %s, with %d of %d done", l.job.State, l.job.Done, l.n)
	}
	at := time.Now()
	first.kill()
	took, halfway := at.Sub(began), l.job.Done
	tolls := l.toll()
	if l.going == nil {
		tolls.take(at, 0)
		other = l.lab.serve().client
	} else {
		tolls.take(at, 2*time.Second) // the other's own attempts are over by then
	}
	eventually(l, redrivePatience, "the redrive goes on", func() error {
		before := l.job.Done
		if l.look(other); l.job.Done == before && l.job.State == "running" {
			return fmt.Errorf("%d are done, as they were", l.job.Done)
		}
		return nil
	})
	stood := time.Since(at)
	resumed := l.job.Done
	rest := newStream()
	l.beside(rest, other, func() bool { return l.job.State != "running" })
	during = append(during, rest.waits(l.T, l.live, 10*time.Second)...)
	stall := stalled()

	if l.job.State != "done" || l.job.Matched != l.n || l.job.Done != l.n || l.job.Failed != 0 || l.job.FinishedAt == nil {
		l.Errorf("the redrive ended as %+v; want all %d done", l.job, l.n)
	}
	// No faster than it may, but for a second's worth at once and what is between two looks.
	if most := float64(redriveRate) * (took.Seconds() + 2); float64(halfway) > most {
		l.Errorf("%d were redriven in %s, which is more than %d/s", halfway, took, redriveRate)
	}
	l.settle(2 * time.Minute) // what the kill cut waits until the dead process's claims run out
	settled := time.Since(at)
	tolls.account()
	extra := l.onceMore(tolls)

	q := func(ds []time.Duration, q float64) time.Duration {
		return quantile(ds, q).Round(100 * time.Microsecond)
	}
	l.Logf("%s: %d dead redriven at %d/s, killed after %d, stood still for %s, went on at %d: all over %s after the kill: each attempted once more, %d sends beside that; %s",
		l.on.name, l.n, redriveRate, halfway, stood.Round(10*time.Millisecond), resumed, settled.Round(10*time.Millisecond), extra, tolls)
	l.Logf("%s: others at %d/s, from accept to arrival: before: median %s, p99 %s (of %d); during the redrive: median %s, p99 %s, most %s (of %d); the disk stalled for %s at most",
		l.on.name, liveRate, q(before, 0.5), q(before, 0.99), len(before), q(during, 0.5), q(during, 0.99), q(during, 1), len(during), stall)
	limit := func(calm []time.Duration) time.Duration {
		return liveNoise*quantile(calm, 0.99) + liveSlack + commits*stall
	}
	if p99 := quantile(during, 0.99); p99 > limit(before) {
		// The machine may have become another one meanwhile: then it still is, with nothing redriven.
		after := l.calm(other)
		l.Logf("%s: after the redrive: median %s, p99 %s (of %d)", l.on.name, q(after, 0.5), q(after, 0.99), len(after))
		if p99 > limit(after) {
			l.Errorf("p99 of the others is %s during the redrive, over %s", p99, max(limit(before), limit(after)))
		}
	}
}

// calm is how long others take while nothing is redriven.
func (l *redriven) calm(c *client) []time.Duration {
	l.Helper()
	s := newStream()
	s.run(l.Context(), c, l.live.url, liveRate, long(l.lab, 20*time.Second, 4*time.Second))
	return s.waits(l.T, l.live, 10*time.Second)
}

// die accepts the callbacks, has each attempted once and fail, and mends the receiver.
func (l *redriven) die() {
	l.Helper()
	l.w.behave(func(*hit) reply { return reply{status: 500} })
	l.acceptMany(l.n, func(i int) submission {
		ref := fmt.Sprint("dead-", i)
		return submission{
			"url": l.w.url + "/dead/" + ref, "ref": ref, "topic": "redrive.dead", "payload": payload(ref),
			"policy": submission{"tiers": []string{}, "timeout": "1s"},
		}
	})
	l.settle(5 * time.Minute)
	if n := l.w.count(); n != l.n {
		l.Fatalf("%d died of %d attempts", l.n, n)
	}
	// An answer takes so long that the kill finds some on the wire.
	l.w.behave(func(*hit) reply { return reply{status: 200, after: 30 * time.Millisecond} })
}

// begin tries the redrive, and begins it.
func (l *redriven) begin(p *process) {
	l.Helper()
	asked := submission{
		"action": "retry", "filter": submission{"topic": "redrive.dead"}, "rate": fmt.Sprintf("%d/s", redriveRate),
		"ladder": "restart", "reason": "the receiver is back",
	}
	if err := p.call(l.Context(), http.MethodPost, "/v1/redrives", asked, http.StatusAccepted, &l.job); err != nil {
		l.Fatal(err)
	}
	asked["dry_run"] = true
	var counted redriveBody
	if err := p.call(l.Context(), http.MethodPost, "/v1/redrives", asked, http.StatusOK, &counted); err != nil {
		l.Fatal(err)
	}
	// It looks at what is dead still, which the redrive itself makes fewer.
	if counted.Matched > l.n || counted.Matched < l.n*9/10 {
		l.Errorf("a dry run counts %d of %d", counted.Matched, l.n)
	}
}

// look reads the redrive. It never goes back, and never does more than it has found.
func (l *redriven) look(c *client) {
	l.Helper()
	now, err := c.redrive(l.Context(), l.job.ID)
	if err != nil {
		l.Fatal(err)
	}
	if now.Done < l.job.Done || now.Done+now.Failed > now.Matched {
		l.Errorf("a redrive of which %d were done says %d done and %d failed of %d", l.job.Done, now.Done, now.Failed, now.Matched)
	}
	l.job = now
}

// beside has others accepted until the redrive has come so far.
func (l *redriven) beside(s *stream, c *client, far func() bool) {
	l.Helper()
	deadline := time.Now().Add(3*time.Duration(l.n/redriveRate)*time.Second + redrivePatience)
	for l.look(c); !far(); l.look(c) {
		if time.Now().After(deadline) {
			l.Fatalf("%d of %d are done", l.job.Done, l.n)
		}
		s.run(l.Context(), c, l.live.url, liveRate, 500*time.Millisecond)
	}
}

// onceMore fails the test if any of them was revived, attempted or sent another number of times than once more. What the kill found in
// flight may have been sent twice: it returns how many were.
func (l *redriven) onceMore(tolls *toll) (extra int) {
	l.Helper()
	complain := complaints(l)
	c := l.one().client
	hit := tolls.bounds(0).Hit
	all, err := c.list(l.Context(), url.Values{"topic": {"redrive.dead"}})
	if err != nil {
		l.Fatal(err)
	}
	revived, err := c.redrivenBy(l.Context(), l.job.ID)
	if err != nil {
		l.Fatal(err)
	}
	if len(all) != l.n || len(revived) != l.n {
		l.Errorf("%d callbacks, of which %d stand in the audit as redriven; want %d", len(all), len(revived), l.n)
	}
	for _, cb := range all {
		if cb.State != "succeeded" || cb.AttemptCount != 2 {
			complain("%s is %s (%s) after %d attempts, want succeeded after 2", cb.ID, cb.State, cb.Reason, cb.AttemptCount)
		}
		if times := revived[cb.ID]; times != 1 {
			complain("%s was revived %d times", cb.ID, times)
		}
		sent := l.w.times(cb.ID)
		if sent < 2 || sent > 2+hit[cb.ID] {
			complain("%s was sent %d times, want 2, and %d more that the kill may have cut", cb.ID, sent, hit[cb.ID])
		}
		extra += max(sent-2, 0)
	}
	// A process has no more attempts in flight than workers.
	if len(hit) > 512 {
		l.Errorf("the kill found %d in flight", len(hit))
	}
	return extra
}

// redrivenBy is how often each callback stands in the audit as changed by the redrive.
func (c *client) redrivenBy(ctx context.Context, id string) (map[string]int, error) {
	times := map[string]int{}
	query := url.Values{"limit": {"500"}}
	for {
		var page struct {
			Data []struct {
				Action string          `json:"action"`
				Object string          `json:"object"`
				Reason string          `json:"reason"`
				Detail json.RawMessage `json:"detail"`
			} `json:"data"`
			NextCursor *string `json:"next_cursor"`
		}
		if err := c.call(ctx, http.MethodGet, "/v1/audit?"+query.Encode(), nil, http.StatusOK, &page); err != nil {
			return nil, err
		}
		for _, e := range page.Data {
			if e.Action != "callback.retry" {
				continue
			}
			var detail struct {
				Redrive string `json:"redrive"`
			}
			if err := json.Unmarshal(e.Detail, &detail); err != nil || detail.Redrive != id || e.Reason == "" {
				return nil, errors.Join(err, fmt.Errorf("%s is in the audit with %s, %q", e.Object, e.Detail, e.Reason))
			}
			times["cb_"+e.Object]++
		}
		if page.NextCursor == nil {
			return times, nil
		}
		query.Set("cursor", *page.NextCursor)
	}
}
