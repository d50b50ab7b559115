package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// readers is how many requests are made at once.
const readers = 2

// readKinds are the requests that people and programs make to find callbacks, in the order of the report. A
// word in braces is drawn for each request: see samples.request. No index serves what is "looked for"
// (ADR 0025); half of these requests begin at a random place, like those of a reader who pages.
var readKinds = []struct{ name, path string }{
	{"newest", "callbacks"},
	{"a page deep inside, by cursor", "callbacks?cursor={cursor}"},
	{"500 callbacks deep inside", "callbacks?limit=500&cursor={cursor}"},
	{"by ref", "callbacks?ref={ref}"},
	{"by a ref that does not exist", "callbacks?ref=order-none"},
	{"of one minute", "callbacks?{minute}"},
	{"dead", "callbacks?state=dead"},
	{"scheduled", "callbacks?state=scheduled"},
	{"by due time", "callbacks?order=due"},
	{"by due time, overdue", "callbacks?order=due&overdue=true"},
	{"a lane (looked for)", "callbacks?lane={lane}{anywhere}"},
	{"a lane, by due time (looked for)", "callbacks?order=due&lane={lane}{anywhere due}"},
	{"dead in a lane (looked for)", "callbacks?state=dead&lane={lane}{anywhere}"},
	{"a rare label (looked for)", "callbacks?label.channel=rare{anywhere}"},
	{"a rare status (looked for)", "callbacks?status_code=429{anywhere}"},
	{"many attempts (looked for)", "callbacks?min_attempts=9{anywhere}"},
	{"detail", "callbacks/{id}"},
	{"attempts", "callbacks/{id}/attempts"},
	{"payload", "callbacks/{id}/payload"},
	{"stats", "stats"},
}

// samples are what requests ask for, of callbacks at random times.
type samples struct {
	*rand.Rand
	lanes                          int
	from, to                       time.Time
	ids, refs, cursors, dueCursors []string
}

func (s *samples) one(of []string) string { return of[s.IntN(len(of))] }

const instantForm = "2006-01-02T15:04:05.000Z"

// minute is a random one within the time of the seeding.
func (s *samples) minute() url.Values {
	at := s.from.Add(time.Duration(s.Int64N(max(1, int64(s.to.Sub(s.from))))))
	from, to := at.UTC().Format(instantForm), at.Add(time.Minute).UTC().Format(instantForm)
	return url.Values{"from": {from}, "to": {to}}
}

// anywhere is one of the cursors, in half of the requests.
func (s *samples) anywhere(cursors []string) string {
	if s.IntN(2) == 0 {
		return ""
	}
	return "&cursor=" + s.one(cursors)
}

func (s *samples) request(path string) string {
	return "/v1/" + strings.NewReplacer(
		"{cursor}", s.one(s.cursors), "{ref}", s.one(s.refs), "{id}", s.one(s.ids),
		"{lane}", laneKey(s.IntN(s.lanes)), "{minute}", s.minute().Encode(),
		"{anywhere}", s.anywhere(s.cursors), "{anywhere due}", s.anywhere(s.dueCursors),
	).Replace(path)
}

// gather fills the samples from pages at random times, and from as many pages by due time, one after another.
func (s *samples) gather(r *run, d *dispatcher, pages int) {
	type page struct {
		Data       []struct{ ID, Ref string }
		NextCursor string `json:"next_cursor"`
	}
	get := func(query url.Values) (p page) {
		text, err := d.fetch(r.Context(), d.base+"/v1/callbacks?"+query.Encode())
		r.check("sample callbacks", err)
		r.check("sample callbacks", json.Unmarshal(text, &p))
		return p
	}
	byDue := url.Values{"order": {"due"}, "limit": {"500"}}
	for range pages {
		if next := get(byDue).NextCursor; next != "" {
			byDue.Set("cursor", next)
			s.dueCursors = append(s.dueCursors, next)
		}
		p := get(url.Values{"to": s.minute()["from"]})
		for _, c := range p.Data {
			s.ids = append(s.ids, c.ID)
			if c.Ref != "" {
				s.refs = append(s.refs, c.Ref)
			}
		}
		if p.NextCursor != "" {
			s.cursors = append(s.cursors, p.NextCursor)
		}
	}
	if len(s.refs) == 0 || len(s.cursors) == 0 || len(s.dueCursors) == 0 {
		r.Fatalf("%d pages have %d refs, %d cursors and %d by due time",
			pages, len(s.refs), len(s.cursors), len(s.dueCursors))
	}
}

// readFigures are those of one kind: ms that requests took, and callbacks on a page.
type readFigures struct{ p50, p99, rows float64 }

// measureReads makes so many requests of each kind, in random order, and returns figures in the order of the
// kinds.
func measureReads(r *run, d *dispatcher, s *samples, requests int) []readFigures {
	s.gather(r, d, min(200, max(20, requests)))
	order := make([]int, 0, requests*len(readKinds))
	for kind := range readKinds {
		order = append(order, slices.Repeat([]int{kind}, requests)...)
	}
	s.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	paths := make([]string, len(order))
	for i, kind := range order {
		paths[i] = s.request(readKinds[kind].path)
	}
	var mu sync.Mutex
	times, rows := make([][]float64, len(readKinds)), make([]int, len(readKinds))
	r.check("read", parallel(readers, len(order), func() func(int) error {
		var req fasthttp.Request
		var resp fasthttp.Response
		req.Header.Set("Authorization", "Bearer "+adminKey)
		return func(i int) error {
			req.SetRequestURI(d.base + paths[i])
			began := time.Now()
			if err := d.client.Do(&req, &resp); err != nil {
				return err
			}
			took := milliseconds(time.Since(began))
			if got := resp.StatusCode(); got != http.StatusOK {
				return fmt.Errorf("GET %s answered %d: %.300s", paths[i], got, resp.Body())
			}
			mu.Lock()
			defer mu.Unlock()
			times[order[i]] = append(times[order[i]], took)
			rows[order[i]] += bytes.Count(resp.Body(), []byte(`"kind":"notify"`))
			return nil
		}
	}))
	all := make([]readFigures, len(readKinds))
	for kind := range all {
		slices.Sort(times[kind])
		perPage := float64(rows[kind]) / float64(requests)
		all[kind] = readFigures{quantile(times[kind], 0.5), quantile(times[kind], 0.99), perPage}
	}
	return all
}
