package api

import (
	"context"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// refTopics decodes an array of at most most pairs of reference and topic.
func (f *fields) refTopics(name string, raw []byte, most int, to *[]client.RefTopic) {
	all := []client.RefTopic{}
	f.array(name, raw, func(i int, value []byte) {
		switch {
		case len(f.invalid) >= maxFindings || i > most:
			return
		case i == most:
			f.add(name, tooMany(most))
			return
		}
		var item client.RefTopic
		f.object(indexed(name, i), indexed(name, i)+".", value, func(key, value []byte) bool {
			switch string(key) {
			case "ref":
				f.text(indexed(name, i)+".ref", value, &item.Ref)
			case "topic":
				f.text(indexed(name, i)+".topic", value, &item.Topic)
			default:
				return false
			}
			return true
		})
		if item.Ref == "" && len(f.invalid) == 0 {
			f.add(indexed(name, i)+".ref", "is required")
		}
		all = append(all, item)
	})
	*to = all
}

func refTopicsOf(items []client.RefTopic) []store.RefTopic {
	return each(items, func(i *client.RefTopic) store.RefTopic {
		return store.RefTopic{Ref: i.Ref, Topic: i.Topic}
	})
}

// expect handles POST /v1/reconcile/expected: a part of the list of a day.
func (a *API) expect(ctx context.Context, c *gin.Context, who caller) error {
	body, err := readJSON(c, maxBatch)
	if err != nil {
		return err
	}
	var (
		d decoder
		r client.ExpectedList
	)
	d.object(request, "", body, d.into(&r))
	if r.Date == "" && len(d.invalid) == 0 {
		d.add("date", "is required")
	}
	if r.Items == nil && len(d.invalid) == 0 {
		d.add("items", "is required; use [] for an empty list")
	}
	if err := d.err(); err != nil {
		return err
	}
	return reply(a, c, http.StatusOK, expectedOf(r.Date))(
		a.Engine.ExpectItems(ctx, who.Project, r.Date, refTopicsOf(r.Items), who.By("")))
}

func expectedOf(day string) func(*store.ExpectedDay) client.ExpectedDay {
	return func(e *store.ExpectedDay) client.ExpectedDay {
		return client.ExpectedDay{Date: day, Added: e.Added, Removed: e.Removed, Items: e.Items}
	}
}

// unexpect handles DELETE /v1/reconcile/expected: it removes items of the list of a day, or the list.
func (a *API) unexpect(ctx context.Context, c *gin.Context, who caller) error {
	body, err := readJSON(c, maxBatch)
	if err != nil {
		return err
	}
	var (
		d decoder
		r client.ExpectedRemoval
	)
	d.object(request, "", body, d.into(&r))
	switch {
	case len(d.invalid) > 0:
	case r.Date == "":
		d.add("date", "is required")
	case r.All && r.Items != nil:
		d.add("items", "conflicts with all; set only one of them")
	case !r.All && r.Items == nil:
		d.add("items", `is required; use "all": true to remove the whole list`)
	}
	if err := d.err(); err != nil {
		return err
	}
	answer, by := reply(a, c, http.StatusOK, expectedOf(r.Date)), who.By(r.Reason)
	if r.All {
		return answer(a.Engine.ClearExpected(ctx, who.Project, r.Date, by))
	}
	return answer(a.Engine.RemoveExpected(ctx, who.Project, r.Date, refTopicsOf(r.Items), by))
}

func findingOf(i *store.ReconcileItem) client.Finding {
	return client.Finding{
		Kind: client.FindingKind(i.Kind), Ref: i.Ref, Topic: i.Topic, State: client.State(i.State),
		CallbackID: prefixed(store.CallbackPrefix, i.CallbackID), Callbacks: i.Callbacks,
	}
}

func reportOf(r *store.ReconcileReport) client.ReconcileReport {
	return client.ReconcileReport{
		Date: r.Day, Timezone: r.Timezone, From: moment(r.From), To: moment(r.To), RunAt: moment(r.RunAt),
		ReconcileCounts: countsOf(&r.Books), ListExpected: r.ExpectList, ListGiven: r.ListGiven,
		FindingCounts: client.FindingCounts{
			Listed: r.Listed, Matched: r.Matched, Missing: r.Missing, Unfinished: r.Unfinished,
			Duplicates: r.Duplicates, Extra: r.Extra,
		},
		Wrong: each(r.Wrong(), func(s *string) client.ReconcileProblem {
			return client.ReconcileProblem(*s)
		}),
	}
}

// reports handles GET /v1/reconcile/reports, newest day first.
func (a *API) reports() handler {
	parse := noParameters(func(
		ctx context.Context, who caller, after store.Cursor, limit int,
	) ([]store.ReconcileReport, error) {
		return a.Store.ReconcileReports(ctx, who.Project, after.ID, limit)
	})
	at := func(r *store.ReconcileReport) store.Cursor { return store.Cursor{ID: r.Day} }
	return listOf(a, query.ListReports, parse, at, reportOf)
}

// report handles GET /v1/reconcile/reports/{date}: the report with a page of its items, or all items as CSV.
func (a *API) report(ctx context.Context, c *gin.Context, who caller, day string) error {
	q, err := a.listQuery(ctx, c, who)
	if err != nil {
		return err
	}
	kind := store.ItemKind(q.OneOf("kind", "missing", "unfinished", "duplicate", "extra"))
	if q.OneOf("format", "json", "csv") == "csv" {
		q.Unknown()
		if err := q.Err(); err != nil {
			return err
		}
		return a.reportCSV(ctx, c, who, day, kind)
	}
	limit, after := q.Page(query.ListFindings)
	q.Unknown()
	if err := q.Err(); err != nil {
		return err
	}
	if after == nil {
		after = &store.Cursor{}
	}
	r, err := a.Store.ReconcileReport(ctx, who.Project, day)
	if err != nil {
		return err
	}
	items, err := a.Store.ReconcileItems(ctx, who.Project, day, kind, after.DueAt, limit+1)
	if err != nil {
		return err
	}
	items, last := query.Cut(items, limit)
	page := client.ReconcileReportPage{ReconcileReport: reportOf(&r), Data: each(items, findingOf)}
	if last != nil {
		page.NextCursor = q.Cursors.Encode(query.ListFindings, store.Cursor{DueAt: last.Number})
	}
	return a.respond(c, http.StatusOK, page)
}

// reportCSV responds with all findings of a report as CSV.
func (a *API) reportCSV(ctx context.Context, c *gin.Context, who caller, day string,
	kind store.ItemKind) error {
	file, err := query.ReportCSV(ctx, a.Store, who.Project, day, kind)
	if err != nil {
		return err
	}
	h := c.Writer.Header()
	h.Set("Content-Type", "text/csv; charset=utf-8")
	h.Set("Content-Disposition", `attachment; filename="reconciliation-`+day+`.csv"`)
	c.Writer.WriteHeader(http.StatusOK)
	_, err = c.Writer.Write(file)
	a.logWriteError(c, err)
	return nil
}

// byDate finds the date in the path.
func byDate(c *gin.Context) (string, error) {
	day := c.Param("date")
	if len(day) != len("2006-01-02") || query.CheckText(day, false) != "" {
		return "", store.ErrNotFound
	}
	return day, nil
}
