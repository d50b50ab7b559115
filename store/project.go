package store

// A Project keeps what belongs together apart from everything else: a key belongs to one, and ids of another
// do not exist for it.
type Project struct {
	// ID is chosen by whoever makes it: 1 to 64 of [a-z0-9_-], the first a letter or digit.
	ID   string
	Name string
	// Defaults are for callbacks and endpoints that bring none of their own.
	Defaults Defaults
	// PausedUntil holds all that the project sends; zero: not paused. Forever: until it is resumed.
	PausedUntil int64
	// PausedAt is since when it is paused, however often its end was moved since; zero: it is not.
	PausedAt    int64
	PauseReason string
	Quotas      Quotas
	// Version grows with every change of the project, its presets or its pause; changes of all projects and
	// endpoints are numbered together.
	Version   int64
	CreatedAt int64
	UpdatedAt int64
}

// Quotas bound how much a project may have. Zero fields bound nothing; the most is MaxQuota. What there is
// when a quota is set stays, also above it.
type Quotas struct {
	// OpenCallbacks bounds the callbacks that are not terminal when others are accepted (ErrOpenQuota). What
	// other processes accept is counted within a second, so it can be exceeded by that. It does not bound
	// what follows from a callback that was accepted: a poll's result, a retry, a redrive, an operational
	// event.
	OpenCallbacks int64
	// Lanes bounds the lanes that are made (ErrLaneQuota): hosts of addresses, lanes that callers name,
	// endpoints. A poll tells its result in a lane above it. A lane is never removed.
	Lanes int64
}

// MaxQuota is the most that a quota can be.
const MaxQuota = 1_000_000_000

// A QuotaChange sets quotas; nil fields stay as they are.
type QuotaChange struct{ OpenCallbacks, Lanes *int64 }

// Of returns the quotas as they are after the change.
func (ch QuotaChange) Of(q Quotas) Quotas {
	if ch.OpenCallbacks != nil {
		q.OpenCallbacks = *ch.OpenCallbacks
	}
	if ch.Lanes != nil {
		q.Lanes = *ch.Lanes
	}
	return q
}

// Defaults are a project's own; zero fields mean the program's.
type Defaults struct {
	Policy  PolicyChoice `json:"policy,omitzero"`
	Success Success      `json:"success,omitzero"`
	Signer  string       `json:"signer,omitempty"`
	// Headers are sent with every attempt, but that those which are credentials go only to HeaderHosts, as
	// NamesHost reads them.
	Headers     []Header `json:"headers,omitempty"`
	HeaderHosts []string `json:"header_hosts,omitempty"`
}

// A PolicyChoice is a policy by its name, or one given whole. The zero value chooses none.
type PolicyChoice struct {
	Name  string  `json:"name,omitempty"`
	Given *Policy `json:"given,omitempty"`
}

// IsZero says whether nothing was chosen.
func (c PolicyChoice) IsZero() bool { return c.Name == "" && c.Given == nil }

// A PresetKind says what a preset is.
type PresetKind string

// The kinds of preset.
const (
	PresetPolicy  PresetKind = "policy"
	PresetSuccess PresetKind = "success_rule"
	PresetProfile PresetKind = "profile"
)

// A Preset is a policy, a success rule or a profile that a project has given a name.
type Preset struct {
	Project string
	Kind    PresetKind
	// Name is 1 to 64 of [a-z0-9_-], the first a letter or digit.
	Name string
	// Value is what it stands for, as JSON.
	Value     JSONText
	CreatedAt int64
	UpdatedAt int64
}

// JSONText is JSON that is kept as it is written. Unlike json.RawMessage it can be compared.
type JSONText string

// MarshalJSON returns the text itself; null where there is none.
func (t JSONText) MarshalJSON() ([]byte, error) {
	if t == "" {
		return []byte("null"), nil
	}
	return []byte(t), nil
}

// UnmarshalJSON keeps the text.
func (t *JSONText) UnmarshalJSON(text []byte) error {
	*t = JSONText(text)
	if *t == "null" {
		*t = ""
	}
	return nil
}
