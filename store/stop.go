package store

// A Stop stops all sending of the installation. Callbacks are accepted meanwhile. The zero value: no stop.
type Stop struct {
	// At is when the stop began. A change of Until leaves it. Zero: there is no stop.
	At int64
	// Until is when the stop ends by itself. Forever: when a person ends it.
	Until int64
	// Reason is what the person gave who began or last changed the stop, and By the name of that person's
	// key.
	Reason string
	By     string
}

// On reports whether the stop is on at now, in Unix milliseconds.
func (s Stop) On(now int64) bool { return s.Until > now }
