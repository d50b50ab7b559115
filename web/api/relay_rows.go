package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/httperr"
)

// This file accepts the rows of outbox tables, for POST /v1/relay/{source} and for a relay in this process.

// Ages of rows that are accepted. An idempotency key lives for seven days, so an older row could be accepted
// a second time.
const (
	maxRowAge   = 6 * 24 * time.Hour
	maxRowAhead = 24 * time.Hour
)

// relaySpan is how long a call begins events and polls, which are committed one by one. The other rows get a
// 503.
const relaySpan = 10 * time.Second

// A RelayEngine is the part of the engine that rows of outbox tables need.
type RelayEngine interface {
	// Accept validates and commits submissions, and returns the result of each at the same index. After an
	// error no submission is known to be accepted; see accept.Store.
	Accept(ctx context.Context, project string, subs []accept.Submission) ([]store.Accepted, error)
	// AcceptEvent commits one callback per endpoint that subscribes to the submission's topic.
	AcceptEvent(ctx context.Context, project string, s accept.Submission) (accept.EventReceipt, error)
	AcceptPoll(ctx context.Context, project string, s accept.PollSubmission) (store.Accepted, error)
	// HoldRelay takes or renews the lease of a source and stores the report of its relay.
	HoldRelay(ctx context.Context, project, source string, h store.RelayHold) (store.RelaySource, error)
	// Now returns the time of the engine in Unix milliseconds.
	Now() int64
}

// A RelaySink accepts rows of outbox tables as POST /v1/relay/{source} does, without HTTP.
type RelaySink struct {
	engine  RelayEngine
	project string
	logger  *slog.Logger
}

// NewRelaySink returns a sink for a project. The logger gets the errors that become a 500.
func NewRelaySink(e RelayEngine, project string, logger *slog.Logger) *RelaySink {
	return &RelaySink{e, project, logger}
}

// relayCreator is Callback.CreatedBy of rows that a relay in this process submits.
const relayCreator = "relay"

// Submit accepts the rows of a source, and stores the report of its relay. Its errors are those of
// client.Relay: a *client.Error.
func (s *RelaySink) Submit(ctx context.Context, source string,
	b client.RelayBatch) (client.RelayReply, error) {
	r := rowSubmitter{engine: s.engine, project: s.project, source: source, creator: relayCreator,
		by:      store.Actor{Name: relayCreator, ID: relayCreator},
		problem: func(err error) httperr.Problem { return s.problem(source, err) }}
	rows := make([]relayRow, len(b.Rows))
	for i := range b.Rows {
		row := &b.Rows[i]
		rows[i] = relayRow{RelayRow: *row}
		rows[i].Request = bytes.Trim(row.Request, " \t\r\n")
		if len(rows[i].Request) > 0 {
			rows[i].err = checkJSON(rows[i].Request)
		}
	}
	reply, err := r.guarded(ctx, &b, rows)
	if err != nil {
		p := s.problem(source, err)
		return client.RelayReply{}, &client.Error{
			Problem: p.Problem, RetryAfter: time.Duration(p.RetryAfter) * time.Second,
		}
	}
	return reply, nil
}

// problem returns the problem of an error, and logs an error whose text is no part of it.
func (s *RelaySink) problem(source string, err error) httperr.Problem {
	p := httperr.From(err)
	if p.Status != http.StatusInternalServerError {
		return p
	}
	id := clock.NewToken()
	s.logger.Error("request failed", "request_id", id, "route", relayRoute, "source", source, "error", err)
	return httperr.Logged(id)
}

// A relayRow is a row of a call. err is why it cannot be decoded.
type relayRow struct {
	client.RelayRow
	err error
}

// A rowSubmitter submits the rows of one call.
type rowSubmitter struct {
	engine                   RelayEngine
	project, source, creator string
	// by is who holds the lease, and who the audit names.
	by store.Actor
	// problem returns the problem of an error, and logs what only the log may show.
	problem func(err error) httperr.Problem
}

// guarded is submit for a caller that no other code protects from a panic.
func (r *rowSubmitter) guarded(ctx context.Context, b *client.RelayBatch,
	rows []relayRow) (reply client.RelayReply, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	return r.submit(ctx, b, rows)
}

// submit renews the lease of a holder, and then accepts the rows. An error means that no row is known to be
// accepted.
func (r *rowSubmitter) submit(ctx context.Context, b *client.RelayBatch,
	rows []relayRow) (reply client.RelayReply, err error) {
	if err := r.check(b, rows); err != nil {
		return reply, err
	}
	if b.Holder != "" {
		s, err := r.engine.HoldRelay(ctx, r.project, r.source, r.holdOf(b))
		if err != nil {
			return reply, err
		}
		now := r.engine.Now()
		reply.Now, reply.LagMs = moment(now), s.LagMs(now)
		if s.Act.Open() {
			reply.Act = actOf(&s.Act)
		}
	}
	reply.Results, err = r.accept(ctx, rows)
	return reply, err
}

// check checks the call as a whole.
func (r *rowSubmitter) check(b *client.RelayBatch, rows []relayRow) error {
	var f accept.Findings
	control.CheckRelaySource(r.source, &f)
	if len(rows) > accept.MaxAccept {
		f.Add("rows", "has %d elements; the maximum is %d", len(rows), accept.MaxAccept)
	}
	if b.Holder == "" && (b.Origin != "" || b.Release || b.Report != nil) {
		f.Add("holder", "is required by origin, release and report")
	}
	return f.Err()
}

// accept accepts rows and returns the result of each at the same index: all callbacks in one commit, then
// events and polls one by one.
func (r *rowSubmitter) accept(ctx context.Context, rows []relayRow) ([]client.RelayResult, error) {
	results := make([]client.RelayResult, len(rows))
	subs, at := make([]accept.Submission, 0, len(rows)), make([]int, 0, len(rows))
	var others []decodedRow
	for i := range rows {
		d, err := r.decode(&rows[i])
		switch {
		case err != nil:
			results[i] = r.refused(err)
		case d.kind == kindCallback:
			subs, at = append(subs, d.Submission), append(at, i)
		default:
			d.at = i
			others = append(others, d)
		}
	}
	if len(subs) > 0 {
		accepted, err := r.engine.Accept(ctx, r.project, subs)
		if err != nil {
			return nil, err
		}
		if len(accepted) != len(subs) {
			return nil, fmt.Errorf("accept: %d results for %d submissions", len(accepted), len(subs))
		}
		for i := range accepted {
			results[at[i]] = r.result(accepted[i].Replayed, accepted[i].Err)
		}
	}
	until := time.Now().Add(relaySpan)
	for i := range others {
		results[others[i].at] = r.acceptOne(ctx, &others[i], until)
	}
	return results, nil
}

// acceptOne accepts an event or a poll.
func (r *rowSubmitter) acceptOne(ctx context.Context, d *decodedRow, until time.Time) client.RelayResult {
	if time.Now().After(until) {
		return r.refused(context.DeadlineExceeded)
	}
	if d.kind == kindEvent {
		receipt, err := r.engine.AcceptEvent(ctx, r.project, d.Submission)
		return r.result(receipt.Replayed, err)
	}
	accepted, err := r.engine.AcceptPoll(ctx, r.project, d.PollSubmission)
	if err == nil {
		err = accepted.Err
	}
	return r.result(accepted.Replayed, err)
}

// result returns the result of a row.
func (r *rowSubmitter) result(replayed bool, err error) client.RelayResult {
	if err != nil {
		return r.refused(err)
	}
	return client.RelayResult{Status: acceptedStatus(replayed)}
}

func (r *rowSubmitter) refused(err error) client.RelayResult {
	p := r.problem(err)
	return client.RelayResult{Status: p.Status, Problem: &p.Problem}
}

// The kinds of rows.
const (
	kindCallback = "callback"
	kindEvent    = "event"
	kindPoll     = "poll"
)

// A decodedRow is the call that a row stands for. A callback and an event use the embedded Submission alone.
// at is the index of its row.
type decodedRow struct {
	accept.PollSubmission
	kind string
	at   int
}

// decode returns the call of a row. Fields that the engine checks may be invalid. A panic is an error of this
// row alone, so that it does not stop the others.
func (r *rowSubmitter) decode(row *relayRow) (d decodedRow, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("decode row: panic: %v\n%s", v, debug.Stack())
		}
	}()
	if row.err != nil {
		return d, row.err
	}
	var f accept.Findings
	if row.ID == "" {
		f.Add("id", "is required")
	}
	accept.CheckText("id", row.ID, control.MaxRelayRowID, &f)
	if len(row.Request) == 0 {
		f.Add("request", "is required")
	}
	age := time.Duration(max(row.AgeMs, 0)) * time.Millisecond // a negative one would delay the row
	switch {
	case len(f) > 0:
		return d, f.Err()
	case len(row.Request) > maxRequest:
		return d, tooLarge(maxRequest)
	case row.Body != nil && len(*row.Body) > accept.MaxBody:
		return d, httperr.ErrPayloadTooLarge
	case row.AgeMs > maxRowAge.Milliseconds():
		return d, httperr.ErrTooOld
	case row.AgeMs < -maxRowAhead.Milliseconds():
		return d, httperr.ErrFuture
	}
	route, err := d.decodeKind(row)
	if err != nil {
		return d, err
	}
	sub := &d.Submission
	if row.Body != nil {
		sub.Body, sub.BodyField = *row.Body, "body_base64"
	}
	if sub.Delay != nil && *sub.Delay >= 0 && *sub.Delay <= accept.MaxDelay { // it counts from the insert
		*sub.Delay = max(*sub.Delay-age, 0)
	}
	sub.CreatedBy = r.creator
	sub.IdempotencyKey, sub.Route = r.source+"/"+row.ID, route
	sub.Fingerprint = rowFingerprint(route, row)
	return d, nil
}

// decodeKind decodes the request of a row by its kind, and returns the route of the call.
func (d *decodedRow) decodeKind(row *relayRow) (route string, err error) {
	refused := refusedInRow
	if row.Body != nil {
		refused = refusedWithBody
	}
	d.kind = row.Kind
	switch row.Kind {
	case "", kindCallback, kindEvent:
		route = acceptRoute
		if row.Kind == kindEvent {
			route = eventRoute
		} else {
			d.kind = kindCallback
		}
		var s submissionDecoder
		s.object(request, "", row.Request, s.without(refused))
		d.Submission, err = s.done()
		return route, err
	case kindPoll:
		if row.Body != nil {
			return "", invalid("body_base64", "is not allowed for a poll: the body belongs in the request")
		}
		d.PollSubmission, err = decodePollWithout(row.Request, refused)
		d.Own = true // with another poll's answer the row would be gone, and its result never come
		return pollRoute, err
	}
	return "", httperr.ErrUnknownKind
}

// decodePollWithout is decodePoll for requests that lack some fields of a poll.
func decodePollWithout(raw []byte, refused map[string]string) (accept.PollSubmission, error) {
	var p pollDecoder
	p.object(request, "", raw, p.lacking(refused, p.member))
	sub, err := p.done()
	p.poll.Submission = sub
	return p.poll, err
}

// refusedInRow has the fields of a call that a row must not have, with the error message of each.
// refusedWithBody is for a row that has a body of its own.
var (
	refusedInRow    = map[string]string{"idempotency_key": rowKey}
	refusedWithBody = map[string]string{
		"idempotency_key": rowKey, "payload": rowBody, "body": rowBody, "body_base64": rowBody,
	}
)

const (
	rowKey  = "is not allowed: the key of a row is SOURCE/ID"
	rowBody = "is not allowed: the row has a body"
)

// rowFingerprint is the fingerprint of a row: that of its request, and for a row with a body also the SHA-256
// of the body.
func rowFingerprint(route string, row *relayRow) []byte {
	h := sha256.New()
	h.Write([]byte(route))
	h.Write([]byte{'\n'})
	h.Write(row.Request)
	if row.Body != nil {
		sum := sha256.Sum256(*row.Body)
		h.Write(hex.AppendEncode([]byte{'\n'}, sum[:]))
	}
	return h.Sum(nil)
}

// holdOf converts what a holder reports.
func (r *rowSubmitter) holdOf(b *client.RelayBatch) store.RelayHold {
	h := store.RelayHold{Origin: b.Origin, Holder: b.Holder, By: r.by, Release: b.Release}
	if b.Report == nil {
		return h
	}
	h.Report = &store.RelayReport{
		LagMs: b.Report.LagMs, Waiting: b.Report.Waiting, RefusedRows: b.Report.RefusedRows,
		RowsPerSecond: b.Report.RowsPerSecond, Error: b.Report.Error,
	}
	h.KeepRefusals = b.Report.Refusals == nil
	if !h.KeepRefusals {
		h.Report.Refusals = each(*b.Report.Refusals, func(r *client.RelayRefusal) store.RelayRefusal {
			return store.RelayRefusal{ID: r.ID, Seq: r.Seq, Kind: r.Kind, Code: r.Code, Problem: r.Problem,
				RefusedAt: r.RefusedAt.UnixMilli()}
		})
	}
	if act := b.Report.Act; act != nil {
		h.Progress = store.RelayAct{
			ID: act.ActID, State: store.RelayActState(act.State), Matched: act.Matched,
			Accepted: act.Accepted, Replayed: act.Replayed, Refused: act.Refused, Dropped: act.Dropped,
			Error: act.Error,
		}
	}
	return h
}
