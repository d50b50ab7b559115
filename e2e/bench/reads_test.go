package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/valyala/fasthttp"
)

// A readKind is one kind of request that people and programs make to see what has become of callbacks.
type readKind struct {
	name string
	path func(*samples) string
}

const (
	callbacksPath = "/v1/callbacks"
	lookedFor     = " (looked for)" // no index serves it: see docs/adr/0013
)

// readKinds are in the order of the report. What is looked for begins anywhere in half of the requests, as one who pages does.
func readKinds() []readKind {
	list := func(name, query string) readKind {
		return readKind{name, func(s *samples) string { return callbacksPath + "?" + query }}
	}
	search := func(name string, query func(*samples) string) readKind {
		return readKind{name + lookedFor, func(s *samples) string { return callbacksPath + "?" + query(s) + s.anywhere(s.cursors) }}
	}
	fixed := func(query string) func(*samples) string { return func(*samples) string { return query } }
	lane := func(s *samples) string { return "lane=" + laneKey(s.IntN(s.lanes)) }
	of := func(suffix string) func(*samples) string {
		return func(s *samples) string { return callbacksPath + "/" + s.one(s.ids) + suffix }
	}
	return []readKind{
		list("newest", ""),
		{"a page deep inside, by cursor", func(s *samples) string { return callbacksPath + "?cursor=" + s.one(s.cursors) }},
		{"500 callbacks deep inside", func(s *samples) string { return callbacksPath + "?limit=500&cursor=" + s.one(s.cursors) }},
		{"by ref", func(s *samples) string { return callbacksPath + "?ref=" + s.one(s.refs) }},
		list("by a ref that there is not", "ref=order-none"),
		{"of one hour", func(s *samples) string { return callbacksPath + "?" + s.hour() }},
		list("dead", "state=dead"),
		{"dead, deep inside", func(s *samples) string { return callbacksPath + "?state=dead&cursor=" + s.one(s.cursors) }},
		list("scheduled", "state=scheduled"),
		list("being attempted", "state=attempting"),
		list("overdue", "overdue=true"),
		list("by due time", "order=due"),
		list("by due time, overdue", "order=due&overdue=true"),
		{"a frequent topic", func(s *samples) string { return callbacksPath + "?topic=refund.succeeded" + s.anywhere(s.cursors) }},
		search("a rare topic", fixed("topic="+rareTopic)),
		search("a lane", lane),
		{"a lane, by due time" + lookedFor, func(s *samples) string { return callbacksPath + "?order=due&" + lane(s) + s.anywhere(s.dueCursors) }},
		search("dead in a lane", func(s *samples) string { return "state=dead&" + lane(s) }),
		search("dead or canceled", fixed("state=dead&state=canceled")),
		search("a frequent label", fixed("label.channel=wechat")),
		search("a rare label", fixed("label.channel=rare")),
		search("a class", fixed("class=http_5xx")),
		search("a rare status", fixed("status_code=429")),
		search("many attempts", fixed("min_attempts=9")),
		{"detail", of("")}, {"attempts", of("/attempts")}, {"payload", of("/payload")},
		{"stats", func(*samples) string { return "/v1/stats" }},
	}
}

// samples are what requests ask for: of callbacks at random times.
type samples struct {
	*rand.Rand
	lanes              int
	from, to           int64
	ids, refs, cursors []string
	dueCursors         []string // of lists by due time
}

func (s *samples) one(of []string) string { return of[s.IntN(len(of))] }

// instant is a random time within the history, with an hour after it.
func (s *samples) instant() time.Time {
	return time.UnixMilli(s.from + s.Int64N(max(1, s.to-s.from-time.Hour.Milliseconds()))).UTC()
}

func (s *samples) hour() string {
	at := s.instant()
	return url.Values{"from": {at.Format(time.RFC3339)}, "to": {at.Add(time.Hour).Format(time.RFC3339)}}.Encode()
}

// anywhere is one of the cursors, in half of the requests.
func (s *samples) anywhere(cursors []string) string {
	if s.IntN(2) == 0 {
		return ""
	}
	return "&cursor=" + s.one(cursors)
}

// A page is what is read of one.
type page struct {
	Data       []struct{ ID, Ref string }
	NextCursor *string `json:"next_cursor"`
}

func (r *reader) page(query url.Values) (p page, err error) {
	if err = r.get(callbacksPath + "?" + query.Encode()); err == nil {
		err = json.Unmarshal(r.resp.Body(), &p)
	}
	return p, err
}

// gather asks for pages at so many random times, and for as many by due time, one after the other.
func (s *samples) gather(d *dispatcher, pages int) error {
	r := d.newReader()
	byDue := url.Values{"order": {"due"}, "limit": {"500"}}
	for range pages {
		page, err := r.page(byDue)
		if err != nil {
			return err
		}
		if page.NextCursor == nil {
			break
		}
		byDue.Set("cursor", *page.NextCursor)
		s.dueCursors = append(s.dueCursors, *page.NextCursor)
	}
	for range pages {
		page, err := r.page(url.Values{"to": {s.instant().Add(time.Hour).Format(time.RFC3339)}})
		if err != nil {
			return err
		}
		for _, c := range page.Data {
			s.ids = append(s.ids, c.ID)
			if c.Ref != "" {
				s.refs = append(s.refs, c.Ref)
			}
		}
		if page.NextCursor != nil {
			s.cursors = append(s.cursors, *page.NextCursor)
		}
	}
	if len(s.ids) == 0 || len(s.refs) == 0 || len(s.cursors) == 0 || len(s.dueCursors) == 0 {
		return fmt.Errorf("%d pages have %d ids, %d references and %d and %d cursors", pages, len(s.ids), len(s.refs), len(s.cursors), len(s.dueCursors))
	}
	return nil
}

// A reader makes GET requests over a connection that it keeps. One goroutine may use it.
type reader struct {
	d    *dispatcher
	req  *fasthttp.Request
	resp *fasthttp.Response
}

func (d *dispatcher) newReader() *reader {
	r := &reader{d: d, req: &fasthttp.Request{}, resp: &fasthttp.Response{}}
	r.req.Header.SetMethod(http.MethodGet)
	r.req.Header.Set("Authorization", "Bearer "+adminKey)
	return r
}

func (r *reader) get(path string) error {
	r.req.SetRequestURI(r.d.base + path)
	if err := r.d.client.Do(r.req, r.resp); err != nil {
		return err
	}
	if got := r.resp.StatusCode(); got != http.StatusOK {
		return fmt.Errorf("GET %s answered %d: %.300s", path, got, r.resp.Body())
	}
	return nil
}

// readFigures are those of one kind: how long requests took in ms, and how many callbacks a page had.
type readFigures struct {
	name          string
	p50, p99, max float64
	rows          float64
}

// A readTime is one request.
type readTime struct {
	kind int
	ms   float64
	rows int
}

// measureReads makes requests of all kinds, in random order.
func measureReads(t *testing.T, d *dispatcher, in seeded, o scaleOptions) []readFigures {
	t.Helper()
	s := &samples{Rand: rand.New(rand.NewPCG(1, 2)), lanes: o.lanes, from: in.from, to: in.to}
	if err := s.gather(d, min(200, max(20, o.requests))); err != nil {
		t.Fatalf("sample callbacks: %v", err)
	}
	kinds := readKinds()
	var order []int
	for i := range kinds {
		order = append(order, slices.Repeat([]int{i}, o.requests)...)
	}
	s.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	var paths []string
	for _, kind := range order {
		paths = append(paths, kinds[kind].path(s))
	}
	var mu sync.Mutex
	var times []readTime
	readers := make(chan *reader, o.readers)
	for range o.readers {
		readers <- d.newReader()
	}
	err := inParallel(o.readers, len(order), func(i int) error {
		r := <-readers
		defer func() { readers <- r }()
		began := time.Now()
		if err := r.get(paths[i]); err != nil {
			return err
		}
		took := milliseconds(time.Since(began))
		mu.Lock()
		defer mu.Unlock()
		times = append(times, readTime{order[i], took, bytes.Count(r.resp.Body(), []byte(`"kind":"notify"`))})
		return nil
	})
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	return sumReads(kinds, times)
}

func sumReads(kinds []readKind, times []readTime) []readFigures {
	all := make([]readFigures, len(kinds))
	for i, kind := range kinds {
		var ms []float64
		rows := 0
		for _, r := range times {
			if r.kind == i {
				ms, rows = append(ms, r.ms), rows+r.rows
			}
		}
		slices.Sort(ms)
		all[i] = readFigures{name: kind.name, p50: quantile(ms, 0.50), p99: quantile(ms, 0.99), max: quantile(ms, 1), rows: float64(rows) / float64(max(1, len(ms)))}
	}
	return all
}
