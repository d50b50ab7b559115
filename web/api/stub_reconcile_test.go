package api_test

import (
	"context"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Books has two groups, or one of everything.
func (e *engine) Books(_ context.Context, project string, q store.BooksQuery) ([]store.Books, error) {
	err := e.noted("Books", project, "", store.Actor{}, q)
	one := store.Books{Accepted: 12, Succeeded: 7, Dead: 2, Canceled: 1, Open: 2}
	switch q.GroupBy {
	case "":
		return []store.Books{one}, err
	case "everything":
		return nil, &store.InvalidError{Fields: []store.FieldError{{Field: "group_by", Message: "must be something else"}}}
	}
	other := one
	other.Group, other.Open = bareEndpoint, 3 // it does not balance
	return []store.Books{one, other}, err
}

// comparison is what Compare was given.
type comparison struct {
	from, to int64
	refs     []string
	most     int
}

func (e *engine) Compare(_ context.Context, project string, from, to int64, refs []string, most int) (store.Comparison, error) {
	return store.Comparison{Matched: 2, Missing: []string{"o-3"}, Extra: []string{"o-8", "o-9"}, More: true},
		e.noted("Compare", project, "", store.Actor{}, comparison{from, to, refs, most})
}
