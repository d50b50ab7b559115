package httperr

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// TestProblemOfEachError writes the response to each error of the table, to invalid fields, and to errors
// that are not in the table.
func TestProblemOfEachError(t *testing.T) {
	t.Parallel()
	transcript.File(t, "testdata/problems.txt", func(t *testing.T, _ string) string {
		fields := make([]store.FieldError, 7)
		for i := range fields {
			fields[i] = store.FieldError{Field: fmt.Sprintf("f%d", i), Message: "is wrong"}
		}
		errs := []error{
			&store.InvalidError{Fields: fields[:1]}, &store.InvalidError{Fields: fields},
			fmt.Errorf("%w: %w", ErrBusy, context.DeadlineExceeded),
			&store.RelayNamedError{Name: "pay"},
			errors.New("pq: password of user bob is hunter2"),
		}
		for _, r := range rows() {
			errs = append(errs, r.err)
		}
		var all strings.Builder
		for _, err := range errs {
			rec := httptest.NewRecorder()
			if err := Write(rec, From(fmt.Errorf("accept callbacks: %w", err))); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&all, "%d %s\n", rec.Code, rec.Body)
			header := rec.Header()
			for _, name := range []string{"Content-Type", "Retry-After", "WWW-Authenticate", "Connection"} {
				if value := header.Get(name); value != "" {
					fmt.Fprintf(&all, "  %s: %s\n", name, value)
				}
			}
			if length := header.Get("Content-Length"); length != fmt.Sprint(rec.Body.Len()) {
				t.Errorf("%v: Content-Length %s for %d bytes", err, length, rec.Body.Len())
			}
		}
		return all.String()
	})
}

// TestEachCodeIsInTheReference writes the table of docs/reference/errors.md.
func TestEachCodeIsInTheReference(t *testing.T) {
	t.Parallel()
	errs := []error{&store.InvalidError{Fields: []store.FieldError{{Field: "FIELD"}}}}
	for _, r := range rows() {
		errs = append(errs, r.err)
	}
	errs = append(errs, errors.New("not in the table"))
	var lines []string
	for _, err := range errs {
		p := From(err)
		again := "–"
		if p.RetryAfter > 0 {
			again = fmt.Sprintf("%d s", p.RetryAfter)
		}
		lines = append(lines, fmt.Sprintf("| %d | `%s` | %s | %s |\n", p.Status, p.Code, p.Detail, again))
	}
	slices.Sort(lines)
	transcript.Block(t, "../../docs/reference/errors.md", "codes",
		"| status | code | detail | `Retry-After` |\n|---|---|---|---|\n"+
			strings.Join(slices.Compact(lines), ""))
}

// TestLaterSetsRetryAfter checks that Retry-After is in whole seconds, rounded up, and at least 1.
func TestLaterSetsRetryAfter(t *testing.T) {
	t.Parallel()
	for wait, want := range map[time.Duration]int{0: 1, time.Second: 1, time.Second + 1: 2, time.Minute: 60} {
		p := From(fmt.Errorf("authenticate: %w", Later(ErrRate, wait)))
		if p.RetryAfter != want || p.Code != "rate_limited" {
			t.Errorf("%s: %+v, want %d s", wait, p, want)
		}
	}
}

// TestDetailHidesUnknownErrors checks that a detail contains neither the text of an unknown error nor the
// text that wraps a known one.
func TestDetailHidesUnknownErrors(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		errors.New("hunter2"),
		fmt.Errorf("open postgres://bob:hunter2@db: %w", store.ErrUnavailable),
		fmt.Errorf("hunter2: %w", context.DeadlineExceeded),
	} {
		if p := From(err); strings.Contains(p.Detail, "hunter2") {
			t.Errorf("%v: the detail reveals the error: %q", err, p.Detail)
		}
	}
}
