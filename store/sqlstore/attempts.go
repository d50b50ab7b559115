package sqlstore

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// An attemptRow is an attempt as it is stored, with its details as JSON.
type attemptRow struct {
	store.Attempt
	Detail string
	// firstURL is where attempts without a URL have gone; empty: to the callback's own.
	firstURL string
}

var attemptColumns = sqldb.Named[attemptRow](`callback_id project number trigger outcome charged class status
	error started_at ended_at due_at lateness next_due_at fence stale key_id response_body
	response_truncated detail`)

// attemptsColumns are the columns to read, with the name of the table, for statements with several tables.
func attemptsColumns(r *attemptRow) sqldb.Columns {
	columns := attemptColumns(r)
	for i := range columns {
		columns[i].Name = "attempts." + columns[i].Name
	}
	return append(columns, col(`COALESCE((SELECT `+firstURL+` FROM requests
		WHERE requests.project = attempts.project AND requests.id = attempts.callback_id), '')`, &r.firstURL))
}

// clean replaces NUL and invalid UTF-8 in what a receiver sent. PostgreSQL refuses both, and a response must
// not prevent its result from being committed.
func clean(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// insertAttempts appends attempts. This transaction has locked the rows of their callbacks, so no other one
// can use the same numbers.
func (t *tx) insertAttempts(attempts []store.Attempt) error {
	rows := make([]attemptRow, len(attempts))
	for i, a := range attempts {
		detail, err := detailOf(&a)
		if err != nil {
			return fmt.Errorf("encode attempt %d of %s: %w", a.Number, a.CallbackID, err)
		}
		a.Error, a.ResponseBody = clean(a.Error), clean(a.ResponseBody)
		rows[i] = attemptRow{Attempt: a, Detail: detail}
	}
	return named("insert attempts", sqldb.InsertRows(t.Tx, "attempts", attemptColumns, rows, ""))
}

// replaceAttempt overwrites the attempt with the same callback and number.
func (t *tx) replaceAttempt(a store.Attempt) error {
	_, err := t.Exec(`DELETE FROM attempts WHERE callback_id = $1 AND number = $2`, a.CallbackID, a.Number)
	if err != nil {
		return named("replace attempt", err)
	}
	return t.insertAttempts([]store.Attempt{a})
}

// attempts reads the attempts that a statement finds. Details that cannot be decoded are left empty, and the
// rest is returned.
func attempts(q sqldb.Querier, rest string, args ...any) ([]store.Attempt, error) {
	rows, err := sqldb.Select(q, attemptsColumns, rest, args...)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	found := make([]store.Attempt, len(rows))
	for i := range rows {
		found[i] = rows[i].Attempt
		var d attemptDetail
		if err := decode("detail", rows[i].Detail, &d); err == nil {
			d.into(&found[i])
		}
		found[i].URL = cmp.Or(found[i].URL, rows[i].firstURL)
	}
	return found, nil
}

// attemptOfFence returns the attempt that was made with the fence, or nil.
func (t *tx) attemptOfFence(id string, fence int64) (*store.Attempt, error) {
	found, err := attempts(t, `FROM attempts WHERE callback_id = $1 AND fence = $2`, id, fence)
	if err != nil || len(found) == 0 {
		return nil, named(fmt.Sprintf("read attempt of fence %d", fence), err)
	}
	return &found[0], nil
}

// lastAttempts and oneAttempt read attempts by the primary key, so a page costs the same wherever it begins.
const (
	lastAttempts = `FROM attempts
	WHERE callback_id = $1 AND project = $2 AND number < $3
	ORDER BY number DESC
	LIMIT $4`
	oneAttempt = `FROM attempts
	WHERE callback_id = $1 AND project = $2 AND number = $3`
)

// Attempts returns attempts of a callback, newest first, with numbers below before. Zero begins at the
// newest. It returns at most limit, and never more than maxList+1. It returns store.ErrNotFound for a
// callback that is not in the project.
func (db *DB) Attempts(ctx context.Context, project, id string, before, limit int) ([]store.Attempt, error) {
	if before <= 0 {
		before = math.MaxInt32
	}
	found, err := attempts(db.read(ctx, "read attempts"), lastAttempts,
		id, project, min(before, math.MaxInt32), min(max(limit, 1), maxList+1))
	if err == nil && len(found) == 0 {
		_, err = db.Get(ctx, project, id)
	}
	return found, err
}

// Attempt returns one attempt of a callback by its number, or store.ErrNotFound if the project has none.
func (db *DB) Attempt(ctx context.Context, project, id string, number int) (store.Attempt, error) {
	var found []store.Attempt
	if number >= 1 && number <= math.MaxInt32 {
		var err error
		found, err = attempts(db.read(ctx, "read an attempt"), oneAttempt, id, project, number)
		if err != nil {
			return store.Attempt{}, err
		}
	}
	if len(found) == 0 {
		return store.Attempt{}, fmt.Errorf("attempt %d of %s: %w", number, id, store.ErrNotFound)
	}
	return found[0], nil
}

// attemptsOf reads the last attempts of callbacks by the primary keys: attempt_seq is the last number.
const attemptsOf = `FROM callbacks JOIN attempts ON attempts.callback_id = callbacks.id
		AND attempts.number > callbacks.attempt_seq - $2
	WHERE callbacks.id IN (SELECT i.id FROM $i) AND callbacks.project = $1
	ORDER BY attempts.callback_id, attempts.number DESC`

// AttemptsOf returns the last attempts of each of the project's callbacks, at most last of each, by callback
// and newest first.
func (db *DB) AttemptsOf(
	ctx context.Context, project string, ids []string, last int,
) ([]store.Attempt, error) {
	return attempts(db.read(ctx, "read attempts"), attemptsOf, project, min(max(last, 1), maxList),
		sqldb.Texts("id", ids))
}

// An attemptDetail is the part of an attempt that is stored as JSON.
type attemptDetail struct {
	Timings store.Timings `json:"timings"`
	// Own is ownUnsigned or ownSigned if the request began with the dispatcher's own headers. These follow
	// from the attempt and are not stored: they would be a third of the stored size.
	Own             int            `json:"own,omitempty"`
	RequestHeaders  []store.Header `json:"request_headers,omitempty"`
	ResponseHeaders []store.Header `json:"response_headers,omitempty"`
	Rule            *store.Rule    `json:"rule,omitempty"`
	// URL is where the attempt went, if that differs from the URL with which the callback was accepted.
	URL string `json:"url,omitempty"`
	// Diverts and DivertReason are about the time before the attempt. Most attempts have none.
	Diverts      int    `json:"diverts"`
	DivertReason string `json:"divert_reason"`
}

const (
	ownUnsigned = 1
	ownSigned   = 2
)

// ownHeaders returns the headers that the dispatcher adds at the beginning of each request, as they are
// displayed: the signature is masked.
func ownHeaders(a *store.Attempt, own int) []store.Header {
	headers := []store.Header{
		{Name: "webhook-id", Value: store.CallbackPrefix + a.CallbackID},
		{Name: "webhook-timestamp", Value: strconv.FormatInt(a.StartedAt/1000, 10)},
	}
	if own == ownSigned {
		headers = append(headers, store.Header{Name: "webhook-signature", Value: "***"})
	}
	return append(headers, store.Header{Name: "webhook-attempt", Value: strconv.Itoa(a.Number)})
}

// splitOwn removes the headers of ownHeaders from the request's headers, if they are exactly these.
func splitOwn(a *store.Attempt) (own int, rest []store.Header) {
	for _, own := range [...]int{ownSigned, ownUnsigned} {
		if want := ownHeaders(a, own); len(want) <= len(a.RequestHeaders) &&
			slices.Equal(want, a.RequestHeaders[:len(want)]) {
			return own, a.RequestHeaders[len(want):]
		}
	}
	return 0, a.RequestHeaders
}

// into copies the details into the attempt, whose columns have been read.
func (d *attemptDetail) into(a *store.Attempt) {
	a.Timings, a.Rule, a.URL = d.Timings, d.Rule, d.URL
	a.Diverts, a.DivertReason = d.Diverts, d.DivertReason
	a.RequestHeaders, a.ResponseHeaders = d.RequestHeaders, d.ResponseHeaders
	if d.Own != 0 {
		a.RequestHeaders = append(ownHeaders(a, d.Own), d.RequestHeaders...)
	}
}

// detailOf returns the stored details of an attempt.
func detailOf(a *store.Attempt) (string, error) {
	d := attemptDetail{Timings: a.Timings, ResponseHeaders: a.ResponseHeaders, Rule: a.Rule, URL: a.URL,
		Diverts: a.Diverts, DivertReason: a.DivertReason}
	d.Own, d.RequestHeaders = splitOwn(a)
	return d.text()
}

// text returns the details as JSON. Every attempt is written with one, so it does without reflection.
func (d *attemptDetail) text() (string, error) {
	b := make([]byte, 0, 1024)
	for _, timing := range []struct {
		name string
		ms   float64
	}{
		{`{"timings":{"dns":`, d.Timings.DNS},
		{`,"connect":`, d.Timings.Connect},
		{`,"tls":`, d.Timings.TLS},
		{`,"first_byte":`, d.Timings.FirstByte},
		{`,"total":`, d.Timings.Total},
	} {
		b = strconv.AppendFloat(append(b, timing.name...), timing.ms, 'f', -1, 64)
	}
	b = append(b, '}')
	if d.Own != 0 {
		b = strconv.AppendInt(append(b, `,"own":`...), int64(d.Own), 10)
	}
	b = appendHeaders(b, `,"request_headers":[`, d.RequestHeaders)
	b = appendHeaders(b, `,"response_headers":[`, d.ResponseHeaders)
	if d.Rule != nil {
		rule, err := json.Marshal(d.Rule)
		if err != nil {
			return "", err
		}
		b = append(append(b, `,"rule":`...), rule...)
	}
	if d.URL != "" {
		b = appendText(append(b, `,"url":`...), d.URL)
	}
	if d.Diverts > 0 {
		b = strconv.AppendInt(append(b, `,"diverts":`...), int64(d.Diverts), 10)
		b = appendText(append(b, `,"divert_reason":`...), d.DivertReason)
	}
	return string(append(b, '}')), nil
}

// appendHeaders appends a JSON list of headers. start is the text before the first one; an empty list adds
// nothing.
func appendHeaders(b []byte, start string, headers []store.Header) []byte {
	for i, h := range headers {
		if i > 0 {
			start = `,`
		}
		b = appendText(append(append(b, start...), `{"name":`...), h.Name)
		b = append(appendText(append(b, `,"value":`...), h.Value), '}')
	}
	if len(headers) > 0 {
		b = append(b, ']')
	}
	return b
}

// appendText appends a text as a JSON string.
func appendText(b []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(text) // a string never fails
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), text...), '"')
}
