package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
)

// OutcomesCommand reads the feed of finished callbacks.
type OutcomesCommand struct {
	serverFlags
	Cursor     string `xor:"cursor" placeholder:"CURSOR" help:"Continue at the cursor that an earlier run printed. Default: the oldest outcome that is kept (30 days)."`
	CursorFile string `xor:"cursor" placeholder:"FILE" help:"Continue at the cursor in this file, if it exists, and store the new cursor there after each page that was printed."`
	Limit      int    `placeholder:"N" help:"Stop after N outcomes. Default: 50; with --follow: no limit."`
	Follow     bool   `short:"f" help:"Wait for new outcomes until Ctrl-C. If the server cannot be reached, retry for 15 minutes."`
	JSON       bool   `help:"Print NDJSON: one outcome per line, as the server wrote it."`
}

// Help is the text below the summary of outcomes --help.
func (*OutcomesCommand) Help() string {
	return "Prints every end of a callback once, oldest first and without gaps. A callback that ends again " +
		"after a retry appears again. Only outcomes go to the standard output; the cursor to continue " +
		"from goes to the error output. With --cursor-file, a run that is killed prints its last page " +
		"again, and loses nothing."
}

// outcomeWait is how long one request waits for new outcomes, and outcomeUnknown how long --follow goes on
// without a response.
const (
	outcomeWait    = 20 * time.Second
	outcomeUnknown = 15 * time.Minute
)

// Run prints the outcomes page by page, so that its memory is that of one page.
func (cmd *OutcomesCommand) Run(c *session) error {
	if cmd.Limit < 0 {
		return console.Wrong("--limit must be at least 1")
	}
	if err := c.connect(); err != nil {
		return err
	}
	cursor := cmd.Cursor
	if cmd.CursorFile != "" {
		text, err := os.ReadFile(cmd.CursorFile)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return console.CannotRead(cmd.CursorFile, err)
		}
		cursor = strings.TrimSpace(string(text))
		// A file that cannot be written is an error before anything is printed.
		if err := storeCursor(cmd.CursorFile, cursor); err != nil {
			return fmt.Errorf("store the cursor: %w", err)
		}
	}
	cursor, err := cmd.read(c, cursor)
	if cmd.CursorFile == "" && cursor != "" {
		fmt.Fprintf(c.Err, "continue with --cursor %s\n", console.Printable(cursor))
	}
	if cmd.Follow && c.ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil // Ctrl-C is the normal end
	}
	return err
}

// read prints outcomes from a cursor on, and returns the cursor after the last one that was printed.
func (cmd *OutcomesCommand) read(c *session, cursor string) (string, error) {
	left, endless := cmd.Limit, cmd.Follow && cmd.Limit == 0
	if left == 0 {
		left = 50
	}
	for endless || left > 0 {
		n := remote.MostPerPage
		if !endless {
			n = min(n, left)
		}
		page, err := cmd.page(c, cursor, n)
		if err != nil {
			return cursor, err
		}
		if err := cmd.print(c, page.Data); err != nil {
			return cursor, fmt.Errorf("write the outcomes: %w", err)
		}
		if cmd.CursorFile != "" && page.NextCursor != cursor {
			if err := storeCursor(cmd.CursorFile, page.NextCursor); err != nil {
				return cursor, fmt.Errorf("store the cursor: %w", err)
			}
		}
		cursor = page.NextCursor
		left -= len(page.Data)
		if !cmd.Follow && len(page.Data) < n {
			break
		}
	}
	return cursor, nil
}

// page requests one page. With --follow it waits for outcomes and retries after errors.
func (cmd *OutcomesCommand) page(c *session, cursor string, n int) (client.Page[json.RawMessage], error) {
	q := url.Values{"limit": {strconv.Itoa(n)}}
	if cursor != "" {
		q.Set("cursor", cursor)
	}
	if cmd.Follow {
		q.Set("wait", outcomeWait.String())
	}
	asked := time.Now()
	for try := 0; ; try++ {
		var page client.Page[json.RawMessage]
		_, err := c.client.Call(c.ctx, http.MethodGet, "/v1/outcomes?"+q.Encode(), nil, &page)
		switch {
		case err == nil && page.NextCursor == "":
			return page, fmt.Errorf("%s returned no cursor: it is no dispatcher, or another version",
				c.client.Base)
		case err == nil && cmd.Follow && len(page.Data) == 0 && time.Since(asked) < time.Second:
			console.Pause(c.ctx, time.Second) // a server that shuts down does not wait
			return page, nil
		case err == nil || !cmd.Follow || c.ctx.Err() != nil:
			return page, err
		}
		wait, again := remote.Backoff(err, try)
		if !again || time.Since(asked) > outcomeUnknown {
			return page, err
		}
		fmt.Fprintf(c.Err, "dispatcher: %s; retrying\n", err)
		console.Pause(c.ctx, wait)
	}
}

// print writes a page in one call.
func (cmd *OutcomesCommand) print(c *session, rows []json.RawMessage) error {
	var b bytes.Buffer
	for _, row := range rows {
		if cmd.JSON {
			if err := json.Compact(&b, row); err != nil {
				return err
			}
			b.WriteByte('\n')
			continue
		}
		var o client.Outcome
		if err := json.Unmarshal(row, &o); err != nil {
			return err
		}
		console.MakeSafe(&o)
		writeOutcome(&b, c, &o)
	}
	_, err := b.WriteTo(c.Out)
	return err
}

// writeOutcome writes one outcome as a line with columns of a fixed width, because the widths of later rows
// are not known.
func writeOutcome(b *bytes.Buffer, c *session, o *client.Outcome) {
	state := string(o.State)
	if o.Reason != "" {
		state += ": " + string(o.Reason)
	}
	last := string(o.LastClass)
	if o.LastStatus != 0 {
		last = strings.TrimSpace(strconv.Itoa(o.LastStatus) + " " + last)
	}
	line := fmt.Sprintf("%s  %s  %s  %2d× %-20s  %-24s %s", console.ClockTime(o.At), o.ID,
		c.Paint(fmt.Sprintf("%-20s", state), console.StateColour(o.State)), o.AttemptCount, last,
		console.Short(cmp.Or(o.Topic, "–"), 32), console.Short(o.Ref, console.Widest))
	b.WriteString(strings.TrimRight(line, " ") + "\n")
}

// storeCursor replaces the file, so that a crash leaves the old or the new cursor.
func storeCursor(path, cursor string) error {
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(cursor + "\n")
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
