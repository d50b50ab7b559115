package control

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// TestReportIsBounded checks that the texts of every stored report are short, valid UTF-8 and one line.
func TestReportIsBounded(t *testing.T) {
	t.Parallel()
	hostile := strings.Repeat("订\x00\n\xff\u202e", 5000)
	rows := slices.Repeat([]store.RelayRefusal{{
		ID: hostile, Seq: -1, Kind: hostile, Code: hostile, Problem: hostile, RefusedAt: -1,
	}}, 150)
	for _, n := range []int{math.MaxInt, math.MinInt} {
		got := cleanReport(store.RelayReport{
			LagMs: int64(n), Waiting: n, RefusedRows: n, RowsPerSecond: math.Inf(n), Error: hostile,
			Refusals: rows,
		})
		if len(got.Refusals) != store.MaxRelayRefusals || len(rows) != 150 || rows[0].ID != hostile {
			t.Errorf("%d refusals are stored", len(got.Refusals))
		}
		unheld := store.RelaySource{ReportedAt: 1, Report: got}
		if lag := unheld.LagMs(1e6); lag < 0 || lag > store.MaxRelayLag {
			t.Errorf("a reported lag of %d is later %d", n, lag)
		}
		if got.LagMs < 0 || got.LagMs > store.MaxRelayLag || got.Waiting < 0 ||
			got.Waiting > store.RelayCountLimit || got.RefusedRows < 0 ||
			got.RefusedRows > store.RelayCountLimit || got.RowsPerSecond != 0 {
			t.Errorf("counts: %+v", got)
		}
		texts := []string{got.Error}
		for _, r := range got.Refusals {
			texts = append(texts, r.ID, r.Kind, r.Code, r.Problem)
		}
		for _, text := range texts {
			if text == "" || len(text) > relayTextBytes || !utf8.ValidString(text) ||
				strings.ContainsAny(text, "\x00\n") {
				t.Errorf("a text of %d bytes: %q", len(text), text)
			}
		}
	}
	good := store.RelayReport{LagMs: 5, Waiting: 7, RefusedRows: 1, RowsPerSecond: 2.5, Error: "e",
		Refusals: []store.RelayRefusal{{ID: "订单 1", Seq: 3, Kind: "event", Code: "c", Problem: "p",
			RefusedAt: 9}}}
	if diff := cmp.Diff(good, cleanReport(good)); diff != "" {
		t.Errorf("a plain report (-want +got):\n%s", diff)
	}
}

func TestRelaySourceNames(t *testing.T) {
	t.Parallel()
	for name, valid := range map[string]bool{
		"pay": true, "pay-00": true, "a.b_c-9": true, strings.Repeat("x", 64): true,
		"": false, strings.Repeat("x", 65): false, "Pay": false, "a/b": false, "a b": false, "订": false,
		"a\x00": false, "a\n": false, ".": false, "..": false, "...": true,
	} {
		var f accept.Findings
		CheckRelaySource(name, &f)
		if (len(f) == 0) != valid {
			t.Errorf("%q: %v", name, fmt.Sprint(f))
		}
	}
}
