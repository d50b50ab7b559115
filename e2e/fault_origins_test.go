package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/judge"
)

// eachOrigin is how many callbacks each of the origins has, and originWorkers how many attempts may be in flight.
const (
	eachOrigin    = 2
	originWorkers = 256
)

// manyOriginsDown has callbacks for thousands of origins that refuse connections, and then come up all at once.
func manyOriginsDown(l *lab) {
	origins := newOrigins(l, long(l, 10_000, 1_000))
	l.w.behave(func(*hit) reply { return reply{status: 200, after: 20 * time.Millisecond} })
	p := l.serve("--workers", fmt.Sprint(originWorkers))
	l.struck()
	began := time.Now()
	cpu, err := cpuByName()
	if err != nil {
		l.Fatal(err)
	}
	origins.accept(l, p)
	peak := l.watchDown(p, long(l, 40*time.Second, 12*time.Second))
	after, err := cpuByName()
	if err != nil {
		l.Fatal(err)
	}
	calls, errCalls := p.metric("dispatcher_index_call_seconds_count", `op="claim"`)
	spent, errSpent := p.metric("dispatcher_index_call_seconds_sum", `op="claim"`)
	if err := errors.Join(errCalls, errSpent); err != nil && l.on.redis != "" {
		l.Fatal(err)
	}
	attempts := l.sqlCount(`SELECT count(*) FROM attempts`)
	down := time.Since(began)
	l.remark("%d origins down for %s: %d attempts refused (%.0f/s), CPU of the dispatcher %.0f%% of one core, goroutines at most %.0f, a claim took %.1f ms on average",
		len(origins.addresses), down.Round(time.Second), attempts, float64(attempts)/down.Seconds(),
		100*(after["dispatcher"]-cpu["dispatcher"])/down.Seconds(), peak, 1000*spent/max(calls, 1))
	// One for each attempt in flight, and its connection's two; the rest is the process itself.
	if limit := float64(4*originWorkers + 500); peak > limit {
		l.Errorf("%.0f goroutines while all origins were down, over %.0f", peak, limit)
	}
	origins.open(l)
	up := time.Now()
	l.struck()
	l.settle(5 * time.Minute)
	origins.recovered(l, up)
	l.verdict(judge.Bounds{})
}

// origins are addresses of the witness that nobody listens on until they are opened.
type origins struct{ addresses []string }

// newOrigins chooses addresses of 127/8, two hundred on each of its small networks, on one port.
func newOrigins(l *lab, n int) *origins {
	l.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		l.Fatal(err)
	}
	// A listener each, and the connections that are kept.
	if need := uint64(n + n/2 + 500); limit.Cur < need {
		l.Fatalf("%d origins need %d open files, and the limit is %d: raise it with ulimit -n", n, need, limit.Cur)
	}
	port := freePorts(l, 1)[0]
	o := &origins{}
	for i := range n {
		o.addresses = append(o.addresses, fmt.Sprintf("127.1.%d.%d:%s", i/200, 1+i%200, port))
	}
	return o
}

// accept hands over each origin's callbacks, one batch after another: the machine is as busy with refused attempts meanwhile.
func (o *origins) accept(l *lab, p *process) {
	l.Helper()
	const batch = 500
	n := len(o.addresses) * eachOrigin
	for first := 0; first < n; first += batch {
		var some []submission
		for i := first; i < min(first+batch, n); i++ {
			ref := fmt.Sprint("origin-", i)
			some = append(some, submission{
				"url": "http://" + o.addresses[i%len(o.addresses)] + "/plain/" + ref, "ref": ref, "payload": payload(ref),
				"policy": submission{"tiers": []string{"5s"}, "repeat_last": true, "deadline": "1h", "timeout": "10s", "jitter": 0.5},
			})
		}
		accepted, err := p.acceptBatch(l.Context(), some)
		if err != nil {
			l.Fatal(err)
		}
		for i := range accepted {
			l.note(accepted[i].ID, accepted[i].Ref)
		}
	}
}

// open has the witness listen on all of them.
func (o *origins) open(l *lab) {
	l.Helper()
	// Ten thousand connections need not be kept.
	l.w.server.SetKeepAlivesEnabled(false)
	for _, address := range o.addresses {
		listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp4", address)
		if err != nil {
			l.Fatal(err)
		}
		l.w.serve(listener)
	}
}

// watchDown returns the most goroutines that the process had in that time.
func (l *lab) watchDown(p *process, length time.Duration) float64 {
	l.Helper()
	most := 0.0
	for end := time.Now().Add(length); time.Now().Before(end); {
		n, err := p.metric("go_goroutines")
		if err != nil {
			l.Fatal(err)
		}
		most = max(most, n)
		time.Sleep(200 * time.Millisecond) // a sample
	}
	return most
}

// sqlCount reads one number.
func (l *lab) sqlCount(query string) int {
	l.Helper()
	var n int
	if err := l.database().QueryRowContext(l.Context(), query).Scan(&n); err != nil {
		l.Fatal(err)
	}
	return n
}

// recovered judges how the origins were served once they were up: within the cap, all alike, and without a herd.
func (o *origins) recovered(l *lab, up time.Time) {
	l.Helper()
	arrivals, err := l.w.journal.read()
	if err != nil {
		l.Fatal(err)
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
	first, share := l.servedEach(up)
	l.remark("up again: all of them served in %s; an origin's first success came at p50 %s, p99 %s, most %s, and after half of all sends %.0f%% had one; %.0f sends/s on average, %d in the busiest second, at most %d at once",
		last.Round(100*time.Millisecond), first.P50.Round(100*time.Millisecond), first.P99.Round(100*time.Millisecond), first.Most.Round(100*time.Millisecond),
		100*share, average, most, l.w.peak())
	if l.w.peak() > originWorkers {
		l.Errorf("%d requests at once, and the process has %d workers", l.w.peak(), originWorkers)
	}
	if float64(most) > 5*average+50 {
		l.Errorf("a herd: %d sends in one second, %.0f on average", most, average)
	}
	// Half of the origins have had one by the time that half of everything is served, after a tier with its jitter, which is at
	// most 7.5 s, has brought them back.
	if limit := 8*time.Second + last/2; first.P50 > limit {
		l.Errorf("half of the origins waited over %s for their first success", limit)
	}
}

// servedEach is how long after they came up the origins had their first success, and which share of them had one when half of all
// callbacks had ended.
func (l *lab) servedEach(up time.Time) (judge.Quantiles, float64) {
	l.Helper()
	rows, err := l.database().QueryContext(l.Context(), `SELECT url, finished_at FROM callbacks WHERE state = 'succeeded' ORDER BY finished_at`)
	if err != nil {
		l.Fatal(err)
	}
	defer rows.Close()
	var all []time.Duration
	n, atHalf := 0, 0
	seen := map[string]bool{}
	for rows.Next() {
		var url string
		var ms int64
		if err := rows.Scan(&url, &ms); err != nil {
			l.Fatal(err)
		}
		origin, _, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
		if !seen[origin] {
			seen[origin] = true
			all = append(all, moment(ms).Sub(up))
		}
		if n++; n <= l.count()/2 {
			atHalf = len(seen)
		}
	}
	if err := rows.Err(); err != nil {
		l.Fatal(err)
	}
	return judge.QuantilesOf(all), float64(atHalf) / float64(max(1, len(seen)))
}
