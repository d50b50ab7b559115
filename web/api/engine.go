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

// Engine is the part of the engine that the API calls. Ids have no prefix. An object that the project does
// not have is store.ErrNotFound. An id or name in use is store.ErrExists.
type Engine interface {
	query.Engine
	RelayEngine

	// CursorKey returns the 32 bytes that sign the cursors of lists, the same in all processes. The API calls
	// it until it succeeds once; until then lists get a 503.
	CursorKey(ctx context.Context) ([]byte, error)

	CancelRef(
		ctx context.Context, project string, which control.CancelRefRequest, by store.Actor,
	) ([]store.CanceledCallback, error)
	// Outcomes returns the outcomes after the cursor, and the cursor to continue from. If there are none it
	// waits for one; after the wait it returns the cursor unchanged.
	Outcomes(
		ctx context.Context, project string, after store.OutcomeCursor, limit int, wait time.Duration,
	) ([]store.TerminalEvent, store.OutcomeCursor, error)

	// PutEndpoints creates endpoints, or replaces those with the same external id, and returns the result of
	// each at the same index.
	PutEndpoints(
		ctx context.Context, project string, changes []control.EndpointChange, by store.Actor,
	) ([]control.EndpointReceipt, error)

	// Putting a built-in policy, success rule or profile is a *store.InvalidError. Deleting one that the
	// project has not put is store.ErrNotFound. Policy also accepts a formula as the name.
	Policy(ctx context.Context, project, name string) (store.Policy, error)
	PutPolicy(ctx context.Context, project, name string, p store.Policy, by store.Actor) error
	// PutSuccessRule takes a rule as a JSON object.
	PutSuccessRule(ctx context.Context, project, name string, rule []byte, by store.Actor) error
	PutProfile(
		ctx context.Context, project, name string, c accept.Choice, timeout time.Duration, by store.Actor,
	) error
	DeletePreset(
		ctx context.Context, project string, kind store.PresetKind, name string, by store.Actor,
	) error

	CreateProject(ctx context.Context, ch control.ProjectChange, by store.Actor) (store.Project, error)

	// Authenticate returns the valid key with that text, of any project.
	Authenticate(ctx context.Context, text string) (store.Key, error)

	// Reencrypt re-encrypts a limited number of rows with the first master key. from is empty, or Next of an
	// earlier result.
	Reencrypt(ctx context.Context, from string, by store.Actor) (control.Reencryption, error)

	// VerifyAll returns every id of each difference, Verify at most 100.
	VerifyAll(ctx context.Context) (index.Drift, error)
	// VerifyAudit checks a limited number of entries after a link. The zero link is the beginning.
	VerifyAudit(ctx context.Context, from, expect store.AuditLink) (control.AuditCheck, error)
}
