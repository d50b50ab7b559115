package api_test

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	bareEndpoint = "01JD6QZ0000000000000000007"
	oneEndpoint  = "ep_" + bareEndpoint
	oneKey       = "key_01JD6QZ0000000000000000009"
	// dayMS is a day in milliseconds.
	dayMS = 86_400_000
)

func someEndpoint() store.Endpoint {
	return store.Endpoint{
		ID: bareEndpoint, Project: store.DefaultProject, ExternalID: "merchant-7", Name: "Tea shop",
		URL: "https://shop.example/notify", URLOverride: store.OverrideSameHost,
		Topics: []string{"payment.*"}, Policy: store.PolicyChoice{Name: "payment"},
		Success: store.Success{Name: "body-success"}, Signer: `{"type":"sorted-kv","alg":"md5"}`,
		Headers: []store.Header{{Name: "X-Shop", Value: "7"}, {Name: "Authorization", Value: "Basic cGFzcw=="}},
		Rate:    store.Rate{Count: 50, Per: time.Second}, Concurrency: 8, Enabled: true,
		CreatedAt: nowMS - 1, UpdatedAt: nowMS,
	}
}

// given is what a call was given.
type given struct {
	call, project, id string
	what              any
}

// noted keeps what a call was given, and returns what it answers.
// A call with wrong fields is refused, not kept.
func (e *engine) noted(call, project, id string, by store.Actor, what any, wrong ...store.FieldError) error {
	if len(wrong) > 0 {
		return &store.InvalidError{Fields: wrong}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.given, e.actor, e.projects = given{call, project, id, what}, by, append(e.projects, project)
	return e.err
}

// of keeps what project a read is of, and returns what it answers.
func (e *engine) of(project string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.projects = append(e.projects, project)
	return e.err
}

// keyOf is the text of the stub's key of a project with a scope.
func keyOf(project string, scope store.Scope) string { return "dk_" + project + "_" + string(scope) }

// Authenticate knows the keys that keyOf makes.
func (e *engine) Authenticate(_ context.Context, text string) (store.Key, error) {
	parts := strings.Split(text, "_")
	if len(parts) != 3 || !slices.Contains(store.Scopes[:], store.Scope(parts[2])) {
		return store.Key{}, store.ErrNotFound
	}
	return store.Key{ID: bareID, Name: "till", Project: parts[1], Scopes: []store.Scope{store.Scope(parts[2])}}, nil
}

func (e *engine) CreateKey(_ context.Context, project string, r control.KeyRequest, by store.Actor) (store.Key, string, error) {
	k := store.Key{ID: bareID, Project: project, Name: r.Name, Hint: "wxyz", CreatedAt: nowMS, ExpiresAt: nowMS + dayMS}
	for _, s := range r.Scopes {
		k.Scopes = append(k.Scopes, store.Scope(s))
	}
	return k, "dk_shown-once-wxyz", e.noted("CreateKey", project, "", by, r, r.Invalid...)
}

func (e *engine) Keys(_ context.Context, project string) ([]store.Key, error) {
	return []store.Key{
		{ID: bareID, Project: project, Name: "till", Scopes: []store.Scope{store.ScopeSend}, Hint: "wxyz", CreatedAt: nowMS},
		{
			ID: olderID, Project: project, Name: "old", Scopes: []store.Scope{store.ScopeAdmin}, Hint: "abcd",
			CreatedAt: nowMS - 1, RevokedAt: nowMS,
		},
	}, e.of(project)
}

func (e *engine) RevokeKey(_ context.Context, project, id string, by store.Actor) error {
	return e.noted("RevokeKey", project, id, by, nil)
}

func (e *engine) Mend(_ context.Context, project, id string, r control.MendRequest, by store.Actor) (store.Callback, error) {
	return e.callback, e.noted("Mend", project, id, by, r, r.Invalid...)
}

func (e *engine) Explain(_ context.Context, project, id string) (control.Explanation, error) {
	return e.explanation, e.noted("Explain", project, id, store.Actor{}, nil)
}

func (e *engine) Evidence(_ context.Context, project, id string) (string, error) {
	return e.evidence, e.noted("Evidence", project, id, store.Actor{}, nil)
}

func (e *engine) AcceptEvent(_ context.Context, project string, s accept.Submission) (accept.EventReceipt, error) {
	return e.event, e.noted("AcceptEvent", project, "", store.Actor{}, s, s.Invalid...)
}

func (e *engine) CreateEndpoint(_ context.Context, project string, ch control.EndpointChange, by store.Actor) (control.EndpointReceipt, error) {
	r := control.EndpointReceipt{
		Endpoint: e.endpoint, Created: true, Secret: secret.ShownSecret{Secret: "whsec_once"},
	}
	return r, e.noted("CreateEndpoint", project, "", by, ch, ch.Invalid...)
}

func (e *engine) PutEndpoints(_ context.Context, project string, changes []control.EndpointChange, by store.Actor) ([]control.EndpointReceipt, error) {
	receipts := make([]control.EndpointReceipt, len(changes))
	for i := range changes {
		if receipts[i] = (control.EndpointReceipt{Endpoint: e.endpoint, Created: e.created}); len(changes[i].Invalid) > 0 {
			receipts[i].Err = &store.InvalidError{Fields: changes[i].Invalid}
		}
	}
	return receipts, e.noted("PutEndpoints", project, "", by, changes)
}

func (e *engine) PatchEndpoint(_ context.Context, project, id string, ch control.EndpointChange, by store.Actor) (store.Endpoint, error) {
	return e.endpoint, e.noted("PatchEndpoint", project, id, by, ch, ch.Invalid...)
}

func (e *engine) DeleteEndpoint(_ context.Context, project, id string, by store.Actor) error {
	return e.noted("DeleteEndpoint", project, id, by, nil)
}

func (e *engine) PauseEndpoint(_ context.Context, project, id string, until int64, by store.Actor) (store.Endpoint, error) {
	ep := e.endpoint
	ep.PausedUntil, ep.PauseReason = until, by.Reason
	return ep, e.noted("PauseEndpoint", project, id, by, until)
}

func (e *engine) TestEndpoint(_ context.Context, project, id string, by store.Actor) (store.Callback, error) {
	return e.callback, e.noted("TestEndpoint", project, id, by, nil)
}

func (e *engine) Endpoint(_ context.Context, project, id string) (store.Endpoint, error) {
	if id != bareEndpoint {
		return store.Endpoint{}, store.ErrNotFound
	}
	return e.endpoint, e.of(project)
}

func (e *engine) EndpointByExternalID(_ context.Context, project, externalID string) (store.Endpoint, error) {
	if externalID != e.endpoint.ExternalID {
		return store.Endpoint{}, store.ErrNotFound
	}
	return e.endpoint, e.of(project)
}

func (e *engine) Endpoints(_ context.Context, project string, f store.EndpointFilter) ([]store.Endpoint, error) {
	other := e.endpoint
	other.ID = bareID
	all := behind([]store.Endpoint{e.endpoint, other}, f.After, f.Limit, func(ep store.Endpoint) string { return ep.ID })
	return all, e.noted("Endpoints", project, "", store.Actor{}, f)
}

func (e *engine) Lanes(_ context.Context, project string, f store.LaneFilter) ([]control.LaneView, error) {
	lanes := behind(e.lanes, f.After, f.Limit, func(v control.LaneView) string { return v.Key })
	return lanes, e.noted("Lanes", project, "", store.Actor{}, f)
}

// bounds are what SetLane was given.
type bounds struct {
	limit *int
	rate  *store.Rate
}

func (e *engine) SetLane(_ context.Context, project, key string, limit *int, rate *store.Rate, by store.Actor) (store.Lane, error) {
	return store.Lane{Key: key}, e.noted("SetLane", project, key, by, bounds{limit, rate})
}

func (e *engine) PauseLane(_ context.Context, project, key string, until int64, by store.Actor) (store.Lane, error) {
	return store.Lane{Key: key, PausedUntil: until, OwnPause: until, PauseReason: by.Reason}, e.noted("PauseLane", project, key, by, until)
}

func (e *engine) Presets(_ context.Context, project string) (control.Presets, error) {
	return e.presets, e.of(project)
}

// Policy knows one formula.
func (e *engine) Policy(_ context.Context, project, name string) (store.Policy, error) {
	if name != "exp(1s,2,1h,3)" {
		return store.Policy{}, store.ErrNotFound
	}
	p := accept.DefaultPolicy()
	p.Name, p.Tiers = name, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}
	return p, e.noted("Policy", project, name, store.Actor{}, nil)
}

func (e *engine) PutPolicy(_ context.Context, project, name string, p store.Policy, by store.Actor) error {
	return e.noted("PutPolicy", project, name, by, p)
}

func (e *engine) PutSuccessRule(_ context.Context, project, name string, rule []byte, by store.Actor) error {
	return e.noted("PutSuccessRule", project, name, by, string(rule))
}

// profileChoice is what PutProfile was given.
type profileChoice struct {
	choice  accept.Choice
	timeout time.Duration
}

func (e *engine) PutProfile(_ context.Context, project, name string, c accept.Choice, timeout time.Duration, by store.Actor) error {
	return e.noted("PutProfile", project, name, by, profileChoice{c, timeout})
}

func (e *engine) DeletePreset(_ context.Context, project string, kind store.PresetKind, name string, by store.Actor) error {
	return e.noted("DeletePreset", project, name, by, kind)
}

func (e *engine) CreateProject(_ context.Context, ch control.ProjectChange, by store.Actor) (store.Project, error) {
	return store.Project{ID: ch.ID, CreatedAt: nowMS}, e.noted("CreateProject", "", ch.ID, by, ch, ch.Invalid...)
}

func (e *engine) PatchProject(_ context.Context, id string, ch control.ProjectChange, by store.Actor) (store.Project, error) {
	return store.Project{ID: id, CreatedAt: nowMS}, e.noted("PatchProject", "", id, by, ch, ch.Invalid...)
}

func (e *engine) PauseProject(_ context.Context, project string, until int64, by store.Actor) (store.Project, error) {
	return store.Project{ID: project, PausedUntil: until, PauseReason: by.Reason}, e.noted("PauseProject", project, "", by, until)
}

// Project knows the projects default and b.
func (e *engine) Project(_ context.Context, id string) (store.Project, error) {
	if id != store.DefaultProject && id != "b" {
		return store.Project{}, store.ErrNotFound
	}
	return store.Project{ID: id, CreatedAt: nowMS, UpdatedAt: nowMS}, e.err
}

func (e *engine) Projects(_ context.Context, after string, limit int) ([]store.Project, error) {
	all := []store.Project{{ID: "b", CreatedAt: nowMS, UpdatedAt: nowMS}, {ID: store.DefaultProject, CreatedAt: nowMS, UpdatedAt: nowMS}}
	return behind(all, after, limit, func(p store.Project) string { return p.ID }), e.err
}

func (e *engine) RevealSecret(_ context.Context, project string, q control.SecretQuery, by store.Actor) (secret.ShownSecret, error) {
	use := q.Use
	if use == "" {
		use = "hmac"
	}
	return secret.ShownSecret{ID: bareID, Use: use, Secret: "whsec_" + q.Lane + q.Endpoint}, e.noted("RevealSecret", project, "", by, q)
}

// rotation is what RotateSecret was given.
type rotation struct {
	meant control.SecretQuery
	asked control.Rotation
}

func (e *engine) RotateSecret(_ context.Context, project string, q control.SecretQuery, r control.Rotation, by store.Actor) (secret.ShownSecret, int64, error) {
	s := secret.ShownSecret{ID: bareID, Label: r.Label, Use: q.Use, Secret: "whsec_new"}
	if q == (control.SecretQuery{}) {
		s = secret.ShownSecret{ID: bareID}
	}
	return s, nowMS + dayMS, e.noted("RotateSecret", project, q.Endpoint, by, rotation{q, r})
}

func (e *engine) Reencrypt(_ context.Context, from string, by store.Actor) (control.Reencryption, error) {
	r := control.Reencryption{KeyID: "1a2b3c4d", Done: 2000, Failed: 1, Left: 5, Next: "callbacks/" + bareEndpoint}
	return r, e.noted("Reencrypt", "", from, by, nil)
}
