package store

// A Project isolates callbacks, endpoints and settings from those of other projects. A key belongs to one
// project and cannot see the ids of others.
type Project struct {
	// ID is chosen by the caller: 1 to 64 of [a-z0-9_-], the first a letter or digit.
	ID   string
	Name string
	// Defaults apply to callbacks and endpoints without their own settings.
	Defaults Defaults
	// PausedUntil is the end of a pause of all attempts of the project. Zero: not paused. Forever: until a
	// resume.
	PausedUntil int64
	// PausedAt is the start of the pause. A change of PausedUntil leaves it. Zero: not paused.
	PausedAt    int64
	PauseReason string
	Quotas      Quotas
	// Reconcile is the daily reconciliation, and ReconcileNext the time of its next run. Zero: none.
	Reconcile     Reconciling
	ReconcileNext int64
	// ReconcileError is why the due run failed: ReconcileTooLong, ReconcileFailed, or empty.
	ReconcileError string
	// Version grows with each change of the project, its presets or its pause. One sequence numbers the
	// changes of all projects and endpoints.
	Version   int64
	CreatedAt int64
	UpdatedAt int64
}

// Quotas bound the size of a project. Zero: no bound. The maximum is MaxQuota. A new quota removes nothing
// that exceeds it.
type Quotas struct {
	// OpenCallbacks bounds the open callbacks (ErrOpenQuota). Accepts of other processes are counted up to a
	// second late, so the project may exceed the quota by that many. The quota does not apply to the results
	// of polls, retries, redrives and operational events.
	OpenCallbacks int64
	// Lanes bounds the lanes (ErrLaneQuota): hosts of URLs, lanes named by callers, and endpoints. Lanes are
	// never removed. The quota does not apply to the lane of a poll's result callback.
	Lanes int64
}

// MaxQuota is the largest quota.
const MaxQuota = 1_000_000_000

// A QuotaChange sets quotas. Nil fields leave the quota unchanged.
type QuotaChange struct{ OpenCallbacks, Lanes *int64 }

// Of returns the quotas q with the change.
func (ch QuotaChange) Of(q Quotas) Quotas {
	if ch.OpenCallbacks != nil {
		q.OpenCallbacks = *ch.OpenCallbacks
	}
	if ch.Lanes != nil {
		q.Lanes = *ch.Lanes
	}
	return q
}

// Defaults are the default settings of a project. Zero fields mean those of the program.
type Defaults struct {
	Policy  PolicyChoice `json:"policy,omitzero"`
	Success Success      `json:"success,omitzero"`
	Signer  string       `json:"signer,omitempty"`
	// Headers are sent with every attempt. Credentials among them are sent only to HeaderHosts (see
	// NamesHost).
	Headers     []Header `json:"headers,omitempty"`
	HeaderHosts []string `json:"header_hosts,omitempty"`
}

// A PolicyChoice is the name of a policy, or a whole policy in Given. The zero value chooses none.
type PolicyChoice struct {
	Name  string  `json:"name,omitempty"`
	Given *Policy `json:"given,omitempty"`
}

// IsZero reports whether no policy is chosen.
func (c PolicyChoice) IsZero() bool { return c.Name == "" && c.Given == nil }

// A PresetKind is the kind of a preset.
type PresetKind string

// The kinds of preset.
const (
	PresetPolicy  PresetKind = "policy"
	PresetSuccess PresetKind = "success_rule"
	PresetProfile PresetKind = "profile"
)

// A Preset is a named policy, success rule or profile of a project.
type Preset struct {
	Project string
	Kind    PresetKind
	// Name is 1 to 64 of [a-z0-9_-], the first a letter or digit.
	Name string
	// Value is the policy, rule or profile as JSON.
	Value     JSONText
	CreatedAt int64
	UpdatedAt int64
}

// JSONText is JSON in its original formatting. Unlike json.RawMessage it can be compared.
type JSONText string

// MarshalJSON returns the text, or null if it is empty.
func (t JSONText) MarshalJSON() ([]byte, error) {
	if t == "" {
		return []byte("null"), nil
	}
	return []byte(t), nil
}

// UnmarshalJSON keeps the text as it is. It changes null to the empty text.
func (t *JSONText) UnmarshalJSON(text []byte) error {
	*t = JSONText(text)
	if *t == "null" {
		*t = ""
	}
	return nil
}
