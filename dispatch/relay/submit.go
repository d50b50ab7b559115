package relay

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/relay/source"
)

const (
	// submitWithin bounds a call with rows, and pageWithin all calls with the rows of a page. The connection
	// to the source is idle for that time, which must be less than what its server allows.
	submitWithin = 30 * time.Second
	pageWithin   = 90 * time.Second
	// againAfter is the pause before the first row that failed alone is handed over once more.
	againAfter = time.Second
	// maxCall bounds the contents of a call, in bytes of JSON.
	maxCall = 4 << 20
	// Bounds of what the refused table stores, in bytes.
	maxCode    = 64
	maxProblem = 1000
)

// Codes of rows that the relay itself refuses. The dispatcher's own refusals have the codes of the API.
const (
	codeTooLarge = "too_large"
	codeNotUTF8  = "not_utf8"
	codeNotJSON  = "not_json"
)

// A sinkError is a failure of the dispatcher that says nothing about a row.
type sinkError struct {
	err        error
	retryAfter time.Duration
}

func (e *sinkError) Error() string { return e.err.Error() }

// An answer is what the dispatcher said about rows. Every row is in at most one list.
type answer struct {
	// done are accepted or replayed.
	done               []source.Key
	accepted, replayed int
	refused            []source.Refusal
	// failing are rows that failed alone with an internal error.
	failing []source.Refusal
	// stayed are rows that can be accepted later.
	stayed []source.Refusal
}

// A submission hands rows over and collects the answer.
type submission struct {
	sink   Sink
	source string
	// maxFailing is how many rows may fail before the rest is left.
	maxFailing int
	// again: a row that failed alone was handed over once more.
	again bool
	answer
}

// submit hands rows over in calls of at most maxCall. With a *sinkError the answer is that of the calls
// before.
func (s *submission) submit(ctx context.Context, rows []source.Row) error {
	ctx, cancel := context.WithTimeout(ctx, pageWithin)
	defer cancel()
	call, size := make([]source.Row, 0, len(rows)), 0
	for i := range rows {
		row := &rows[i]
		if refusal, refused := refuse(row); refused {
			s.refused = append(s.refused, refusal)
			continue
		}
		n := len(row.Request) + base64.StdEncoding.EncodedLen(len(row.Body)) + 6*len(row.ID)
		if size+n > maxCall {
			if err := s.call(ctx, call); err != nil {
				return err
			}
			call, size = call[:0], 0
		}
		call, size = append(call, *row), size+n
	}
	return s.call(ctx, call)
}

// refuse returns the refusal of a row that cannot be part of a call.
func refuse(row *source.Row) (r source.Refusal, refused bool) {
	r.Key = row.Key
	switch {
	case row.RequestBytes > source.MaxRequest:
		r.Code = codeTooLarge
		r.Problem = fmt.Sprintf("request has %d bytes; at most %d are possible", row.RequestBytes,
			source.MaxRequest)
	case row.BodyBytes > source.MaxBody:
		r.Code = codeTooLarge
		r.Problem = fmt.Sprintf("body has %d bytes; at most %d are possible", row.BodyBytes, source.MaxBody)
	case !utf8.Valid(row.Request):
		r.Code, r.Problem = codeNotUTF8, "request is not UTF-8; the connection that inserts must use UTF-8"
	case !utf8.ValidString(row.ID) || !utf8.ValidString(row.Kind):
		r.Code, r.Problem = codeNotUTF8, "id or kind is not UTF-8"
	case !json.Valid(row.Request):
		r.Code, r.Problem = codeNotJSON, "request is not JSON"
	default:
		return r, false
	}
	return r, true
}

// call hands rows over in one call. If it fails because of a row, its halves are handed over, so that the bad
// rows end alone.
func (s *submission) call(ctx context.Context, rows []source.Row) error {
	if len(rows) == 0 {
		return nil
	}
	if len(s.failing) >= s.maxFailing {
		return &sinkError{err: fmt.Errorf("%d rows cannot be submitted: %s", len(s.failing),
			s.failing[0].Problem)}
	}
	batch := client.RelayBatch{Rows: make([]client.RelayRow, len(rows))}
	for i := range rows {
		batch.Rows[i] = wire(&rows[i])
	}
	limited, cancel := context.WithTimeout(ctx, submitWithin)
	defer cancel()
	reply, err := s.sink.Submit(limited, s.source, batch)
	if err == nil && len(reply.Results) != len(rows) {
		err = fmt.Errorf("the reply has %d results for %d rows", len(reply.Results), len(rows))
	}
	refused, known := errors.AsType[*client.Error](err)
	switch {
	case err == nil:
		for i := range rows {
			s.add(rows[i].Key, &reply.Results[i])
		}
		return nil
	case !known:
		return &sinkError{err: err}
	case !byRow(&refused.Problem):
		return &sinkError{err: err, retryAfter: refused.RetryAfter}
	case len(rows) == 1 && fails(&refused.Problem) && !s.again:
		s.again = true
		process.Sleep(ctx, againAfter)
		return s.call(ctx, rows)
	case len(rows) == 1:
		s.alone(rows[0].Key, &refused.Problem)
		return nil
	}
	if err := s.call(ctx, rows[:len(rows)/2]); err != nil {
		return err
	}
	return s.call(ctx, rows[len(rows)/2:])
}

// wire converts a row.
func wire(row *source.Row) client.RelayRow {
	w := client.RelayRow{ID: row.ID, Kind: row.Kind, AgeMs: row.Age.Milliseconds(), Request: row.Request}
	if row.BodyBytes >= 0 {
		body := row.Body
		if body == nil {
			body = []byte{}
		}
		w.Body = &body
	}
	return w
}

// byRow reports whether one bad row can be the cause of a call's error.
func byRow(p *client.Problem) bool {
	if p.Code == string(client.CodeIncompleteBody) {
		return false
	}
	switch p.Status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity,
		http.StatusInternalServerError:
		return true
	}
	return false
}

// fails reports whether an error says nothing about a row. Without a code, the response is not a
// dispatcher's, but a proxy's for example.
func fails(p *client.Problem) bool { return p.Status == http.StatusInternalServerError || p.Code == "" }

// alone adds the row of a call that failed.
func (s *submission) alone(key source.Key, p *client.Problem) {
	if fails(p) {
		s.failing = append(s.failing, refusal(key, p))
		return
	}
	s.refused = append(s.refused, refusal(key, p))
}

// add adds the result of a row.
func (s *submission) add(key source.Key, result *client.RelayResult) {
	p := result.Problem
	if p == nil {
		p = &client.Problem{Title: http.StatusText(result.Status)}
	}
	switch status := result.Status; {
	case status == http.StatusOK:
		s.replayed++
		s.done = append(s.done, key)
	case status == http.StatusAccepted, status == http.StatusCreated:
		s.accepted++
		s.done = append(s.done, key)
	case status == http.StatusInternalServerError:
		s.failing = append(s.failing, refusal(key, p))
	case status < 400, status > 499, status == http.StatusTooManyRequests,
		p.Code == string(client.CodeIdempotencyInProgress):
		s.stayed = append(s.stayed, refusal(key, p))
	default:
		s.refused = append(s.refused, refusal(key, p))
	}
}

// refusal returns code and problem of a row as the refused table has them.
func refusal(key source.Key, p *client.Problem) source.Refusal {
	text := p.Detail
	if text == "" {
		text = p.Title
	}
	if len(p.Errors) > 0 { // the detail only names their fields
		fields := make([]string, len(p.Errors))
		for i, f := range p.Errors {
			fields[i] = f.Field + ": " + f.Message
		}
		text = strings.Join(fields, "; ")
	}
	code := p.Code
	if code == "" {
		code = fmt.Sprintf("http_%d", p.Status)
	}
	return source.Refusal{Key: key, Code: clip(plain(code), maxCode), Problem: clip(plain(text), maxProblem)}
}

// plain returns a text that every database can store.
func plain(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "")
}
