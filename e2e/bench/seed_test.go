package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A seeding fills SQL with callbacks faster than any caller could hand them over. Each is a copy of one that the program itself
// has accepted, attempted and ended, or not yet: see shapes. The program does not run meanwhile.
type seeding struct {
	database
	// rows are all callbacks, of which pending are open; the others are terminal.
	rows, pending int
	// lanes that they are spread over.
	lanes int
	// overdue ones, which are among those pending, were due before the copies were made, and go to the receiver with the numbers from
	// 0 on. All others are due from dueFrom on, over dueSpan.
	overdue  int
	receiver string
}

const (
	// seedChunk is how many rows one statement copies.
	seedChunk = 100_000
	// history is the time over which the callbacks were accepted. Retention of payloads is longer.
	history = 20 * 24 * time.Hour
	// dueFrom and dueSpan are when the pending ones fall due: after the longest run, and in another order than that of their ids.
	dueFrom = 2 * 24 * time.Hour
	dueSpan = 30 * 24 * time.Hour
	// keyEvery is how rare callbacks with an idempotency key are.
	keyEvery = 10
	// rareTopic is the topic of one callback in rareEvery; the label "rare" of as many others.
	rareTopic = "dispute.opened"
	rareEvery = 100_000
)

// A shape is what has become of a callback: the answers to its attempts, and how often it is copied.
type shape struct {
	name    string
	answers string // the path of the first receiver, which decides them
	tiers   string // JSON
	delay   string
	state   string
	// attempts are how many have been made when it is copied.
	attempts int
	// share is of all terminal or of all pending ones, in thousandths.
	share int
}

// shapes are what the copies are made from. A terminal callback has 1.15 attempts on average, and one that is pending 0.7.
func shapes() []shape {
	now := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat(`"0s",`, n), ",") + "]" }
	all := []shape{
		{name: "sent", answers: "200", tiers: now(9), state: "succeeded", attempts: 1, share: 930},
		{name: "sent again", answers: "503,200", tiers: now(9), state: "succeeded", attempts: 2, share: 40},
		{name: "down", answers: "503", tiers: now(9), state: "dead", attempts: 10, share: 10},
		{name: "broken", answers: "500", tiers: now(4), state: "dead", attempts: 5, share: 6},
		{name: "unknown", answers: "404", tiers: now(1), state: "dead", attempts: 2, share: 3},
		{name: "overloaded", answers: "429", tiers: now(1), state: "dead", attempts: 2, share: 1},
		{name: "withdrawn", delay: "30d", tiers: now(1), state: "canceled", share: 10},
	}
	all = append(all, shape{name: "fresh", delay: "30d", tiers: now(1), state: "scheduled", share: 760})
	for i, share := range []int{90, 50, 30, 20, 15, 12, 9, 7, 7} {
		tiers := strings.TrimSuffix(now(i), "]")
		if i > 0 {
			tiers += ","
		}
		all = append(all, shape{
			name: fmt.Sprintf("waiting after %d", i+1), answers: "503", tiers: tiers + `"300d"]`, state: "scheduled", attempts: i + 1, share: share,
		})
	}
	return all
}

// seeded is what the copying has made.
type seeded struct {
	took          time.Duration
	rows, pending int
	attempts      int
	// from and to are when the oldest and the newest were accepted, in Unix milliseconds.
	from, to int64
}

// seed starts the program on the empty database, has it make one callback of each shape, ends it, and copies them.
func (s seeding) seed(t *testing.T, r *round, args []string) seeded {
	t.Helper()
	templates := s.accept(t, r, args)
	began := time.Now()
	db, err := s.open()
	if err != nil {
		t.Fatal(err)
	}
	c := &copying{seeding: s, db: db, templates: templates, log: t.Logf}
	made, err := c.run(context.Background()) // longer than any test's context should be trusted to live
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatalf("seed: %v", err)
	}
	made.took = time.Since(began)
	return made
}

// A template is a callback of some shape, by its bare id.
type template struct {
	shape
	id string
}

// accept makes one callback of each shape, and ends the program.
func (s seeding) accept(t *testing.T, r *round, args []string) []template {
	t.Helper()
	answering, err := startAnswering()
	if err != nil {
		t.Fatal(err)
	}
	defer answering.close()
	d := startDispatcher(t, r.binary, 8, r.receiver, args)
	defer d.end()
	var all []template
	for _, sh := range shapes() {
		id, err := d.acceptShape(t.Context(), sh, answering.url)
		if err != nil {
			t.Fatalf("callback that is %q: %v", sh.name, err)
		}
		all = append(all, template{sh, strings.TrimPrefix(id, "cb_")})
	}
	return all
}

// acceptShape makes one callback and waits until it is what its shape says.
func (d *dispatcher) acceptShape(ctx context.Context, sh shape, answering string) (id string, err error) {
	body := fmt.Sprintf(`{"url":%q,"topic":"payment.succeeded","ref":"first","lane":%q,"labels":{"channel":"alipay","shop":"0"},"payload":{"n":1},"policy":{"tiers":%s},"delay":%q}`,
		answering+sh.answers, laneKey(0), sh.tiers, or(sh.delay, "0s"))
	if sh.name == "fresh" { // the ladder and the key that the copies have
		body = strings.Replace(body, `"policy":{"tiers":`+sh.tiers+`}`, `"idempotency_key":"first"`, 1)
	}
	var made struct{ ID string }
	if err := d.call(ctx, http.MethodPost, "/v1/callbacks", body, http.StatusAccepted, &made); err != nil {
		return "", err
	}
	if sh.state == "canceled" {
		if err := d.call(ctx, http.MethodPost, "/v1/callbacks/"+made.ID+"/cancel", `{}`, http.StatusOK, nil); err != nil {
			return "", err
		}
	}
	err = poll(ctx, "the callback is as it should be", time.Minute, 10*time.Millisecond, func() (bool, error) {
		var is struct {
			State        string
			AttemptCount int `json:"attempt_count"`
		}
		if err := d.call(ctx, http.MethodGet, "/v1/callbacks/"+made.ID, "", http.StatusOK, &is); err != nil {
			return false, err
		}
		if is.State != sh.state || is.AttemptCount != sh.attempts {
			return false, fmt.Errorf("it is %+v", is)
		}
		return true, nil
	})
	return made.ID, err
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// laneKey is the lane of a merchant as callers name it.
func laneKey(i int) string { return fmt.Sprintf("merchant-%06d", i) }

// An answering receiver answers the statuses that the path lists, one after the other, and the last one from then on. A path is
// one callback's.
type answering struct {
	url    string
	server *http.Server
	ended  chan error
}

func startAnswering() (*answering, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	var asked atomic.Int64 // of the one list that has more than one status
	a := &answering{url: "http://" + listener.Addr().String() + "/", ended: make(chan error, 1)}
	a.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		statuses := strings.Split(strings.TrimPrefix(r.URL.Path, "/"), ",")
		at := 0
		if len(statuses) > 1 {
			at = min(int(asked.Add(1))-1, len(statuses)-1)
		}
		status := 0
		if _, err := fmt.Sscan(statuses[at], &status); err != nil {
			status = http.StatusNotImplemented
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"code":"%d","message":"as it was asked to"}`, status)
	})}
	go func() { a.ended <- a.server.Serve(listener) }()
	return a, nil
}

// close ends it. What is said after that is of no interest.
func (a *answering) close() {
	_ = a.server.Close()
	<-a.ended
}

// A database is where the rows go, as the benchmark opens it beside the program.
type database struct {
	postgres string // URL; empty: SQLite
	file     string // of SQLite
}

func (b database) open() (*sql.DB, error) {
	driver, name := "pgx", b.postgres
	if b.postgres == "" {
		driver, name = "sqlite", "file:"+b.file+"?_pragma=busy_timeout(10000)"
	}
	db, err := sql.Open(driver, name)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // settings are a connection's
	return db, nil
}
