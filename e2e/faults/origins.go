package faults

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// eachOrigin is how many callbacks each of the origins has, and originWorkers how many attempts may be in
// flight.
const (
	eachOrigin    = 2
	originWorkers = 256
)

// manyOriginsDown has callbacks for thousands of origins that refuse connections, and then come up all at
// once.
func manyOriginsDown(tr *trial) {
	origins := newOrigins(tr, sized(1_000, 2_000, 10_000))
	tr.Recorder.SetScript(func(*harness.Request) harness.Reply {
		return harness.Reply{Status: 200,
			After: 20 * time.Millisecond}
	})
	p := tr.Serve("--workers", fmt.Sprint(originWorkers))
	tr.MarkFault()
	began := time.Now()
	cpu, err := harness.CPUByName()
	if err != nil {
		tr.Fatal(err)
	}
	origins.accept(tr, p)
	peak := tr.watchDown(p, sized(12*time.Second, 15*time.Second, 40*time.Second))
	after, err := harness.CPUByName()
	if err != nil {
		tr.Fatal(err)
	}
	calls, errCalls := p.Metric("dispatcher_index_call_seconds_count", `op="claim"`)
	spent, errSpent := p.Metric("dispatcher_index_call_seconds_sum", `op="claim"`)
	if err := errors.Join(errCalls, errSpent); err != nil && tr.Backend.Redis != "" {
		tr.Fatal(err)
	}
	attempts := tr.sqlCount(`SELECT count(*) FROM attempts`)
	down := time.Since(began)
	tr.Remark("%d origins down for %s: %d attempts refused (%.0f/s), CPU of the dispatcher %.0f%% of one "+
		"core, goroutines at most %.0f, a claim took %.1f ms on average",
		len(origins.addresses), down.Round(time.Second), attempts, float64(attempts)/down.Seconds(),
		100*(after["dispatcher"]-cpu["dispatcher"])/down.Seconds(), peak, 1000*spent/max(calls, 1))
	// One for each attempt in flight, and its connection's two; the rest is the process itself.
	if limit := float64(4*originWorkers + 500); peak > limit {
		tr.Errorf("%.0f goroutines while all origins were down, over %.0f", peak, limit)
	}
	origins.open(tr)
	up := time.Now()
	tr.MarkFault()
	tr.Settle(5 * time.Minute)
	origins.recovered(tr, up)
	tr.Verdict(judge.Bounds{})
}

// origins are addresses of the recorder that refuse connections until they are opened.
type origins struct{ addresses []string }

// newOrigins chooses addresses of 127/8, two hundred on each of its small networks, on one port.
func newOrigins(tr *trial, n int) *origins {
	tr.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		tr.Fatal(err)
	}
	// A listener each, and the connections that are kept.
	if need := uint64(n + n/2 + 500); limit.Cur < need {
		tr.Fatalf("%d origins need %d open files, and the limit is %d: raise it with ulimit -n", n, need, limit.Cur)
	}
	port := harness.FreePorts(tr, 1)[0]
	o := &origins{}
	for i := range n {
		o.addresses = append(o.addresses, fmt.Sprintf("127.1.%d.%d:%s", i/200, 1+i%200, port))
	}
	return o
}

// accept hands over each origin's callbacks, one batch after another: the machine is as busy with refused
// attempts meanwhile.
func (o *origins) accept(tr *trial, p *harness.Process) {
	tr.Helper()
	const batch = 500
	n := len(o.addresses) * eachOrigin
	for first := 0; first < n; first += batch {
		var some []harness.Submission
		for i := first; i < min(first+batch, n); i++ {
			ref := fmt.Sprint("origin-", i)
			some = append(some, harness.Submission{
				"url": "http://" + o.addresses[i%len(o.addresses)] + "/plain/" + ref, "ref": ref,
				"payload": harness.Payload(ref),
				"policy": harness.Submission{"tiers": []string{"5s"}, "repeat_last": true, "deadline": "1h",
					"timeout": "10s", "jitter": 0.5},
			})
		}
		accepted, err := p.AcceptBatch(tr.Context(), some)
		if err != nil {
			tr.Fatal(err)
		}
		for i := range accepted {
			tr.NoteAccepted(accepted[i].ID, accepted[i].Ref)
		}
	}
}

// open has the recorder listen on all of them.
func (o *origins) open(tr *trial) {
	tr.Helper()
	// Ten thousand connections need not be kept.
	tr.Recorder.Server.SetKeepAlivesEnabled(false)
	for _, address := range o.addresses {
		listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp4", address)
		if err != nil {
			tr.Fatal(err)
		}
		tr.Recorder.Serve(listener)
	}
}

// watchDown returns the most goroutines that the process had in that time.
func (tr *trial) watchDown(p *harness.Process, length time.Duration) float64 {
	tr.Helper()
	most := 0.0
	for end := time.Now().Add(length); time.Now().Before(end); {
		n, err := p.Metric("go_goroutines")
		if err != nil {
			tr.Fatal(err)
		}
		most = max(most, n)
		time.Sleep(200 * time.Millisecond) // a sample
	}
	return most
}

// sqlCount reads one number.
func (tr *trial) sqlCount(query string) int {
	tr.Helper()
	var n int
	if err := tr.Database().QueryRowContext(tr.Context(), query).Scan(&n); err != nil {
		tr.Fatal(err)
	}
	return n
}

// recovered judges how the origins were served once they were up: within the cap, all alike, and without a
// herd.
func (o *origins) recovered(tr *trial, up time.Time) {
	tr.Helper()
	arrivals, err := tr.Recorder.Journal.Read()
	if err != nil {
		tr.Fatal(err)
	}
	perSecond := map[int]int{}
	last := time.Duration(0)
	for _, a := range arrivals {
		at := a.At.Sub(up)
		perSecond[int(at.Seconds())]++
		last = max(last, at)
	}
	most := 0
	for _, n := range perSecond {
		most = max(most, n)
	}
	average := float64(len(arrivals)) / max(1, last.Seconds())
	first, share := tr.servedEach(up)
	tr.Remark("up again: all of them served in %s; an origin's first success came at p50 %s, p99 %s, most "+
		"%s, and after half of all sends %.0f%% had one; %.0f sends/s on average, %d in the busiest second, at "+
		"most %d at once",
		last.Round(100*time.Millisecond), first.P50.Round(100*time.Millisecond),
		first.P99.Round(100*time.Millisecond), first.Most.Round(100*time.Millisecond),
		100*share, average, most, tr.Recorder.Peak())
	if tr.Recorder.Peak() > originWorkers {
		tr.Errorf("%d requests at once, and the process has %d workers", tr.Recorder.Peak(), originWorkers)
	}
	if float64(most) > 5*average+50 {
		tr.Errorf("a herd: %d sends in one second, %.0f on average", most, average)
	}
	// Half of the origins have had one by the time that half of everything is served, after a tier with its
	// jitter, which is at most 7.5 s, has brought them back.
	if limit := 8*time.Second + last/2; first.P50 > limit {
		tr.Errorf("half of the origins waited over %s for their first success", limit)
	}
}

// servedEach is how long after they came up the origins had their first success, and which share of them had
// one when half of all callbacks had ended.
func (tr *trial) servedEach(up time.Time) (judge.Quantiles, float64) {
	tr.Helper()
	rows, err := tr.Database().QueryContext(tr.Context(),
		`SELECT url, finished_at FROM callbacks WHERE state = 'succeeded' ORDER BY finished_at`)
	if err != nil {
		tr.Fatal(err)
	}
	defer rows.Close()
	var all []time.Duration
	n, atHalf := 0, 0
	seen := map[string]bool{}
	for rows.Next() {
		var url string
		var ms int64
		if err := rows.Scan(&url, &ms); err != nil {
			tr.Fatal(err)
		}
		origin, _, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
		if !seen[origin] {
			seen[origin] = true
			all = append(all, harness.Moment(ms).Sub(up))
		}
		if n++; n <= tr.Count()/2 {
			atHalf = len(seen)
		}
	}
	if err := rows.Err(); err != nil {
		tr.Fatal(err)
	}
	return judge.QuantilesOf(all), float64(atHalf) / float64(max(1, len(seen)))
}
