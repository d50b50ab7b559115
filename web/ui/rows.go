package ui

import (
	"cmp"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A callbackTable is a list of callbacks.
type callbackTable struct {
	Caption string
	Rows    []*callbackRow
	// ByNewest and ByDue are the links of the sortable heads. They are empty if the list has one order.
	// DueFirst is true if the list is in order of due times.
	ByNewest, ByDue string
	DueFirst        bool
	// Polls is true if all callbacks are polls. Then the list has what was seen last, and no receivers.
	Polls bool
}

// A callbackRow is a callback in a list.
type callbackRow struct {
	store.Callback
	State store.State
	// FullID and EndpointFullID have their prefixes. Address is the URL with credentials masked.
	FullID, Address, EndpointFullID string
	// Name is the reference, or the topic or the id if there is none.
	Name string
	// To is the endpoint's name, or host and path of the URL.
	To string
	// When is the due time of an open callback, or the end of a finished one.
	When int64
	// Late is true if a scheduled callback is overdue by more than 1 s.
	Late bool
	// DivertedFor is the reason of the last divert. It may be empty. Only the pages of one callback and of an
	// order set it.
	DivertedFor string
	// Seen is the last attempt of a poll, in the list of polls. It may be nil.
	Seen *store.Attempt
	// Tries is the number of charged attempts and, if it is limited, the maximum.
	Tries string
}

// Shown returns the name of the state as pages display it. An open poll with an answer is pending, and one
// that has ended has the final answer. An open callback with a failed attempt is retrying.
func (row *callbackRow) Shown() string {
	c := &row.Callback
	switch {
	case c.Kind == store.Poll && row.State == store.Succeeded:
		return "final_" + string(c.PollOutcome())
	case row.State != store.Scheduled:
		return string(row.State)
	case row.PollAnswered():
		return "pending"
	case c.AttemptCount > max(c.LadderBase, 0):
		return "retrying"
	}
	return string(row.State)
}

// PollAnswered reports whether the last attempt is an answer of a poll: one that is not final yet, or the
// final one.
func (row *callbackRow) PollAnswered() bool {
	return row.Kind == store.Poll &&
		(row.LastClass == store.ClassRuleMismatch || row.LastClass == store.ClassOK)
}

func newRow(c *store.Callback, now int64) *callbackRow {
	row := &callbackRow{Callback: *c, State: c.StateAt(now), FullID: store.CallbackPrefix + c.ID,
		Address: store.MaskURL(c.URL), When: c.DueAt}
	row.Name, row.To = cmp.Or(c.Ref, c.Topic, row.FullID), shortAddress(row.Address)
	if c.EndpointID != "" {
		row.EndpointFullID = store.EndpointPrefix + c.EndpointID
	}
	row.Tries = grouped(int64(c.AttemptCount))
	if !c.Policy.RepeatLast {
		row.Tries += " / " + grouped(int64(c.MaxAttempts()))
	}
	if c.State.Terminal() {
		row.When = c.FinishedAt
	} else {
		row.Late = row.State == store.Scheduled && c.DueAt < now-1000
	}
	return row
}

// callbackRows returns the rows of callbacks, with the names of their endpoints.
func (u *UI) callbackRows(r *request, callbacks []store.Callback) ([]*callbackRow, error) {
	rows := make([]*callbackRow, len(callbacks))
	ids := make([]string, len(callbacks))
	for i := range callbacks {
		rows[i] = newRow(&callbacks[i], r.now)
		ids[i] = rows[i].EndpointFullID
	}
	labels, err := u.endpointLabels(r, ids)
	for _, row := range rows {
		row.To = cmp.Or(labels[row.EndpointFullID], row.To)
	}
	return rows, err
}

// Last describes a row's last response: why the callback has ended, the status, and what was wrong with the
// response. It is empty before the first response.
func (b *base) Last(row *callbackRow) string {
	var parts []string
	if row.Reason != "" && row.Shown() != "final_"+string(row.Reason) {
		parts = append(parts, b.Or("reason.", string(row.Reason)))
	}
	response := ""
	if row.LastStatus != 0 {
		response = strconv.Itoa(row.LastStatus)
	}
	if row.LastClass != "" && !row.PollAnswered() {
		response += " " + b.Or("class.", string(row.LastClass))
	}
	if response != "" {
		parts = append(parts, strings.TrimSpace(response))
	}
	return strings.Join(parts, " · ")
}

// divertedFor returns the reason of the last divert of a callback. newest are its newest attempts, the newest
// first.
func divertedFor(c *store.Callback, newest []store.Attempt) string {
	if since := c.DivertsSince(); since.Times > 0 {
		return since.Reason
	}
	for i := range newest {
		a := &newest[i]
		if !a.Charged && a.Class != store.ClassCrashed && a.Class != store.ClassPanic {
			return string(a.Class)
		}
		if a.Diverts > 0 {
			return a.DivertReason
		}
	}
	return ""
}

// Postponed says how often a callback was postponed, and why. key is the text without a reason.
func (b *base) Postponed(key string, times int, reason string) string {
	text := b.T(key, "n", times)
	switch {
	case b.Has("divert." + reason):
		text += b.T("divert.why", "why", b.T("divert."+reason))
	case reason != "":
		text += b.T("divert.why", "why", b.Or("class.", reason))
	}
	return text
}

// seenValue is what a poll's rule has seen, if it is one value: `/trade_state is "USERPAYING"`.
var seenValue = regexp.MustCompile(`^[^\s",]+ is "?([^"\\]+?)"?$`)

// LastSeen describes the last response of a poll: why the poll has ended, and the value that its rule has
// seen. Without a value it is the same as Last.
func (b *base) LastSeen(row *callbackRow) string {
	if row.Seen == nil || row.Seen.Rule == nil || row.Seen.Rule.Saw == "" || !row.PollAnswered() {
		return b.Last(row)
	}
	saw := string(reportText(b.Engine(row.Seen.Rule.Saw)))
	if value := seenValue.FindStringSubmatch(row.Seen.Rule.Saw); value != nil {
		saw = value[1]
	}
	if row.Reason == store.Unresolved {
		return b.T("reason."+string(row.Reason)) + " · " + saw
	}
	return saw
}

// shortAddress returns host and path of a URL, or a text that is no URL unchanged.
func shortAddress(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return address
	}
	return u.Host + strings.TrimSuffix(u.EscapedPath(), "/")
}

// longText is the width in half-width characters from which a cell may be too narrow for a text.
const longText = 11

// Long returns a text that may be cut by its cell, for the title that shows all of it. It returns "" for a
// short text.
func (b *base) Long(text string) string {
	width := 0
	for _, char := range text {
		width++
		if char >= '\u2e80' { // Chinese characters have twice the width
			width++
		}
	}
	if width < longText {
		return ""
	}
	return text
}
