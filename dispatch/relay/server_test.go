package relay

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
)

// A server is a dispatcher in memory: idempotency keys, one lease, one act.
type server struct {
	fence fence
	mu    sync.Mutex
	// accepted has the request of each key, at when it was accepted, and replays counts the others.
	accepted map[string]string
	at       map[string]time.Time
	replays  int
	rowCalls []time.Time

	holder  string
	until   time.Time
	origin  string
	renewed []time.Time
	report  client.RelayReport
	reports []client.RelayReport
	// reported is when report came. ahead is by how much the server's clock is ahead.
	reported time.Time
	ahead    time.Duration
	act      *client.RelayAct

	// call is called before and after each call. Its error is that of the call.
	call func(b *client.RelayBatch, after bool) error
	// judge returns the result of a new row; nil: it is accepted.
	judge func(row *client.RelayRow) *client.RelayResult
}

func newServer() *server {
	return &server{
		accepted: make(map[string]string), at: make(map[string]time.Time),
		call:  func(*client.RelayBatch, bool) error { return nil },
		judge: func(*client.RelayRow) *client.RelayResult { return nil },
	}
}

// problem returns an error of the API.
func problem(status int, code, detail string) *client.Error {
	return &client.Error{Problem: client.Problem{Status: status, Code: code, Detail: detail}}
}

// result returns a result that is a problem.
func result(status int, code string) *client.RelayResult {
	return &client.RelayResult{Status: status, Problem: &client.Problem{Status: status, Code: code,
		Detail: "because of " + code, Errors: []client.FieldError{{Field: "url", Message: "is wrong"}}}}
}

// Submit implements Sink.
func (s *server) Submit(ctx context.Context, source string, b client.RelayBatch) (client.RelayReply, error) {
	s.fence.pass()
	if err := s.call(&b, false); err != nil {
		return client.RelayReply{}, err
	}
	if ctx.Err() != nil {
		return client.RelayReply{}, ctx.Err()
	}
	s.mu.Lock()
	reply, err := s.apply(source, &b)
	s.mu.Unlock()
	if err == nil {
		err = s.call(&b, true)
	}
	return reply, err
}

func (s *server) apply(source string, b *client.RelayBatch) (reply client.RelayReply, err error) {
	if b.Holder != "" {
		if err := s.hold(b); err != nil {
			return reply, err
		}
		reply.LagMs = s.report.LagMs
		if since := time.Since(s.reported); !s.reported.IsZero() && since > 10*time.Second {
			reply.LagMs += since.Milliseconds()
		}
		if s.act != nil && (s.act.State == "waiting" || s.act.State == "running") {
			act := *s.act
			reply.Act = &act
		}
	}
	reply.Now = time.Now().Add(s.ahead)
	if len(b.Rows) > 0 {
		s.rowCalls = append(s.rowCalls, time.Now())
	}
	for i := range b.Rows {
		reply.Results = append(reply.Results, s.accept(source, &b.Rows[i]))
	}
	return reply, nil
}

// hold takes or renews the lease.
func (s *server) hold(b *client.RelayBatch) error {
	now := time.Now()
	switch {
	case s.holder != b.Holder && now.Before(s.until):
		return problem(http.StatusConflict, "relay_held", "another relay reads this source")
	case s.origin != "" && s.origin != b.Origin:
		return problem(http.StatusConflict, "relay_origin", "this name stands for "+s.origin)
	}
	s.holder, s.until, s.origin = b.Holder, now.Add(10*time.Second), b.Origin
	if b.Release {
		s.holder, s.until = "", time.Time{}
	}
	s.renewed = append(s.renewed, now)
	if b.Report != nil {
		s.report, s.reported = *b.Report, now
		s.reports = append(s.reports, s.report)
		if act := b.Report.Act; act != nil && s.act != nil && act.ActID == s.act.ID {
			s.act.RelayActProgress = *act
		}
	}
	return nil
}

// accept accepts a row once.
func (s *server) accept(source string, row *client.RelayRow) client.RelayResult {
	key := source + "/" + row.ID
	if first, found := s.accepted[key]; found {
		if first != string(row.Request) {
			return *result(http.StatusUnprocessableEntity, "idempotency_mismatch")
		}
		s.replays++
		return client.RelayResult{Status: http.StatusOK}
	}
	if r := s.judge(row); r != nil {
		return *r
	}
	s.accepted[key], s.at[key] = string(row.Request), time.Now()
	return client.RelayResult{Status: http.StatusAccepted}
}

// has reports whether the row with an id was accepted.
func (s *server) has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, found := s.accepted["pay/"+id]
	return found
}

// acceptedAfter returns how long after a time the row with an id was accepted.
func (s *server) acceptedAfter(id string, since time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, found := s.at["pay/"+id]; found {
		return at.Sub(since)
	}
	return -1
}

// read reads a field of the server.
func get[T any](s *server, f func() T) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return f()
}

// hasRow reports whether a call has a row whose id begins with a prefix.
func hasRow(b *client.RelayBatch, prefix string) bool {
	for i := range b.Rows {
		if strings.HasPrefix(b.Rows[i].ID, prefix) {
			return true
		}
	}
	return false
}
