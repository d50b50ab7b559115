package relay

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
)

// refuseAll fills the refused table with n rows and starts a relay.
func (w *world) refuseAll(n int) (p *running, repair func()) {
	broken := true
	w.srv.judge = func(row *client.RelayRow) *client.RelayResult {
		if broken || strings.HasSuffix(row.ID, "7") {
			code := "invalid"
			if strings.HasSuffix(row.ID, "3") {
				code = "not_found"
			}
			return result(http.StatusUnprocessableEntity, code)
		}
		if row.AgeMs != 0 {
			return result(http.StatusUnprocessableEntity, "too_old")
		}
		return nil
	}
	for i := range n {
		w.insert(fmt.Sprintf("row-%04d", i))
	}
	p = w.start("a")
	w.pass(10 * time.Second)
	if len(w.tb.refused) != n {
		w.Fatalf("%d rows are refused", len(w.tb.refused))
	}
	return p, func() { broken = false }
}

// ask stores an act and waits until it ends.
func (w *world) ask(act client.RelayAct) client.RelayActProgress {
	w.Helper()
	act.ID, act.State = fmt.Sprint("act-", time.Now().UnixNano()), "waiting"
	if act.RequestedAt.IsZero() {
		act.RequestedAt = time.Now()
	}
	w.srv.mu.Lock()
	w.srv.act = &act
	w.srv.mu.Unlock()
	for range 1200 {
		w.pass(time.Second)
		p := get(w.srv, func() client.RelayActProgress { return w.srv.act.RelayActProgress })
		if p.State == "done" || p.State == "failed" {
			p.ActID = ""
			return p
		}
	}
	w.Fatalf("the act does not end: %+v", w.srv.act)
	return client.RelayActProgress{}
}

func (w *world) wantsProgress(got, want client.RelayActProgress) {
	w.Helper()
	if got != want {
		w.Errorf("got %+v, want %+v", got, want)
	}
}

func TestRetryOfRefusedRows(t *testing.T) {
	inWorld(t, func(w *world) {
		w.c.Batch = 10
		p, repair := w.refuseAll(100)
		repair()
		got := w.ask(client.RelayAct{Action: "retry", Code: "not_found"})
		w.wantsProgress(got, client.RelayActProgress{State: "done", Matched: 10, Accepted: 10})
		got = w.ask(client.RelayAct{Action: "retry", RowID: "row-0005"})
		w.wantsProgress(got, client.RelayActProgress{State: "done", Matched: 1, Accepted: 1})
		got = w.ask(client.RelayAct{Action: "retry"})
		w.wantsProgress(got, client.RelayActProgress{State: "done", Matched: 89, Accepted: 79, Refused: 10})
		if n := len(w.tb.refused); n != 10 || w.tb.count() > 0 {
			t.Errorf("%d rows are refused", n)
		}
		w.pass(4 * time.Second)
		if r := w.srv.report; r.RefusedRows != 10 || r.Act != nil {
			t.Errorf("report %+v", r)
		}
		w.metric(p, `rows_total{result="accepted",source="pay"}`, 90)
	})
}

// TestRetryUpdatesProblems checks that a row which is refused again has its new problem.
func TestRetryUpdatesProblems(t *testing.T) {
	inWorld(t, func(w *world) {
		w.refuseAll(3)
		w.srv.judge = func(row *client.RelayRow) *client.RelayResult {
			switch row.ID {
			case "row-0000":
				return result(http.StatusInternalServerError, "internal")
			}
			return result(http.StatusUnprocessableEntity, "another")
		}
		got := w.ask(client.RelayAct{Action: "retry"})
		w.wantsProgress(got, client.RelayActProgress{State: "done", Matched: 3, Refused: 3})
		for id, want := range map[string]string{
			"row-0000": "internal", "row-0001": "another", "row-0002": "another",
		} {
			if code := w.tb.refusedCode(id); code != want {
				t.Errorf("%s has the code %s, want %s", id, code, want)
			}
		}
	})
}

// TestRetryWaitsForRoom has a dispatcher that takes few rows at first.
func TestRetryWaitsForRoom(t *testing.T) {
	inWorld(t, func(w *world) {
		w.refuseAll(10)
		began, room := time.Now(), 3
		w.srv.judge = func(row *client.RelayRow) *client.RelayResult {
			switch {
			case row.ID == "row-0007":
				return result(http.StatusUnprocessableEntity, "another")
			case room == 0 && time.Since(began) < 5*time.Minute:
				return result(http.StatusTooManyRequests, "too_many_open_callbacks")
			}
			room = max(room-1, 0)
			return nil
		}
		got := w.ask(client.RelayAct{Action: "retry"})
		w.wantsProgress(got, client.RelayActProgress{State: "done", Matched: 10, Accepted: 9, Refused: 1})
		if code := w.tb.refusedCode("row-0007"); code != "another" || len(w.tb.refused) != 1 {
			t.Errorf("%d rows are refused, row-0007 with %s", len(w.tb.refused), code)
		}
		midway := *w.srv.reports[len(w.srv.reports)-5].Act
		midway.ActID = ""
		w.wantsProgress(midway, client.RelayActProgress{State: "running", Matched: 4, Accepted: 3,
			Refused: 1, Error: "6 rows cannot be submitted: url: is wrong"})
	})
}

// TestActsGiveUp has a dispatcher that never takes a row.
func TestActsGiveUp(t *testing.T) {
	for _, action := range []string{"retry", "replay"} {
		t.Run(action, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.c.Keep = time.Hour
				w.insert("kept")
				w.start("a")
				w.pass(time.Second)
				w.srv.mu.Lock()
				w.srv.accepted = map[string]string{}
				w.srv.mu.Unlock()
				w.srv.judge = func(*client.RelayRow) *client.RelayResult {
					return result(http.StatusUnprocessableEntity, "invalid")
				}
				w.insert("refused")
				w.pass(10 * time.Second)
				w.srv.judge = func(*client.RelayRow) *client.RelayResult {
					return result(http.StatusTooManyRequests, "quota")
				}
				began := time.Now()
				got := w.ask(client.RelayAct{Action: action, Since: began.Add(-time.Minute)})
				w.wantsProgress(got, client.RelayActProgress{State: "failed",
					Error: "1 rows cannot be submitted: url: is wrong"})
				if d := time.Since(began); d < 9*time.Minute {
					t.Errorf("it gave up after %s", d)
				}
				if len(w.tb.refused) != 1 {
					t.Errorf("%d rows are refused", len(w.tb.refused))
				}
			})
		})
	}
}

func TestDropOfRefusedRows(t *testing.T) {
	inWorld(t, func(w *world) {
		w.refuseAll(2500)
		got := w.ask(client.RelayAct{Action: "drop", Code: "not_found"})
		w.wantsProgress(got, client.RelayActProgress{State: "done", Matched: 250, Dropped: 250})
		got = w.ask(client.RelayAct{Action: "drop"})
		w.wantsProgress(got, client.RelayActProgress{State: "done", Matched: 2250, Dropped: 2250})
		if n := len(w.tb.refused); n > 0 {
			t.Errorf("%d rows are refused", n)
		}
	})
}

// TestDropLeavesRowsThatWereRefusedLater has an act that is carried out after other rows were refused.
func TestDropLeavesRowsThatWereRefusedLater(t *testing.T) {
	inWorld(t, func(w *world) {
		w.refuseAll(3)
		asked := time.Now()
		w.pass(time.Second)
		w.insert("unseen-3", "unseen-4")
		w.pass(time.Second)
		if n := len(w.tb.refused); n != 5 {
			t.Fatalf("%d rows are refused", n)
		}
		got := w.ask(client.RelayAct{Action: "drop", RequestedAt: asked})
		w.wantsProgress(got, client.RelayActProgress{State: "done", Matched: 3, Dropped: 3})
		if w.tb.refusedCode("unseen-3") == "" || w.tb.refusedCode("unseen-4") == "" {
			t.Error("rows are dropped that were refused later")
		}
	})
}

// TestReplayIsPaced has a dispatcher that lost what it accepted. Fresh rows are not held up.
func TestReplayIsPaced(t *testing.T) {
	inWorld(t, func(w *world) {
		w.c.Keep = 24 * time.Hour
		for i := range 6000 {
			w.insert(fmt.Sprint("row-", i))
		}
		w.start("a")
		w.pass(10 * time.Second)
		since := time.Now().Add(-20 * time.Second)
		got := w.ask(client.RelayAct{Action: "replay", Since: since, DryRun: true})
		w.wantsProgress(got, client.RelayActProgress{State: "done", Matched: 6000})
		w.tb.many = 2_000_000
		got = w.ask(client.RelayAct{Action: "replay", Since: since, DryRun: true})
		w.wantsProgress(got, client.RelayActProgress{State: "done", Matched: 1_000_000,
			Error: "there are more rows; the count ends here"})
		w.srv.mu.Lock()
		for i := range 5000 {
			delete(w.srv.accepted, fmt.Sprint("pay/row-", i))
		}
		w.srv.mu.Unlock()
		go func() {
			time.Sleep(10 * time.Second)
			w.insert("fresh")
		}()
		began := time.Now()
		got = w.ask(client.RelayAct{Action: "replay", Since: since, Rate: 100})
		took := time.Since(began)
		w.wantsProgress(got, client.RelayActProgress{State: "done", Matched: 6000, Accepted: 5000,
			Replayed: 1000})
		if took < 55*time.Second || took > 75*time.Second {
			t.Errorf("6000 rows at 100 a second took %s", took)
		}
		if found := w.srv.acceptedAfter("fresh", began); found > 10*time.Second+2*w.c.Poll {
			t.Errorf("the fresh row took until %s", found)
		}
		got = w.ask(client.RelayAct{Action: "replay", Since: time.Now().Add(time.Hour)})
		w.wantsProgress(got, client.RelayActProgress{State: "done"})
	})
}

// TestReplayWithoutKeptRows fails at once.
func TestReplayWithoutKeptRows(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start("a")
		w.pass(time.Second)
		for _, act := range []client.RelayAct{{Action: "replay"}, {Action: "replay", DryRun: true}} {
			began := time.Now()
			got := w.ask(act)
			took := time.Since(began)
			if got.State != "failed" || !strings.Contains(got.Error, "set keep") || took > 7*time.Second {
				t.Errorf("after %s: %+v", took, got)
			}
		}
	})
}

// TestActsThatFail end with an error, and hold up no row.
func TestActsThatFail(t *testing.T) {
	inWorld(t, func(w *world) {
		w.c.Keep = time.Hour
		w.start("a")
		w.pass(time.Second)
		got := w.ask(client.RelayAct{Action: "shred"})
		if got.State != "failed" || !strings.Contains(got.Error, `does not know the action "shred"`) {
			t.Errorf("got %+v", got)
		}
		w.tb.call = func(op string, after bool) error {
			if op == "read kept" {
				return errors.New("no table dispatcher_outbox_done")
			}
			return nil
		}
		w.insert("a")
		got = w.ask(client.RelayAct{Action: "replay"})
		if got.State != "failed" || !strings.Contains(got.Error, "no table") {
			t.Errorf("got %+v", got)
		}
		w.wants(0, "a")
		if w.tb.connects != 1 {
			t.Errorf("%d connections", w.tb.connects)
		}
	})
}

// TestActOutlivesFailures has a dispatcher and a source that fail for a while, and a relay that dies.
func TestActOutlivesFailures(t *testing.T) {
	inWorld(t, func(w *world) {
		w.c.Batch = 10
		p, repair := w.refuseAll(300)
		repair()
		tries := 0
		w.srv.call = func(b *client.RelayBatch, after bool) error {
			if len(b.Rows) == 0 {
				return nil
			}
			tries++
			switch {
			case tries%5 == 0:
				return problem(http.StatusServiceUnavailable, "unavailable", "not now")
			case tries == 12:
				w.tb.epoch++
			}
			return nil
		}
		go func() {
			time.Sleep(8 * time.Second)
			p.end()
			w.start("b")
		}()
		got := w.ask(client.RelayAct{Action: "retry"})
		if got.State != "done" || got.Refused < 30 || got.Error != "" {
			t.Errorf("got %+v", got)
		}
		if n := len(w.tb.refused); n != 30 || len(w.srv.accepted) != 270 {
			t.Errorf("%d rows are refused, %d accepted", n, len(w.srv.accepted))
		}
	})
}

// TestActsNeedALiveConnection has connections that die while the source is idle.
func TestActsNeedALiveConnection(t *testing.T) {
	inWorld(t, func(w *world) {
		w.c.Poll = time.Minute
		_, repair := w.refuseAll(5)
		repair()
		w.tb.epoch++
		got := w.ask(client.RelayAct{Action: "retry"})
		w.wantsProgress(got, client.RelayActProgress{State: "done", Matched: 5, Accepted: 5})
		if w.tb.connects != 2 {
			t.Errorf("%d connections", w.tb.connects)
		}
		died := false
		w.tb.call = func(op string, after bool) error {
			if op == "count refused" && !died {
				died = true
				return errBroken
			}
			return nil
		}
		w.pass(2 * time.Minute)
		if w.tb.connects != 3 {
			t.Errorf("%d connections after the upkeep", w.tb.connects)
		}
	})
}

// TestActIsNoWayAroundThePause has a dispatcher that accepts refused rows and no fresh ones.
func TestActIsNoWayAroundThePause(t *testing.T) {
	inWorld(t, func(w *world) {
		w.c.Batch = 1
		_, repair := w.refuseAll(500)
		repair()
		calls := 0
		w.srv.call = func(b *client.RelayBatch, after bool) error {
			if !after && hasRow(b, "fresh") {
				calls++
				return problem(http.StatusServiceUnavailable, "unavailable", "not now")
			}
			return nil
		}
		w.tb.call = func(op string, after bool) error {
			if op == "read refused" && !after {
				time.Sleep(100 * time.Millisecond)
			}
			return nil
		}
		w.insert("fresh")
		got := w.ask(client.RelayAct{Action: "retry"})
		w.wantsProgress(got, client.RelayActProgress{State: "done", Matched: 500, Accepted: 450, Refused: 50})
		if calls > 10 {
			t.Errorf("%d calls with the fresh row", calls)
		}
	})
}

// TestKeptRowsArePruned checks that kept rows are deleted in slices.
func TestKeptRowsArePruned(t *testing.T) {
	inWorld(t, func(w *world) {
		w.c.Keep = time.Hour
		prunes := 0
		w.tb.call = func(op string, after bool) error {
			if op == "prune" && !after {
				prunes++
			}
			return nil
		}
		for i := range 25_000 {
			w.insert(fmt.Sprint("row-", i))
		}
		w.start("a")
		w.pass(time.Hour - time.Second)
		if n := len(w.tb.kept); n != 25_000 || prunes != 60 {
			t.Errorf("%d rows are kept after %d calls", n, prunes)
		}
		w.pass(2 * time.Minute)
		if n := len(w.tb.kept); n != 0 || prunes > 60+30 {
			t.Errorf("%d rows are kept after %d calls", n, prunes)
		}
	})
}

// TestFailingUpkeepHoldsUpNoRow has tables beside the outbox that cannot be read.
func TestFailingUpkeepHoldsUpNoRow(t *testing.T) {
	inWorld(t, func(w *world) {
		w.c.Keep = time.Hour
		w.tb.call = func(op string, after bool) error {
			if op == "prune" || op == "count refused" {
				return fmt.Errorf("cannot %s", op)
			}
			return nil
		}
		w.start("a")
		for i := range 100 {
			w.insert(fmt.Sprint("row-", i))
			w.pass(time.Second)
		}
		if n := w.tb.count(); n > 0 || w.tb.connects != 1 || !strings.Contains(w.srv.report.Error, "cannot") {
			t.Errorf("%d rows wait, %d connections, report %+v", n, w.tb.connects, w.srv.report)
		}
	})
}
