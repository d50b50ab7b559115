package main

import (
	"bytes"
	"fmt"
	"net/http"
	"time"

	"github.com/valyala/fasthttp"
)

const (
	batchSize        = 100
	batchConnections = 8
	// warmCallbacks open the connections and let the lane reach its concurrency.
	warmCallbacks = 2000
	// farAhead is the delay of callbacks that are only accepted. They fall due after the run.
	farAhead = 24 * time.Hour
	// indexTime is how long the index may lag behind SQL.
	indexTime = 30 * time.Second
	// preparations is how often prepare accepts a backlog again because it was due too early.
	preparations = 3
)

// A session is a warm dispatcher under measurement.
type session struct {
	*run
	*dispatcher
	url     string                       // URL of the callbacks
	members func(b []byte, n int) []byte // submission.members
	// succeeded counts the callbacks delivered so far, and scheduled those accepted and not yet due.
	succeeded, scheduled int
	perCallback          time.Duration // of the last accept in batches
}

func (s *session) warmUp() {
	arriving := s.receiver.expect(warmCallbacks)
	s.perCallback = s.acceptBatches(warmCallbacks, dueAll(time.Time{})) / warmCallbacks
	s.arrived(arriving)
}

// dueAll gives all callbacks one due time.
func dueAll(at time.Time) func(int) time.Time { return func(int) time.Time { return at } }

// arrived waits until all callbacks of a measurement have arrived and their results are committed, and
// returns the arrival times.
func (s *session) arrived(arriving *arrivals) []time.Time {
	at := arriving.await(s, arrivalLimit)
	s.succeeded += len(at)
	s.awaitStats(s.dispatcher, "every result is committed", time.Minute, func(st stats) bool {
		return st.States.Succeeded == s.succeeded && st.States.Scheduled == s.scheduled
	})
	arriving.checkOnce(s)
	return at
}

// indexed waits until the index has n callbacks that are not due, or until the time until.
func (s *session) indexed(n int, until time.Time) {
	s.awaitStats(s.dispatcher, "the index has the accepted callbacks", indexTime, func(st stats) bool {
		return st.Index != nil && st.Index.Delayed == n || time.Now().After(until)
	})
}

// A backlog is accepted and indexed, and not yet due.
type backlog struct {
	arriving *arrivals
	due      func(int) time.Time
}

// prepare accepts n callbacks that fall due from a start time on. If a slow machine does not complete the
// backlog before that time, prepare starts again with a longer margin.
func (s *session) prepare(n int, dueFrom func(start time.Time) func(int) time.Time) backlog {
	margin := s.perCallback*time.Duration(n)*3/2 + 1500*time.Millisecond
	for range preparations {
		start := time.Now().Add(margin).Truncate(time.Millisecond)
		b := backlog{s.receiver.expect(n), dueFrom(start)}
		s.perCallback = s.acceptBatches(n, b.due) / time.Duration(n)
		s.indexed(s.scheduled+n, start)
		if time.Now().Before(start) {
			return b
		}
		logf("accepting %d callbacks took longer than %s: starting again with a longer margin", n, margin)
		s.arrived(b.arriving)
		margin *= 3
	}
	s.Fatalf("a backlog was due before it was complete, %d times", preparations)
	return backlog{}
}

// A poster sends requests to the API over kept connections with one buffer. It is for one goroutine.
type poster struct {
	*session
	sub  submission
	req  fasthttp.Request
	resp fasthttp.Response
	body []byte
}

func (s *session) newPoster(path string) *poster {
	p := &poster{session: s, sub: submission{url: s.url, payload: newPayload(), members: s.members}}
	p.req.SetRequestURI(s.base + path)
	p.req.Header.SetMethod(http.MethodPost)
	p.req.Header.SetContentType("application/json")
	p.req.Header.Set("Authorization", "Bearer "+adminKey)
	return p
}

func (p *poster) post(want int) error {
	p.req.SetBodyRaw(p.body)
	if err := p.client.Do(&p.req, &p.resp); err != nil {
		return err
	}
	if got := p.resp.StatusCode(); got != want {
		return fmt.Errorf("POST returned %d, want %d: %.300s", got, want, p.resp.Body())
	}
	return nil
}

// acceptOne posts callback n.
func (p *poster) acceptOne(n int, due time.Time) error {
	p.body = p.sub.appendTo(p.body[:0], n, due)
	return p.post(http.StatusAccepted)
}

// acceptSome posts a batch of the callbacks from first up to end, which is excluded. All must be accepted.
func (p *poster) acceptSome(first, end int, due func(int) time.Time) error {
	p.body = p.sub.appendBatch(p.body[:0], first, end, due)
	if err := p.post(http.StatusMultiStatus); err != nil {
		return err
	}
	if got := bytes.Count(p.resp.Body(), []byte(`{"status":202,`)); got != end-first {
		return fmt.Errorf("%d of a batch of %d were accepted: %.300s", got, end-first, p.resp.Body())
	}
	return nil
}

// acceptBatches posts n callbacks in batches and returns the duration.
func (s *session) acceptBatches(n int, due func(int) time.Time) time.Duration {
	start := time.Now()
	err := parallel(batchConnections, (n+batchSize-1)/batchSize, func() func(int) error {
		p := s.newPoster("/v1/callbacks/batch")
		return func(i int) error { return p.acceptSome(i*batchSize, min((i+1)*batchSize, n), due) }
	})
	s.check("accept in batches", err)
	return time.Since(start)
}

// acceptSingles posts n callbacks, each in its own request, and returns the duration.
func (s *session) acceptSingles(n int, due time.Time) time.Duration {
	start := time.Now()
	err := parallel(s.concurrency, n, func() func(int) error {
		p := s.newPoster("/v1/callbacks")
		return func(i int) error { return p.acceptOne(i, due) }
	})
	s.check("accept singly", err)
	return time.Since(start)
}
