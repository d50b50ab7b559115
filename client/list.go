package client

import (
	"context"
	"iter"
	"maps"
	"net/url"
)

// A Page is a part of a list.
type Page[T any] struct {
	Data []T `json:"data"`
	// Cursor of the next page. Null: this is the last page.
	NextCursor string `json:"next_cursor" api:"null"`
}

// A List is a list of the server. Its methods read it page by page.
type List[T any] struct {
	c     *Client
	query url.Values
	words []string
}

func list[T any](c *Client, q url.Values, words ...string) List[T] { return List[T]{c, q, words} }

// Page returns the page at a cursor; an empty cursor is the first page. Limit is the maximum number of rows:
// at most 500, and 50 if it is zero. A page may have fewer rows than its limit although NextCursor is set.
func (l List[T]) Page(ctx context.Context, cursor string, limit int) (Page[T], error) {
	q := params{"cursor": cursor, "limit": number(max(limit, 0))}.query()
	maps.Copy(q, l.query)
	return read[Page[T]](ctx, l.c, q, l.words...)
}

// All yields every row. It reads pages of 500 rows as needed, and stops at the first error.
func (l List[T]) All(ctx context.Context) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for cursor := ""; ; {
			page, err := l.Page(ctx, cursor, 500)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, row := range page.Data {
				if !yield(row, nil) {
					return
				}
			}
			cursor = page.NextCursor
			if cursor == "" {
				return
			}
		}
	}
}
