package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/httperr"
)

// A rowEngine accepts everything. It takes a time for an event, and panics for a poll.
type rowEngine struct {
	RelayEngine
	takes  time.Duration
	events int
}

// Accept implements RelayEngine.
func (*rowEngine) Accept(_ context.Context, _ string, subs []accept.Submission) ([]store.Accepted, error) {
	return make([]store.Accepted, len(subs)), nil
}

// AcceptEvent implements RelayEngine.
func (e *rowEngine) AcceptEvent(context.Context, string, accept.Submission) (accept.EventReceipt, error) {
	e.events++
	time.Sleep(e.takes)
	return accept.EventReceipt{}, nil
}

// AcceptPoll implements RelayEngine.
func (*rowEngine) AcceptPoll(context.Context, string, accept.PollSubmission) (store.Accepted, error) {
	panic("of the engine")
}

// statuses returns the status of each result.
func statuses(results []client.RelayResult) (all []int) {
	for _, r := range results {
		all = append(all, r.Status)
	}
	return all
}

func same(a, b []int) bool { return len(a) == len(b) && string(marshal(a)) == string(marshal(b)) }

func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// TestRowPanicsAlone decodes a row that the decoder panics on, because its JSON was not checked. The others
// pass.
func TestRowPanicsAlone(t *testing.T) {
	t.Parallel()
	var logged []error
	r := rowSubmitter{engine: &rowEngine{}, source: "pay", problem: func(err error) httperr.Problem {
		logged = append(logged, err)
		return httperr.From(err)
	}}
	row := func(request string) relayRow {
		return relayRow{RelayRow: client.RelayRow{ID: "a", Request: []byte(request)}}
	}
	rows := []relayRow{row(`{}`), row(`{"url":"`), row(`{}`)}
	reply, err := r.submit(t.Context(), &client.RelayBatch{}, rows)
	if err != nil || !same(statuses(reply.Results), []int{202, 500, 202}) {
		t.Errorf("%+v, %v", reply.Results, err)
	}
	if len(logged) != 1 || !strings.Contains(logged[0].Error(), "relay_rows.go") {
		t.Errorf("logged %v", logged)
	}
}

// TestRowAheadIsNotDelayed decodes rows of one request with several ages: the delay counts from the insert,
// and a time of insert in the future does not make it longer.
func TestRowAheadIsNotDelayed(t *testing.T) {
	t.Parallel()
	r := rowSubmitter{source: "pay"}
	for age, want := range map[time.Duration]time.Duration{
		0: time.Hour, 20 * time.Minute: 40 * time.Minute, 2 * time.Hour: 0, -time.Minute: time.Hour,
		-24 * time.Hour: time.Hour,
	} {
		d, err := r.decode(&relayRow{RelayRow: client.RelayRow{ID: "a", AgeMs: age.Milliseconds(),
			Request: json.RawMessage(`{"delay":"1h"}`)}})
		if err != nil || d.Delay == nil || *d.Delay != want {
			t.Errorf("age %s: delay %v, %v; want %s", age, d.Delay, err, want)
		}
	}
}

// TestSinkSurvivesAPanic checks that a panic of the engine does not end the process of a relay.
func TestSinkSurvivesAPanic(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	sink := NewRelaySink(&rowEngine{}, "default", slog.New(slog.NewTextHandler(&log, nil)))
	_, err := sink.Submit(t.Context(), "pay", client.RelayBatch{Rows: []client.RelayRow{
		{ID: "a", Kind: kindPoll, Request: json.RawMessage(`{}`)},
	}})
	refused, ok := errors.AsType[*client.Error](err)
	if !ok || refused.Status != 500 || refused.Code != string(client.CodeInternal) ||
		strings.Contains(err.Error(), "of the engine") {
		t.Errorf("%v", err)
	}
	if !strings.Contains(log.String(), "of the engine") || !strings.Contains(log.String(), "source=pay") {
		t.Errorf("logged %s", log.String())
	}
}

// TestSlowRowsAreBounded checks that events which take long do not hold a call for longer than relaySpan and
// one event. The rest is temporary.
func TestSlowRowsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &rowEngine{takes: 4 * time.Second}
		sink := NewRelaySink(e, "default", slog.New(slog.DiscardHandler))
		rows := make([]client.RelayRow, 100)
		for i := range rows {
			rows[i] = client.RelayRow{ID: "a", Kind: kindEvent, Request: json.RawMessage(`{}`)}
		}
		rows[99].Kind = kindCallback // callbacks do not wait for events
		reply, err := sink.Submit(t.Context(), "pay", client.RelayBatch{Rows: rows})
		got := statuses(reply.Results)
		if err != nil || e.events != 3 || !same(got[:5], []int{202, 202, 202, 503, 503}) || got[99] != 202 {
			t.Errorf("%d events, %v, %v", e.events, got, err)
		}
	})
}
