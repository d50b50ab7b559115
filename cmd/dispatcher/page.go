package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
)

// mostPerPage is the most entries that the API gives in one answer.
const mostPerPage = 500

// listFlags are those of every list.
type listFlags struct {
	Limit  int    `default:"50" placeholder:"N" help:"Most entries to show. Default: 50."`
	Cursor string `placeholder:"CURSOR" help:"Continue a list at the cursor that it ended with."`
	JSON   bool   `name:"json" help:"Print the server's answer for machines: one page, of at most 500."`
}

// page asks for one page of a list, of n entries.
func page(ctx context.Context, cl *client, path string, q url.Values, n int, cursor string, out any) ([]byte, error) {
	q.Set("limit", strconv.Itoa(n))
	if cursor != "" {
		q.Set("cursor", cursor)
	}
	return cl.call(ctx, http.MethodGet, path+"?"+q.Encode(), nil, out)
}

// showList prints a list by show, page after page up to the limit; none is what it says instead of an empty one.
func showList[T any](ctx context.Context, c *console, cl *client, path string, q url.Values, f listFlags, none string, show func([]T)) error {
	if f.Limit < 1 {
		return &usageError{lines: []string{"--limit is at least 1"}}
	}
	if f.JSON {
		answer, err := page(ctx, cl, path, q, f.Limit, f.Cursor, nil)
		if err != nil {
			return err
		}
		return printJSON(c, answer)
	}
	var found []T
	next := f.Cursor
	for first := true; first || next != "" && len(found) < f.Limit; first = false {
		var answer struct {
			Data       []T     `json:"data"`
			NextCursor *string `json:"next_cursor"`
		}
		if _, err := page(ctx, cl, path, q, min(f.Limit-len(found), mostPerPage), next, &answer); err != nil {
			return err
		}
		found, next = append(found, answer.Data...), ""
		if answer.NextCursor != nil {
			next = *answer.NextCursor
		}
	}
	if len(found) == 0 {
		fmt.Fprintln(c.out, none)
		return nil
	}
	show(found)
	if next != "" {
		fmt.Fprintf(c.out, "\nthere are more: --cursor %s\n", printable(next))
	}
	return nil
}
