package control

import (
	"context"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Limits of what a relay reports and of what people ask of it, in characters; relayTextBytes in bytes.
const (
	MaxRelaySource = 64
	MaxRelayHolder = 128
	MaxRelayOrigin = 512
	MaxRelayRowID  = 128
	MaxRelayCode   = 64
	MaxRelayRate   = 10_000
	relayTextBytes = 1 << 10
	maxActID       = 26
)

// HoldRelay takes or renews the lease of a relay source for store.RelayLease, and stores what its relay
// reports. Texts of the report are shortened and cleaned, because they come from tables of applications. It
// returns the source without its refusals; its Act may be open. Its errors are a *store.InvalidError,
// store.ErrRelayHeld, store.ErrRelayOrigin, store.ErrTooManySources or store.ErrUnavailable.
func (ct *Controller) HoldRelay(ctx context.Context, project, source string,
	h store.RelayHold) (store.RelaySource, error) {
	var f accept.Findings
	CheckRelaySource(source, &f)
	checkRequired("holder", h.Holder, MaxRelayHolder, &f)
	checkRequired("origin", h.Origin, MaxRelayOrigin, &f)
	if h.Report != nil {
		r := cleanReport(*h.Report)
		h.Report = &r
	}
	if h.Progress.ID != "" {
		checkProgress(&h.Progress, &f)
	}
	if err := f.Err(); err != nil {
		return store.RelaySource{}, err
	}
	held, err := ct.o.Store.HoldRelay(ctx, project, source, h, ct.clock.Now())
	if err != nil {
		return held, fmt.Errorf("hold relay source: %w", err)
	}
	return held, nil
}

// CheckRelaySource checks the name of a relay source. It is a part of every idempotency key, and of paths,
// in which "." and ".." have another meaning.
func CheckRelaySource(name string, f *accept.Findings) {
	valid := name != "" && len(name) <= MaxRelaySource && name != "." && name != ".."
	for _, c := range []byte(name) {
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || strings.IndexByte("._-", c) >= 0) {
			valid = false
		}
	}
	if !valid {
		f.Add("source", "must be 1 to %d characters of a-z, 0-9, '.', '_' and '-', but not . or ..",
			MaxRelaySource)
	}
}

func checkRequired(field, text string, most int, f *accept.Findings) {
	if text == "" {
		f.Add(field, "is required")
	}
	accept.CheckText(field, text, most, f)
}

// checkProgress checks how far an act is.
func checkProgress(p *store.RelayAct, f *accept.Findings) {
	accept.CheckText("report.act.act_id", p.ID, maxActID, f)
	switch p.State {
	case store.RelayActRunning, store.RelayActDone, store.RelayActFailed:
	default:
		f.Add("report.act.state", "must be running, done or failed")
	}
	p.Error = cleanText(p.Error, relayTextBytes)
	for _, n := range []*int{&p.Matched, &p.Accepted, &p.Replayed, &p.Refused, &p.Dropped} {
		*n = max(*n, 0)
	}
}

// cleanReport returns a report within its bounds.
func cleanReport(r store.RelayReport) store.RelayReport {
	r.LagMs = min(max(r.LagMs, 0), store.MaxRelayLag)
	r.Waiting = min(max(r.Waiting, 0), store.RelayCountLimit)
	r.RefusedRows = min(max(r.RefusedRows, 0), store.RelayCountLimit)
	if !(r.RowsPerSecond >= 0 && r.RowsPerSecond < 1e9) { // also NaN
		r.RowsPerSecond = 0
	}
	r.Error = cleanText(r.Error, relayTextBytes)
	refusals := make([]store.RelayRefusal, min(len(r.Refusals), store.MaxRelayRefusals))
	for i := range refusals {
		row := r.Refusals[i]
		row.ID = cleanText(row.ID, utf8.UTFMax*MaxRelayRowID)
		row.Kind, row.Code = cleanText(row.Kind, MaxRelayCode), cleanText(row.Code, MaxRelayCode)
		row.Problem = cleanText(row.Problem, relayTextBytes)
		refusals[i] = row
	}
	r.Refusals = refusals
	return r
}

// cleanText returns at most that many bytes of a text in one line: invalid UTF-8 and control characters
// become a question mark and a space.
func cleanText(text string, most int) string {
	if len(text) > most {
		for most > 0 && !utf8.RuneStart(text[most]) {
			most--
		}
		text = text[:most]
	}
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?")))
}

// RelaySources returns the project's relay sources by name, without their refusals.
func (ct *Controller) RelaySources(ctx context.Context, project string) ([]store.RelaySource, error) {
	return ct.o.Store.RelaySources(ctx, project)
}

// RelaySource returns a relay source with its refusals, or store.ErrNotFound.
func (ct *Controller) RelaySource(ctx context.Context, project, name string) (store.RelaySource, error) {
	return ct.o.Store.RelaySource(ctx, project, name)
}

// ActOnRelay asks the relay of a source to retry or drop refused rows, or to replay kept rows: see the first
// fields of store.RelayAct. A drop without RowID and Code drops all. Its errors are a *store.InvalidError,
// store.ErrNotFound and store.ErrRelayActing.
func (ct *Controller) ActOnRelay(ctx context.Context, project, name string, act store.RelayAct,
	by store.Actor) (store.RelaySource, error) {
	now := ct.clock.Now()
	var f accept.Findings
	checkReason(by, &f)
	accept.CheckText("id", act.RowID, MaxRelayRowID, &f)
	accept.CheckText("code", act.Code, MaxRelayCode, &f)
	replay := act.Action == store.RelayReplay
	switch {
	case replay && (act.RowID != "" || act.Code != ""):
		f.Add("action", "a replay selects rows by since")
	case !replay && (act.Since != 0 || act.DryRun || act.Rate != 0):
		f.Add("action", "only a replay has since, dry_run and rate")
	case replay && act.Since <= 0:
		f.Add("since", "is required")
	case act.Since > now:
		f.Add("since", "must not be in the future")
	}
	if act.Rate < 0 || act.Rate > MaxRelayRate {
		f.Add("rate", "must be 0 to %d; 0 is the default", MaxRelayRate)
	}
	if err := f.Err(); err != nil {
		return store.RelaySource{}, err
	}
	act.ID = ct.ids.New(clock.TimeOf(now))
	s, err := ct.o.Store.ActOnRelay(ctx, project, name, act, now, by)
	if err != nil {
		return s, fmt.Errorf("%s rows of a relay source: %w", act.Action, err)
	}
	return s, nil
}

// CancelRelayAct ends the open act of a source; its relay stops within seconds. What it changed before stays.
// Without an open act nothing changes. Its errors are a *store.InvalidError and store.ErrNotFound.
func (ct *Controller) CancelRelayAct(ctx context.Context, project, name string,
	by store.Actor) (store.RelaySource, error) {
	return changeRelay(ct, by, "cancel act on relay source", func(now int64) (store.RelaySource, error) {
		return ct.o.Store.CancelRelayAct(ctx, project, name, now, by)
	})
}

// ForgetRelay deletes a source that no relay holds, and returns it as it was. Its name may then stand for
// another table. Its errors are a *store.InvalidError, store.ErrNotFound and store.ErrRelayHeld.
func (ct *Controller) ForgetRelay(ctx context.Context, project, name string,
	by store.Actor) (store.RelaySource, error) {
	return changeRelay(ct, by, "forget relay source", func(now int64) (store.RelaySource, error) {
		return ct.o.Store.ForgetRelay(ctx, project, name, now, by)
	})
}

// changeRelay checks the reason of a change, and makes it.
func changeRelay(ct *Controller, by store.Actor, doing string,
	change func(now int64) (store.RelaySource, error)) (store.RelaySource, error) {
	var f accept.Findings
	checkReason(by, &f)
	if err := f.Err(); err != nil {
		return store.RelaySource{}, err
	}
	s, err := change(ct.clock.Now())
	if err != nil {
		return s, fmt.Errorf("%s: %w", doing, err)
	}
	return s, nil
}
