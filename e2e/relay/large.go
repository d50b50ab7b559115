package relay

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// generate commits the orders first to end-1 with statements that make their rows in the server, which is
// faster than any application. Their callbacks are due in an hour.
func (o *outbox) generate(first, end int) {
	o.tr.Helper()
	for ; first < end; first += generated {
		last := min(first+generated, end) - 1
		ref, from := fmt.Sprintf(`concat('%s-', seq)`, o.name), fmt.Sprintf("seq_%d_to_%d", first, last)
		if o.on == postgres {
			from = fmt.Sprintf("generate_series(%d, %d) AS seq", first, last)
		}
		request := fmt.Sprintf(`concat('{"url":"%s/plain/', %s, '","ref":"', %s,
			'","delay":"1h","payload":{"order":"', %s, '","paid":10000}}')`, o.tr.Receiver.URL, ref, ref, ref)
		o.exec(fmt.Sprintf(`INSERT INTO orders (id) SELECT %s FROM %s`, ref, from))
		o.exec(fmt.Sprintf(`INSERT INTO dispatcher_outbox (id, request) SELECT %s, %s FROM %s`, ref, request,
			from))
	}
}

// generated is the number of rows that one statement generates.
const generated = 10_000

// mostMemory is how much more memory a relay may use for a backlog than without one.
const mostMemory = 64 << 20

// largeBacklog has many rows that wait when the relay starts.
func largeBacklog(tr *trial) {
	n := sized(0, 50_000, 1_000_000)
	tr.besideOther(func(o *outbox) {
		o.settings["batch"] = 1000
		o.generate(0, n)
	})
}

// largeRows has rows of the largest size.
func largeRows(tr *trial) {
	n := sized(0, 150, 1500)
	tr.besideOther(func(o *outbox) {
		o.settings["batch"] = 1000
		pad := strings.Repeat(" ", 440<<10) // white space counts, and the dispatcher does not store it
		for i := range n {
			ref := fmt.Sprintf("%s-%d", o.name, i)
			r := o.order(ref, harness.Submission{"delay": "1h", "content_type": "text/plain"})
			at := strings.Index(r.request, `"payload":`)
			end := at + strings.IndexByte(r.request[at:], '}') + 1
			r.request = r.request[:at] + `"labels":{"large":"yes"}` + r.request[end:] + pad
			r.body = []byte(strings.Repeat(ref+" ", (250<<10)/(len(ref)+1)))
			tr.bodies[ref] = r.body
			o.commit(r)
		}
	})
}

// besideOther measures a source without and with a large backlog of another source: its latency, and the
// memory of the relay.
func (tr *trial) besideOther(backlog func(*outbox)) {
	tr.Helper()
	o := tr.src
	other := tr.newOutbox("other", tr.on, o.server)
	tr.sources = []*outbox{other}
	alone := tr.relay("")
	other.held(alone, resumed)
	usual := judge.QuantilesOf(other.latencies(0, 100, 20))
	memory, err := alone.ResidentMemory()
	tr.Check(err)
	alone.Exit(time.Minute)
	backlog(o)
	rows := o.waiting()
	tr.sources = []*outbox{o, other}
	p := tr.relay("")
	other.held(p, resumed)
	began := time.Now()
	during := judge.QuantilesOf(other.latencies(100, 100, 20))
	o.drained(sized(0, 2*time.Minute, 30*time.Minute))
	took := time.Since(began)
	peak, err := p.PeakMemory()
	tr.Check(err)
	tr.Remark("%d rows wait: all are accepted after %s; memory of the relay %s, without them %s; latency of "+
		"another source %s, without them %s", rows, took, harness.Megabytes(peak), harness.Megabytes(memory),
		during, usual)
	if peak > memory+mostMemory {
		tr.Errorf("the relay used %s, without the backlog %s", harness.Megabytes(peak),
			harness.Megabytes(memory))
	}
	if during.P99 > max(2*usual.P99, time.Second) {
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
