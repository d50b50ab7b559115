package httperr_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/httperr"
)

func TestTable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err    error
		status int
		code   string
		header string
	}{
		{httperr.ErrUnauthorized, 401, "unauthorized", "Www-Authenticate"},
		{httperr.ErrGuesses, 429, "too_many_guesses", "Retry-After"},
		{httperr.ErrRate, 429, "rate_limited", "Retry-After"},
		{httperr.ErrForbidden, 403, "forbidden", ""},
		{httperr.ErrBadJSON, 400, "bad_json", ""},
		{httperr.ErrIncomplete, 400, "incomplete_body", ""},
		{httperr.ErrTooLarge, 413, "too_large", "Connection"},
		{httperr.ErrPayloadTooLarge, 413, "payload_too_large", ""},
		{httperr.ErrEncoding, 415, "unsupported_encoding", ""},
		{fmt.Errorf("%w: %w", httperr.ErrBusy, context.DeadlineExceeded), 503, "busy", "Retry-After"},
		{httperr.ErrNoRoute, 404, "no_route", ""},
		{httperr.ErrMethod, 405, "method_not_allowed", ""},
		{store.ErrNotFound, 404, "not_found", ""},
		{store.ErrAttempting, 409, "attempting", ""},
		{store.ErrPayloadPurged, 409, "payload_purged", ""},
		{store.ErrTerminal, 409, "terminal", ""},
		{store.ErrExists, 409, "exists", ""},
		{store.ErrPollLive, 409, "poll_live", ""},
		{store.ErrEndpointDeleted, 409, "endpoint_deleted", ""},
		{store.ErrIdempotencyMismatch, 422, "idempotency_mismatch", ""},
		{store.ErrIdempotencyInProgress, 409, "idempotency_in_progress", "Retry-After"},
		{store.ErrTooManyRedrives, 429, "too_many_redrives", "Retry-After"},
		{store.ErrOpenQuota, 429, "open_callbacks_quota", "Retry-After"},
		{store.ErrLaneQuota, 429, "lanes_quota", "Retry-After"},
		{store.ErrUnavailable, 503, "unavailable", "Retry-After"},
		{schedule.ErrRebuilding, 503, "index_rebuilding", "Retry-After"},
		{schedule.ErrLost, 503, "index_lost", "Retry-After"},
		{context.DeadlineExceeded, 503, "unavailable", "Retry-After"},
		{context.Canceled, 503, "unavailable", "Retry-After"},
		{&store.InvalidError{Fields: []store.FieldError{{Field: "url", Message: "is needed"}}}, 422, "invalid", ""},
		{errors.New("pq: password of user bob is hunter2"), 500, "internal", ""},
	} {
		rec := httptest.NewRecorder()
		if err := httperr.Write(rec, httperr.From(fmt.Errorf("accept callbacks: %w", c.err))); err != nil {
			t.Fatalf("%v: write: %v", c.err, err)
		}
		var got httperr.Problem
		if err := json.Unmarshal(rec.Body.Bytes(), &got); err != nil {
			t.Fatalf("%v: %v in %s", c.err, err, rec.Body)
		}
		if rec.Code != c.status || got.Status != c.status || got.Code != c.code {
			t.Errorf("%v: got %d %d %q, want %d %q", c.err, rec.Code, got.Status, got.Code, c.status, c.code)
		}
		if got.Type == "" || got.Title == "" || got.Detail == "" {
			t.Errorf("%v: type, title and detail must be said: %+v", c.err, got)
		}
		if ct := rec.Header().Get("Content-Type"); ct != client.ProblemType {
			t.Errorf("%v: content type %q", c.err, ct)
		}
		if c.header != "" && rec.Header().Get(c.header) == "" {
			t.Errorf("%v: header %s is missing", c.err, c.header)
		}
	}
}

func TestLaterSaysHowLong(t *testing.T) {
	t.Parallel()
	for wait, want := range map[time.Duration]int{0: 1, time.Second: 1, time.Second + 1: 2, time.Minute: 60} {
		p := httperr.From(fmt.Errorf("authenticate: %w", httperr.Later(httperr.ErrRate, wait)))
		if p.RetryAfter != want || p.Code != "rate_limited" {
			t.Errorf("%s: %+v, want %d s", wait, p, want)
		}
	}
}

func TestNothingLeaks(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		errors.New("hunter2"),
		fmt.Errorf("open postgres://bob:hunter2@db: %w", store.ErrUnavailable),
		fmt.Errorf("hunter2: %w", context.DeadlineExceeded),
	} {
		if p := httperr.From(err); strings.Contains(p.Detail, "hunter2") {
			t.Errorf("%v: the detail says too much: %q", err, p.Detail)
		}
	}
}

func TestInvalidNamesItsFields(t *testing.T) {
	t.Parallel()
	fields := make([]store.FieldError, 7)
	for i := range fields {
		fields[i] = store.FieldError{Field: fmt.Sprintf("f%d", i), Message: "is wrong"}
	}
	p := httperr.From(&store.InvalidError{Fields: fields})
	if len(p.Errors) != 7 || !strings.Contains(p.Detail, "f0, f1, f2, f3, f4, …") {
		t.Errorf("got %+v", p)
	}
}
