package faults

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// The breaker's numbers, as docs/sending.md has them.
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

// A crowd is the receiver of many endpoints, told apart by path, that all hang up until all come back at
// once.
type crowd struct {
	url string

	byID map[string]*member // by the endpoint's id, which is its lane

	mu       sync.Mutex
	back     time.Time // zero: they hang up
	members  []*member
	arrivals []*harness.Arrival
	// Present counts requests that are there now, most the most at once: mostDown while they hung up.
	present, most, mostDown int
}

// A member is one endpoint of a crowd.
type member struct {
	present, mostDown int
	arrivals          []*harness.Arrival
	// answers counts those since it is back. herd is the most by which requests at once were more than the
	// answers before allow.
	answers, herd int
	first         *harness.Arrival // since it is back: the probe
	last          time.Time
	// rests is when its breaker was seen open with nothing on its way any more: all that arrives after that is
	// a probe.
	rests time.Time
}

func newCrowd(tb testing.TB, members int) *crowd {
	tb.Helper()
	c := &crowd{byID: map[string]*member{}}
	for range members {
		c.members = append(c.members, &member{})
	}
	server := httptest.NewServer(http.HandlerFunc(c.serve))
	c.url = server.URL
	tb.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return c
}

func (c *crowd) serve(w http.ResponseWriter, req *http.Request) {
	at := time.Now()
	body, err := io.ReadAll(req.Body)
	n, wrong := strconv.Atoi(strings.TrimPrefix(req.URL.Path, "/"))
	if err != nil || wrong != nil || n < 0 || n >= len(c.members) {
		return // the sender died in the middle of it; what goes elsewhere is missed by the judge
	}
	// zero where it is missing, which the judge knows none of
	number, _ := strconv.Atoi(req.Header.Get("webhook-attempt"))
	a := &harness.Arrival{ID: req.Header.Get("webhook-id"), Number: number, At: at, Hash: sha256.Sum256(body)}
	m, up := c.members[n], c.enter(n, a)
	// Its work, so that others that were sent meanwhile meet it.
	if work := 5 * time.Millisecond; up {
		time.Sleep(4 * work)
	} else {
		time.Sleep(work)
	}
	c.mu.Lock()
	c.present--
	m.present--
	a.End = time.Now()
	if up {
		m.answers++
		m.last = a.End
	}
	c.mu.Unlock()
	if up {
		return
	}
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetLinger(0) // so many connections are best forgotten at once
	}
	conn.Close()
}

// enter writes an arrival down, and says whether it is answered.
func (c *crowd) enter(n int, a *harness.Arrival) (up bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.members[n]
	c.arrivals, m.arrivals = append(c.arrivals, a), append(m.arrivals, a)
	c.present++
	m.present++
	c.most = max(c.most, c.present)
	if c.back.IsZero() {
		c.mostDown, m.mostDown = max(c.mostDown, c.present), max(m.mostDown, m.present)
		return false
	}
	if m.first == nil {
		m.first = a
	}
	// One probe; after its answer one at a time, and twice as many after each answer more.
	m.herd = max(m.herd, m.present-1<<max(0, min(m.answers, 6)-1))
	return true
}

// comeBack has them all answer from now on.
func (c *crowd) comeBack() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.back = time.Now()
}

// tired says which member has not been tried as often as opens its breaker.
func (c *crowd) tired() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for n, m := range c.members {
		if len(m.arrivals) < breakerOpensAt {
			return fmt.Errorf("endpoint %d of %d was tried %d times, %d in all", n, len(c.members), len(m.arrivals),
				len(c.arrivals))
		}
	}
	return nil
}

// delivered says how many are missing of what is to be answered.
func (c *crowd) delivered() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := 0
	for _, m := range c.members {
		all += m.answers
	}
	if want := crowdEach * len(c.members); all < want {
		return fmt.Errorf("%d of %d are delivered, %d are being answered", all, want, c.present)
	}
	return nil
}

// rest looks at every lane, and says how many have never been seen with an open breaker and nothing on its
// way.
func (c *crowd) rest(ctx context.Context, p *harness.Process) error {
	if err := c.tired(); err != nil {
		return err
	}
	query := url.Values{"limit": {"500"}}
	for {
		var page struct {
			Data       []harness.LaneBody `json:"data"`
			NextCursor *string            `json:"next_cursor"`
		}
		if err := p.Call(ctx, http.MethodGet, "/v1/lanes?"+query.Encode(), nil, http.StatusOK, &page); err != nil {
			return err
		}
		seen := time.Now()
		for _, l := range page.Data {
			if m := c.byID[l.Lane]; m != nil && m.rests.IsZero() && l.Breaker.State == "open" && l.InFlight == 0 {
				m.rests = seen
			}
		}
		if page.NextCursor == nil {
			break
		}
		query.Set("cursor", *page.NextCursor)
	}
	awake := 0
	for _, m := range c.members {
		if m.rests.IsZero() {
			awake++
		}
	}
	if awake > 0 {
		time.Sleep(250 * time.Millisecond) // a poll, slower than pause: it looks at many
		return fmt.Errorf("of %d endpoints %d are still tried", len(c.members), awake)
	}
	return nil
}

// enrol makes an endpoint for each member, and accepts what each is to be sent.
func (c *crowd) enrol(t *testing.T, p *harness.Process, books *harness.Ledger) {
	t.Helper()
	const most = 1000
	for first := 0; first < len(c.members); first += most {
		var endpoints []harness.EndpointBody
		for n := first; n < min(first+most, len(c.members)); n++ {
			endpoints = append(endpoints, harness.EndpointBody{
				"external_id": fmt.Sprint("member-", n), "url": fmt.Sprint(c.url, "/", n),
				"policy": harness.Submission{"tiers": []string{crowdTier.String()}, "repeat_last": true, "deadline": "1h",
					"timeout": "10s"},
			})
		}
		var made struct {
			Results []struct {
				Status   int `json:"status"`
				Endpoint struct {
					ID string `json:"id"`
				} `json:"endpoint"`
			} `json:"results"`
		}
		if err := p.Call(t.Context(), http.MethodPost, "/v1/endpoints/batch",
			harness.Submission{"endpoints": endpoints}, http.StatusMultiStatus, &made); err != nil {
			t.Fatal(err)
		}
		for i, r := range made.Results {
			if r.Status != http.StatusCreated {
				t.Fatalf("an endpoint was answered %d", r.Status)
			}
			c.byID[r.Endpoint.ID] = c.members[first+i]
		}
	}
	total := len(c.members) * crowdEach
	for first := 0; first < total; first += most {
		var batch []harness.Submission
		for i := first; i < min(first+most, total); i++ {
			ref := fmt.Sprintf("member-%d-%d", i/crowdEach, i%crowdEach)
			batch = append(batch, harness.Submission{"endpoint": fmt.Sprint("member-", i/crowdEach), "ref": ref,
				"payload": harness.Payload(ref)})
		}
		var got []harness.Callback
		harness.Eventually(t, time.Minute, "a batch is accepted", func() (err error) {
			// Some thousand attempts a second that fail leave a database on a busy machine little time; what is
			// answered 503 was not accepted, or the judge will find it twice.
			if got, err = p.AcceptBatch(t.Context(), batch); err != nil &&
				!strings.Contains(err.Error(), "answered 503") {
				t.Fatal(err)
			}
			return err
		})
		for i, cb := range got {
			books.Accepted(cb.ID, fmt.Sprintf("member-%d-%d", (first+i)/crowdEach, (first+i)%crowdEach))
		}
	}
}

// Endpoints that hang up, any number of them, are each left alone but for a probe each fifteen seconds. When
// all come back at once, each is sent one probe, and more only as it answers; all together never more than
// there are slots; and everything is delivered once.
func TestACrowdThatFailsComesBackWithoutAHerd(t *testing.T) {
	harness.BlackBox(t)
	t.Parallel()
	harness.OnEach(t, harness.BothEnds, func(t *testing.T, b harness.Backend) {
		mostlyWaits(t)
		members := sized(200, 2_000, 10_000)
		limit := 2*time.Minute + time.Duration(members)*60*time.Millisecond
		workers := harness.Launch{On: b, Args: []string{"--workers", strconv.Itoa(crowdWorkers)}}
		processes := []*harness.Process{harness.Serve(t, workers)}
		if b.Redis != "" {
			processes = append(processes, harness.Serve(t, workers))
		}
		c := newCrowd(t, members)
		books := harness.NewLedger()
		began := time.Now()
		c.enrol(t, processes[0], books)
		accepted := time.Since(began)
		harness.Eventually(t, limit, "every breaker opens",
			func() error { return c.rest(t.Context(), processes[0]) })
		opened := time.Since(began)
		c.comeBack()
		harness.Eventually(t, limit, "all is delivered", c.delivered)
		harness.Await(t, processes[0].Client, limit)
		c.report(t, accepted, opened)
		c.judge(t, len(processes))
		books.Judge(t, processes[0], b, judge.Bounds{}, &harness.Receiver{Arrivals: c.arrivals})
	})
}

// report writes down the figures.
func (c *crowd) report(t *testing.T, accepted, opened time.Duration) {
	t.Helper()
	var probed, drained []time.Duration
	down := 0
	for _, m := range c.members {
		probed, drained = append(probed, m.first.At.Sub(c.back)), append(drained, m.last.Sub(m.first.At))
	}
	perSecond := map[int]int{}
	worst := 0
	for _, a := range c.arrivals {
		if a.At.Before(c.back) {
			down++
			continue
		}
		second := int(a.At.Sub(c.back) / time.Second)
		perSecond[second]++
		worst = max(worst, perSecond[second])
	}
	t.Logf("%d endpoints with %d callbacks each: accepted in %s, all open after %s and %d attempts, at most "+
		"%d at once", len(c.members), crowdEach,
		accepted.Round(time.Millisecond), opened.Round(time.Millisecond), down, c.mostDown)
	t.Logf("back: probes after %s (first), %s (p50), %s (last), each endpoint's rest within %s (p50), %s "+
		"(most); %d attempts, at most %d a second, %d at once",
		harness.Quantile(probed, 0).Round(time.Millisecond), harness.Quantile(probed, 0.5).Round(time.Millisecond),
		harness.Quantile(probed, 1).Round(time.Millisecond),
		harness.Quantile(drained, 0.5).Round(time.Millisecond),
		harness.Quantile(drained, 1).Round(time.Millisecond), len(c.arrivals)-down, worst, c.most)
}

// judge holds what arrived against what a breaker and the slots allow.
func (c *crowd) judge(t *testing.T, processes int) {
	t.Helper()
	complain := harness.Violations(t)
	// Lanes that have never answered share three quarters of the slots.
	if slots := (crowdWorkers - crowdWorkers/4) * processes; c.mostDown > slots {
		complain("%d attempts at once of endpoints that never answered; there are %d slots for them", c.mostDown,
			slots)
	}
	if slots := crowdWorkers * processes; c.most > slots {
		complain("%d attempts at once, with %d slots", c.most, slots)
	}
	probes, most := 0, 0
	for n, m := range c.members {
		if err := m.judge(); err != nil {
			complain("endpoint %d: %v", n, err)
		}
		before := 0
		for _, a := range m.arrivals {
			switch {
			case !a.At.After(m.rests):
				before++
			case a.At.Before(c.back):
				probes++
			}
		}
		most = max(most, before)
	}
	t.Logf("at most %d attempts of one before it was seen to rest; %d probes from then on until all came back",
		most, probes)
}

// judge is that of one endpoint.
func (m *member) judge() error {
	var errs []error
	if m.mostDown > atFirst {
		errs = append(errs, fmt.Errorf("%d attempts at once before it had answered any", m.mostDown))
	}
	if m.herd > 0 {
		errs = append(errs, fmt.Errorf("%d attempts at once more than its answers allow", m.herd))
	}
	if m.answers != crowdEach {
		errs = append(errs, fmt.Errorf("%d answers, want %d", m.answers, crowdEach))
	}
	for i, a := range m.arrivals {
		if !a.At.After(m.rests) || a.At.After(m.first.At) {
			continue
		}
		if rest := a.At.Sub(m.arrivals[i-1].End); rest < breakerRest {
			errs = append(errs, fmt.Errorf("attempt %d came %s after the one before it", i+1, rest))
		}
	}
	return errors.Join(errs...)
}
