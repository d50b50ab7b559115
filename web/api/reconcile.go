package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/report"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// outcomes handles GET /v1/outcomes, oldest first. Its cursor is a position that a reader saves, not the end
// of a page: the response has one even if there is nothing new.
func (a *API) outcomes(ctx context.Context, c *gin.Context, who caller) error {
	q, err := a.listQuery(ctx, c, who)
	if err != nil {
		return err
	}
	var after store.OutcomeCursor
	if s := q.One("cursor"); s != "" {
		after, err = q.Cursors.DecodeOutcome(s)
		if err != nil {
			q.Add("cursor", err.Error())
		}
	}
	limit := q.Number("limit", 1, query.MaxLimit, query.DefaultLimit)
	wait := q.Wait("wait", report.MaxOutcomeWait)
	q.Unknown()
	if err := q.Err(); err != nil {
		return err
	}
	events, next, err := a.Engine.Outcomes(ctx, who.Project, after, limit, wait)
	if err != nil {
		if !errors.Is(err, context.Canceled) || c.Request.Context().Err() == nil {
			return err
		}
		// The client closed the connection while it waited. This is no error of the server, and no one reads
		// the response.
		events, next = nil, after
	}
	data := each(events, func(e *store.TerminalEvent) client.Outcome {
		o := outcomeOf(e)
		o.Cursor = q.Cursors.EncodeOutcome(e.Cursor)
		return o
	})
	return a.respond(c, http.StatusOK, client.Page[client.Outcome]{
		Data: data, NextCursor: q.Cursors.EncodeOutcome(next),
	})
}

// outcomeOf converts an outcome. Values of the callback are null or empty after it was purged.
func outcomeOf(e *store.TerminalEvent) client.Outcome {
	return client.Outcome{
		ID: store.CallbackPrefix + e.ID, Kind: client.Kind(e.Kind),
		EndpointID: prefixed(store.EndpointPrefix, e.EndpointID), Topic: e.Topic, Ref: e.Ref,
		Labels: e.Labels,
		State:  client.State(e.State), Reason: client.TerminalReason(e.Reason), At: moment(e.At),
		AttemptCount: e.AttemptCount, LastStatus: e.LastStatus, LastClass: client.Class(e.LastClass),
	}
}

// maxExtra is the maximum number of references that a comparison returns as extra.
const maxExtra = 10_000

// spanEnd is added to the current time when a request has no end. The end is exclusive, so callbacks that
// were accepted in the current millisecond still count.
const spanEnd = 1

// groupByDay is the grouping with one group for each day of the time range.
const groupByDay = "day"

// reconcile handles GET /v1/reconcile: it counts the callbacks accepted in a time range by their current
// state.
func (a *API) reconcile(ctx context.Context, c *gin.Context, who caller) error {
	q, err := parseQuery(c)
	if err != nil {
		return err
	}
	zone := q.Zone("timezone")
	from, to := q.Moment("from", zone), q.Moment("to", zone)
	by := q.One("group_by")
	q.Unknown()
	s, wrong := query.SpanOf(from, to, a.Engine.Now()+spanEnd)
	if wrong == query.Unordered || wrong != "" && len(q.Invalid) == 0 {
		q.Add("from", wrong)
	}
	if by == groupByDay && s.To-s.From > query.MaxDays*(24*time.Hour).Milliseconds() {
		q.Add("group_by", fmt.Sprintf("day allows at most %d days", query.MaxDays))
	}
	if err := q.Err(); err != nil {
		return err
	}
	counts, err := a.Store.Reconcile(ctx, who.Project,
		store.ReconcileQuery{From: s.From, To: s.To, GroupBy: by, Zone: zone, MaxGroups: query.MaxGroups})
	if err != nil {
		return err
	}
	out := client.Reconciliation{
		From: time.UnixMilli(s.From), To: time.UnixMilli(s.To), Timezone: zone.String(), GroupBy: by,
	}
	total := query.Total(counts)
	out.Total = countsOf(&total)
	if by != "" {
		out.Data = each(counts, func(b *store.Reconciliation) client.ReconcileGroup {
			group := b.Group // empty: callbacks without a topic, endpoint or label
			if by == "endpoint" {
				group = prefixed(store.EndpointPrefix, group)
			}
			return client.ReconcileGroup{Group: group, ReconcileCounts: countsOf(b)}
		})
	}
	return a.respond(c, http.StatusOK, out)
}

func countsOf(b *store.Reconciliation) client.ReconcileCounts {
	return client.ReconcileCounts{
		Accepted: b.Accepted, Succeeded: b.Succeeded, Dead: b.Dead, Canceled: b.Canceled, Open: b.Open,
		Balanced: b.Balanced(),
	}
}

// compare handles POST /v1/reconcile/compare: the differences between the caller's list of references, or of
// references with topics, and the project's callbacks.
func (a *API) compare(ctx context.Context, c *gin.Context, who caller) error {
	body, err := readJSON(c, maxBatch)
	if err != nil {
		return err
	}
	var (
		d decoder
		r client.ReferenceList
	)
	d.object(request, "", body, d.into(&r))
	s, wrong := query.SpanOf(millis(r.From), millis(r.To), a.Engine.Now()+spanEnd)
	if wrong == query.Unordered || wrong != "" && len(d.invalid) == 0 {
		d.add("from", wrong)
	}
	switch {
	case len(d.invalid) > 0:
	case r.Refs == nil && r.Items == nil:
		d.add("refs", "refs or items is required; use [] for an empty list")
	case r.Refs != nil && r.Items != nil:
		d.add("items", "conflicts with refs; set only one of them")
	}
	for i, ref := range r.Refs {
		if ref == "" {
			d.add(indexed("refs", i), "must not be empty")
		}
	}
	if err := d.err(); err != nil {
		return err
	}
	if r.Items != nil {
		return reply(a, c, http.StatusOK, func(x *store.ItemComparison) client.Comparison {
			return client.Comparison{
				From: time.UnixMilli(s.From), To: time.UnixMilli(s.To), Matched: int(x.Matched),
				Items: &client.ItemDifferences{
					FindingCounts: client.FindingCounts{
						Listed: x.Listed, Matched: x.Matched, Missing: x.Missing, Unfinished: x.Unfinished,
						Duplicates: x.Duplicates, Extra: x.Extra,
					},
					Data: each(x.Items, findingOf),
				},
			}
		})(a.Store.CompareItems(ctx, who.Project, s.From, s.To, refTopicsOf(r.Items), maxExtra))
	}
	return reply(a, c, http.StatusOK, func(x *store.Comparison) client.Comparison {
		return client.Comparison{
			From: time.UnixMilli(s.From), To: time.UnixMilli(s.To), Matched: x.Matched,
			Missing: x.Missing, Extra: x.Extra, MoreExtra: x.More,
		}
	})(a.Store.Compare(ctx, who.Project, s.From, s.To, r.Refs, maxExtra))
}
