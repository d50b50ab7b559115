package sqlstore

import (
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

// An attemptRow is an attempt with its details as JSON text.
type attemptRow struct {
	store.Attempt
	Detail string
}

var attemptColumns = sqldb.Named[attemptRow](`callback_id project number trigger outcome charged class status error
	started_at ended_at due_at lateness next_due_at fence stale key_id response_body response_truncated
	detail`)

// clean makes text out of what a receiver sent, so that no answer can keep a result from being committed:
// PostgreSQL takes neither NUL nor invalid UTF-8.
func clean(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// insertAttempts appends attempt rows. Their callbacks' rows are locked by this transaction, so no number can
// be taken by another.
func (t *tx) insertAttempts(attempts []store.Attempt) error {
	rows := make([]attemptRow, len(attempts))
	for i, a := range attempts {
		detail, err := detailOf(&a)
		if err != nil {
			return fmt.Errorf("encode attempt %d of %s: %w", a.Number, a.CallbackID, err)
		}
		a.Error, a.ResponseBody = clean(a.Error), clean(a.ResponseBody)
		rows[i] = attemptRow{a, detail}
	}
	return named("insert attempts", sqldb.InsertRows(t.Tx, "attempts", attemptColumns, rows, ""))
}

// replaceAttempt writes an attempt over the row with its callback and number.
func (t *tx) replaceAttempt(a store.Attempt) error {
	if _, err := t.Exec(`DELETE FROM attempts WHERE callback_id = $1 AND number = $2`, a.CallbackID,
		a.Number); err != nil {
		return named("replace attempt", err)
	}
	return t.insertAttempts([]store.Attempt{a})
}

// attempts reads the attempts that the statement finds. Details that cannot be decoded are left out: what can
// be shown is shown.
func attempts(q sqldb.Querier, rest string, args ...any) ([]store.Attempt, error) {
	rows, err := sqldb.Select(q, attemptColumns, rest, args...)
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
	}
	return found, nil
}

// attemptOfFence returns the attempt that was made under the fence, or nil.
func (t *tx) attemptOfFence(id string, fence int64) (*store.Attempt, error) {
	found, err := attempts(t, `FROM attempts WHERE callback_id = $1 AND fence = $2`, id, fence)
	if err != nil || len(found) == 0 {
		return nil, named(fmt.Sprintf("read attempt of fence %d", fence), err)
	}
	return &found[0], nil
}

// lastAttempts and oneAttempt read the attempts of one callback by the primary key. A page costs the same
// wherever it is.
const (
	lastAttempts = `FROM attempts
	WHERE callback_id = $1 AND project = $2 AND number < $3
	ORDER BY number DESC
	LIMIT $4`
	oneAttempt = `FROM attempts
	WHERE callback_id = $1 AND project = $2 AND number = $3`
)

// Attempts returns a part of a callback's attempts, newest first: at most limit, which is at most maxList+1,
// with numbers below before; zero begins with the last one. It returns store.ErrNotFound for a callback that
// is not in the project.
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

// Attempt returns one attempt of a callback by its number; store.ErrNotFound when the project has none.
func (db *DB) Attempt(ctx context.Context, project, id string, number int) (store.Attempt, error) {
	var found []store.Attempt
	if number >= 1 && number <= math.MaxInt32 {
		var err error
		found, err = attempts(db.read(ctx, "read an attempt"), oneAttempt, id, project, number)
		if err !=
			nil {
			return store.Attempt{}, err
		}
	}
	if len(found) == 0 {
		return store.Attempt{}, fmt.Errorf("attempt %d of %s: %w", number, id, store.ErrNotFound)
	}
	return found[0], nil
}

// An attemptDetail is what of an attempt is stored as JSON.
type attemptDetail struct {
	Timings store.Timings `json:"timings"`
	// Own says that the request began with our own headers, which follow from the attempt and are not
	// repeated: ownUnsigned or ownSigned. They are a third of what there would be to store.
	Own             int            `json:"own,omitempty"`
	RequestHeaders  []store.Header `json:"request_headers,omitempty"`
	ResponseHeaders []store.Header `json:"response_headers,omitempty"`
	Rule            *store.Rule    `json:"rule,omitempty"`
	// URL is where it went, if that was not the callback's own address.
	URL string `json:"url,omitempty"`
}

const (
	ownUnsigned = 1
	ownSigned   = 2
)

// ownHeaders are the headers that a request of ours begins with, as they are shown.
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

// splitOwn takes our own headers from those of the request, if they are what ownHeaders would say.
func splitOwn(a *store.Attempt) (own int, rest []store.Header) {
	for _, own := range [...]int{ownSigned, ownUnsigned} {
		if want := ownHeaders(a, own); len(want) <= len(a.RequestHeaders) &&
			slices.Equal(want, a.RequestHeaders[:len(want)]) {
			return own, a.RequestHeaders[len(want):]
		}
	}
	return 0, a.RequestHeaders
}

// into puts the details back into the attempt, of which the rest has been read.
func (d *attemptDetail) into(a *store.Attempt) {
	a.Timings, a.RequestHeaders, a.ResponseHeaders, a.Rule, a.URL = d.Timings, d.RequestHeaders,
		d.ResponseHeaders, d.Rule, d.URL
	if d.Own != 0 {
		a.RequestHeaders = append(ownHeaders(a, d.Own), d.RequestHeaders...)
	}
}

// detailOf is the detail of an attempt as it is stored.
func detailOf(a *store.Attempt) (string, error) {
	d := attemptDetail{Timings: a.Timings, ResponseHeaders: a.ResponseHeaders, Rule: a.Rule, URL: a.URL}
	d.Own, d.RequestHeaders = splitOwn(a)
	return d.text()
}

// text is the detail as JSON. Every attempt has one, so it is written without reflection.
func (d *attemptDetail) text() (string, error) {
	b := make([]byte, 0, 1024)
	for i, name := range []string{`{"timings":{"dns":`, `,"connect":`, `,"tls":`, `,"first_byte":`,
		`,"total":`} {
		ms := [...]float64{d.Timings.DNS, d.Timings.Connect, d.Timings.TLS, d.Timings.FirstByte,
			d.Timings.Total}[i]
		b = strconv.AppendFloat(append(b, name...), ms, 'f', -1, 64)
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
	return string(append(b, '}')), nil
}

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

// appendText appends a text as JSON.
func appendText(b []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(text) // a string always can be written
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), text...), '"')
}
