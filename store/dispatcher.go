package store

// A Dispatcher is one running process, as it has last reported itself.
type Dispatcher struct {
	// Name is unlike that of any other start. Host is the machine's name.
	Name, Host, Version string
	// Roles are those that it has, with commas between them.
	Roles string
	// Workers is the most attempts that it has in flight, InFlight how many those were.
	Workers, InFlight int
	// Held: it was started with sending stopped. Draining: it is about to end.
	Held, Draining bool
	// ClockOffset is the index's clock less its own, in milliseconds.
	ClockOffset       int64
	StartedAt, SeenAt int64
}
