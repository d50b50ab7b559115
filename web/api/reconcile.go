package api

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

const (
	// maxGroups is the most groups of books that are answered, and maxDays the most days that they are kept by.
	maxGroups = 10_000
	maxDays   = 1000
	// maxRefs is the most references of a caller's list, and maxExtra the most that are named which it lacks.
	maxRefs  = 500_000
	maxExtra = 10_000
)

// spanEnd is how long after now a span ends that is given no end: the end does not belong to a span, and what
// was accepted before the request, in the same millisecond, does.
const spanEnd = 1

// groupByDay is the grouping that has a group for each day of the span.
const groupByDay = "day"

// reconcile is GET /v1/reconcile: what was accepted in a span of time, by what has become of it.
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
	if by == groupByDay && s.To-s.From > maxDays*(24*time.Hour).Milliseconds() {
		q.Add("group_by", fmt.Sprintf("day is for at most %d days", maxDays))
	}
	if err := q.Err(); err != nil {
		return err
	}
	books, err := a.Store.Books(ctx, who.Project, store.BooksQuery{From: s.From, To: s.To, GroupBy: by, Zone: zone, MaxGroups: maxGroups})
	if err != nil {
		return err
	}
	o := jsonObject{append(make([]byte, 0, 512+160*len(books)), '{')}
	o.moment("from", s.From)
	o.moment("to", s.To)
	o.str("timezone", zone.String())
	o.orNull("group_by", by)
	var total store.Books
	for i := range books {
		b := &books[i]
		total.Accepted, total.Succeeded, total.Dead = total.Accepted+b.Accepted, total.Succeeded+b.Succeeded, total.Dead+b.Dead
		total.Canceled, total.Open = total.Canceled+b.Canceled, total.Open+b.Open
	}
	o.open("total")
	o.books(&total)
	o.close()
	o.key("data")
	o.b = append(o.b, '[')
	if by != "" {
		for i := range books {
			o.element(i)
			o.group(by, books[i].Group)
			o.books(&books[i])
			o.close()
		}
	}
	o.b = append(o.b, "]}"...)
	a.answer(c, http.StatusOK, o.b)
	return nil
}

// group writes what the books of a group are of. Null is what has no topic, endpoint or label.
func (o *jsonObject) group(by, group string) {
	if by == "endpoint" {
		o.id("group", store.EndpointPrefix, group)
		return
	}
	o.orNull("group", group)
}

// books writes the members of books.
func (o *jsonObject) books(b *store.Books) {
	o.integer("accepted", b.Accepted)
	o.integer("succeeded", b.Succeeded)
	o.integer("dead", b.Dead)
	o.integer("canceled", b.Canceled)
	o.integer("open", b.Open)
	o.boolean("balanced", b.Balanced())
}

// compare is POST /v1/reconcile/compare: what a caller's own list of references has and the project has not, and the other way round.
func (a *API) compare(ctx context.Context, c *gin.Context, who caller) error {
	body, err := readJSON(c, maxBatch)
	if err != nil {
		return err
	}
	var (
		f        fields
		from, to *int64
		refs     []string
	)
	f.object(request, "", body, func(key, value []byte) bool {
		switch string(key) {
		case "from":
			f.instant("from", value, &from)
		case "to":
			f.instant("to", value, &to)
		case "refs":
			f.lines("refs", value, maxRefs, &refs)
		default:
			return false
		}
		return true
	})
	s, wrong := query.SpanOf(from, to, a.Engine.Now()+spanEnd)
	if wrong == query.Unordered || wrong != "" && len(f.invalid) == 0 {
		f.add("from", wrong)
	}
	if refs == nil && len(f.invalid) == 0 {
		f.add("refs", "is needed; [] is an empty list")
	}
	for i, ref := range refs {
		if ref == "" {
			f.add(indexed("refs", i), "must not be empty")
		}
	}
	if err := f.err(); err != nil {
		return err
	}
	compared, err := a.Store.Compare(ctx, who.Project, s.From, s.To, refs, maxExtra)
	if err != nil {
		return err
	}
	o := jsonObject{[]byte("{")}
	o.moment("from", s.From)
	o.moment("to", s.To)
	o.integer("matched", int64(compared.Matched))
	o.texts("missing", compared.Missing)
	o.texts("extra", compared.Extra)
	o.boolean("more_extra", compared.More)
	o.close()
	a.answer(c, http.StatusOK, o.b)
	return nil
}
