package api

import (
	"context"
	"fmt"
	"net/http"
	"time"
	_ "time/tzdata" // zones are known also where the machine knows none, as in an image that has nothing but the program

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// maxGroups is the most groups of books that are answered, and maxDays the most days that they are kept by.
	maxGroups = 10_000
	maxDays   = 1000
	// maxRefs is the most references of a caller's list, and maxExtra the most that are named which it lacks.
	maxRefs  = 500_000
	maxExtra = 10_000
)

// groupByDay is the grouping that has a group for each day of the span.
const groupByDay = "day"

// reconcile is GET /v1/reconcile: what was accepted in a span of time, by what has become of it.
func (a *API) reconcile(ctx context.Context, c *gin.Context, who caller) error {
	q, err := parseQuery(c.Request.URL.RawQuery)
	if err != nil {
		return err
	}
	zone := q.zone("timezone")
	var s spanOf
	s.from, s.to = q.moment("from", zone), q.moment("to", zone)
	by := q.one("group_by")
	q.unknown()
	from, to := s.judge(&q.fields, a.Engine.Now())
	if by == groupByDay && to-from > maxDays*(24*time.Hour).Milliseconds() {
		q.add("group_by", fmt.Sprintf("day is for at most %d days", maxDays))
	}
	if err := q.err(); err != nil {
		return err
	}
	books, err := a.Store.Books(ctx, who.project, store.BooksQuery{From: from, To: to, GroupBy: by, Zone: zone, MaxGroups: maxGroups})
	if err != nil {
		return err
	}
	o := jsonObject{append(make([]byte, 0, 512+160*len(books)), '{')}
	o.moment("from", from)
	o.moment("to", to)
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
		f    fields
		s    spanOf
		refs []string
	)
	f.object(request, "", body, func(key, value []byte) bool {
		switch string(key) {
		case "from":
			f.instant("from", value, &s.from)
		case "to":
			f.instant("to", value, &s.to)
		case "refs":
			f.lines("refs", value, maxRefs, &refs)
		default:
			return false
		}
		return true
	})
	from, to := s.judge(&f, a.Engine.Now())
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
	compared, err := a.Store.Compare(ctx, who.project, from, to, refs, maxExtra)
	if err != nil {
		return err
	}
	o := jsonObject{[]byte("{")}
	o.moment("from", from)
	o.moment("to", to)
	o.integer("matched", int64(compared.Matched))
	o.texts("missing", compared.Missing)
	o.texts("extra", compared.Extra)
	o.boolean("more_extra", compared.More)
	o.close()
	a.answer(c, http.StatusOK, o.b)
	return nil
}

// A spanOf is a span of time as a caller gives it.
type spanOf struct{ from, to *int64 }

// judge returns the span, and adds what is wrong with it. It ends now where no end is given.
func (s *spanOf) judge(f *fields, now int64) (from, to int64) {
	// A span's end does not belong to it, and what was accepted before this request, in the same millisecond, does.
	if to = now + 1; s.to != nil {
		to = *s.to
	}
	switch {
	case s.from == nil:
		if len(f.invalid) == 0 {
			f.add("from", "is needed")
		}
		return to, to
	case *s.from > to:
		f.add("from", "must not be later than to")
		return to, to
	}
	return *s.from, to
}
