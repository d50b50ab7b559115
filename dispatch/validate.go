package dispatch

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
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

// findings collects what is wrong with a submission, field by field.
type findings []store.FieldError

// names says whether something is wrong with the field already.
func (f *findings) names(field string) bool {
	return slices.ContainsFunc(*f, func(e store.FieldError) bool { return e.Field == field })
}

func (f *findings) add(field, format string, args ...any) {
	*f = append(*f, store.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
}

// draft judges a submission. Its error is a *store.InvalidError with every field that is wrong.
func (e *Engine) draft(v *acceptView, project string, s *Submission, now time.Time) (store.Draft, error) {
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
		Version: s.Version,
		Strict:  s.Order == orderStrict,
		State:   store.Scheduled,
		// The order of creation is the order of ids.
		CreatedAt: now.UnixMilli(),
		UpdatedAt: now.UnixMilli(),
	}
	if c.Method == "" {
		c.Method = "POST"
	}
	ep := e.checkTarget(v, s, &c, &f)
	checkBody(s, &c, &f)
	checkTexts(s, &f)
	// An operational event follows from what was accepted and set; its receivers are to hear of it.
	if e.o.PanGuard == store.PanReject && !v.cardless && s.Route != alertsRoute {
		checkCards(s, &f)
	}
	checkOrder(s, &f)
	v.resolve(s, ep, &c, &f)
	if s.Body == nil && sign.SignsBody(c.Signer) {
		f.add("signer", "puts its signature into the body, and there is none: have it put into the query or a header")
	}
	checkTimes(s, &c, now, &f)
	if s.StartAttempt < 0 || s.StartAttempt > len(c.Policy.Tiers)+1 && !v.blind {
		f.add("start_attempt", "is 1 to %d, the attempts that the policy allows", len(c.Policy.Tiers)+1)
	} else if s.StartAttempt > 1 {
		c.LadderBase = 1 - s.StartAttempt
	}
	if len(f) > 0 {
		return store.Draft{}, &store.InvalidError{Fields: f}
	}
	d := store.Draft{Callback: c, Body: s.Body, Supersede: s.Supersede}
	if s.IdempotencyKey != "" {
		d.Idempotency = &store.Idempotency{Route: s.Route, Key: s.IdempotencyKey, Fingerprint: s.Fingerprint}
	}
	return d, nil
}

// checkTarget judges where the callback goes, and finds its lane. It returns its endpoint, if it has one.
func (e *Engine) checkTarget(v *acceptView, s *Submission, c *store.Callback, f *findings) *store.Endpoint {
	var ep *store.Endpoint
	if s.Endpoint != "" {
		if ep = v.endpoints[s.Endpoint]; ep == nil && !v.blind {
			f.add("endpoint", "there is no endpoint with that id or external_id")
		}
	}
	switch {
	case s.URL == "" && s.Endpoint == "":
		f.add("url", "is required, or endpoint")
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
		if store.IsAddressLane(s.Lane) && s.Lane != c.Lane && ep == nil {
			f.add("lane", "has the form of an address and is not that of url; leave it out, or give a name of your own")
		}
		c.Lane = s.Lane
	}
	if ep == nil && strings.HasPrefix(s.Lane, store.EndpointPrefix) {
		f.add("lane", "must not begin with %q, which the lanes of endpoints do", store.EndpointPrefix)
	}
	if ep != nil {
		checkEndpoint(ep, s, c, f)
	}
	if !validMethod(c.Method) {
		f.add("method", "is an HTTP method: letters only, at most 32; CONNECT and TRACE are refused")
	}
	for _, h := range sign.CheckHeaders(c.Headers) {
		f.add(h.Field, "%s", h.Message)
	}
	return ep
}

// checkEndpoint makes a callback its endpoint's.
func checkEndpoint(ep *store.Endpoint, s *Submission, c *store.Callback, f *findings) {
	c.EndpointID, c.Lane = ep.ID, ep.LaneKey()
	if s.Lane != "" && s.Lane != c.Lane {
		f.add("lane", "is the endpoint's own; give an endpoint or a lane")
	}
	if s.URL == "" {
		c.URL, c.Follows = ep.URL, true
		return
	}
	switch ep.URLOverride {
	case store.OverrideAny:
	case store.OverrideSameHost:
		if !store.SameHost(s.URL, ep.URL) {
			f.add("url", "has another scheme, host or port than the endpoint, which allows only its own (url_override: same_host)")
		}
	default:
		f.add("url", "the endpoint allows no other address than its own (url_override: deny)")
	}
}

// LaneOf returns the default lane of an address: its scheme, host and port, in lower case.
func LaneOf(rawURL string) (string, error) { return store.AddressLane(rawURL) }

// judgeURL judges an address that takes the place of a callback's own.
func (e *Engine) judgeURL(rawURL string) error {
	_, err := LaneOf(rawURL)
	if err == nil && e.o.CheckURL != nil {
		err = e.o.CheckURL(rawURL)
	}
	if err == nil && e.o.PanGuard == store.PanReject && store.HasPAN([]byte(rawURL)) {
		err = errors.New(hasCard)
	}
	return err
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

// orderStrict is the one order that can be asked for.
const orderStrict = "strict"

// checkOrder judges what a callback says about others.
func checkOrder(s *Submission, f *findings) {
	switch {
	case s.Order == "":
	case s.Order != orderStrict:
		f.add("order", "is \"strict\" or absent")
	case s.LockKey == "":
		f.add("order", "needs a lock_key: the order is that of the callbacks with the same one")
	}
	if !s.Supersede {
		return
	}
	if s.Ref == "" {
		f.add("ref", "is needed by supersede")
	}
	if s.Topic == "" {
		f.add("topic", "is needed by supersede")
	}
	if s.Version == nil {
		f.add("version", "is needed by supersede: a whole number that grows")
	}
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
