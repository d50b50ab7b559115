package relay

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// generate commits the orders first to end-1 with statements that make their rows in the server, which is
// faster than any application. Their callbacks are due in an hour.
func (o *outbox) generate(first, end int) error {
	for ; first < end; first += generated {
		last := min(first+generated, end) - 1
		ref, from := fmt.Sprintf(`concat('%s-', seq)`, o.name), fmt.Sprintf("seq_%d_to_%d", first, last)
		if o.on == postgres {
			from = fmt.Sprintf("generate_series(%d, %d) AS seq", first, last)
		}
		request := fmt.Sprintf(`concat('{"url":"%s/plain/', %s, '","ref":"', %s,
			'","delay":"1h","payload":{"order":"', %s, '","paid":10000}}')`, o.tr.Receiver.URL, ref, ref, ref)
		for _, statement := range []string{
			fmt.Sprintf(`INSERT INTO orders (id) SELECT %s FROM %s`, ref, from),
			fmt.Sprintf(`INSERT INTO dispatcher_outbox (id, request) SELECT %s, %s FROM %s`, ref, request,
				from),
		} {
			if _, err := o.db.ExecContext(context.Background(), statement); err != nil {
				return fmt.Errorf("%.200s: %w", statement, err)
			}
		}
	}
	return nil
}

// generated is the number of rows that one statement generates.
const generated = 10_000

// mostMemory is how much more memory a relay may use for a backlog than without one.
const mostMemory = 64 << 20

// largeBacklog has many rows that wait when the relay starts.
func largeBacklog(tr *trial) {
	tr.besideOther(tr.src.manyRows(testserver.Sized(0, 50_000, 1_000_000)))
}

// largeRows has rows of the largest size.
func largeRows(tr *trial) {
	tr.besideOther(tr.src.largestRows(testserver.Sized(0, 150, 1500)))
}

// A backlog commits the orders of a large backlog, from number first on, and returns the next number.
type backlog func(first int) (next int)

// manyRows returns a backlog of n rows.
func (o *outbox) manyRows(n int) backlog {
	return func(first int) int {
		o.tr.Helper()
		o.tr.Check(o.generate(first, first+n))
		return first + n
	}
}

// largestRows returns a backlog of n rows of the largest size.
func (o *outbox) largestRows(n int) backlog {
	tr := o.tr
	pad := strings.Repeat(" ", 440<<10) // white space counts, and the dispatcher does not store it
	return func(first int) int {
		tr.Helper()
		for i := first; i < first+n; i++ {
			ref := fmt.Sprintf("%s-%d", o.name, i)
			r := o.order(ref, harness.Submission{"delay": "1h", "content_type": "text/plain"})
			at := strings.Index(r.request, `"payload":`)
			end := at + strings.IndexByte(r.request[at:], '}') + 1
			r.request = r.request[:at] + `"labels":{"large":"yes"}` + r.request[end:] + pad
			r.body = []byte(strings.Repeat(ref+" ", (250<<10)/(len(ref)+1)))
			tr.bodies[ref] = r.body
			o.commit(r)
		}
		return first + n
	}
}

// besideOther measures a relay without and with a large backlog of a source: its memory, and the latency of
// another source. Other trials run meanwhile, so the limit of the latency is loose here: the costs have the
// ratio.
func (tr *trial) besideOther(fill backlog) {
	const most = time.Second
	tr.Helper()
	o := tr.src
	o.settings["batch"] = 1000
	other := tr.newOutbox("other", tr.on, o.server)
	tr.sources = []*outbox{other}
	alone := tr.relay("")
	other.held(alone, resumed)
	usual := judge.QuantilesOf(other.latencies(0, 100, 20))
	memory, err := alone.ResidentMemory()
	tr.Check(err)
	alone.Exit(time.Minute)
	rows := fill(0)
	tr.sources = []*outbox{o, other}
	p := tr.relay("")
	other.held(p, resumed)
	began := time.Now()
	during := judge.QuantilesOf(other.latencies(100, 100, 20))
	o.drained(testserver.Sized(0, 2*time.Minute, 30*time.Minute))
	took := time.Since(began)
	peak, err := p.PeakMemory()
	tr.Check(err)
	tr.Remark("%d rows wait: all are accepted after %s; memory of the relay %s, without them %s, at most %s "+
		"more is allowed; latency of another source %s, without them %s, a p99 of at most %s is allowed here",
		rows, took, harness.Megabytes(peak), harness.Megabytes(memory), harness.Megabytes(mostMemory), during,
		usual, most)
	if peak > memory+mostMemory {
		tr.Errorf("the relay used %s, without the backlog %s", harness.Megabytes(peak),
			harness.Megabytes(memory))
	}
	if during.P99 > most {
		tr.Errorf("another source took %s at p99, without the backlog %s", during.P99, usual.P99)
	}
	tr.allowed.MayBeOpen = true
	tr.judged()
}

// latencies commits n orders at a rate, one a transaction, and returns the times from each commit to the
// arrival of its callback at the receiver.
func (o *outbox) latencies(first, n, rate int) (all []time.Duration) {
	tr := o.tr
	tr.Helper()
	committed := map[string]time.Time{}
	before := tr.Receiver.Count()
	began := time.Now()
	for i := range n {
		time.Sleep(time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(rate)))) // the rate
		r := o.plain(first + i)
		o.commit(r)
		committed["/plain/"+r.id] = time.Now()
	}
	tr.AtLeast(time.Minute, "all orders arrive", before+n, tr.Receiver.Count)
	for _, a := range tr.Receiver.All() {
		if at, ours := committed[a.Path]; ours && a.Nth == 1 {
			all = append(all, a.At.Sub(at))
		}
	}
	if len(all) != n {
		tr.Errorf("%d of %d orders arrived", len(all), n)
	}
	return all
}

// submitBatches accepts n callbacks of the same kind over the API in batches, and returns the rate.
func (o *outbox) submitBatches(name string, n int) (perSecond float64) {
	const batch, callers = 100, 4
	tr := o.tr
	tr.Helper()
	c := tr.AnyProcess().Client
	began := time.Now()
	tr.Check(harness.AtOnce(callers, n/batch, func(k int) error {
		some := make([]harness.Submission, batch)
		for i := range some {
			ref := fmt.Sprintf("%s-%d", name, k*batch+i)
			some[i] = harness.Submission{"url": tr.Receiver.URL + "/plain/" + ref, "ref": ref, "delay": "1h",
				"payload": harness.Payload(ref), "idempotency_key": name + "/" + ref}
		}
		_, err := c.SubmitBatch(tr.Context(), some, http.StatusAccepted)
		return err
	}))
	return float64(n) / time.Since(began).Seconds()
}

// callbackCount returns the number of callbacks.
func callbackCount(tr *trial) (n int) {
	tr.Helper()
	tr.Check(tr.Database().QueryRowContext(tr.Context(), `SELECT count(*) FROM callbacks`).Scan(&n))
	return n
}
