package api

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/httperr"
)

const relayRoute = "POST /v1/relay/:source"

// relay handles POST /v1/relay/{source}: 207, with the result of each row.
func (a *API) relay(ctx context.Context, c *gin.Context, who caller, source string) error {
	body, err := readJSON(c, maxBatch)
	if err != nil {
		return err
	}
	var d relayDecoder
	d.object(request, "", body, d.member)
	if d.n > len(d.rows) {
		d.add("rows", "has "+strconv.Itoa(d.n)+" elements; the maximum is "+strconv.Itoa(accept.MaxAccept))
	}
	if err := d.err(); err != nil {
		return err
	}
	r := rowSubmitter{engine: a.Engine, project: who.Project, source: source, creator: who.Creator(),
		by:      who.By(""),
		problem: func(err error) httperr.Problem { return a.problem(c, err) }}
	reply, err := r.submit(ctx, &d.batch, d.rows)
	if err != nil {
		return err
	}
	kept := getBuffer()
	defer putBuffer(kept)
	*kept, err = client.AppendJSON(*kept, reply)
	if err != nil {
		return err
	}
	a.writeJSON(c, http.StatusMultiStatus, *kept)
	return nil
}

// A relayDecoder decodes the body of a relay's call. What is wrong with a row is an error of this row alone.
type relayDecoder struct {
	fields
	batch client.RelayBatch
	rows  []relayRow
	// n is the number of rows in the request. rows has at most accept.MaxAccept of them.
	n int
}

// member decodes one field. It returns false for an unknown field.
func (d *relayDecoder) member(key, raw []byte) bool {
	switch name := string(key); name {
	case "holder":
		d.text(name, raw, &d.batch.Holder)
	case "origin":
		d.text(name, raw, &d.batch.Origin)
	case "release":
		d.boolean(name, raw, &d.batch.Release)
	case "report":
		if !isNull(raw) {
			d.batch.Report = new(client.RelayReport)
			d.nested(name, raw, d.report)
		}
	case "rows":
		if isNull(raw) {
			return true
		}
		d.array(name, raw, func(i int, item []byte) {
			d.n = i + 1
			if i < accept.MaxAccept {
				d.rows = append(d.rows, decodeRelayRow(item))
			}
		})
	default:
		return false
	}
	return true
}

// decodeRelayRow decodes one row. It refers to the request's bytes.
func decodeRelayRow(raw []byte) (row relayRow) {
	var f fields
	f.object("row", "", raw, func(key, value []byte) bool {
		switch name := string(key); name {
		case "id":
			f.text(name, value, &row.ID)
		case "kind":
			f.text(name, value, &row.Kind)
		case "age_ms":
			set(&f, name, value, &row.AgeMs, decodeInteger)
		case "request":
			if !isNull(value) {
				row.Request = value
			}
		case "body_base64":
			setPointer(&f, name, value, &row.Body, decodeBase64)
		default:
			return false
		}
		return true
	})
	row.err = f.err()
	return row
}

// report decodes one field of a report.
func (d *relayDecoder) report(key, raw []byte) bool {
	r := d.batch.Report
	switch name := string(key); name {
	case "lag_ms":
		set(&d.fields, name, raw, &r.LagMs, decodeInteger)
	case "waiting":
		set(&d.fields, name, raw, &r.Waiting, decodeAmount)
	case "refused_rows":
		set(&d.fields, name, raw, &r.RefusedRows, decodeAmount)
	case "rows_per_second":
		set(&d.fields, name, raw, &r.RowsPerSecond, decodeNumber)
	case "error":
		d.anyText(name, raw, &r.Error)
	case "refusals":
		if isNull(raw) {
			return true
		}
		refusals := make([]client.RelayRefusal, 0, store.MaxRelayRefusals)
		d.array(name, raw, func(i int, item []byte) {
			if i == store.MaxRelayRefusals {
				d.add(name, "has more than "+strconv.Itoa(i)+" elements")
			}
			if i < store.MaxRelayRefusals {
				refusals = append(refusals, client.RelayRefusal{})
				d.nested(name+"["+strconv.Itoa(i)+"]", item, d.refusal(&refusals[i]))
			}
		})
		r.Refusals = &refusals
	case "act":
		if !isNull(raw) {
			r.Act = new(client.RelayActProgress)
			d.nested(name, raw, d.progress)
		}
	default:
		return false
	}
	return true
}

// refusal returns a member function for a refused row.
func (d *relayDecoder) refusal(r *client.RelayRefusal) func(key, raw []byte) bool {
	return func(key, raw []byte) bool {
		switch name := string(key); name {
		case "id":
			d.anyText(name, raw, &r.ID)
		case "seq":
			set(&d.fields, name, raw, &r.Seq, decodeInteger)
		case "kind":
			d.anyText(name, raw, &r.Kind)
		case "code":
			d.anyText(name, raw, &r.Code)
		case "problem":
			d.anyText(name, raw, &r.Problem)
		case "refused_at":
			d.moment(name, raw, &r.RefusedAt)
		default:
			return false
		}
		return true
	}
}

// progress decodes one field of an act's progress.
func (d *relayDecoder) progress(key, raw []byte) bool {
	p := d.batch.Report.Act
	counts := map[string]*int{"matched": &p.Matched, "accepted": &p.Accepted, "replayed": &p.Replayed,
		"refused": &p.Refused, "dropped": &p.Dropped}
	switch name := string(key); {
	case name == "act_id":
		d.text(name, raw, &p.ActID)
	case name == "state":
		d.text(name, raw, &p.State)
	case name == "error":
		d.anyText(name, raw, &p.Error)
	case counts[name] != nil:
		set(&d.fields, name, raw, counts[name], decodeAmount)
	default:
		return false
	}
	return true
}

// anyText decodes any string: its text may come from a row of an application, and must not stop the report.
// The engine cleans it.
func (f *fields) anyText(name string, raw []byte, to *string) {
	set(f, name, raw, to, func(raw []byte) (s, wrong string) {
		if json.Unmarshal(raw, &s) != nil {
			wrong = "must be a string"
		}
		return s, wrong
	})
}

// decodeAmount decodes a count of rows, of any size.
func decodeAmount(raw []byte) (int, string) {
	n, wrong := decodeInteger(raw)
	return int(n), wrong
}

// relaySources handles GET /v1/relay.
func (a *API) relaySources(ctx context.Context, c *gin.Context, who caller) error {
	sources, err := a.Engine.RelaySources(ctx, who.Project)
	if err != nil {
		return err
	}
	now := a.Engine.Now()
	return a.respond(c, http.StatusOK, map[string]any{
		"data": each(sources, func(s *store.RelaySource) client.RelaySource { return relayOf(s, now) }),
	})
}

// shownRelay converts a source.
func (a *API) shownRelay(s *store.RelaySource) client.RelaySource { return relayOf(s, a.Engine.Now()) }

// relayWithRefusals converts a source with its refused rows.
func (a *API) relayWithRefusals(s *store.RelaySource) client.RelaySource {
	shown := a.shownRelay(s)
	shown.Refusals = each(s.Report.Refusals, func(r *store.RelayRefusal) client.RelayRefusal {
		return client.RelayRefusal{ID: r.ID, Seq: r.Seq, Kind: r.Kind, Code: r.Code, Problem: r.Problem,
			RefusedAt: moment(r.RefusedAt)}
	})
	return shown
}

// relayOf converts a source without its refused rows.
func relayOf(s *store.RelaySource, now int64) client.RelaySource {
	shown := client.RelaySource{
		Name: s.Name, Origin: s.Origin, ReportedAt: moment(s.ReportedAt), LagMs: s.LagMs(now),
		Waiting: s.Report.Waiting, RefusedRows: s.Report.RefusedRows,
		RowsPerSecond: rounded(s.Report.RowsPerSecond), Error: s.Report.Error,
	}
	if s.Held(now) {
		shown.Holder, shown.HeldUntil = s.Holder, moment(s.HeldUntil)
	}
	if s.Act.ID != "" {
		shown.Act = actOf(&s.Act)
	}
	return shown
}

func actOf(a *store.RelayAct) *client.RelayAct {
	return &client.RelayAct{
		ID: a.ID, Action: string(a.Action), RowID: a.RowID, Code: a.Code, Since: moment(a.Since),
		DryRun: a.DryRun, Rate: a.Rate, RequestedAt: moment(a.RequestedAt), RequestedBy: a.RequestedBy,
		RelayActProgress: client.RelayActProgress{
			State: string(a.State), Matched: a.Matched, Accepted: a.Accepted, Replayed: a.Replayed,
			Refused: a.Refused, Dropped: a.Dropped, Error: a.Error,
		},
	}
}

// retryRefused handles POST /v1/relay/{source}/retry.
func (a *API) retryRefused(ctx context.Context, c *gin.Context, who caller, source string) error {
	r, err := readAll[client.RelayRetry](c, true)
	if err != nil {
		return err
	}
	act := store.RelayAct{Action: store.RelayRetry, RowID: r.ID, Code: r.Code}
	return a.actOnRelay(ctx, c, who, source, act, r.Reason)
}

// dropRefused handles POST /v1/relay/{source}/drop.
func (a *API) dropRefused(ctx context.Context, c *gin.Context, who caller, source string) error {
	r, err := readAll[client.RelayDrop](c, true)
	if err != nil {
		return err
	}
	if some := r.ID != "" || r.Code != ""; some == r.All {
		return invalid("all", "give id or code, or true for every refused row")
	}
	act := store.RelayAct{Action: store.RelayDrop, RowID: r.ID, Code: r.Code}
	return a.actOnRelay(ctx, c, who, source, act, r.Reason)
}

// replayKept handles POST /v1/relay/{source}/replay.
func (a *API) replayKept(ctx context.Context, c *gin.Context, who caller, source string) error {
	r, err := readAll[client.RelayReplay](c, false)
	if err != nil {
		return err
	}
	act := store.RelayAct{Action: store.RelayReplay, DryRun: r.DryRun, Rate: r.Rate}
	if since := millis(r.Since); since != nil {
		act.Since = *since
	}
	return a.actOnRelay(ctx, c, who, source, act, r.Reason)
}

// actOnRelay responds with 202 and the source: its relay carries the act out.
func (a *API) actOnRelay(ctx context.Context, c *gin.Context, who caller, source string, act store.RelayAct,
	reason string) error {
	return reply(a, c, http.StatusAccepted, a.shownRelay)(
		a.Engine.ActOnRelay(ctx, who.Project, source, act, who.By(reason)))
}

// forgetRelay deletes a source.
func (a *API) forgetRelay(ctx context.Context, project, source string, by store.Actor) error {
	_, err := a.Engine.ForgetRelay(ctx, project, source, by)
	return err
}
