package bench

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sync/errgroup"
)

const (
	batchSize = 100
	// batchConnections post batches, connections single callbacks.
	batchConnections = 8
	connections      = 64
	// maxConnections is the most that the client opens, in an open loop.
	maxConnections = 512
)

// A poster makes requests to the API over connections that it keeps, with one buffer. One goroutine may use it.
type poster struct {
	d    *dispatcher
	sub  *submission
	req  *fasthttp.Request
	resp *fasthttp.Response
	body []byte
}

func (d *dispatcher) newPoster(path string) *poster {
	sub := newSubmission(d.receiver.url)
	sub.lanes = d.lanes
	p := &poster{d: d, sub: sub, req: &fasthttp.Request{}, resp: &fasthttp.Response{}}
	p.req.SetRequestURI(d.base + path)
	p.req.Header.SetMethod(http.MethodPost)
	p.req.Header.SetContentType("application/json")
	p.req.Header.Set("Authorization", "Bearer "+adminKey)
	return p
}

func (p *poster) post(want int) error {
	p.req.SetBodyRaw(p.body)
	if err := p.d.client.Do(p.req, p.resp); err != nil {
		return err
	}
	if got := p.resp.StatusCode(); got != want {
		return fmt.Errorf("%s answered %d, want %d: %.300s", p.req.URI().Path(), got, want, p.resp.Body())
	}
	return nil
}

// one posts callback n; nil is a 202.
func (p *poster) one(n int, due time.Time) error {
	p.body = p.sub.appendTo(p.body[:0], n, due)
	return p.post(http.StatusAccepted)
}

// some posts the callbacks from first until end as a batch; nil is that each of them was answered 202.
func (p *poster) some(first, end int, due func(int) time.Time) error {
	p.body = p.sub.appendBatch(p.body[:0], first, end, due)
	if err := p.post(http.StatusMultiStatus); err != nil {
		return err
	}
	if got := bytes.Count(p.resp.Body(), []byte(`{"status":202,`)); got != end-first {
		return fmt.Errorf("%d of a batch of %d were accepted: %.300s", got, end-first, p.resp.Body())
	}
	return nil
}

// acceptBatches posts n callbacks in batches over so many connections and returns how long it took.
func (d *dispatcher) acceptBatches(n int, due func(int) time.Time) (time.Duration, error) {
	var next atomic.Int64
	var group errgroup.Group
	start := time.Now()
	for range batchConnections {
		group.Go(func() error {
			p := d.newPoster("/v1/callbacks/batch")
			for {
				first := int(next.Add(batchSize)) - batchSize
				if first >= n {
					return nil
				}
				if err := p.some(first, min(first+batchSize, n), due); err != nil {
					return err
				}
			}
		})
	}
	err := group.Wait()
	return time.Since(start), err
}

// acceptSingles posts n callbacks one a request and returns how long it took.
func (d *dispatcher) acceptSingles(n int, due time.Time) (time.Duration, error) {
	var next atomic.Int64
	var group errgroup.Group
	start := time.Now()
	for range connections {
		group.Go(func() error {
			p := d.newPoster("/v1/callbacks")
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return nil
				}
				if err := p.one(i, due); err != nil {
					return fmt.Errorf("callback %s: %w", strconv.Itoa(i), err)
				}
			}
		})
	}
	err := group.Wait()
	return time.Since(start), err
}

// dueAll is one due time for all callbacks.
func dueAll(at time.Time) func(int) time.Time { return func(int) time.Time { return at } }
