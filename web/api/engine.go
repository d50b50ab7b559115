package api

import (
	"context"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// Engine is what the API asks of the engine. Ids are bare. An object that the project does not have is
// store.ErrNotFound, and a name or id that is taken is store.ErrExists.
type Engine interface {
	query.Engine

	// CursorKey returns the 32 bytes that sign the cursors of lists, the same in all processes. The API asks
	// until it gets them once; while it fails, lists are answered with 503.
	CursorKey(ctx context.Context) ([]byte, error)

	// Accept judges and commits; it answers each submission in its place. Its error means that nothing was
	// accepted.
	Accept(ctx context.Context, project string, subs []accept.Submission) ([]store.Accepted, error)
	// AcceptEvent commits a callback for every endpoint that subscribes to the submission's topic.
	AcceptEvent(ctx context.Context, project string, s accept.Submission) (accept.EventReceipt, error)
	AcceptPoll(ctx context.Context, project string, s accept.PollSubmission) (store.Accepted, error)
	CancelRef(
		ctx context.Context, project string, which control.CancelRefRequest, by store.Actor,
	) ([]store.CanceledCallback, error)
	// Outcomes returns what comes after the cursor, and where to continue. While there is nothing it waits,
	// and then returns the cursor that it began at.
	Outcomes(
		ctx context.Context, project string, after store.OutcomeCursor, limit int, wait time.Duration,
	) ([]store.TerminalEvent, store.OutcomeCursor, error)

	// PutEndpoints makes endpoints, or replaces those of the same external id, and answers each in its place.
	PutEndpoints(
		ctx context.Context, project string, changes []control.EndpointChange, by store.Actor,
	) ([]control.EndpointReceipt, error)

	// Presets returns the policies, success rules and profiles that the project may name. Putting a name that
	// every project has is a *store.InvalidError; deleting one that the project has not put is not found.
	Presets(ctx context.Context, project string) (control.Presets, error)
	// Policy also knows those that a formula makes.
	Policy(ctx context.Context, project, name string) (store.Policy, error)
	PutPolicy(ctx context.Context, project, name string, p store.Policy, by store.Actor) error
	// PutSuccessRule takes the JSON object of a rule.
	PutSuccessRule(ctx context.Context, project, name string, rule []byte, by store.Actor) error
	PutProfile(
		ctx context.Context, project, name string, c accept.Choice, timeout time.Duration, by store.Actor,
	) error
	DeletePreset(ctx context.Context, project string, kind store.PresetKind, name string,
		by store.Actor) error

	CreateProject(ctx context.Context, ch control.ProjectChange, by store.Actor) (store.Project, error)
	PatchProject(ctx context.Context, id string, ch control.ProjectChange, by store.Actor) (store.Project,
		error)

	// Authenticate returns the valid key with that text, of any project.
	Authenticate(ctx context.Context, text string) (store.Key, error)

	// Reencrypt re-encrypts a bounded number of rows with the first master key, from a place that it has
	// returned.
	Reencrypt(ctx context.Context, from string, by store.Actor) (control.Reencryption, error)

	// VerifyAll names every id of each difference, Verify at most 100.
	VerifyAll(ctx context.Context) (index.Drift, error)
	// VerifyAudit checks a bounded number of entries from a link on; the zero link is the beginning.
	VerifyAudit(ctx context.Context, from, expect store.AuditLink) (control.AuditCheck, error)
}
