package dispatch

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Bounds of a submission. Characters are Unicode code points, sizes are bytes.
const (
	MaxBody           = 256 << 10
	MaxLabels         = 20
	MaxLabelName      = 64
	MaxLabelValue     = 256
	MaxRef            = 256
	MaxLane           = 128
	MaxTopic          = 256
	MaxIdempotencyKey = 256
	MaxDelay          = 400 * 24 * time.Hour

	minTimeout = 100 * time.Millisecond
	maxTimeout = 60 * time.Second
)

// PaymentPolicy is the default policy.
func PaymentPolicy() store.Policy {
	return store.Policy{
		Name:          "payment",
		Tiers:         schedule.Payment(),
		Timeout:       15 * time.Second,
		RetryAfterCap: time.Hour,
	}
}

// DefaultPolicy is what an object in place of a policy's name starts from: no name, one attempt, and the defaults of every
// field that is not given.
func DefaultPolicy() store.Policy {
	return store.Policy{Timeout: 15 * time.Second, RetryAfterCap: time.Hour, StopOn: []int{410}}
}

// findings collects what is wrong with a submission, field by field.
type findings []store.FieldError

func (f *findings) add(field, format string, args ...any) {
	*f = append(*f, store.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
}

// draft judges a submission. Its error is a *store.InvalidError with every field that is wrong.
func (e *Engine) draft(project string, s *Submission, now time.Time) (store.Draft, error) {
	f := findings(slices.Clone(s.Invalid))
	c := store.Callback{
		ID:      e.ids.make(now),
		Project: project,
		Kind:    store.Notify,
		URL:     s.URL,
		Method:  strings.ToUpper(s.Method),
		Headers: s.Headers,
		Topic:   s.Topic,
		Ref:     s.Ref,
		LockKey: s.LockKey,
		Labels:  s.Labels,
		Signer:  s.Signer,
		Version: s.Version,
		State:   store.Scheduled,
		// The order of creation is the order of ids.
		CreatedAt: now.UnixMilli(),
		UpdatedAt: now.UnixMilli(),
	}
	if c.Method == "" {
		c.Method = "POST"
	}
	e.checkTarget(s, &c, &f)
	checkBody(s, &c, &f)
	checkTexts(s, &f)
	checkLater(s, &f)
	c.Policy = checkPolicy(s, &f)
	c.Success, c.Signer = checkSending(s, &f)
	checkTimes(s, &c, now, &f)
	if s.StartAttempt < 0 || s.StartAttempt > len(c.Policy.Tiers)+1 {
		f.add("start_attempt", "is 1 to %d, the attempts that the policy allows", len(c.Policy.Tiers)+1)
	} else if s.StartAttempt > 1 {
		c.LadderBase = 1 - s.StartAttempt
	}
	if len(f) > 0 {
		return store.Draft{}, &store.InvalidError{Fields: f}
	}
	d := store.Draft{Callback: c, Body: s.Body}
	if s.IdempotencyKey != "" {
		d.Idempotency = &store.Idempotency{Route: s.Route, Key: s.IdempotencyKey, Fingerprint: s.Fingerprint}
	}
	return d, nil
}

// checkTarget judges where the callback goes, and finds its lane.
func (e *Engine) checkTarget(s *Submission, c *store.Callback, f *findings) {
	if s.Endpoint != "" {
		f.add("endpoint", "endpoints do not exist in this version; give url")
	}
	switch {
	case s.URL == "" && s.Endpoint == "":
		f.add("url", "is required")
	case s.URL != "":
		lane, err := LaneOf(s.URL)
		if err == nil && e.o.CheckURL != nil {
			err = e.o.CheckURL(s.URL)
		}
		if err != nil {
			f.add("url", "%s", err)
		}
		c.Lane = lane
	}
	if s.Lane != "" {
		c.Lane = s.Lane
	}
	if !validMethod(c.Method) {
		f.add("method", "is an HTTP method: letters only, at most 32; CONNECT and TRACE are refused")
	}
	for _, h := range outbound.CheckHeaders(s.Headers) {
		f.add(h.Field, "%s", h.Message)
	}
}

// LaneOf returns the default lane of an address: its scheme, host and port, in lower case.
func LaneOf(rawURL string) (string, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return "", fmt.Errorf("is not an http or https address such as https://shop.example/notify")
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port), nil
}

func validMethod(m string) bool {
	if len(m) == 0 || len(m) > 32 || m == "CONNECT" || m == "TRACE" {
		return false
	}
	return strings.IndexFunc(m, func(r rune) bool { return r < 'A' || r > 'Z' }) < 0
}

// bodyless are the methods that may come without a body.
var bodyless = [...]string{"GET", "HEAD", "DELETE"}

func checkBody(s *Submission, c *store.Callback, f *findings) {
	field := s.BodyField
	if field == "" {
		field = "payload"
	}
	if s.Body == nil {
		if !slices.Contains(bodyless[:], c.Method) {
			f.add("payload", "one of payload, body and body_base64 is required with %s", c.Method)
		}
		if s.ContentType != "" {
			f.add("content_type", "needs a payload, body or body_base64")
		}
		return
	}
	if len(s.Body) > MaxBody {
		f.add(field, "is %d bytes; at most %d are allowed", len(s.Body), MaxBody)
	}
	c.ContentType = s.ContentType
	switch {
	case s.ContentType != "":
		if len(s.ContentType) > 256 || hasControl(s.ContentType) || !utf8.ValidString(s.ContentType) {
			f.add("content_type", "is at most 256 characters without control characters")
		}
	case field == "body":
		c.ContentType = "text/plain; charset=utf-8"
	case field == "body_base64":
		c.ContentType = "application/octet-stream"
	default:
		c.ContentType = "application/json"
	}
}

func checkTexts(s *Submission, f *findings) {
	for _, t := range []struct {
		field, text string
		most        int
	}{
		{"topic", s.Topic, MaxTopic},
		{"ref", s.Ref, MaxRef},
		{"lock_key", s.LockKey, MaxRef},
		{"lane", s.Lane, MaxLane},
		{"idempotency_key", s.IdempotencyKey, MaxIdempotencyKey},
	} {
		checkText(t.field, t.text, t.most, f)
	}
	if len(s.Labels) > MaxLabels {
		f.add("labels", "has %d labels; at most %d are allowed", len(s.Labels), MaxLabels)
	}
	for name, value := range s.Labels {
		if name == "" {
			f.add("labels", "a label's name is empty")
		}
		checkText("labels."+name, name, MaxLabelName, f)
		checkText("labels."+name, value, MaxLabelValue, f)
	}
}

func checkText(field, text string, most int, f *findings) {
	switch {
	case !utf8.ValidString(text):
		f.add(strings.ToValidUTF8(field, "?"), "is not valid UTF-8")
	case hasControl(text):
		f.add(strings.Map(dropControl, field), "has a control character")
	case utf8.RuneCountInString(text) > most:
		f.add(field, "is %d characters; at most %d are allowed", utf8.RuneCountInString(text), most)
	}
}

func hasControl(s string) bool { return strings.IndexFunc(s, unicode.IsControl) >= 0 }

func dropControl(r rune) rune {
	if unicode.IsControl(r) {
		return '?'
	}
	return r
}

// checkLater refuses what the contract names and this version does not do yet: silence would be a promise.
func checkLater(s *Submission, f *findings) {
	switch s.Order {
	case "":
	case "strict":
		f.add("order", "strict order does not exist in this version")
	default:
		f.add("order", "is \"strict\" or absent")
	}
	if s.Supersede {
		f.add("supersede", "does not exist in this version")
	}
}

func checkPolicy(s *Submission, f *findings) store.Policy {
	if !s.PolicyGiven {
		switch s.PolicyName {
		case "", "payment":
			return PaymentPolicy()
		}
		f.add("policy", "%q is not a policy; known is payment, or give an object with tiers", s.PolicyName)
		return PaymentPolicy()
	}
	p := s.Policy
	if err := schedule.Tiers(p.Tiers).Validate(); err != nil {
		f.add("policy.tiers", "%s", err)
	}
	if p.Timeout < minTimeout || p.Timeout > maxTimeout {
		f.add("policy.timeout", "is 100ms to 60s")
	}
	if p.RepeatLast && p.Deadline == 0 {
		f.add("policy.repeat_last", "needs a deadline, or it would never end")
	}
	if p.RepeatLast && len(p.Tiers) == 0 {
		f.add("policy.repeat_last", "needs at least one tier")
	}
	if p.Deadline < 0 || p.Deadline > MaxDelay {
		f.add("policy.deadline", "is 0s to 400d")
	}
	if !(p.Jitter >= 0 && p.Jitter <= 1) {
		f.add("policy.jitter", "is 0 to 1")
	}
	if p.RetryAfterCap < 0 || p.RetryAfterCap > MaxDelay {
		f.add("policy.retry_after_cap", "is 0s to 400d")
	}
	if p.OverloadFloor < 0 || p.OverloadFloor > MaxDelay {
		f.add("policy.overload_floor", "is 0s to 400d")
	}
	if len(p.StopOn) > 50 {
		f.add("policy.stop_on", "has %d statuses; at most 50 are allowed", len(p.StopOn))
	}
	for i, status := range p.StopOn {
		if status < 300 || status > 599 {
			f.add(fmt.Sprintf("policy.stop_on[%d]", i), "is an HTTP status from 300 to 599")
		}
	}
	return p
}

func checkSending(s *Submission, f *findings) (success store.Success, signer string) {
	success.Name = s.Success
	if success.Name == "" {
		success.Name = outbound.SuccessRules()[0]
	}
	if !slices.Contains(outbound.SuccessRules(), success.Name) {
		f.add("success", "%q is not a success rule; known are %s", s.Success, strings.Join(outbound.SuccessRules(), ", "))
	}
	signer = s.Signer
	if signer == "" {
		signer = outbound.Signers()[0]
	}
	if !slices.Contains(outbound.Signers(), signer) {
		f.add("signer", "%q is not a signer; known are %s", s.Signer, strings.Join(outbound.Signers(), ", "))
	}
	return success, signer
}

// checkTimes finds the first due time and what runs from it.
func checkTimes(s *Submission, c *store.Callback, now time.Time, f *findings) {
	due := now
	switch {
	case s.DueAt != nil && s.Delay != nil:
		f.add("delay", "give due_at or delay, not both")
	case s.DueAt != nil:
		due = time.UnixMilli(*s.DueAt)
		if due.Before(now) {
			due = now
		}
		if due.After(now.Add(MaxDelay)) {
			f.add("due_at", "is more than 400 days away")
			return
		}
	case s.Delay != nil:
		if *s.Delay < 0 || *s.Delay > MaxDelay {
			f.add("delay", "is 0s to 400d")
			return
		}
		due = now.Add(*s.Delay)
	}
	c.DueAt = schedule.CeilMillis(due)
	c.FirstDueAt = c.DueAt
	if s.ExpiresIn != nil {
		if *s.ExpiresIn <= 0 || *s.ExpiresIn > MaxDelay {
			f.add("expires_in", "is more than 0s and at most 400d")
			return
		}
		c.ExpiresAt = schedule.CeilMillis(due.Add(*s.ExpiresIn))
	}
}
