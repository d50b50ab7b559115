package accept

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func pointer[T any](v T) *T { return &v }

// Each field rejects invalid values, and the error names the field in the spelling of the API.
func TestDraftRefusesByField(t *testing.T) {
	t.Parallel()
	e := &Accepter{o: Options{CheckURL: func(u string) error {
		if strings.Contains(u, "127.0.0.1") {
			return errors.New("is not allowed")
		}
		return nil
	}}}
	long := func(n int) string { return strings.Repeat("ü", n) }
	labels := func(n int) map[string]string {
		m := map[string]string{}
		for i := range n {
			m[fmt.Sprint(i)] = ""
		}
		return m
	}
	policy := func(change func(*store.Policy)) func(*Submission) {
		return func(s *Submission) {
			s.PolicyGiven, s.Policy = true, DefaultPolicy()
			change(&s.Policy)
		}
	}
	for _, c := range []struct {
		field string
		spoil func(*Submission)
	}{
		{"url", func(s *Submission) { s.URL = "" }},
		{"url", func(s *Submission) { s.URL = "shop.example" }},
		{"url", func(s *Submission) { s.URL = "ftp://shop.example/" }},
		{"url", func(s *Submission) { s.URL = "http://127.0.0.1/" }},
		{"endpoint", func(s *Submission) { s.Endpoint = "ep_1" }},
		{"method", func(s *Submission) { s.Method = "P OST" }},
		{"method", func(s *Submission) { s.Method = "connect" }},
		{"headers", func(s *Submission) { s.Headers = []store.Header{{Name: "Host", Value: "x"}} }},
		{"headers", func(s *Submission) { s.Headers = []store.Header{{Name: "webhook-id", Value: "x"}} }},
		{"headers", func(s *Submission) { s.Headers = []store.Header{{Name: "X", Value: "a\r\nY: 1"}} }},
		{"payload", func(s *Submission) { s.Body = nil }},
		{"body_base64", func(s *Submission) { s.BodyField, s.Body = "body_base64", make([]byte, MaxBody+1) }},
		{"content_type", func(s *Submission) { s.ContentType = "a\nb" }},
		{"topic", func(s *Submission) { s.Topic = long(MaxTopic + 1) }},
		{"topic", func(s *Submission) { s.Topic = "dispatcher.alert" }},
		{"topic", func(s *Submission) { s.Topic = "Dispatcher.reconcile.unbalanced" }},
		{"ref", func(s *Submission) { s.Ref = long(MaxRef + 1) }},
		{"ref", func(s *Submission) { s.Ref = "a\x00" }},
		{"ref", func(s *Submission) { s.Ref = "\xff" }},
		{"lock_key", func(s *Submission) { s.LockKey = long(MaxRef + 1) }},
		{"lane", func(s *Submission) { s.Lane = long(MaxLane + 1) }},
		{"lane", func(s *Submission) { s.Lane = "ep_01" }},
		{"idempotency_key", func(s *Submission) { s.IdempotencyKey = long(MaxIdempotencyKey + 1) }},
		{"labels", func(s *Submission) { s.Labels = labels(MaxLabels + 1) }},
		{"labels.a", func(s *Submission) { s.Labels = map[string]string{"a": long(MaxLabelValue + 1)} }},
		{"labels", func(s *Submission) { s.Labels = map[string]string{"": "x"} }},
		{"order", func(s *Submission) { s.Order = "loose" }},
		{"order", func(s *Submission) { s.Order = "strict" }},
		{"ref", func(s *Submission) { s.Supersede, s.Topic, s.Version = true, "t", pointer(int64(1)) }},
		{"topic", func(s *Submission) { s.Supersede, s.Ref, s.Version = true, "r", pointer(int64(1)) }},
		{"version", func(s *Submission) { s.Supersede, s.Ref, s.Topic = true, "r", "t" }},
		{"policy", func(s *Submission) { s.PolicyName = "soon" }},
		{"policy.tiers", policy(func(p *store.Policy) { p.Tiers = []time.Duration{-1} })},
		{"policy.tiers", policy(func(p *store.Policy) { p.Tiers = make([]time.Duration, 101) })},
		{"policy.timeout", policy(func(p *store.Policy) { p.Timeout = 99 * time.Millisecond })},
		{"policy.timeout", policy(func(p *store.Policy) { p.Timeout = 61 * time.Second })},
		{"policy.repeat_last", policy(func(p *store.Policy) {
			p.RepeatLast, p.Tiers = true, []time.Duration{time.Minute}
		})},
		{"policy.repeat_last", policy(func(p *store.Policy) { p.RepeatLast, p.Deadline = true, time.Hour })},
		{"policy.repeat_last", policy(func(p *store.Policy) {
			p.RepeatLast, p.Deadline, p.Tiers = true, time.Hour, []time.Duration{1}
		})},
		{"policy.deadline", policy(func(p *store.Policy) { p.Deadline = -1 })},
		{"policy.jitter", policy(func(p *store.Policy) { p.Jitter = math.NaN() })},
		{"policy.jitter", policy(func(p *store.Policy) { p.Jitter = 1.01 })},
		{"policy.retry_after_cap", policy(func(p *store.Policy) { p.RetryAfterCap = -1 })},
		{"policy.overload_floor", policy(func(p *store.Policy) { p.OverloadFloor = math.MaxInt64 })},
		{"policy.stop_on[1]", policy(func(p *store.Policy) { p.StopOn = []int{410, 200} })},
		{"success", func(s *Submission) { s.Success = "maybe" }},
		{"signer", func(s *Submission) { s.Signer = "rot13" }},
		{"signer", func(s *Submission) { s.Signer, s.StartAttempt = "rot13", 2 }},
		{"delay", func(s *Submission) { s.Delay = pointer(-time.Second) }},
		{"delay", func(s *Submission) { s.Delay = pointer(MaxDelay + 1) }},
		{"delay", func(s *Submission) { s.Delay, s.DueAt = pointer(time.Second), pointer(int64(1)) }},
		{"due_at", func(s *Submission) { s.DueAt = pointer(int64(math.MaxInt64)) }},
		{"expires_in", func(s *Submission) { s.ExpiresIn = pointer(time.Duration(0)) }},
		{"start_attempt", func(s *Submission) { s.StartAttempt = -1 }},
		{"start_attempt", func(s *Submission) { s.StartAttempt = 11 }},
	} {
		s := Submission{URL: "https://shop.example/", Body: []byte("{}")}
		c.spoil(&s)
		_, err := e.draft(PlainView(), "p", &s, time.Now())
		var invalid *store.InvalidError
		if !errors.As(err, &invalid) {
			t.Errorf("%s: accepted %+v", c.field, s)
			continue
		}
		found := slices.ContainsFunc(invalid.Fields, func(f store.FieldError) bool {
			return (f.Field == c.field || c.field == "headers" && strings.HasPrefix(f.Field, "headers")) &&
				f.Message != ""
		})
		if !found || len(invalid.Fields) != 1 {
			t.Errorf("%s: the findings are %v", c.field, invalid)
		}
	}
}

func TestDraftFillsInDefaults(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_800_000_000_000)
	e := &Accepter{}
	d, err := e.draft(PlainView(), "p", &Submission{
		URL: "https://Shop.example/a", Body: []byte("x"), BodyField: "body", Method: "put",
		DueAt: pointer(int64(5)), ExpiresIn: pointer(time.Minute), StartAttempt: 4,
	}, now)
	if err != nil {
		t.Fatal(err)
	}
	c := d.Callback
	switch {
	case c.Method != "PUT", c.Lane != "https://shop.example:443",
		c.ContentType != "text/plain; charset=utf-8":
		t.Errorf("method %s, lane %s, content type %s", c.Method, c.Lane, c.ContentType)
	case c.DueAt != now.UnixMilli(), c.FirstDueAt != c.DueAt, c.ExpiresAt != c.DueAt+60_000:
		t.Errorf("a due time in the past is now: %d, %d, %d", c.DueAt, c.FirstDueAt, c.ExpiresAt)
	case c.LadderBase != -3, c.MaxAttempts() != 7, c.Policy.Name != "payment", c.Success.Name != "http-2xx",
		c.Signer != "standard-v1":
		t.Errorf("ladder base %d, max attempts %d, policy %s, success %s, signer %s", c.LadderBase,
			c.MaxAttempts(), c.Policy.Name, c.Success.Name, c.Signer)
	}
	// A GET needs no body. A fraction of a millisecond is rounded up, so no attempt is early.
	d, err = e.draft(PlainView(), "p", &Submission{URL: "https://shop.example/", Method: "GET",
		Delay: pointer(1500 * time.Microsecond)}, now)
	if err != nil || d.Body != nil || d.Callback.DueAt != now.UnixMilli()+2 {
		t.Errorf("GET: %v, body %v, due %d", err, d.Body, d.Callback.DueAt-now.UnixMilli())
	}
}
