package store

// MaxOpenRedrives is how many redrives a project may have that are neither done nor canceled.
const MaxOpenRedrives = 20

// A RedriveAction is what a redrive does to each callback.
type RedriveAction string

// The actions of redrives. A callback that is being attempted, or whose state forbids it, is counted as
// failed and left as it is; but that a cancel of one that is being attempted is a request, as any.
const (
	// RedriveRetry has it attempted now: what is scheduled makes its next step, what is terminal begins a new
	// ladder or makes one attempt.
	RedriveRetry RedriveAction = "retry"
	// RedriveCancel cancels it.
	RedriveCancel RedriveAction = "cancel"
	// RedriveReschedule moves it, or revives a dead one for one more attempt then.
	RedriveReschedule RedriveAction = "reschedule"
	// RedriveSetURL gives it another address; it stays as it is otherwise.
	RedriveSetURL RedriveAction = "set_url"
)

// A RedriveState is where a redrive stands.
type RedriveState string

// The states of a redrive: gathering → running ⇄ paused → done | canceled.
const (
	// RedriveGathering: the callbacks that its filter picks are being written down.
	RedriveGathering RedriveState = "gathering"
	RedriveRunning   RedriveState = "running"
	RedrivePaused    RedriveState = "paused"
	RedriveDone      RedriveState = "done"
	RedriveCanceled  RedriveState = "canceled"
)

// A Redrive is one action over all callbacks that a filter picked when it began: each of them once, whatever
// happens to the processes that do it.
type Redrive struct {
	// ID is a bare ULID.
	ID      string
	Project string
	Action  RedriveAction
	// Filter picks what was created before the redrive; Shown is it as its caller wrote it.
	Filter Filter
	Shown  JSONText
	// Ladder is for RedriveRetry, URL for RedriveSetURL. A RedriveReschedule has DueAt, or Delay in
	// milliseconds from the moment at which each callback is moved.
	Ladder Ladder
	URL    string
	DueAt  int64
	Delay  int64
	// Rate of callbacks; zero: as fast as it goes.
	Rate Rate
	// Actor, Address and Reason are of the one who ordered it.
	Actor   string
	Address string
	Reason  string

	State RedriveState
	// Paused: it was paused while it was being gathered, and stays so when that is over.
	Paused bool
	// Matched is how many were picked so far; Done and Failed, what became of them.
	Matched, Done, Failed int64
	CreatedAt, UpdatedAt  int64
	FinishedAt            int64
	// After is where gathering goes on; nil: at the beginning.
	After *Cursor
}

// Open says whether something of it is left to do.
func (r *Redrive) Open() bool { return r.State != RedriveDone && r.State != RedriveCanceled }

// A RedriveStep is what one step of a redrive did, for the index to be told.
type RedriveStep struct {
	// Redrive is as it stands now.
	Redrive Redrive
	// Placed are callbacks that are due anew; Left, where those of them were before that have changed their
	// lane.
	Placed []Callback
	Left   []OpenRow
	// Canceled have ended by it.
	Canceled []OpenRow
}
