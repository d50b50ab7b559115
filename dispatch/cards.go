package dispatch

import "github.com/seed-ff5a32d8/dispatcher/store"

// hasCard is what is said of a field with a card number, which is not repeated.
const hasCard = "has a card number, which the setting pan_guard refuses"

// checkCards refuses card numbers in all that a caller gives with a callback.
func checkCards(s *Submission, f *findings) {
	check := func(field, text string) {
		if store.HasPAN([]byte(text)) {
			f.add(field, hasCard)
		}
	}
	if store.HasPAN(s.Body) {
		field := s.BodyField
		if field == "" {
			field = "payload"
		}
		f.add(field, hasCard)
	}
	for _, field := range []struct{ name, text string }{
		{"url", s.URL}, {"topic", s.Topic}, {"ref", s.Ref}, {"lock_key", s.LockKey}, {"lane", s.Lane},
		{"idempotency_key", s.IdempotencyKey}, {"content_type", s.ContentType},
	} {
		check(field.name, field.text)
	}
	checkHeaderCards(s.Headers, f)
	for _, name := range sortedKeys(s.Labels) {
		if store.HasPAN([]byte(name)) {
			f.add("labels", hasCard)
			continue
		}
		check("labels."+name, s.Labels[name])
	}
}

// checkHeaderCards refuses them in headers. A name that has one is not repeated either.
func checkHeaderCards(headers []store.Header, f *findings) {
	for _, h := range headers {
		switch {
		case store.HasPAN([]byte(h.Name)):
			f.add("headers", hasCard)
		case store.HasPAN([]byte(h.Value)):
			f.add("headers."+h.Name, hasCard)
		}
	}
}
