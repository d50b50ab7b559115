package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
)

// The books of every run must balance: what callers were answered 202 for, and what polls and schedules have
// made, is what the program says that it has accepted, and that is what has succeeded, is dead, was canceled
// or is open. Every process is asked before the test's end ends it.

// accounts are what callers of all the processes on one database were answered 202 for, in the default
// project. All but accepted belongs to the goroutine of the test.
type accounts struct {
	accepted atomic.Int64
	// apart says why this database's books are not compared; empty: they are.
	apart string
	// processes that were started and whose end has not come yet, and how often the books were found to
	// balance.
	processes, balanced int
}

// OpenBooks has the backend's database be one that nothing was accepted in.
func (b *Backend) OpenBooks() { b.accounts = new(accounts) }

// KeepApart says why the books are not compared: a test changes the database beside the program, leaves it
// broken, or ends all its processes. An empty reason has them compared.
func (b Backend) KeepApart(why string) { b.accounts.apart = why }

// LostByDesign takes n accepted callbacks off the books: a fault that no promise covers has taken them from
// SQL.
func (b Backend) LostByDesign(n int) { b.accounts.accepted.Add(int64(-n)) }

// A countingTransport adds to accounts what answers of the API say was accepted anew.
type countingTransport struct {
	*http.Transport
	accounts *accounts
}

func (t countingTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.Transport.RoundTrip(req)
	if err != nil || t.accounts == nil || req.Method != http.MethodPost {
		return resp, err
	}
	switch path := req.URL.Path; {
	case resp.StatusCode == http.StatusAccepted && (path == "/v1/callbacks" || path == "/v1/polls" ||
		strings.HasPrefix(path, "/v1/schedules/")):
		t.accounts.accepted.Add(1)
	case resp.StatusCode == http.StatusMultiStatus && path == "/v1/callbacks/batch":
		body, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			return nil, err
		}
		t.accounts.accepted.Add(int64(bytes.Count(body, []byte(`{"status":202,"callback":`))))
		resp.Body = io.NopCloser(bytes.NewReader(body))
	}
	return resp, nil
}

// plus adds up two lines of books.
func plus(b, o client.ReconcileCounts) client.ReconcileCounts {
	return client.ReconcileCounts{Accepted: b.Accepted + o.Accepted, Succeeded: b.Succeeded + o.Succeeded,
		Dead: b.Dead + o.Dead, Canceled: b.Canceled + o.Canceled, Open: b.Open + o.Open,
		Balanced: b.Balanced && o.Balanced}
}

// booksOf are the books of so many callbacks of each state.
func booksOf(states map[client.State]int64) client.ReconcileCounts {
	b := client.ReconcileCounts{Succeeded: states[client.Succeeded], Dead: states[client.Dead],
		Canceled: states[client.Canceled], Balanced: true}
	for _, n := range states {
		b.Accepted += n
	}
	b.Open = b.Accepted - b.Succeeded - b.Dead - b.Canceled
	return b
}

const (
	// booksPatience is how long books may differ from counters, which are told once a second, on a machine
	// that does other things too.
	booksPatience = 15 * time.Second
	// booksBusy is how long before sending is stopped for it: books of what moves are never those of the same
	// moment.
	booksBusy = 2 * time.Second
	// booksListed is how many callbacks are counted one by one, too.
	booksListed = 2000
	// booksTime bounds one look.
	booksTime = 30 * time.Second
)

// booksZone is a zone whose midnight is another one than UTC's: days must not matter to the sum.
const booksZone = "Asia/Shanghai"

// closeBooks has the process's books balance. It is the last thing that a test asks of it.
func (p *Process) closeBooks(l Launch) {
	a := p.accounts
	a.processes--
	why := a.apart
	switch {
	case p.tb.Failed():
		return // it has said enough
	case why != "":
	case p.Ended():
		why = "it has ended: " + p.Cmd.ProcessState.String()
	case p.meant.Load() && !l.mayDie:
		why = "the test is ending it"
	case l.noAPI():
		why = "it serves no API"
	default:
		why = p.balance(a)
	}
	if why == "" {
		a.balanced++
	}
	if a.processes == 0 && a.balanced == 0 && a.accepted.Load() > 0 && a.apart == "" {
		p.tb.Errorf("the books of %s were compared by none of its processes: %s", l.On.Name, why)
	}
}

// BooksBalanced is how many processes on this database had books that balanced when they were ended.
func (b Backend) BooksBalanced() int { return b.accounts.balanced }

// noAPI says whether it is started for other roles than the API's.
func (l Launch) noAPI() bool {
	i := slices.Index(l.Args, "--roles")
	return i >= 0 && i+1 < len(l.Args) && !strings.Contains(l.Args[i+1], "api")
}

// balance looks until the books balance, and fails the test if they do not. It returns why that
// cannot be told.
func (p *Process) balance(a *accounts) (why string) {
	began := time.Now()
	stopped := false
	for {
		ctx, cancel := context.WithTimeout(context.Background(), booksTime)
		err := p.compareBooks(ctx, a)
		// SQL that can only be read may have books that balance.
		if status, body, _ := p.Readyz(); err == nil && status == http.StatusServiceUnavailable {
			err = fmt.Errorf("/readyz answers 503: %s", body)
		}
		if err != nil && !stopped && time.Since(began) > booksBusy {
			_, err := p.Call(ctx, http.MethodPost, "/v1/pause", Submission{"reason": "the books are closed"},
				nil)
			stopped = err == nil
		}
		cancel()
		switch {
		case err == nil:
			return ""
		case p.Ended():
			return "it has ended meanwhile: " + p.Cmd.ProcessState.String()
		case time.Since(began) > booksPatience:
			p.tb.Errorf("the books do not balance: %v", err)
			return "they do not balance"
		}
		time.Sleep(100 * time.Millisecond) // a poll, slower than pause: it counts
	}
}

// compareBooks holds the books of all days since the day before this run against the counters, against what
// callers were answered, and against the callbacks themselves if they are few.
func (p *Process) compareBooks(ctx context.Context, a *accounts) error {
	answered := a.accepted.Load()
	books, err := p.Reconcile(ctx, client.ReconcileQuery{From: booksFrom.Format(time.RFC3339),
		To: time.Now().Add(time.Hour).UTC().Format(time.RFC3339), GroupBy: "day", Timezone: booksZone})
	if err != nil {
		return err
	}
	stats, err := p.Stats(ctx)
	if err != nil {
		return err
	}
	t := books.Total
	days, counters := client.ReconcileCounts{Balanced: true}, booksOf(stats.States)
	for _, day := range books.Data {
		days = plus(days, day.ReconcileCounts)
	}
	var errs []error
	note := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	note(!t.Balanced || t.Accepted != t.Succeeded+t.Dead+t.Canceled+t.Open, "%+v is no balance", t)
	note(days != t, "the days' books are together %+v, those of all %+v", days, t)
	note(counters != t, "the counters say %+v, the books %+v", counters, t)
	note(t.Accepted < answered, "callers were told of %d that were accepted, the books have %d", answered,
		t.Accepted)
	if t.Accepted > booksListed {
		return errors.Join(errs...)
	}
	all, err := p.ListAll(client.Filter{})
	states := map[client.State]int64{}
	for _, cb := range all {
		states[cb.State]++
	}
	if listed := booksOf(states); err == nil && listed != t {
		err = fmt.Errorf("the list has %+v, the books %+v", listed, t)
	}
	if err == nil {
		err = p.compareMade(ctx, all, answered)
	}
	return errors.Join(append(errs, err)...)
}

// compareMade holds what is in the books without that any caller was told of it, the results of polls and
// what schedules have made, against the polls and schedules that made it: without it the books must still
// have all that callers know.
func (p *Process) compareMade(ctx context.Context, all []client.Callback, answered int64) error {
	made, listed := map[string]string{}, map[string]bool{}
	for _, cb := range all {
		listed[cb.ID] = true
		if cb.Kind != "poll" {
			continue
		}
		poll, err := p.Poll(ctx, cb.ID)
		if err != nil {
			return err
		}
		switch id := poll.Poll.ResultCallbackID; {
		case id == "" && poll.Poll.OnResult != nil && !poll.FinishedAt.IsZero():
			return fmt.Errorf("%s has ended, and no result tells of it", cb.ID)
		case id != "" && made[id] != "":
			return fmt.Errorf("%s is the result of %s and of %s", id, made[id], cb.ID)
		case id != "":
			made[id] = cb.ID
		}
	}
	schedules, err := Collect(p.Schedules("", nil))
	if err != nil {
		return err
	}
	for _, s := range schedules {
		runs, err := p.ScheduleRuns(ctx, s.ID)
		if err != nil {
			return err
		}
		for _, r := range runs {
			if r.Trigger == "schedule" { // a run by hand was answered
				made[r.CallbackID] = s.ID
			}
		}
	}
	for id, by := range made {
		if !listed[id] {
			return fmt.Errorf("%s, which %s has made, is not in the books", id, by)
		}
	}
	if known := int64(len(all) - len(made)); known < answered {
		return fmt.Errorf("callers were told of %d that were accepted; the list has %d beside %d that "+
			"polls and "+
			"schedules made", answered, known, len(made))
	}
	return nil
}

// booksFrom is before anything that this run accepts, in any zone.
var booksFrom = time.Now().Add(-24 * time.Hour).UTC()
