package relay

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
)

// forget makes the server forget what it accepted.
func (w *world) forget() {
	w.srv.mu.Lock()
	defer w.srv.mu.Unlock()
	clear(w.srv.accepted)
}

// keepRows has n kept rows that the server forgot.
func (w *world) keepRows(n int) {
	w.Helper()
	w.c.Keep = 24 * time.Hour
	for i := range n {
		w.insert(fmt.Sprintf("row-%04d", i))
	}
	w.start("a")
	w.pass(10 * time.Second)
	w.forget()
}

// flood inserts rows every second until the end of the test or a call of the result.
func (w *world) flood(perSecond int) (end func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			case <-time.After(time.Second):
			}
			for j := range perSecond {
				w.insert(fmt.Sprint("z-", i, "-", j))
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// TestReplayEnds has more fresh rows than the replay hands over.
func TestReplayEnds(t *testing.T) {
	inWorld(t, func(w *world) {
		w.keepRows(100)
		defer w.flood(20)()
		w.pass(time.Minute)
		got := w.ask(client.RelayAct{Action: "replay", Since: time.Now().Add(-time.Hour), Rate: 15})
		// 100 forgotten rows, those of the minute before, and of the time that clocks may differ
		if got.State != "done" || got.Accepted != 100 || got.Replayed < 1180 || got.Replayed > 1200+20*310 {
			t.Errorf("got %+v", got)
		}
	})
}

// TestRetryEnds has rows that are refused faster than they are handed over again.
func TestRetryEnds(t *testing.T) {
	inWorld(t, func(w *world) {
		w.c.Batch = 10
		w.refuseAll(100)
		w.tb.call = func(op string, after bool) error {
			if op == "read refused" && !after {
				time.Sleep(time.Second)
			}
			return nil
		}
		defer w.flood(15)()
		got := w.ask(client.RelayAct{Action: "retry"})
		if got.State != "done" || got.Refused < 100 || got.Refused > 1100 {
			t.Errorf("got %+v", got)
		}
	})
}

// TestActsIgnoreClocks has a dispatcher whose clock differs by a day from the relay's.
func TestActsIgnoreClocks(t *testing.T) {
	for _, skew := range []time.Duration{-24 * time.Hour, 24 * time.Hour} {
		inWorld(t, func(w *world) {
			w.c.Keep = 48 * time.Hour
			w.srv.ahead = skew
			_, repair := w.refuseAll(3)
			asked := time.Now().Add(skew)
			w.pass(time.Second)
			w.insert("unseen-0")
			w.pass(time.Second)
			got := w.ask(client.RelayAct{Action: "drop", Code: "invalid", RequestedAt: asked})
			w.wantsProgress(got, client.RelayActProgress{State: "done", Matched: 3, Dropped: 3})
			w.tb.mu.Lock()
			clear(w.tb.refused)
			w.tb.mu.Unlock()
			w.insert("row-0", "row-1", "row-2")
			w.pass(10 * time.Second)
			repair()
			got = w.ask(client.RelayAct{Action: "retry", RequestedAt: asked})
			w.wantsProgress(got, client.RelayActProgress{State: "done", Matched: 3, Accepted: 3})
			since := time.Now()
			w.insert("kept")
			w.srv.judge = func(*client.RelayRow) *client.RelayResult { return nil }
			w.pass(time.Second)
			got = w.ask(client.RelayAct{Action: "replay", Since: since, RequestedAt: asked})
			w.wantsProgress(got, client.RelayActProgress{State: "done", Matched: 1, Replayed: 1})
		})
	}
}

// TestReplayPassesRowsThatFail has a row that makes each call with it fail, and one whose result is an error.
func TestReplayPassesRowsThatFail(t *testing.T) {
	inWorld(t, func(w *world) {
		w.c.Batch = 10
		logged := w.logTo()
		w.keepRows(100)
		w.srv.call = func(b *client.RelayBatch, after bool) error {
			if !after && hasRow(b, "row-0015") {
				return problem(http.StatusInternalServerError, "internal", "internal error")
			}
			return nil
		}
		w.srv.judge = func(row *client.RelayRow) *client.RelayResult {
			if row.ID == "row-0042" {
				return result(http.StatusInternalServerError, "broken")
			}
			return nil
		}
		got := w.ask(client.RelayAct{Action: "replay", Since: time.Now().Add(-time.Hour)})
		if got.State != "done" || got.Matched != 100 || got.Accepted != 98 || got.Refused != 2 {
			t.Errorf("got %+v", got)
		}
		for _, want := range []string{"id=row-0015 code=internal", "id=row-0042 code=broken"} {
			if !strings.Contains(logged.String(), want) {
				t.Errorf("the log lacks %q", want)
			}
		}
	})
}

// logTo lets the world's processes log to a buffer.
func (w *world) logTo() *bytes.Buffer {
	b := new(bytes.Buffer)
	w.log = slog.New(slog.NewTextHandler(b, nil))
	return b
}

// TestReplayWaitsForTheDispatcher has a dispatcher that accepts no row for some minutes.
func TestReplayWaitsForTheDispatcher(t *testing.T) {
	for name, failure := range map[string]error{
		"down":      &client.NoAnswerError{Err: errors.New("connection refused")},
		"throttles": problem(http.StatusTooManyRequests, "rate_limited", "too many requests"),
		"panics":    problem(http.StatusInternalServerError, "internal", "internal error"),
		"stays":     nil,
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.c.Batch = 10
				w.keepRows(30)
				began := time.Now()
				failing := func() bool { return time.Since(began) < 5*time.Minute }
				w.srv.call = func(b *client.RelayBatch, after bool) error {
					if !after && len(b.Rows) > 0 && failing() {
						return failure
					}
					return nil
				}
				w.srv.judge = func(*client.RelayRow) *client.RelayResult {
					if failing() {
						return result(http.StatusServiceUnavailable, "unavailable")
					}
					return nil
				}
				got := w.ask(client.RelayAct{Action: "replay", Since: began.Add(-time.Hour)})
				w.wantsProgress(got, client.RelayActProgress{State: "done", Matched: 30, Accepted: 30})
			})
		})
	}
}

// TestRemovedRowsCountOnce has a source where the new problems cannot be stored for a while. The progress has
// no error when the act goes on.
func TestRemovedRowsCountOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		w.c.Batch = 10
		_, repair := w.refuseAll(100)
		repair()
		failures := 0
		w.tb.call = func(op string, after bool) error {
			if op == "update refused" && failures < 3 || op == "remove refused" && !after && failures < 2 {
				failures++
				return errors.New("lock timeout")
			}
			if op == "read refused" && !after {
				time.Sleep(time.Second)
			}
			return nil
		}
		got := w.ask(client.RelayAct{Action: "retry"})
		w.wantsProgress(got, client.RelayActProgress{State: "done", Matched: 100, Accepted: 90, Refused: 10})
		var errs []string
		for i := range w.srv.reports {
			if act := w.srv.reports[i].Act; act != nil {
				errs = append(errs, act.Error)
			}
		}
		if text := strings.Join(errs, ";"); !strings.Contains(text, "lock timeout;;") {
			t.Errorf("the errors are %q", text)
		}
	})
}

// TestRefusedRowsCountOnce has a row that stays for a while, so its slice is repeated. The filter no longer
// has the rows that were refused for another reason.
func TestRefusedRowsCountOnce(t *testing.T) {
	for _, code := range []string{"", "invalid"} {
		inWorld(t, func(w *world) {
			w.refuseAll(10)
			tries := 0
			w.srv.judge = func(row *client.RelayRow) *client.RelayResult {
				switch {
				case row.ID == "row-0003":
					return nil
				case row.ID != "row-0000":
					return result(http.StatusUnprocessableEntity, "changed")
				case tries < 3:
					tries++
					return result(http.StatusTooManyRequests, "rate_limited")
				}
				return nil
			}
			want := client.RelayActProgress{State: "done", Matched: 10, Accepted: 2, Refused: 8}
			if code != "" { // row-0003 has another one
				want.Matched, want.Accepted = 9, 1
			}
			w.wantsProgress(w.ask(client.RelayAct{Action: "retry", Code: code}), want)
		})
	}
}

// TestReplayAfterAnOutage has a row that fails a few times after the dispatcher was down.
func TestReplayAfterAnOutage(t *testing.T) {
	inWorld(t, func(w *world) {
		w.keepRows(10)
		began, failures := time.Now(), 0
		w.srv.call = func(b *client.RelayBatch, after bool) error {
			if !after && len(b.Rows) > 0 && time.Since(began) < time.Minute {
				return &client.NoAnswerError{Err: errors.New("connection refused")}
			}
			return nil
		}
		w.srv.judge = func(row *client.RelayRow) *client.RelayResult {
			if row.ID == "row-0007" && failures < 3 {
				failures++
				return result(http.StatusInternalServerError, "broken")
			}
			return nil
		}
		got := w.ask(client.RelayAct{Action: "replay", Since: began.Add(-time.Hour)})
		w.wantsProgress(got, client.RelayActProgress{State: "done", Matched: 10, Accepted: 10})
	})
}

// TestActGoesOnAtAnotherRelay has acts with the progress of a relay that ended. A replay begins again.
func TestActGoesOnAtAnotherRelay(t *testing.T) {
	inWorld(t, func(w *world) {
		w.keepRows(5)
		earlier := client.RelayActProgress{Matched: 1000, Dropped: 900, Accepted: 100, Error: "stopped"}
		got := w.ask(client.RelayAct{Action: "replay", Since: time.Now().Add(-time.Hour),
			RelayActProgress: earlier})
		w.wantsProgress(got, client.RelayActProgress{State: "done", Matched: 5, Accepted: 5})
		w.srv.judge = func(*client.RelayRow) *client.RelayResult {
			return result(http.StatusUnprocessableEntity, "invalid")
		}
		w.insert("x", "y")
		w.pass(10 * time.Second)
		// The rows that the earlier relay counted as refused are still there.
		retried := client.RelayActProgress{Matched: 12, Accepted: 7, Replayed: 3, Refused: 2}
		got = w.ask(client.RelayAct{Action: "retry", RelayActProgress: retried})
		w.wantsProgress(got, client.RelayActProgress{State: "done", Matched: 12, Accepted: 7, Replayed: 3,
			Refused: 2})
		got = w.ask(client.RelayAct{Action: "drop", RelayActProgress: earlier})
		w.wantsProgress(got, client.RelayActProgress{State: "done", Matched: 1002, Dropped: 902,
			Accepted: 100})
	})
}

// TestCanceledActStops has a server that ends an act. A later act begins from the start.
func TestCanceledActStops(t *testing.T) {
	inWorld(t, func(w *world) {
		w.keepRows(1000)
		act := client.RelayAct{ID: "first", Action: "replay", Since: time.Now().Add(-time.Hour), Rate: 10}
		act.State = "waiting"
		w.srv.mu.Lock()
		w.srv.act = &act
		w.srv.mu.Unlock()
		w.pass(30 * time.Second)
		w.srv.mu.Lock()
		w.srv.act = nil
		w.srv.mu.Unlock()
		w.pass(renewEvery)
		calls, reports := len(w.srv.rowCalls), len(w.srv.reports)
		if n := len(w.srv.accepted); n < 200 || n > 350 {
			t.Errorf("%d rows are accepted", n)
		}
		w.pass(time.Minute)
		if n := len(w.srv.rowCalls); n != calls {
			t.Errorf("%d calls with rows after the end", n-calls)
		}
		for _, r := range w.srv.reports[reports:] {
			if r.Act != nil {
				t.Errorf("a report has the act %+v", r.Act)
			}
		}
		accepted := len(w.srv.accepted)
		got := w.ask(client.RelayAct{Action: "replay", Since: act.Since})
		w.wantsProgress(got, client.RelayActProgress{State: "done", Matched: 1000,
			Accepted: 1000 - accepted, Replayed: accepted})
	})
}
