package main

// A system is one of those that are compared.
type system struct {
	name, label string
	// counted are the roles whose CPU time and memory are the system's.
	counted []string
	// args returns a dispatcher's arguments for new and empty stores, queue makes a new and empty queue. The
	// floor has neither.
	args  func(*run) []string
	queue func(*run) queue
}

const floorName = "floor"

var systems = []system{
	{name: floorName, label: "floor: go-retryablehttp + HMAC in a loop", counted: []string{roleFloor}},
	{
		name: "sqlite", label: "dispatcher, SQLite + embedded index", args: embeddedArgs,
		counted: []string{roleDispatcher},
	},
	{
		name: "postgres", label: "dispatcher, PostgreSQL + Redis", args: serversArgs,
		counted: []string{roleDispatcher, roleRedis, rolePostgres},
	},
	{
		name: "asynq", label: "asynq, Redis", queue: newAsynq,
		counted: []string{roleAsynq, roleRedis},
	},
	{
		name: "river", label: "River, PostgreSQL", queue: newRiver,
		counted: []string{roleRiver, rolePostgres},
	},
}

func systemName(s system) string { return s.name }

// A phase is what is measured of a system. phases.go has them.
type phase struct {
	name, text string
	// dispatcher and queue measure it; nil: such systems do not have it.
	dispatcher func(*session)
	queue      func(*run, queue)
	// rated: it has a rate and CPU time, which are compared with the floor's.
	rated bool
}

var phases = []phase{
	{name: "drain", text: "delivered, from a backlog", dispatcher: drain, queue: drainQueue, rated: true},
	{name: "single", text: "accepted, one a request", dispatcher: acceptSingly, rated: true},
	{name: "batch", text: "accepted, 100 a request", dispatcher: acceptInBatches, rated: true},
	{name: "mixed", text: "accepted singly and delivered at once", dispatcher: mixed, rated: true},
	{name: "latency", text: "from request to arrival at 500/s", dispatcher: latency, queue: queueLatency},
	{name: "lateness", text: "lateness of delayed callbacks", dispatcher: lateness},
}

func phaseName(p phase) string { return p.name }

// of says whether the phase is one of the system. The floor has every phase that is compared with it.
func (p phase) of(s system) bool {
	switch {
	case s.args != nil:
		return p.dispatcher != nil
	case s.queue != nil:
		return p.queue != nil
	}
	return p.rated
}

// measure measures the phase.
func (p phase) measure(r *run) {
	switch s := r.system; {
	case s.args != nil:
		p.dispatcher(startSession(r, s.args(r)))
	case s.queue != nil:
		p.queue(r, s.queue(r))
	default:
		drainQueue(r, bareLoop{})
	}
}
