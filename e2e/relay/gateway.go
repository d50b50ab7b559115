package relay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// A gateway stands between a relay and the API, and may refuse requests.
type gateway struct {
	base    string
	forward *httputil.ReverseProxy
	// status is the response to each request; zero: the request is forwarded.
	status atomic.Int32
	// poison is the text that each request with rows is refused for, with 500; empty: none.
	poison string
	// calls counts the requests with rows.
	calls atomic.Int64
}

// takesAll starts a server in the place of the dispatcher that accepts every row and keeps none.
func (tr *trial) takesAll() (base string) {
	tr.Helper()
	r := harness.NewReceiver(tr, nil)
	r.Server.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var call struct{ Rows []struct{} }
		if err := json.NewDecoder(req.Body).Decode(&call); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		reply := client.RelayReply{Now: time.Now()}
		for range call.Rows {
			reply.Results = append(reply.Results, client.RelayResult{Status: http.StatusAccepted})
		}
		text, err := client.AppendJSON(nil, reply)
		tr.Check(err)
		w.WriteHeader(http.StatusMultiStatus)
		_, _ = w.Write(text) // the relay may have ended
	})
	return r.URL
}

// behindGateway starts a gateway in front of the trial's API.
func (tr *trial) behindGateway() *gateway {
	tr.Helper()
	to, err := url.Parse("http://" + tr.listen)
	tr.Check(err)
	g := &gateway{forward: httputil.NewSingleHostReverseProxy(to)}
	r := harness.NewReceiver(tr, nil)
	r.Server.Handler, g.base = g, r.URL
	return g
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the relay has gone
	}
	var batch client.RelayBatch
	if json.Unmarshal(body, &batch) == nil && len(batch.Rows) > 0 {
		g.calls.Add(1)
		if g.poison != "" && bytes.Contains(body, []byte(g.poison)) {
			refuse(w, http.StatusInternalServerError)
			return
		}
	}
	if status := int(g.status.Load()); status != 0 {
		refuse(w, status)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	g.forward.ServeHTTP(w, r)
}

func refuse(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"status":%d,"title":"refused","code":"refused_by_the_test","detail":"a test"}`, status)
}

// apiRefuses answers all requests of the relay with one status after the other. No row may be refused for it.
func apiRefuses(tr *trial) {
	o, g := tr.src, tr.behindGateway()
	tr.server("")
	p := tr.relayTo(g.base, "")
	next := 0
	add := func() { o.fill(next, next+page); next += page }
	add()
	o.drained(resumedBusy)
	for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound,
		http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable} {
		g.status.Store(int32(status))
		add()
		before := g.calls.Load()
		errorsBefore := p.Count("dispatcher_relay_errors_total")
		time.Sleep(3 * time.Second) // the fault lasts for a fixed time
		most := int64(10)
		if status == http.StatusInternalServerError {
			most = 2*page + 10 // it looks for the row that makes the API fail
		}
		if n := g.calls.Load() - before; n > most {
			tr.Errorf("%d: %d calls with rows in three seconds: the relay does not back off", status, n)
		}
		if n := p.Count("dispatcher_relay_errors_total"); n == errorsBefore {
			tr.Errorf("%d: no error is counted", status)
		}
		if n := o.waiting(); n != page {
			tr.Errorf("%d: %d rows wait, want %d", status, n, page)
		}
		g.status.Store(0)
		tr.MarkFault()
		o.drained(skippedFor + 30*time.Second) // after a 500
	}
	if n := o.count(`SELECT count(*) FROM dispatcher_outbox_refused`); n > 0 {
		tr.Errorf("%d rows were refused", n)
	}
	tr.healedIn(backoffLimit)
}

// oneRowFails answers 500 whenever a certain row is submitted. It stays, and all others pass.
func oneRowFails(tr *trial) {
	o, g := tr.src, tr.behindGateway()
	g.poison = "pay-17"
	o.fill(0, 17)
	o.fill(17, 18)
	o.fillWith(1800, 1800+killRows, o.plain)
	tr.server("")
	tr.relayTo(g.base, "")
	tr.Eventually(backoffLimit, "all other rows pass", func() error {
		if n := o.waiting(); n != 1 {
			return fmt.Errorf("%d rows wait", n)
		}
		return nil
	})
	o.fill(5000, 5000+page)
	tr.Eventually(10*time.Second, "newer rows pass", func() error {
		if n := o.waiting(); n != 1 {
			return fmt.Errorf("%d rows wait", n)
		}
		return nil
	})
	g.poison = ""
	tr.MarkFault()
	// The row is skipped for a minute.
	tr.healedIn(skippedFor + 30*time.Second)
}

// skippedFor is how long a row that fails alone with 500 is skipped.
const skippedFor = time.Minute
