package cli

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
)

// callbackReschedule moves the next attempt of a callback.
type callbackReschedule struct {
	ID    string `arg:"" help:"Id of the callback."`
	DueAt string `in:"due_at" xor:"time" placeholder:"TIME" help:"Time of the next attempt, RFC 3339. A time in the past is now."`
	Delay string `in:"delay" xor:"time" placeholder:"DURATION" help:"Time from now to the next attempt, such as 2h."`
	changeFlags
}

// Run moves the callback.
func (cmd *callbackReschedule) Run(c *session) error {
	if cmd.DueAt == "" && cmd.Delay == "" {
		return console.Wrong("give --due-at or --delay")
	}
	return printResponse(c, post(remote.CallbackPath(cmd.ID)+"/reschedule", cmd), func(cb *client.Callback) {
		c.printf("%s  is %s; next attempt %s\n", cb.ID, cb.State, console.ClockTime(cb.DueAt))
	})
}

// callbackSet changes a callback.
type callbackSet struct {
	ID     string   `arg:"" help:"Id of the callback."`
	URL    string   `in:"url" placeholder:"URL" help:"URL that is called."`
	Header []string `in:"headers,headers" short:"H" sep:"none" placeholder:"NAME:VALUE" help:"Headers to send; they replace all existing ones. Can be repeated."`
	Policy string   `in:"policy,choice" placeholder:"NAME|JSON|@FILE" help:"Policy: a name (see \"dispatcher policy list\"), or an object."`
	tierFlags
	ExpiresIn string   `in:"expires_in" placeholder:"DURATION" help:"Give up this long after now."`
	Clear     []string `enum:"header,expires-in" placeholder:"FIELD" help:"Remove these: header (all headers) or expires-in (it never expires)."`
	changeFlags
}

// Help is the text below the summary of callback set --help.
func (*callbackSet) Help() string {
	return "The payload never changes. At another host, headers with credentials are left out unless you " +
		"give new ones."
}

// Run changes the callback.
func (cmd *callbackSet) Run(c *session) error {
	in, err := bodyOf(c, cmd)
	if err == nil {
		err = cmd.tierFlags.put(cmd.Policy, in)
	}
	if err != nil {
		return err
	}
	for _, name := range cmd.Clear {
		field, value := "expires_in", any(nil)
		if name == "header" {
			field, value = "headers", body{}
		}
		if _, given := in[field]; given {
			return console.Wrong("--clear %s: another flag sets it, or it is cleared twice", name)
		}
		in[field] = value
	}
	if !in.changes() {
		return console.Wrong("nothing to change: give a field to set, or --clear")
	}
	r := request{method: http.MethodPatch, path: remote.CallbackPath(cmd.ID), in: in}
	return printResponse(c, r, func(cb *client.Callback) {
		c.printf("%s  changed (see \"dispatcher callback get %[1]s\")\n", cb.ID)
	})
}

// callbackPayload prints the body of a callback.
type callbackPayload struct {
	serverFlags
	ID string `arg:"" help:"Id of the callback."`
}

// Run prints the body unchanged. On a terminal it escapes control characters.
func (cmd *callbackPayload) Run(c *session) error {
	if err := c.connect(); err != nil {
		return err
	}
	answer, err := c.client.Answer(c.ctx, http.MethodGet, remote.CallbackPath(cmd.ID)+"/payload", nil, nil)
	if err != nil {
		return err
	}
	if answer.Header.Get(client.MaskedHeader) != "" {
		fmt.Fprintln(c.Err, "dispatcher: the middle digits of card numbers are masked (setting pan_guard)")
	}
	if c.OutTerminal {
		printLines(c, string(answer.Body))
		return nil
	}
	_, err = c.Out.Write(answer.Body)
	return err
}

// printCSV prints up to Limit callbacks as the server's CSV, page by page.
func printCSV(c *session, p *remote.Pager) error {
	if p.Limit < 1 {
		return console.Wrong("--limit must be at least 1")
	}
	if err := c.connect(); err != nil {
		return err
	}
	p.Query.Set("format", "csv")
	if p.Query.Get("cursor") == "" {
		p.Query.Del("cursor")
	}
	for left, first := p.Limit, true; left > 0; first = false {
		p.Query.Set("limit", strconv.Itoa(min(left, remote.MostPerPage)))
		answer, err := c.client.Answer(c.ctx, http.MethodGet, p.Path+"?"+p.Query.Encode(), nil, nil)
		if err != nil {
			return err
		}
		header, rows, _ := bytes.Cut(answer.Body, []byte("\n"))
		left -= bytes.Count(rows, []byte("\n")) // a cell with a newline only makes the output shorter
		if first {
			rows = append(append(header, '\n'), rows...)
		}
		if _, err := c.Out.Write(rows); err != nil {
			return fmt.Errorf("write the list: %w", err)
		}
		next := nextOf(answer.Header.Get("Link"))
		if next == "" {
			return nil
		}
		p.Query.Set("cursor", next)
	}
	fmt.Fprintf(c.Err, "more: --cursor %s\n", console.Printable(p.Query.Get("cursor")))
	return nil
}

// nextOf returns the cursor in a Link header of the form <URL>; rel="next", or "" if there is none.
func nextOf(link string) string {
	address, found := strings.CutSuffix(link, `>; rel="next"`)
	u, err := url.Parse(strings.TrimPrefix(address, "<"))
	if !found || err != nil {
		return ""
	}
	return u.Query().Get("cursor")
}
