package relay

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/relay/source"
)

// refusedCode returns the code of the only refused row with an id.
func (tb *table) refusedCode(id string) string {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	for key, row := range tb.refused {
		if key.ID == id {
			return row.Code
		}
	}
	return ""
}

// TestBadRowsAreRefused has every kind of bad row between good ones.
func TestBadRowsAreRefused(t *testing.T) {
	inWorld(t, func(w *world) {
		w.srv.judge = func(row *client.RelayRow) *client.RelayResult {
			if strings.HasPrefix(row.ID, "bad") {
				return result(http.StatusUnprocessableEntity, row.Kind)
			}
			return nil
		}
		change := map[string]func(row *tableRow){
			"json":     func(row *tableRow) { row.Request = []byte(`{"url":`) },
			"empty":    func(row *tableRow) { row.Request = []byte{} },
			"utf8":     func(row *tableRow) { row.Request = []byte("{\"url\":\"\xff\"}") },
			"kind":     func(row *tableRow) { row.Kind = "\xff" },
			"large":    func(row *tableRow) { row.Request, row.RequestBytes = nil, source.MaxRequest+1 },
			"body":     func(row *tableRow) { row.BodyBytes = source.MaxBody + 1 },
			"bad-kind": func(row *tableRow) { row.Kind = "unknown_kind" },
			"bad-old":  func(row *tableRow) { row.Kind = "too_old" },
		}
		want := map[string]string{
			"json": "not_json", "empty": "not_json", "utf8": "not_utf8", "kind": "not_utf8",
			"large": "too_large", "body": "too_large", "bad-kind": "unknown_kind", "bad-old": "too_old",
		}
		for id, f := range change {
			w.insert("good-" + id)
			w.tb.put(w.tb.insert(id, 0), f)
		}
		p := w.start("a")
		w.pass(time.Second)
		for id, code := range want {
			if got := w.tb.refusedCode(id); got != code {
				t.Errorf("%s is refused as %q, want %q", id, got, code)
			}
			if !w.srv.has("good-" + id) {
				t.Errorf("good-%s is not accepted", id)
			}
		}
		if n := w.tb.count(); n > 0 {
			t.Errorf("%d rows wait", n)
		}
		w.metric(p, `rows_total{result="refused",source="pay"}`, 8)
		w.pass(8 * time.Second)
		w.metric(p, `refused_rows{source="pay"}`, 8)
		r := w.srv.reports
		if len(r) < 2 || r[0].Refusals == nil || len(*r[0].Refusals) != 8 || r[0].RefusedRows != 8 ||
			r[1].Refusals != nil {
			t.Errorf("reports %+v", r)
		}
	})
}

// TestPoisonRowEndsAlone has rows that make the whole call fail.
func TestPoisonRowEndsAlone(t *testing.T) {
	for _, tc := range []struct {
		status  int
		code    string
		refused string
	}{
		{http.StatusBadRequest, "bad_json", "bad_json"},
		{http.StatusRequestEntityTooLarge, "too_large", "too_large"},
		{http.StatusUnprocessableEntity, "invalid", "invalid"},
		{http.StatusInternalServerError, "internal", ""},
		{http.StatusBadRequest, "", ""}, // a proxy's
	} {
		inWorld(t, func(w *world) {
			failing := true
			w.srv.call = func(b *client.RelayBatch, after bool) error {
				if failing && !after && hasRow(b, "poison") {
					return problem(tc.status, tc.code, "cannot decode")
				}
				return nil
			}
			var good []string
			for i := range 200 {
				good = append(good, fmt.Sprint("row-", i))
				w.insert(good[i])
				if i%50 == 20 {
					w.insert(fmt.Sprint("poison-", i))
				}
			}
			p := w.start("a")
			w.pass(3 * time.Second)
			if tc.refused != "" {
				w.wants(0, good...)
				if code := w.tb.refusedCode("poison-20"); code != tc.refused {
					t.Errorf("%d: refused as %q", tc.status, code)
				}
				return
			}
			w.wants(4, good...)
			w.metric(p, `rows_waiting{source="pay"}`, 4)
			w.pass(10 * time.Second)
			w.metric(p, `late_rows_total{source="pay"}`, 0)
			if e := w.srv.report.Error; !strings.Contains(e, "4 rows wait: cannot decode") {
				t.Errorf("the report has the error %q", e)
			}
			if lag := p.series(t)[`lag_seconds{source="pay"}`]; lag < 12 || lag > 14 {
				t.Errorf("lag %v", lag)
			}
			failing = false
			w.pass(2 * time.Minute)
			w.wants(0, append(good, "poison-20", "poison-70", "poison-120", "poison-170")...)
			w.metric(p, `lag_seconds{source="pay"}`, 0)
		})
	}
}

// TestLoneRowFailsOnce has errors that say nothing about the only row of a call.
func TestLoneRowFailsOnce(t *testing.T) {
	for _, failure := range []error{
		problem(http.StatusInternalServerError, "internal", "internal error"),
		problem(http.StatusBadRequest, "incomplete_body", "the body ended early; send the request again"),
	} {
		inWorld(t, func(w *world) {
			failed := false
			w.srv.call = func(b *client.RelayBatch, after bool) error {
				if after || len(b.Rows) == 0 || failed {
					return nil
				}
				failed = true
				return failure
			}
			w.insert("first")
			w.start("a")
			w.pass(500 * time.Millisecond)
			w.insert("second")
			w.pass(2 * time.Second)
			w.wants(0, "first", "second")
			if w.srv.acceptedAfter("second", w.srv.at["pay/first"]) < 0 {
				t.Errorf("%v: the second row is accepted first", failure)
			}
		})
	}
}

// TestManyPoisonRowsStopTheSource checks that a source with a hundred of them is read no further, and that it
// recovers.
func TestManyPoisonRowsStopTheSource(t *testing.T) {
	inWorld(t, func(w *world) {
		failing := true
		w.srv.call = func(b *client.RelayBatch, after bool) error {
			if failing && !after && len(b.Rows) > 0 {
				return problem(http.StatusInternalServerError, "internal", "internal error")
			}
			return nil
		}
		for i := range 2000 {
			w.insert(fmt.Sprint("row-", i))
		}
		p := w.start("a")
		w.pass(50 * time.Second)
		if calls := len(w.srv.rowCalls); calls > 0 {
			t.Errorf("%d calls arrived", calls)
		}
		e := w.srv.report.Error
		if !strings.Contains(e, "100 rows") || !strings.Contains(e, "internal error") {
			t.Errorf("the report has the error %q", e)
		}
		if list := p.Degraded(); len(list) != 1 || list[0] != "relay:pay" {
			t.Errorf("degraded: %v", list)
		}
		if n := p.series(t)[`errors_total{side="dispatcher",source="pay"}`]; n == 0 {
			t.Error("no error is counted")
		}
		failing = false
		w.pass(3 * time.Minute)
		if n := w.tb.count(); n > 0 || len(w.tb.refused) > 0 || p.Degraded() != nil {
			t.Errorf("%d rows wait, %d are refused, degraded %v", n, len(w.tb.refused), p.Degraded())
		}
	})
}

// TestRowsThatStay have results that are not final. The row is handed over again, and holds up no other.
func TestRowsThatStay(t *testing.T) {
	for _, stays := range []*client.RelayResult{
		result(http.StatusConflict, "idempotency_in_progress"),
		result(http.StatusTooManyRequests, "lanes_quota"),
		result(http.StatusServiceUnavailable, "unavailable"), {Status: http.StatusBadGateway}, {Status: 0},
	} {
		inWorld(t, func(w *world) {
			staying, tries := true, 0
			w.srv.judge = func(row *client.RelayRow) *client.RelayResult {
				if staying && row.ID == "stays" {
					tries++
					return stays
				}
				return nil
			}
			p := w.start("a")
			w.pass(5 * time.Second)
			w.insert("a", "stays", "b")
			accepted := []string{"a", "b"}
			for i := range 120 {
				id := fmt.Sprint("row-", i)
				w.insert(id)
				accepted = append(accepted, id)
				w.pass(time.Second + w.c.Poll)
				w.wants(1, accepted...)
			}
			if tries < 100 || tries > 140 {
				t.Errorf("%d: %d tries in 132 s", stays.Status, tries)
			}
			if lag := p.series(t)[`lag_seconds{source="pay"}`]; lag < 131 || lag > 133 {
				t.Errorf("%d: lag %v", stays.Status, lag)
			}
			w.metric(p, `late_rows_total{source="pay"}`, 0)
			staying = false
			w.pass(2 * time.Second)
			w.wants(0, append(accepted, "stays")...)
		})
	}
}

// TestQuotaOfAllRowsBacksOff checks that a dispatcher which accepts no row is not flooded.
func TestQuotaOfAllRowsBacksOff(t *testing.T) {
	inWorld(t, func(w *world) {
		full := true
		w.srv.judge = func(*client.RelayRow) *client.RelayResult {
			if full {
				return result(http.StatusTooManyRequests, "open_callbacks_quota")
			}
			return nil
		}
		for i := range 5000 {
			w.insert(fmt.Sprint("row-", i))
		}
		w.start("a")
		w.pass(2 * time.Minute)
		if n := len(w.srv.rowCalls); n < 6 || n > 13 {
			t.Errorf("%d calls in two minutes", n)
		}
		full = false
		w.pass(35 * time.Second)
		if n := w.tb.count(); n > 0 {
			t.Errorf("%d rows wait", n)
		}
	})
}

// TestProgressIsNoFailure has a dispatcher that takes half of a page, so slowly that the others have to wait.
func TestProgressIsNoFailure(t *testing.T) {
	inWorld(t, func(w *world) {
		room := 0
		w.srv.call = func(b *client.RelayBatch, after bool) error {
			if !after && len(b.Rows) > 0 {
				time.Sleep(10 * time.Second)
				room = 250
			}
			return nil
		}
		w.srv.judge = func(*client.RelayRow) *client.RelayResult {
			room--
			if room < 0 {
				return result(http.StatusServiceUnavailable, "unavailable")
			}
			return nil
		}
		for i := range 20_000 {
			w.insert(fmt.Sprint("row-", i))
		}
		p := w.start("a")
		w.pass(10 * time.Minute)
		if n := get(w.srv, func() int { return len(w.srv.accepted) }); n < 13_000 {
			t.Errorf("%d rows are accepted in ten minutes", n)
		}
		report := get(w.srv, func() client.RelayReport { return w.srv.report })
		if p.Degraded() != nil || !strings.Contains(report.Error, "250 rows wait") {
			t.Errorf("degraded %v, report %+v", p.Degraded(), report)
		}
	})
}

// TestRowsThatCannotBeMoved are parked; other rows pass them.
func TestRowsThatCannotBeMoved(t *testing.T) {
	inWorld(t, func(w *world) {
		denied := true
		w.tb.call = func(op string, after bool) error {
			if denied && op == "refuse" {
				return errors.New("permission denied")
			}
			return nil
		}
		w.srv.judge = func(row *client.RelayRow) *client.RelayResult {
			if strings.HasPrefix(row.ID, "bad") {
				return result(http.StatusUnprocessableEntity, "invalid")
			}
			return nil
		}
		w.insert("bad-1", "a", "bad-2", "b")
		w.start("a")
		w.pass(20 * time.Second)
		w.wants(2, "a", "b")
		if e := w.srv.report.Error; !strings.Contains(e, "2 rows wait: permission denied") {
			t.Errorf("error %q", e)
		}
		for i := range 120 {
			w.insert(fmt.Sprint("bad-more-", i))
		}
		w.pass(10 * time.Second)
		w.insert("c")
		w.pass(10 * time.Second)
		w.wants(123, "a", "b") // the source is not read any more
		denied = false
		w.pass(3 * time.Minute)
		w.wants(0, "a", "b", "c")
		if n := len(w.tb.refused); n != 122 {
			t.Errorf("%d rows are refused", n)
		}
	})
}

// TestCallsAreBounded checks that no call has more than 4 MiB, and what a row looks like.
func TestCallsAreBounded(t *testing.T) {
	inWorld(t, func(w *world) {
		var sizes []int
		w.srv.call = func(b *client.RelayBatch, after bool) error {
			if !after && len(b.Rows) > 0 {
				text, err := client.AppendJSON(nil, b)
				if err != nil {
					t.Error(err)
				}
				sizes = append(sizes, len(text))
			}
			return nil
		}
		for i := range 20 {
			w.tb.put(w.tb.insert(fmt.Sprint("row-", i), 0), func(row *tableRow) {
				row.Body, row.BodyBytes = make([]byte, source.MaxBody), source.MaxBody
			})
		}
		w.tb.put(w.tb.insert("empty-body", 0), func(row *tableRow) { row.BodyBytes = 0 })
		w.srv.judge = func(row *client.RelayRow) *client.RelayResult {
			if row.Body == nil || len(*row.Body) != source.MaxBody && row.ID != "empty-body" {
				t.Errorf("row %s has no body", row.ID)
			}
			return nil
		}
		w.start("a")
		w.pass(time.Second)
		if n := w.tb.count(); n > 0 || len(sizes) != 2 || sizes[0] > maxCall+20_000 {
			t.Errorf("%d rows wait, calls of %v bytes", n, sizes)
		}
	})
}
