package store

// MaxOpenRedrives bounds the redrives of a project that are neither done nor canceled.
const MaxOpenRedrives = 20

// A RedriveAction is the action of a redrive on each callback.
type RedriveAction string

// The actions of redrives. A callback in an attempt, or in a state that forbids the action, stays unchanged
// and counts as failed. Only a cancel also works during an attempt: it sets CancelRequested.
const (
	// RedriveRetry makes the callback due now. A terminal callback is retried with the redrive's Ladder.
	RedriveRetry RedriveAction = "retry"
	// RedriveCancel cancels the callback.
	RedriveCancel RedriveAction = "cancel"
	// RedriveReschedule sets the due time. A dead callback is reopened for one attempt at that time.
	RedriveReschedule RedriveAction = "reschedule"
	// RedriveSetURL sets the URL (Callback.MoveTo) and changes nothing else.
	RedriveSetURL RedriveAction = "set_url"
	// RedriveDelete deletes the endpoint of the filter in one step, and with it cancels its open callbacks.
	RedriveDelete RedriveAction = "delete_endpoint"
)

// A RedriveState is the state of a redrive.
type RedriveState string

// The states of a redrive: gathering → (awaiting_approval →) running ⇄ paused → done | canceled.
const (
	// RedriveGathering: the store is recording the callbacks that the filter picks.
	RedriveGathering RedriveState = "gathering"
	// RedriveAwaiting: the callbacks are recorded, and a second person must approve the redrive.
	RedriveAwaiting RedriveState = "awaiting_approval"
	RedriveRunning  RedriveState = "running"
	RedrivePaused   RedriveState = "paused"
	RedriveDone     RedriveState = "done"
	RedriveCanceled RedriveState = "canceled"
)

// RedriveApproved is no state of a redrive but a change to one: it approves a redrive that is awaiting it.
const RedriveApproved RedriveState = "approved"

const (
	// ApprovalTime is how long a redrive awaits its approval, in milliseconds from its creation.
	ApprovalTime = 24 * 60 * 60 * 1000
	// ApprovalWindow is the time in which the redrives of a project that needed no approval are added up, in
	// milliseconds.
	ApprovalWindow = 60 * 60 * 1000
)

// A Redrive is one action on all callbacks that its filter picks at its start. Each callback gets the action
// once, even if the process that works on the redrive crashes and another one continues.
type Redrive struct {
	// ID is a bare ULID.
	ID      string
	Project string
	Action  RedriveAction
	// Filter picks callbacks that were created before the redrive. FilterText is the filter as the caller
	// wrote it.
	Filter     Filter
	FilterText JSONText
	// Ladder is for RedriveRetry, URL for RedriveSetURL. A RedriveReschedule has DueAt, or Delay in
	// milliseconds from the time of each callback's change.
	Ladder Ladder
	URL    string
	DueAt  int64
	Delay  int64
	// Rate bounds the changed callbacks. Zero: no bound.
	Rate Rate
	// Actor, ActorID, Address and Reason are those of the Actor who created the redrive.
	Actor   string
	ActorID string
	Address string
	Reason  string

	State RedriveState
	// Paused: the redrive was paused during RedriveGathering. After that it becomes RedrivePaused.
	Paused bool
	// ApprovalAbove is the most callbacks that the redrive may pick without an approval. Zero: any number.
	// Approver is the second person, ApprovedAt when that was. Empty and zero: it was not approved.
	ApprovalAbove int64
	Approver      string
	ApprovedAt    int64
	// Matched is the number of callbacks picked so far. Done and Failed count those that were processed.
	Matched, Done, Failed int64
	CreatedAt, UpdatedAt  int64
	FinishedAt            int64
	// After is the place at which gathering continues. Nil: the beginning.
	After *Cursor
}

// Open reports whether the redrive is neither done nor canceled.
func (r *Redrive) Open() bool { return r.State != RedriveDone && r.State != RedriveCanceled }

// A RedriveStep is the result of one step of a redrive. The caller updates the index with it.
type RedriveStep struct {
	// Redrive is the redrive after the step.
	Redrive Redrive
	// Placed are the open callbacks that the step changed. Left are the old rows of those that changed their
	// lane.
	Placed []Callback
	Left   []OpenRow
	// Canceled are the callbacks that the step ended.
	Canceled []OpenRow
	// Deleted: the step has deleted the endpoint. CancelDeleted then cancels its callbacks.
	Deleted bool
}
