package cli

import (
	"context"
	"fmt"
	"net/url"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
)

// listFlags are those of every list.
type listFlags struct {
	Limit  int    `default:"50" placeholder:"N" help:"Most entries to show. Default: 50."`
	Cursor string `placeholder:"CURSOR" help:"Continue a list at the cursor that it ended with."`
	JSON   bool   `name:"json" help:"Print the server's answer for machines: one page, of at most 500."`
}

// showList prints a list by show, page after page up to the limit; none is what it says instead of an empty one.
func showList[T any](ctx context.Context, c *console.Console, cl *remote.Client, path string, q url.Values, f listFlags, none string, show func([]T)) error {
	if f.Limit < 1 {
		return &console.UsageError{Lines: []string{"--limit is at least 1"}}
	}
	if f.JSON {
		answer, err := remote.Page(ctx, cl, path, q, f.Limit, f.Cursor, nil)
		if err != nil {
			return err
		}
		return console.PrintJSON(c, answer)
	}
	var found []T
	next := f.Cursor
	for first := true; first || next != "" && len(found) < f.Limit; first = false {
		var answer struct {
			Data       []T     `json:"data"`
			NextCursor *string `json:"next_cursor"`
		}
		if _, err := remote.Page(ctx, cl, path, q, min(f.Limit-len(found), remote.MostPerPage), next, &answer); err != nil {
			return err
		}
		found, next = append(found, answer.Data...), ""
		if answer.NextCursor != nil {
			next = *answer.NextCursor
		}
	}
	if len(found) == 0 {
		fmt.Fprintln(c.Out, none)
		return nil
	}
	show(found)
	if next != "" {
		fmt.Fprintf(c.Out, "\nthere are more: --cursor %s\n", console.Printable(next))
	}
	return nil
}
