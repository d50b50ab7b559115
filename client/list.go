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
	// Where the list goes on; null: it has ended.
	NextCursor string `json:"next_cursor" api:"null"`
}

// A List is a list of the server's, which is read page by page when it is asked for.
type List[T any] struct {
	c     *Client
	query url.Values
	words []string
}

func list[T any](c *Client, q url.Values, words ...string) List[T] { return List[T]{c, q, words} }

// Page returns the page that begins at a cursor; empty: the first. Limit is the most rows of it, at most
// 500; zero:
// 50. A page may have fewer rows than its limit while NextCursor says that there are more.
func (l List[T]) Page(ctx context.Context, cursor string, limit int) (Page[T], error) {
	q := params{"cursor": cursor, "limit": number(max(limit, 0))}.query()
	maps.Copy(q, l.query)
	return read[Page[T]](ctx, l.c, q, l.words...)
}

// All yields every row, reading pages of 500 as they are needed. It ends with the first error.
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
