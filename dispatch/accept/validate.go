package accept

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// HasCard is the message for a field with a card number. The number is not repeated.
const HasCard = "contains a card number, which the setting pan_guard forbids"

// checkCards rejects card numbers in every field of a submission.
func checkCards(s *Submission, f *Findings) {
	check := func(field, text string) {
		if store.HasPAN([]byte(text)) {
			f.Add(field, HasCard)
		}
	}
	if store.HasPAN(s.Body) {
		f.Add(cmp.Or(s.BodyField, "payload"), HasCard)
	}
	for _, field := range []struct{ name, text string }{
		{"url", s.URL}, {"topic", s.Topic}, {"ref", s.Ref}, {"lock_key", s.LockKey}, {"lane", s.Lane},
		{"idempotency_key", s.IdempotencyKey}, {"content_type", s.ContentType},
	} {
		check(field.name, field.text)
	}
	CheckHeaderCards(s.Headers, f)
	for _, name := range slices.Sorted(maps.Keys(s.Labels)) {
		if store.HasPAN([]byte(name)) {
			f.Add("labels", HasCard)
			continue
		}
		check("labels."+name, s.Labels[name])
	}
}

// CheckHeaderCards rejects card numbers in headers. A header name with a card number is not repeated.
func CheckHeaderCards(headers []store.Header, f *Findings) {
	for _, h := range headers {
		switch {
		case store.HasPAN([]byte(h.Name)):
			f.Add("headers", HasCard)
		case store.HasPAN([]byte(h.Value)):
			f.Add("headers."+h.Name, HasCard)
		}
	}
}

// Check validates a submission as Accept would at now, as far as that is possible without a server. It does
// not check that the URL's address is allowed, or that names other than presets exist. Its error is a
// *store.InvalidError.
func Check(s *Submission, now time.Time) error {
	_, err := new(Accepter).draft(offlineView(), store.DefaultProject, s, now)
	return err
}

// Limits of a submission. Texts are counted in Unicode code points, MaxBody in bytes.
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

	MinTimeout = 100 * time.Millisecond
	MaxTimeout = 60 * time.Second
)

// draft validates a submission. Its error is a *store.InvalidError with every wrong field.
func (ac *Accepter) draft(v *acceptView, project string, s *Submission, now time.Time) (store.Draft, error) {
	f := Findings(slices.Clone(s.Invalid))
	c := store.Callback{
		ID:      ac.ids.New(now),
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
		// now is also the time of the id, so ids have the order of creation.
		CreatedAt: now.UnixMilli(),
		CreatedBy: s.CreatedBy,
		UpdatedAt: now.UnixMilli(),
	}
	if c.Method == "" {
		c.Method = "POST"
	}
	ep := ac.checkDestination(v, s, &c, &f)
	checkBody(s, &c, &f)
	checkTexts(s, &f)
	// Operational events are not checked: they contain settings that were accepted before, and must reach
	// their receivers.
	if ac.o.PanGuard == store.PanReject && !v.cardsChecked && s.Route != AlertsRoute {
		checkCards(s, &f)
	}
	checkOrder(s, &f)
	policyKnown := v.resolve(s, ep, &c, &f)
	if s.Body == nil && sign.SignsBody(c.Signer) {
		f.Add("signer", "puts its signature into the body, but there is no body; put it into the query "+
			"or a header")
	}
	checkTimes(s, &c, now, &f)
	switch most := len(c.Policy.Tiers) + 1; {
	case s.StartAttempt < 0:
		f.Add("start_attempt", "must be at least 1")
	case s.StartAttempt > most && policyKnown && !v.offline:
		f.Add("start_attempt", "must be 1 to %d, the attempts that the policy allows", most)
	case s.StartAttempt > 1:
		c.LadderBase = 1 - s.StartAttempt
	}
	if len(f) > 0 {
		return store.Draft{}, f.Err()
	}
	d := store.Draft{Callback: c, Body: s.Body, Supersede: s.Supersede}
	if s.IdempotencyKey != "" {
		d.Idempotency = &store.Idempotency{Route: s.Route, Key: s.IdempotencyKey, Fingerprint: s.Fingerprint}
	}
	return d, nil
}

// checkDestination validates the URL and the endpoint of a callback, and sets its lane. It returns the
// endpoint; nil: none.
func (ac *Accepter) checkDestination(v *acceptView, s *Submission, c *store.Callback,
	f *Findings) *store.Endpoint {
	var ep *store.Endpoint
	if s.Endpoint != "" {
		ep = v.endpoints[s.Endpoint]
		if ep != nil && ep.IsSink() && s.Route != AlertsRoute {
			ep = nil // only alerts send to it
		}
		if ep == nil && !v.offline {
			f.Add("endpoint", "there is no endpoint with that id or external_id")
		}
	}
	switch {
	case s.URL == "" && s.Endpoint == "":
		f.Add("url", "url or endpoint is required")
	case s.URL != "":
		lane, err := store.AddressLane(s.URL)
		if err == nil && ac.o.CheckURL != nil {
			err = ac.o.CheckURL(s.URL)
		}
		if err != nil {
			f.Add("url", "%s", err)
		}
		c.Lane = lane
	}
	if s.Lane != "" {
		if store.IsAddressLane(s.Lane) && s.Lane != c.Lane && ep == nil {
			f.Add("lane", "looks like the lane of another URL; leave it out, or choose another name")
		}
		c.Lane = s.Lane
	}
	if ep == nil && strings.HasPrefix(s.Lane, store.EndpointPrefix) {
		f.Add("lane", "must not begin with %q, which is reserved for endpoints", store.EndpointPrefix)
	}
	if ep != nil {
		checkEndpoint(ep, s, c, f)
	}
	if !validMethod(c.Method) {
		f.Add("method", "must be an HTTP method of at most 32 letters, except CONNECT and TRACE")
	}
	for _, h := range sign.CheckHeaders(c.Headers) {
		f.Add(h.Field, "%s", h.Message)
	}
	return ep
}

// checkEndpoint sets the endpoint, the lane and the URL of a callback to an endpoint.
func checkEndpoint(ep *store.Endpoint, s *Submission, c *store.Callback, f *Findings) {
	c.EndpointID, c.Lane = ep.ID, ep.LaneKey()
	if s.Lane != "" && s.Lane != c.Lane {
		f.Add("lane", "is not allowed with an endpoint, which has its own")
	}
	if s.URL == "" {
		c.URL, c.Follows = ep.URL, true
		return
	}
	switch ep.URLOverride {
	case store.OverrideAny:
	case store.OverrideSameHost:
		if !store.SameHost(s.URL, ep.URL) {
			f.Add("url", "must have the scheme, host and port of the endpoint (url_override: same_host)")
		}
	default:
		f.Add("url", "must not be set: the endpoint allows only its own URL (url_override: deny)")
	}
}

// CheckURL validates a URL that replaces a callback's own.
func (ac *Accepter) CheckURL(rawURL string) error {
	_, err := store.AddressLane(rawURL)
	if err == nil && ac.o.CheckURL != nil {
		err = ac.o.CheckURL(rawURL)
	}
	if err == nil && ac.o.PanGuard == store.PanReject && store.HasPAN([]byte(rawURL)) {
		err = errors.New(HasCard)
	}
	return err
}

func validMethod(m string) bool {
	if len(m) == 0 || len(m) > 32 || m == "CONNECT" || m == "TRACE" {
		return false
	}
	return strings.IndexFunc(m, func(r rune) bool { return r < 'A' || r > 'Z' }) < 0
}

// bodyless are the methods that need no body.
var bodyless = [...]string{"GET", "HEAD", "DELETE"}

// checkBody validates the body and sets the content type, by default from the field that contained the body.
func checkBody(s *Submission, c *store.Callback, f *Findings) {
	field := s.BodyField
	if field == "" {
		field = "payload"
	}
	if s.Body == nil {
		if !slices.Contains(bodyless[:], c.Method) {
			f.Add("payload", "one of payload, body and body_base64 is required with %s", c.Method)
		}
		if s.ContentType != "" {
			f.Add("content_type", "requires a payload, body or body_base64")
		}
		return
	}
	if len(s.Body) > MaxBody {
		f.Add(field, "is %d bytes; at most %d are allowed", len(s.Body), MaxBody)
	}
	c.ContentType = s.ContentType
	switch {
	case s.ContentType != "":
		if len(s.ContentType) > 256 || hasControl(s.ContentType) || !utf8.ValidString(s.ContentType) {
			f.Add("content_type", "must be at most 256 characters without control characters")
		}
	case field == "body":
		c.ContentType = "text/plain; charset=utf-8"
	case field == "body_base64":
		c.ContentType = "application/octet-stream"
	default:
		c.ContentType = "application/json"
	}
}

func checkTexts(s *Submission, f *Findings) {
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
		CheckText(t.field, t.text, t.most, f)
	}
	if store.IsOwnTopic(s.Topic) && !s.Own && s.Route != AlertsRoute {
		f.Add("topic", "must not begin with %q, which is reserved for Dispatcher's own messages",
			store.OwnTopics)
	}
	if len(s.Labels) > MaxLabels {
		f.Add("labels", "has %d labels; at most %d are allowed", len(s.Labels), MaxLabels)
	}
	for name, value := range s.Labels {
		if name == "" {
			f.Add("labels", "contains an empty name")
		}
		CheckText("labels."+name, name, MaxLabelName, f)
		CheckText("labels."+name, value, MaxLabelValue, f)
	}
}

// CheckText rejects a text of more than most characters, with control characters, or that is not valid UTF-8.
func CheckText(field, text string, most int, f *Findings) {
	switch {
	case !utf8.ValidString(text):
		f.Add(strings.ToValidUTF8(field, "?"), "is not valid UTF-8")
	case hasControl(text):
		f.Add(strings.Map(dropControl, field), "contains a control character")
	case utf8.RuneCountInString(text) > most:
		f.Add(field, "is %d characters; at most %d are allowed", utf8.RuneCountInString(text), most)
	}
}

func hasControl(s string) bool { return strings.IndexFunc(s, unicode.IsControl) >= 0 }

func dropControl(r rune) rune {
	if unicode.IsControl(r) {
		return '?'
	}
	return r
}

// orderStrict is the only value of order.
const orderStrict = "strict"

// checkOrder validates strict order and supersede.
func checkOrder(s *Submission, f *Findings) {
	switch {
	case s.Order == "":
	case s.Order != orderStrict:
		f.Add("order", `must be "strict" or absent`)
	case s.LockKey == "":
		f.Add("order", "requires a lock_key: the order applies to callbacks with the same lock_key")
	}
	if !s.Supersede {
		return
	}
	if s.Ref == "" {
		f.Add("ref", "is required by supersede")
	}
	if s.Topic == "" {
		f.Add("topic", "is required by supersede")
	}
	if s.Version == nil {
		f.Add("version", "is required by supersede: an increasing whole number")
	}
}

// checkTimes sets the first due time, and the expiry, which counts from it.
func checkTimes(s *Submission, c *store.Callback, now time.Time, f *Findings) {
	due := now
	switch {
	case s.DueAt != nil && s.Delay != nil:
		f.Add("delay", "give due_at or delay, not both")
	case s.DueAt != nil:
		due = time.UnixMilli(*s.DueAt)
		if due.Before(now) {
			due = now
		}
		if due.After(now.Add(MaxDelay)) {
			f.Add("due_at", "is more than 400 days away")
			return
		}
	case s.Delay != nil:
		if *s.Delay < 0 || *s.Delay > MaxDelay {
			f.Add("delay", "must be 0s to 400d")
			return
		}
		due = now.Add(*s.Delay)
	}
	c.DueAt = schedule.CeilMillis(due)
	c.FirstDueAt = c.DueAt
	if s.ExpiresIn != nil {
		if *s.ExpiresIn <= 0 || *s.ExpiresIn > MaxDelay {
			f.Add("expires_in", "must be more than 0s and at most 400d")
			return
		}
		c.ExpiresAt = schedule.CeilMillis(due.Add(*s.ExpiresIn))
	}
}

// Invalid returns a *store.InvalidError for one field.
func Invalid(field, message string) error {
	return &store.InvalidError{Fields: []store.FieldError{{Field: field, Message: message}}}
}

// Under adds findings about parts of a field.
func (f *Findings) Under(field string, wrong []store.FieldError) {
	for _, w := range wrong {
		switch {
		case w.Field == "":
			w.Field = field
		case strings.HasPrefix(w.Field, "["):
			w.Field = field + w.Field
		default:
			w.Field = field + "." + w.Field
		}
		*f = append(*f, w)
	}
}

// Findings collects what is wrong with a request, field by field.
type Findings []store.FieldError

// Has reports whether there is a finding about the field.
func (f *Findings) Has(field string) bool {
	return slices.ContainsFunc(*f, func(e store.FieldError) bool { return e.Field == field })
}

// Err returns a *store.InvalidError with all findings; nil: there are none.
func (f *Findings) Err() error {
	if len(*f) == 0 {
		return nil
	}
	return &store.InvalidError{Fields: *f}
}

// Add adds a finding about a field.
func (f *Findings) Add(field, format string, args ...any) {
	*f = append(*f, store.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
}
